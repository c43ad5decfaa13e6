"""Batch arithmetic: how many samples one optimizer step takes, and what would make the numbers fit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The factors of a global batch."""

    world_size: int
    sequence_parallel_size: int
    micro_batch_size: int
    accumulation: int
    global_batch_size: int

    @property
    def logical_dp(self) -> int:
        """Number of data partitions: ranks of one sequence-parallel group share their samples."""
        return self.world_size // self.sequence_parallel_size

    @property
    def product(self) -> int:
        """The samples one optimizer step really takes."""
        return self.logical_dp * self.micro_batch_size * self.accumulation

    @property
    def holds(self) -> bool:
        """True when the declared global batch is what one step takes."""
        return self.product == self.global_batch_size

    @property
    def equation(self) -> str:
        """`(8 / 1) x 1 x 2 = 16`, with the numbers that are used."""
        return (
            f"({self.world_size} / {self.sequence_parallel_size}) x {self.micro_batch_size} x "
            f"{self.accumulation} = {self.product}"
        )


def repairs(batch: Batch) -> list[str]:
    """Settings that would make the equation hold, each changing one number, nearest first."""
    found = [f"--set train.global_batch_size={batch.product}"]
    per_micro = batch.logical_dp * batch.micro_batch_size
    if batch.global_batch_size % per_micro == 0 and batch.global_batch_size >= per_micro:
        found.append(f"--set train.grad_accum={batch.global_batch_size // per_micro}")
    per_step = batch.logical_dp * batch.accumulation
    if batch.global_batch_size % per_step == 0 and batch.global_batch_size >= per_step:
        found.append(f"--set train.micro_batch_size={batch.global_batch_size // per_step}")
    return found[:3]
