"""Camera rows of a MiniMax-H3 rollout as long as its source clip."""

from __future__ import annotations

from dataclasses import dataclass

from solarwm.camera.poses import h3_latent_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FullLength:
    """Frame and latent counts of a full-length rollout; rows past the source repeat the last one
    inside it.
    """

    source_frames: int
    decoded_frames: int
    decode_latents: int
    rollout_latents: int
    camera_indices: tuple[int, ...]
    tail_camera_rows: int


def full_length(num_frames: int) -> FullLength:
    """The plan for a source of `num_frames` pixel frames (at least 22)."""
    if num_frames < 22:
        raise ValueError(f"a full-length rollout needs at least 22 frames, not {num_frames}")
    periods = -((5 - num_frames) // 17)
    decode_latents = 5 * periods + 2
    rollout_latents = -(-decode_latents // 5) * 5
    rows = [row for row in h3_latent_rows(rollout_latents) if row < num_frames]
    tail = rollout_latents - len(rows)
    return FullLength(
        source_frames=num_frames,
        decoded_frames=17 * periods + 5,
        decode_latents=decode_latents,
        rollout_latents=rollout_latents,
        camera_indices=(*rows, *[rows[-1]] * tail),
        tail_camera_rows=tail,
    )
