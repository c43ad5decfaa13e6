"""Which latent frames a causal chunk sees: the window rule of training and of rollouts.

Frames come in chunks. A noisy chunk sees clean history, never its own clean twin.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWindow:
    """The history rule of one causal model."""

    chunk_frames: int
    """Latent frames of a chunk."""
    prior_chunks: int | None = None
    """Clean chunks before its own that a chunk sees; None = all of them."""
    sink_frames: int = 0
    """First latent frames that stay visible for ever; whole chunks."""
    slot_frames: int | None = None
    """Temporal positions seen in training: in `aligned` windows no position reaches this number."""
    aligned: bool = True
    """Positions of a cached window end at min(latest frame, slot_frames - 1), as in training; False
    counts them from 0 at the oldest visible frame, as published."""
    clean_windowed: bool = True
    """Clean chunks of a training sequence see the same window as a cache does; False lets them see
    all earlier clean chunks, as published. Without effect while no clip has more than
    `prior_chunks` + 2 chunks. With sinks they are windowed either way."""

    def __post_init__(self) -> None:
        if self.chunk_frames < 1:
            raise ValueError(f"a chunk has at least one latent frame, not {self.chunk_frames}")
        if self.prior_chunks is not None and self.prior_chunks < 0:
            raise ValueError(f"prior chunks are at least 0, not {self.prior_chunks}")
        if self.sink_frames < 0 or self.sink_frames % self.chunk_frames:
            raise ValueError(
                f"sink frames are whole chunks of {self.chunk_frames}, not {self.sink_frames}"
            )

    @property
    def sink_chunks(self) -> int:
        """Chunks that stay visible for ever."""
        return self.sink_frames // self.chunk_frames

    def chunks(self, frames: int) -> int:
        """Chunks of `frames` latent frames; raises `ValueError` for a part of a chunk."""
        count, rest = divmod(frames, self.chunk_frames)
        if rest or count < 1:
            raise ValueError(
                f"{frames} latent frames are not whole chunks of {self.chunk_frames}; "
                f"the next number is {(count + 1) * self.chunk_frames}"
            )
        return count

    def clean_history(self, chunk: int) -> tuple[int, ...]:
        """Clean chunks before its own that a noisy chunk, or a chunk of a rollout, sees."""
        first = 0 if self.prior_chunks is None else max(0, chunk - self.prior_chunks)
        return (*range(min(self.sink_chunks, first)), *range(first, chunk))

    def clean_of_clean(self, chunk: int) -> tuple[int, ...]:
        """Clean chunks that a clean chunk sees, its own last."""
        if self.clean_windowed or self.sink_chunks:
            return (*self.clean_history(chunk), chunk)
        return tuple(range(chunk + 1))

    def forced_pairs(self, chunks: int) -> tuple[tuple[int, ...], ...]:
        """For every query chunk of `[clean | noisy]` the key chunks it sees, ascending."""
        clean = [self.clean_of_clean(a) for a in range(chunks)]
        noisy = [(*self.clean_history(a), chunks + a) for a in range(chunks)]
        return (*clean, *noisy)
