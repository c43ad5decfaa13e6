"""Clips published as they are made equal clips made whole: noise, latents, pixels, files, figures."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.camera.poses import latent_rows
from solarwm.data.cameras import CameraRules
from solarwm.data.index import read_index
from solarwm.data.shards import ShardReader
from solarwm.errors.types import SolarError
from solarwm.inference import video
from solarwm.inference.clips import HeldOutClips
from solarwm.inference.encoding import encode_case, encode_opening
from solarwm.inference.generate import generate, start_noise
from solarwm.inference.passes import Generator, run_case
from solarwm.inference.plan import ClipCut, PassPlan
from solarwm.inference.quality import pass_metrics
from solarwm.inference.rollout import StartNoise, TileDecoder, tile_latents
from solarwm.inference.transaction import GenerationStore
from solarwm.synthetic.writer import synthesize

FRAMES, SIZE = 53, 32
CPU = torch.device("cpu")
PLAN = PassPlan(
    name="long",
    weights="live",
    solver="self_forcing",
    num_inference_steps=2,
    camera="source",
    latents=0,
    shift=4.0,
    mode="autoregressive",
    levels=(1.0, 0.7),
)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    synthesize(root, clips=2, frames=FRAMES, height=SIZE, width=SIZE, seed=3)
    cut = ClipCut(
        frames=33,
        latents=9,
        height=SIZE,
        width=SIZE,
        fps=16.0,
        translation_transform="linear",
        whole_track=True,
    )
    with ShardReader(root) as reader:
        yield HeldOutClips(
            index=read_index(root / "test-index.jsonl.gz"),
            reader=reader,
            cut=cut,
            rules=CameraRules(latent_rows=latent_rows(9)),
        )


@pytest.fixture(scope="module")
def case(clips):
    return clips.select(1, selection_seed=42, base_noise_seed=42)[0]


@pytest.fixture(scope="module")
def backbone():
    model = SimpleNamespace(camera_translation_transform="linear", max_prior_clean_chunks=1)
    return create(SPEC.profiles["tiny"], model)


@pytest.fixture(scope="module")
def module(backbone):
    built = backbone.build(device=CPU, seed=1)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in built.parameters():
            if not parameter.any():
                parameter.normal_(0.0, 0.05, generator=generator)
    return built.eval()


@pytest.fixture(scope="module")
def codec(backbone):
    return backbone.codec(base_path=None, assets=None, device=CPU)


@pytest.fixture
def generator(backbone, module, codec, clips, tmp_path):
    return Generator(
        backbone=backbone,
        modules={"live": module},
        weights_ids={"live": "w"},
        codec=codec,
        clips=clips,
        store=GenerationStore(tmp_path / "generation", family=SPEC.family),
        device=CPU,
        fps=16.0,
        world_rank=0,
        facts={},
        streams=True,
    )


def _run(generator, encoded, plans):
    faults, made = [], {}
    run_case(
        generator,
        encoded,
        plans,
        mean_latent_NYX3=None,
        on_fault=lambda plan, fault: faults.append((plan.name, fault)),
        on_clip=lambda plan, metrics: made.update({plan.name: metrics}),
    )
    return faults, made


@pytest.mark.parametrize("shape", [(12, 4, 2, 2), (12, 3, 3, 3)])
def test_noise_drawn_in_pieces_is_the_noise_of_one_draw(case, shape) -> None:
    noise = StartNoise(case, shape, CPU)
    pieces = [noise(start, start + 3) for start in range(0, 12, 3)]
    assert torch.equal(torch.cat(pieces, dim=1)[0], start_noise(case, shape))
    with pytest.raises(ValueError, match="comes next"):
        noise(3, 6)


@pytest.mark.parametrize("recall", [False, True])
def test_a_clip_published_as_it_is_made_is_the_clip_made_whole(
    generator, clips, case, codec, tmp_path, recall
) -> None:
    plan = replace(PLAN, recall_history=recall)
    whole = generate(
        encode_case(clips, case, codec, geometry=generator.backbone.profile.geometry).inputs,
        plan,
        backbone=generator.backbone,
        module=generator.modules["live"],
        codec=codec,
        device=CPU,
    )
    truth = clips.clip(case)
    faults, made = _run(generator, encode_opening(clips, case, codec), (plan,))
    assert faults == []
    folder = generator.store.slot_path("long", 0)
    video.write_mp4(tmp_path / "video.mp4", whole.frames_NYX3, 16.0)
    pair = video.side_by_side(truth.pixels_NYX3, whole.frames_NYX3)
    video.write_mp4(tmp_path / "compare.mp4", pair, 16.0)
    for name in ("video.mp4", "compare.mp4"):
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()
    assert len(whole.frames_NYX3) == FRAMES
    assert (np.load(folder / "camera.npy") == np.asarray(truth.c2w_N44, np.float64)).all()
    expected = pass_metrics(whole.frames_NYX3, truth.pixels_NYX3, truth.pixels_NYX3)
    for name in ("psnr_truth", "psnr_truth_last_half"):
        assert made["long"][name] == expected[name]
    schedule = json.loads((folder / "schedule.json").read_bytes())
    # 53 frames are 14 latents: five chunks reach frame 57, over which the last pose is held.
    assert (schedule["latent_frames"], schedule["tail_camera_rows"]) == (15, 4)
    generator.store.commit_pass("long", (case,), weights_id="w")


def test_pictures_read_one_by_one_are_those_read_at_once(clips, case) -> None:
    opening, pictures = clips.opening(case)
    whole = clips.clip(case)
    assert (np.stack(list(pictures)) == whole.pixels_NYX3).all()
    assert (opening.pixels_NYX3[0] == whole.pixels_NYX3[0]).all()
    assert opening.frame_indices == whole.frame_indices


def test_a_fault_in_the_middle_leaves_no_slot_and_the_other_pass_is_made(
    generator, clips, case, codec, monkeypatch
) -> None:
    real = video.VideoWriter.write
    written = {"video.mp4": 0}

    def write(self, frames) -> None:
        written["video.mp4"] += self._path.name == "video.mp4"
        if written["video.mp4"] == 1:
            raise SolarError("inference.video", "the encoder gave up")
        real(self, frames)

    monkeypatch.setattr(video.VideoWriter, "write", write)
    plans = (PLAN, replace(PLAN, name="other"))
    faults, made = _run(generator, encode_opening(clips, case, codec), plans)
    assert [(name, fault.code) for name, fault in faults] == [("long", "inference.video")]
    assert list(made) == ["other"]
    assert not list(generator.store.pass_root("long").glob("*slot*"))


def test_a_rollout_that_is_not_finite_ends_at_the_chunk_that_is_not(
    generator, clips, case, codec
) -> None:
    broken = generator.backbone.build(device=CPU, seed=1).eval()
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    sick = replace(generator, modules={"live": broken})
    faults, made = _run(sick, encode_opening(clips, case, codec), (PLAN,))
    assert [fault.code for _, fault in faults] == ["inference.not-finite"]
    assert made == {}
    assert not list(generator.store.root.rglob("video.mp4"))


@pytest.mark.parametrize("tile", [1, 3, 7, 60])
def test_tiles_of_any_size_give_the_frames_of_the_whole(codec, tile) -> None:
    latents = torch.randn(10, 48, 2, 2, generator=torch.Generator().manual_seed(1))
    found = []
    tiles = TileDecoder(codec.decoder(), tile, found.append)
    for start in range(0, 10, 3):
        tiles.push(latents[start : start + 3])
    tiles.finish()
    assert len(found) == -(-10 // tile)
    assert len(found[0]) == 1 + 4 * (min(tile, 10) - 1)
    assert (np.concatenate(found) == codec.decode_video(latents).numpy()).all()


def test_decoding_piece_by_piece_equals_the_decoding_of_the_library(codec) -> None:
    latents = torch.randn(9, 48, 2, 4, generator=torch.Generator().manual_seed(2))
    vae = codec._open()
    with torch.no_grad():
        mixed = latents.transpose(0, 1)[None] * codec._scale + codec._shift
        whole_NYX3 = vae.decode(mixed).sample[0].permute(1, 2, 3, 0)
    decoder = codec.decoder()
    parts = [part for piece in latents.split([1, 5, 3]) for part in decoder.pictures(piece)]
    ours_NYX3 = torch.cat(parts).clamp(-1, 1)
    assert ours_NYX3.shape == whole_NYX3.shape == (33, 32, 64, 3)
    assert (ours_NYX3 - whole_NYX3).abs().max() <= 1e-5


def test_long_clips_are_decoded_in_smaller_tiles() -> None:
    assert [tile_latents(frames) for frames in (33, 4096, 4097, 57600)] == [60, 60, 12, 12]
