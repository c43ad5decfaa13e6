"""One training step of a clip on two gloo ranks that share it, against one rank that has it alone.

Both run forward, mean squared error, backward, gradient sum and AdamW of the 5M Wan transformer on 21
latents (4116 tokens), one thread a rank. With two ranks each does half of the work, so the ideal ratio
is 0.5. 21 latents are 11 + 10 with one padded: 4.8 % of the work is padding. Losses are compared first.
CPU time of both ranks together over that of one rank is printed beside the wall time: it does not
see the machine's other work.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.ratio import Ratio, measure
from benchmarks.step import SIZES
from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.collectives import Collectives
from solarwm.distributed.sequence import SequenceGroup
from solarwm.training.optim import adamw

FRAMES, SIDE, RANKS = 21, 28, 2
TOLERANCE = 1e-5


class Trainer:
    """A model and its clip; `collectives` None has the clip alone."""

    def __init__(self, collectives: Collectives | None) -> None:
        profile = replace(SPEC.profiles["tiny"], dims=SIZES[0].dims)
        self.backbone = create(profile, SimpleNamespace(num_output_frames=FRAMES))
        self.backbone.sequence = SequenceGroup(collectives) if collectives else None
        self.collectives = collectives
        self.module = self.backbone.build(device="cpu", seed=0)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            self.module.head.head.weight.normal_(std=0.02, generator=generator)
        self.parameters = list(self.module.parameters())
        self.optimizer = adamw(
            self.parameters, lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01
        )
        shape = (1, FRAMES, 48, SIDE, SIDE)
        self.latents, self.target = torch.randn(2, *shape, generator=generator)
        self.sigma = torch.full((1, FRAMES), 0.5)
        view = torch.eye(4).repeat(1, FRAMES, 1, 1)
        view[0, :, 0, 3] = torch.linspace(0, 1, FRAMES)
        dims = SIZES[0].dims
        self.conditions = self.backbone.conditions(
            LatentBatch(
                latents_BFCHW=self.latents,
                text_BTD=torch.randn(1, dims.text_len, dims.text_dim, generator=generator),
                viewmats_BF44=view,
                intrinsics_B33=torch.tensor([[[0.5, 0, 0.5], [0, 0.9, 0.5], [0, 0, 1]]]),
                sample_ids=("clip",),
                start_frames=(0,),
                slots=(0,),
                occurrences=(0,),
            )
        )

    def step(self) -> tuple[float, float]:
        """The loss and the CPU seconds of this process."""
        started = time.process_time()
        velocity = self.backbone.velocity(self.module, self.latents, self.sigma, self.conditions)
        loss = (velocity - self.target).square().mean()
        loss.backward()
        if self.collectives is not None:
            flat = torch.cat([p.grad.flatten() for p in self.parameters if p.grad is not None])
            self.collectives.sum_(flat, label="gradients")
            parts = flat.split([p.numel() for p in self.parameters])
            for parameter, part in zip(self.parameters, parts, strict=True):
                parameter.grad = part.view_as(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach()), time.process_time() - started


def serve(world_rank: int, meeting: str, pipe: Any) -> None:
    """One rank: a step for every message, the loss, CPU seconds and exchanges a step back."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=world_rank,
        world_size=RANKS,
        timeout=timedelta(seconds=300),
    )
    collectives = Collectives(world_rank=world_rank, world_size=RANKS)
    trainer = Trainer(collectives)
    while pipe.recv():
        before = collectives.log.count
        loss, seconds = trainer.step()
        pipe.send((loss, seconds, collectives.log.count - before))
    dist.destroy_process_group()


def rows(*, rounds: int) -> list[Ratio]:
    """The one ratio; threads are set to one for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        pipes, ranks = [], []
        for world_rank in range(RANKS):
            here, there = context.Pipe()
            rank = context.Process(
                target=serve, args=(world_rank, str(Path(folder) / "meeting"), there)
            )
            rank.start()
            pipes.append(here)
            ranks.append(rank)
        try:
            return [_row(pipes, rounds)]
        finally:
            for pipe in pipes:
                pipe.send(False)
            for rank in ranks:
                rank.join()
            torch.set_num_threads(threads)


def _row(pipes: list[Any], rounds: int) -> Ratio:
    alone = Trainer(None)
    losses: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []

    def shared() -> tuple[float, float, int]:
        for pipe in pipes:
            pipe.send(True)
        answers = [pipe.recv() for pipe in pipes]
        return answers[0][0], sum(seconds for _, seconds, _ in answers), answers[0][2]

    def ours() -> None:
        loss, seconds, count = shared()
        losses.append((loss, 0.0))
        cpu.append((seconds, 0.0))
        assert count == 4 * SIZES[0].dims.num_layers + 2, count

    def anchor() -> None:
        loss, seconds = alone.step()
        losses[-1] = (losses[-1][0], loss)
        cpu[-1] = (cpu[-1][0], seconds)

    row = measure(
        f"step {SIZES[0].name}, {FRAMES} latents, 2 ranks of one clip",
        ours,
        anchor,
        anchor_name="the step on 1 rank (ideal 0.50)",
        target=0.5 * 1.25,
        rounds=rounds,
    )
    worst = max(abs(a - b) / abs(b) for a, b in losses)
    if worst > TOLERANCE:
        raise RuntimeError(f"losses of one and two ranks differ by {worst}")
    used = statistics.median(a / b for a, b in cpu[1:])
    print(f"sequence parallel: losses {worst:.1e} apart, {used:.2f} times the CPU of one rank")
    return row
