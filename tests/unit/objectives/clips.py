"""A microbatch of seeded latents for tests of objectives; equal slots hold equal clips."""

from __future__ import annotations

import torch

from solarwm.data.tensors import LatentBatch

SHAPE = (6, 3, 2, 2)


def batch(slots, *, shape=SHAPE, dtype=torch.float32):
    """One row a slot."""
    rows = [
        torch.randn(shape, generator=torch.Generator().manual_seed(slot), dtype=dtype)
        for slot in slots
    ]
    count = len(slots)
    return LatentBatch(
        latents_BFCHW=torch.stack(rows),
        text_BTD=torch.zeros(count, 1, 1),
        viewmats_BF44=torch.eye(4).expand(count, shape[0], 4, 4),
        intrinsics_B33=torch.eye(3).expand(count, 3, 3),
        sample_ids=tuple(str(slot) for slot in slots),
        start_frames=(0,) * count,
        slots=tuple(slots),
        occurrences=tuple(slots),
    )
