"""One check of an accelerator, under eight minutes: `python benchmarks/gpu_check.py`.

Steps of all three stages at the tiny and a mid-size model: the first loss of each in fp32 on the device
against the CPU, then in bf16 with compiled FlexAttention against fp32, then three optimizer steps that
must stay finite. After that the ratios of teacher forcing and of the cached rollout on the device.
Without a device it says so and ends with 0; a difference beyond tolerance ends with 1. `--device cpu`
walks the same chain without a device (FlexAttention needs one; bf16 is autocast), `--chain` leaves the
ratios out.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device_ratios import rows
from benchmarks.objectives import anyflow_rule, forcing_rule
from benchmarks.ratio import table
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.backbone import WanBackbone
from solarwm.data.tensors import LatentBatch
from solarwm.inference.causal_field import CausalField
from solarwm.nn.chunks import ChunkWindow
from solarwm.objectives.anyflow import AnyFlow
from solarwm.objectives.flow_matching import PER_BLOCK, UNIFORM_PER_VIDEO, FlowMatching
from solarwm.objectives.schedules import time_table
from solarwm.objectives.self_gradient_forcing import Score, SelfGradientForcing
from solarwm.routes.spec import Profile
from solarwm.training.fields import BidirectionalField, TeacherForcedField, TeacherForcedMap
from solarwm.training.optim import adamw
from solarwm.training.stage import computing

FRAMES, STEPS = 9, 3
WINDOW = ChunkWindow(chunk_frames=3, prior_chunks=1, slot_frames=9)
FP32_TOLERANCE, BF16_TOLERANCE = 1e-3, 5e-2
SHIFT = 5.0
TINY = SPEC.profiles["tiny"]
MID = replace(
    TINY,
    name="mid-size",
    dims=replace(TINY.dims, dim=768, num_layers=10, num_heads=12, ffn_dim=3072, text_dim=512),
)
GRIDS = {"tiny": (4, 6), "mid-size": (8, 12)}
Losses = Callable[[int], Tensor]


class Chain:
    """The routes of one size on one device, their weights and batch drawn on the CPU."""

    def __init__(self, profile: Profile, device: torch.device) -> None:
        self.device = device
        self.backbone = WanBackbone(
            SPEC, profile, translation_transform="linear", numerics="corrected", window=WINDOW
        )
        self.batch = _clips(profile, 4).to(device)
        self.negative = torch.zeros_like(self.batch.text_BTD[:1])

    def module(self, seed: int, gate: float | None = None) -> nn.Module:
        """A transformer with a live output projection."""
        module = self.backbone.build(device="cpu", seed=seed, endpoint_gate=gate)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(seed)
            module.head.head.weight.normal_(std=0.02, generator=generator)  # type: ignore[union-attr]
        return module.to(self.device)

    def routes(self) -> Iterator[tuple[str, nn.Module, Losses]]:
        """(name, trained module, loss of the step after `step` completed ones)."""
        student = self.module(0)
        yield "stage0p5 flow matching", student, self._matching(student, causal=False)
        student = self.module(0)
        yield "stage1 flow matching", student, self._matching(student, causal=True)
        student = self.module(0, gate=0.25)
        yield "stage1 AnyFlow", student, self._map(student)
        student, critic, teacher = (self.module(seed) for seed in (0, 1, 2))
        yield "stage2 student", student, self._student(student, critic, teacher)
        student, critic = self.module(0), self.module(1)
        yield "stage2 critic", critic, self._critic(student, critic)

    def _matching(self, module: nn.Module, *, causal: bool) -> Losses:
        rule = FlowMatching(
            table=time_table(SHIFT),
            anchored=True,
            image_dropout=0.1,
            numerics="corrected",
            timestep_mode=PER_BLOCK if causal else UNIFORM_PER_VIDEO,
            block=SPEC.chunk_latents,
        )
        kind = TeacherForcedField if causal else BidirectionalField

        def loss(step: int) -> Tensor:
            field = kind(self.backbone, module, self.batch)
            return rule.losses(field, self.batch, seed=0, step=step).per_sample_B.mean()

        return loss

    def _map(self, module: nn.Module) -> Losses:
        rule = anyflow_rule(AnyFlow)

        def loss(step: int) -> Tensor:
            field = TeacherForcedMap(self.backbone, module, self.batch, negative_1TD=self.negative)
            return rule.losses(field, self.batch, seed=0, step=step).per_sample_B.mean()

        return loss

    def _student(self, student: nn.Module, critic: nn.Module, teacher: nn.Module) -> Losses:
        rule = forcing_rule(SelfGradientForcing)

        def loss(step: int) -> Tensor:
            return rule.student_losses(
                self._causal(student),
                self._score(teacher),
                self._score(critic),
                self.batch,
                seed=0,
                step=step,
            ).per_sample_B.mean()

        return loss

    def _critic(self, student: nn.Module, critic: nn.Module) -> Losses:
        rule = forcing_rule(SelfGradientForcing)

        def loss(step: int) -> Tensor:
            judge = BidirectionalField(self.backbone, critic, self.batch)
            return rule.critic_losses(
                self._causal(student), judge, self.batch, seed=0, step=step
            ).per_sample_B.mean()

        return loss

    def _causal(self, module: nn.Module) -> CausalField:
        conditions = self.backbone.conditions(self.batch)
        return CausalField(self.backbone, module, conditions, self.batch.latents_BFCHW)

    def _score(self, module: nn.Module) -> Score:
        field = BidirectionalField(self.backbone, module, self.batch)
        return Score(conditional=field, unconditional=field.unconditional(self.negative))


def check_chain(profile: Profile, device: torch.device) -> list[str]:
    """Print every route's losses; what is beyond tolerance, in words."""
    faults = []
    reference = {name: float(loss(0).detach()) for name, _, loss in _on_cpu(profile)}
    chain = Chain(profile, device)
    for name, module, loss in chain.routes():
        where = f"{profile.name}, {name}"
        chain.backbone.compile_flex = False
        exact = float(loss(0).detach())
        chain.backbone.compile_flex = True
        optimizer = adamw(
            module.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01
        )
        told = []
        for step in range(STEPS):
            with computing(device, torch.bfloat16):
                value = loss(step)
            value.backward()
            norm = nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            told.append(float(value.detach()))
            if not (math.isfinite(told[-1]) and math.isfinite(float(norm))):
                faults.append(f"{where}: step {step + 1} is not finite ({told[-1]}, {norm})")
        gaps = _gap(exact, reference[name]), _gap(told[0], exact)
        print(
            f"{where}: {_spelled(told)}; fp32 {gaps[0]:.1e} off the CPU, bf16 {gaps[1]:.1e} off fp32"
        )
        if gaps[0] > FP32_TOLERANCE:
            faults.append(f"{where}: fp32 is {gaps[0]:.1e} off the CPU")
        if gaps[1] > BF16_TOLERANCE:
            faults.append(f"{where}: bf16 is {gaps[1]:.1e} off fp32")
    return faults


def main() -> int:
    """0 where all is well or there is nothing to check, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=["tiny", "mid-size"], help="one size")
    parser.add_argument("--chain", action="store_true", help="no ratios")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("gpu_check: no CUDA device here, nothing checked")
        return 0
    start = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = False
    faults = []
    for profile in (TINY, MID):
        if options.size in (None, profile.name):
            faults += check_chain(profile, device)
    if not options.chain:
        print(table(rows(device)))
    if device.type == "cuda":
        print(f"peak memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"gpu_check: {len(faults)} faults in {time.perf_counter() - start:.0f} s")
    return 1 if faults else 0


def _on_cpu(profile: Profile) -> Iterator[tuple[str, nn.Module, Losses]]:
    return Chain(profile, torch.device("cpu")).routes()


def _clips(profile: Profile, count: int) -> LatentBatch:
    generator = torch.Generator().manual_seed(0)
    dims = profile.dims
    view = torch.eye(4).repeat(count, FRAMES, 1, 1)
    view[:, :, 0, 3] = torch.linspace(0, 0.6, FRAMES)
    lens = torch.tensor([[0.505, 0, 0.5], [0, 0.898, 0.5], [0, 0, 1]])
    shape = (count, FRAMES, dims.in_channels, *GRIDS[profile.name])
    return LatentBatch(
        latents_BFCHW=torch.randn(shape, generator=generator),
        text_BTD=torch.randn(count, dims.text_len, dims.text_dim, generator=generator),
        viewmats_BF44=view,
        intrinsics_B33=lens.repeat(count, 1, 1),
        sample_ids=("",) * count,
        start_frames=(0,) * count,
        slots=tuple(range(count)),
        occurrences=tuple(range(count)),
    )


def _gap(value: float, reference: float) -> float:
    return abs(value - reference) / max(abs(reference), 1e-6)


def _spelled(values: list[float]) -> str:
    return "losses " + " ".join(f"{value:.4f}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
