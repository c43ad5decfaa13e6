"""CPU threads of one rank."""

from __future__ import annotations

import os

import torch


def limit_threads(wanted: int | None, *, local_world_size: int) -> int:
    """Use `wanted` threads for tensor maths, or an even share of the cores this process may use."""
    if wanted is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        wanted = max(1, (cores or 1) // local_world_size)
    torch.set_num_threads(wanted)
    return wanted
