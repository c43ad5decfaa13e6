"""A walk without an end: equal to generation at a known track, keyed, of constant memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.camera.intrinsics import fixed_intrinsics
from solarwm.camera.trajectory import parse_trajectory, trajectory_track
from solarwm.errors.types import SolarError
from solarwm.inference import solvers
from solarwm.inference.cases import Case
from solarwm.inference.causal_field import CausalField
from solarwm.inference.chunked import generate_chunks
from solarwm.inference.generate import CaseInputs, case_batch
from solarwm.inference.plan import PassPlan
from solarwm.nn.random import keyed_generator
from solarwm.play.world import Engine, Start, World, check_endless

CHUNK = SPEC.chunk_latents
MODEL = SimpleNamespace(max_prior_clean_chunks=2, num_output_frames=21)
PLAN = PassPlan(
    name="walk",
    weights="live",
    solver="self_forcing",
    num_inference_steps=2,
    camera="source",
    latents=0,
    shift=4.0,
    mode="autoregressive",
    levels=(1.0, 0.6),
)


class TinyCodec:
    """Stands for the VAE: four frames a latent, means of blocks. What it decodes is not looked at."""

    digest = "blocks"

    def encode_video(self, pixels_NYX3):
        means = pixels_NYX3.float().mean(dim=(1, 2, 3)) / 255.0
        return means[:1, None, None, None].expand(1, 48, 4, 6).contiguous()

    def encode_text(self, prompts):
        return torch.full((1, 3, SPEC.profiles["tiny"].dims.text_dim), 0.1)

    def decoder(self):
        return _Frames()


class _Frames:
    def __init__(self):
        self._begun = False

    def push(self, latents_FCHW):
        frames = 4 * len(latents_FCHW) - 3 * (not self._begun)
        self._begun = True
        shade = (latents_FCHW.mean() * 40 + 128).clamp(0, 255).to(torch.uint8)
        return shade.expand(frames, 64, 96, 3)


@pytest.fixture(scope="module")
def engine():
    backbone = create(SPEC.profiles["tiny"], MODEL)
    module = backbone.build(device="cpu", seed=3).eval()
    with torch.no_grad():
        for number, weight in enumerate(module.parameters()):
            weight.add_(
                torch.randn(weight.shape, generator=keyed_generator(number, "w", 0, 0)) * 0.05
            )
    return Engine(
        backbone=backbone, module=module, codec=TinyCodec(), plan=PLAN, device=torch.device("cpu")
    )


START = Start(
    name="room",
    picture_YX3=np.full((64, 96, 3), 90, np.uint8),
    prompt="a room",
    intrinsics_33=fixed_intrinsics(),
)
KEYS = ("w", "w", "wj", "", "l")


class Kept(World):
    """A world whose latents can be looked at."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.latents = []

    def _remember(self, chunk_BfCHW, first):
        self.latents.append(chunk_BfCHW.clone())
        super()._remember(chunk_BfCHW, first)


@pytest.mark.parametrize("recall", [False, True])
def test_a_walk_equals_the_generation_along_the_same_track(engine, recall):
    engine = replace(engine, plan=replace(PLAN, recall_history=recall))
    world = Kept(engine, START, seed=11)
    chunks = [world.advance(keys) for keys in KEYS]
    frames = len(KEYS) * CHUNK
    assert [len(chunk.frames_NYX3) for chunk in chunks] == [9, 12, 12, 12, 12]

    track = trajectory_track(parse_trajectory("w*5,wj*3,.*3,l*3"), frames_per_step=4)
    np.testing.assert_allclose(
        np.concatenate([chunk.c2w_N44 for chunk in chunks]), track, atol=1e-12
    )
    codec = engine.codec
    anchor = codec.encode_video(torch.from_numpy(START.picture_YX3)[None])[0]
    case = Case(
        slot=0, row_index=0, sample_id="room", prompt="", start_frame=0, noise_seed=0,
        camera_fingerprint="", metadata={},
    )  # fmt: skip
    inputs = CaseInputs(
        case=case,
        anchor_CHW=anchor,
        text_TD=codec.encode_text([""])[0],
        c2w_N44=track,
        other_c2w_N44=track,
        intrinsics_33=START.intrinsics_33,
    )
    batch = case_batch(inputs, frames, track)
    noise = torch.cat(
        [
            torch.randn(1, CHUNK, 48, 4, 6, generator=keyed_generator(11, "play-noise", n, 0))
            for n in range(len(KEYS))
        ],
        dim=1,
    )
    with torch.inference_mode():
        field = CausalField(
            engine.backbone, engine.module, engine.backbone.conditions(batch), batch.latents_BFCHW
        )
        whole = generate_chunks(
            field,
            noise,
            solver=solvers.create("self_forcing", numerics="corrected", levels=PLAN.levels),
            num_steps=2,
            shift=4.0,
            chunk_frames=CHUNK,
            anchor_BCHW=anchor[None],
            generator=keyed_generator(11, "renoise", 0, 0),
            recall_history=recall,
        )
    torch.testing.assert_close(torch.cat(world.latents, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_the_keys_steer_and_equal_keys_give_equal_frames(engine):
    walks = {}
    for name, keys in (("one", "w"), ("again", "w"), ("other", "s")):
        world = Kept(engine, START, seed=1)
        for _ in range(2):
            world.advance(keys)
        walks[name] = torch.cat(world.latents, dim=1)
    assert torch.equal(walks["one"], walks["again"])
    assert not torch.allclose(walks["one"][:, 1:], walks["other"][:, 1:], atol=1e-3)


def test_what_a_walk_keeps_does_not_grow_with_its_length(engine):
    world = World(engine, START, seed=1)

    def kept():
        layers = world._field._cache._layers.values()
        keys = sum(tensor.nbytes for layer in layers for tensor in vars_of(layer))
        assert keys
        return keys, len(world._view_F44), world._history_BFCHW.shape[1]

    sizes = []
    for number in range(16):
        world.advance("w")
        if number in (3, 15):
            sizes.append(kept())
    assert sizes[0] == sizes[1]


def vars_of(layer):
    return [getattr(layer, name) for name in ("raw_key", "raw_value", "ready_key", "ready_value")]


def test_numbers_that_are_not_finite_end_the_walk(engine):
    module = engine.backbone.build(device="cpu", seed=3).eval()
    with torch.no_grad():
        next(module.parameters()).fill_(float("nan"))
    with pytest.raises(SolarError) as caught:
        World(replace(engine, module=module), START, seed=1).advance("w")
    assert caught.value.exit_code == 7


def test_a_model_that_looks_back_at_everything_is_refused(engine):
    window = replace(engine.backbone.window, prior_chunks=None)
    with pytest.raises(SolarError) as caught:
        check_endless(SimpleNamespace(window=window))
    assert (caught.value.code, caught.value.exit_code) == ("play.not-causal", 2)
