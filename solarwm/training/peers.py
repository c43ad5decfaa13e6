"""Proof that ranks of a sequence-parallel group were given the same microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solarwm.data.tensors import LatentBatch
from solarwm.distributed.group import RankGroup


def require_equal_peers(group: RankGroup, batches: Sequence[LatentBatch], *, step: int) -> None:
    """Refuse (exit 6) to take step `step` (from 0) on different samples; also arms the comparison
    of what is drawn for them, which every forward of this update makes.

    Collective over the peers in steps that are checked.
    """
    if group.sequence is None or not group.sequence.arm(step):
        return
    for number, batch in enumerate(batches):
        fields: dict[str, Any] = {
            "sample": batch.sample_ids,
            "start frame": batch.start_frames,
            "slots": batch.slots,
            "occurrences": batch.occurrences,
            "prompt": batch.text_BTD,
            "camera": batch.viewmats_BF44,
            "intrinsics": batch.intrinsics_B33,
            "latents": batch.latents_BFCHW,
        }
        group.sequence.require_equal(fields, label=f"step {step + 1}, microbatch {number}")
