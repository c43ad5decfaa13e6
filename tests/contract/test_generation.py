"""The generation path with the real tiny backbone on a small rendered world. Weights are drawn, so
pictures mean nothing; paths, identities and files do."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.codec import WanCodec, WordText, build_vae
from solarwm.camera.poses import latent_rows
from solarwm.data.cameras import CameraRules
from solarwm.data.index import read_index
from solarwm.data.shards import ShardReader
from solarwm.distributed.collectives import Collectives
from solarwm.errors.types import SolarError
from solarwm.inference.clips import HeldOutClips
from solarwm.inference.encoding import encode_case
from solarwm.inference.flow_loss import flow_losses
from solarwm.inference.generate import case_track, generate, start_noise
from solarwm.inference.passes import (
    Generator,
    encode_cases,
    mean_latent,
    missing_slots,
    run_case,
)
from solarwm.inference.plan import ClipCut, PassPlan
from solarwm.inference.transaction import GenerationStore
from solarwm.inference.video import read_mp4
from solarwm.synthetic.writer import synthesize

FRAMES, LATENTS, HEIGHT, WIDTH = 33, 9, 64, 96
CPU = torch.device("cpu")
ARGUMENTS = {
    "base_dim": 8,
    "decoder_base_dim": 8,
    "z_dim": 48,
    "dim_mult": [1, 1, 2, 2],
    "num_res_blocks": 1,
    "attn_scales": [],
    "temperal_downsample": [False, True, True],
    "dropout": 0.0,
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "scale_factor_temporal": 4,
    "latents_mean": [0.0] * 48,
    "latents_std": [1.0] * 48,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    synthesize(root, clips=12, frames=FRAMES, height=HEIGHT, width=WIDTH, seed=3)
    return root


@pytest.fixture(scope="module")
def clips(world):
    cut = ClipCut(
        frames=FRAMES,
        latents=LATENTS,
        height=HEIGHT,
        width=WIDTH,
        fps=16.0,
        translation_transform="linear",
    )
    with ShardReader(world) as reader:
        index = read_index(world / "test-index.jsonl.gz")
        rules = CameraRules(latent_rows=latent_rows(LATENTS))
        held = HeldOutClips(index=index, reader=reader, cut=cut, rules=rules)
        held.select(3, selection_seed=42, base_noise_seed=42)
        yield held


@pytest.fixture(scope="module")
def cases(clips):
    return clips.select(3, selection_seed=42, base_noise_seed=42)


@pytest.fixture(scope="module")
def codec():
    torch.manual_seed(0)
    profile = SPEC.profiles["tiny"]
    vae = build_vae(ARGUMENTS)
    return WanCodec(
        open_vae=lambda: vae,
        text=WordText(length=profile.dims.text_len, width=profile.dims.text_dim, device=CPU),
        digest="0" * 64,
        geometry=profile.geometry,
        device=CPU,
    )


@pytest.fixture(scope="module")
def backbone():
    return create(SPEC.profiles["tiny"], SimpleNamespace(camera_translation_transform="linear"))


@pytest.fixture(scope="module")
def module(backbone):
    built = backbone.build(device=CPU, seed=1)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in built.parameters():
            if not parameter.any():
                parameter.normal_(0.0, 0.05, generator=generator)
    return built.eval()


def _plan(name="right", camera="source", **changes):
    values = {
        "name": name,
        "weights": "live",
        "solver": "euler",
        "num_inference_steps": 2,
        "camera": camera,
        "latents": LATENTS,
        "shift": 4.0,
    }
    return PassPlan(**(values | changes))


@pytest.fixture
def make(backbone, module, codec, clips, tmp_path):
    def build(**changes):
        values = {
            "backbone": backbone,
            "modules": {"live": module},
            "weights_ids": {"live": "manifest:0#live"},
            "codec": codec,
            "clips": clips,
            "store": GenerationStore(tmp_path / "generation", family=SPEC.family),
            "device": CPU,
            "fps": 16.0,
            "world_rank": 0,
            "facts": {"numerics": "corrected"},
        }
        return Generator(**(values | changes))

    return build


def _generate(encoded, plan, backbone, module, codec):
    return generate(encoded.inputs, plan, backbone=backbone, module=module, codec=codec, device=CPU)


def test_cases_name_the_clip_and_its_camera_file(clips, cases):
    case = cases[0]
    row = clips._index.rows[case.row_index]
    assert case.sample_id == row.sample_id
    assert case.metadata["source_num_frames"] == FRAMES
    assert len(case.camera_fingerprint) == 64
    assert len({case.camera_fingerprint for case in cases}) == 3


@pytest.mark.parametrize("solver", ["euler", "unipc"])
def test_a_clip_does_not_depend_on_what_was_generated_before(
    solver, clips, cases, backbone, module, codec
):
    plan = _plan(solver=solver)
    alone = _generate(encode_case(clips, cases[1], codec), plan, backbone, module, codec)
    torch.manual_seed(99)
    _generate(encode_case(clips, cases[0], codec), plan, backbone, module, codec)
    again = _generate(encode_case(clips, cases[1], codec), plan, backbone, module, codec)
    assert torch.equal(alone.latents_FCHW, again.latents_FCHW)
    assert (alone.frames_NYX3 == again.frames_NYX3).all()
    assert alone.frames_NYX3.shape == (FRAMES, HEIGHT, WIDTH, 3)


def test_the_first_latent_is_the_encoded_first_frame(clips, cases, backbone, module, codec):
    encoded = encode_case(clips, cases[0], codec)
    clip = _generate(encoded, _plan(), backbone, module, codec)
    assert torch.equal(clip.latents_FCHW[0], encoded.inputs.anchor_CHW)
    torch.testing.assert_close(encoded.latents_FCHW[0], encoded.inputs.anchor_CHW)


def test_start_noise_is_the_published_seed_and_nothing_else(cases):
    expected = torch.randn(4, 2, 3, 3, generator=torch.Generator().manual_seed(cases[2].noise_seed))
    torch.manual_seed(1)
    assert torch.equal(start_noise(cases[2], (4, 2, 3, 3)), expected)


def test_every_camera_starts_at_the_clip_and_only_the_source_is_the_clips_own(clips, cases, codec):
    inputs = encode_case(clips, cases[0], codec).inputs
    source = np.asarray(inputs.c2w_N44, dtype=np.float64)
    for camera in ("source", "inverse", "mirror", "frozen", "other"):
        track = case_track(inputs, camera)
        assert track.dtype == np.float64
        assert track.shape == source.shape
        np.testing.assert_allclose(track[0], source[0], atol=1e-6)
    assert (case_track(inputs, "source") == source).all()
    assert (case_track(inputs, "frozen") == source[:1]).all()
    assert np.abs(case_track(inputs, "inverse") - source).max() > 0.05
    stranger = np.asarray(clips.clip(cases[1]).c2w_N44, dtype=np.float64)
    relative = np.linalg.inv(stranger[0]) @ stranger[-1]
    np.testing.assert_allclose(
        np.linalg.inv(source[0]) @ case_track(inputs, "other")[-1], relative, atol=1e-4
    )


def test_another_camera_gives_another_clip(clips, cases, backbone, module, codec):
    encoded = encode_case(clips, cases[0], codec)
    right = _generate(encoded, _plan(), backbone, module, codec)
    wrong = _generate(encoded, _plan(camera="inverse"), backbone, module, codec)
    assert (right.latents_FCHW - wrong.latents_FCHW).abs().max() > 1e-3


def test_flow_losses_are_fixed_and_know_the_camera(clips, cases, backbone, module, codec):
    encoded = encode_case(clips, cases[0], codec)

    def losses():
        return flow_losses(
            encoded.inputs,
            encoded.latents_FCHW,
            cameras=("source", "inverse"),
            shift=4.0,
            backbone=backbone,
            module=module,
            device=CPU,
        )

    first = losses()
    torch.manual_seed(3)
    assert losses() == first
    assert first["source"] != first["inverse"]
    assert all(0 < value < 100 for value in first.values())


def test_a_pass_leaves_videos_cameras_and_figures(make, cases):
    generator = make()
    generator.store.begin({"cases": 3}, resume=False)
    faults, told = [], []
    encoded = encode_cases(generator, cases, lambda case, fault: faults.append(fault))
    mean = mean_latent(generator, encoded, Collectives(world_rank=0, world_size=1))
    plans = (_plan(), _plan("backwards", "inverse"))
    for case in cases:
        run_case(
            generator,
            encoded[case.slot],
            plans,
            mean_latent_NYX3=mean,
            on_fault=lambda plan, fault: faults.append(fault),
            on_clip=lambda plan, metrics: told.append((plan.name, metrics["slot"])),
        )
    assert faults == []
    assert told[:2] == [("right", 0), ("backwards", 0)]
    folder = generator.store.slot_path("right", 1)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "video.mp4",
        "compare.mp4",
        "camera.npy",
        "camera.npz",
        "schedule.json",
        "manifest.json",
    }
    assert read_mp4(folder / "video.mp4").shape == (FRAMES, HEIGHT, WIDTH, 3)
    assert read_mp4(folder / "compare.mp4").shape == (FRAMES, HEIGHT, 2 * WIDTH, 3)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["shape"] == [FRAMES, HEIGHT, WIDTH, 3]
    assert set(manifest["metrics"]["flow_loss"]) == {"source", "inverse"}
    assert "mean_latent" in manifest["metrics"]["baselines"]
    wrong = json.loads((generator.store.slot_path("backwards", 1) / "manifest.json").read_bytes())
    assert "baselines" not in wrong["metrics"]
    assert wrong["metrics"]["camera_difference"]["rotation_deg"] >= 0
    assert missing_slots(generator.store, plans, cases) == {}
    for plan in plans:
        generator.store.commit_pass(plan.name, cases, weights_id="manifest:0#live")


def test_an_unreadable_clip_is_told_and_the_others_are_made(make, clips, cases):
    class Broken:
        def clip(self, case):
            if case.slot == 1:
                raise SolarError("inference.clip-too-short", "gone")
            return clips.clip(case)

        def next_track(self, case):
            return clips.next_track(case)

    faults = []
    encoded = encode_cases(
        make(clips=Broken()), cases, lambda case, fault: faults.append((case.slot, fault.code))
    )
    assert sorted(encoded) == [0, 2]
    assert faults == [(1, "inference.clip-too-short")]


def test_a_clip_that_is_not_finite_is_a_fault_of_that_pass_only(make, backbone, cases):
    broken = backbone.build(device=CPU, seed=1).eval()
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    healthy = make()
    generator = make(
        modules={**healthy.modules, "ema": broken},
        weights_ids={"live": "manifest:0#live", "ema": "manifest:0#ema"},
    )
    encoded = encode_cases(generator, cases[:1], lambda case, fault: None)
    faults, told = [], []
    run_case(
        generator,
        encoded[0],
        (_plan("broken", weights="ema"), _plan()),
        mean_latent_NYX3=None,
        on_fault=lambda plan, fault: faults.append((plan.name, fault.code)),
        on_clip=lambda plan, metrics: told.append(plan.name),
    )
    assert faults == [("broken", "inference.not-finite")]
    assert told == ["right"]
