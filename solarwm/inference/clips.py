"""Held-out clips as they lie on disk: selected, guarded, read. No torch.

Shapes: N pixel frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solarwm.data.cameras import CameraRules
from solarwm.data.index import Index, read_index
from solarwm.data.records import (
    SKIPPED_CODES,
    RawClip,
    Track,
    manifest_of,
    num_frames_of,
    read_cameras,
    read_clip,
    read_opening,
)
from solarwm.data.rows import Row
from solarwm.data.shards import ShardReader
from solarwm.data.windows import frame_offsets, retimed_frames
from solarwm.inference import plan as plans
from solarwm.inference.cases import Case, ClipIdentity, select_cases
from solarwm.inference.plan import ClipCut
from solarwm.inference.publication import public_names
from solarwm.inference.selection import PERMUTATION, SelectionRule, selection_rule

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun


def open_clips(
    resolved: ResolvedRun, reader: ShardReader, index_path: Path | None = None
) -> HeldOutClips:
    """The held-out clips of a config, or the rows of another index. Raises `index.*` (exit 3)."""
    return HeldOutClips(
        index=read_index(index_path or plans.test_index_path(resolved)),
        reader=reader,
        cut=plans.clip_cut(resolved),
        rules=plans.camera_rules(resolved),
        rule=selection_rule(resolved),
    )


class HeldOutClips:
    """The test index and its shards. Not for several threads."""

    def __init__(
        self,
        *,
        index: Index,
        reader: ShardReader,
        cut: ClipCut,
        rules: CameraRules,
        rule: SelectionRule = PERMUTATION,
    ) -> None:
        self._index = index
        self._reader = reader
        self._cut = cut
        self._rules = rules
        self._rule = rule
        self._cases: tuple[Case, ...] = ()

    def select(self, count: int, *, selection_seed: int, base_noise_seed: int) -> tuple[Case, ...]:
        """The cases of this index in the published order; see `cases.select_cases`."""
        self._cases = self._cases_of(self._index.rows, count, selection_seed, base_noise_seed)
        return self._cases

    def first(self, *, base_noise_seed: int) -> tuple[Case, ...]:
        """The first row of the index as the one case, whatever the selection seed."""
        self._cases = self._cases_of(self._index.rows[:1], 1, 0, base_noise_seed)
        return self._cases

    def _cases_of(
        self, rows: Sequence[Row], count: int, selection_seed: int, base_noise_seed: int
    ) -> tuple[Case, ...]:
        return select_cases(
            rows,
            count,
            selection_seed=selection_seed,
            base_noise_seed=base_noise_seed,
            measure=self._measure,
            identify=self._identify,
            is_rejection=lambda fault: fault.code in SKIPPED_CODES,
            rule=self._rule,
        )

    def clip(self, case: Case) -> RawClip:
        """Pixels and cameras of a case. Raises `shard.*`, `video.*`, `camera.*` (exit 3)."""
        row = self._index.rows[case.row_index]
        return read_clip(
            self._reader, row, start_frame=case.start_frame, **self._window(case.frames)
        )

    def opening(self, case: Case) -> tuple[RawClip, Iterator[np.ndarray]]:
        """Cameras and first picture of a case, and its pictures [Y,X,3] one by one, decoded as they are
        asked for. Faults as `clip`."""
        row = self._index.rows[case.row_index]
        return read_opening(
            self._reader, row, start_frame=case.start_frame, **self._window(case.frames)
        )

    def next_track(self, case: Case) -> np.ndarray:
        """Absolute cameras [N,4,4] of the next case (of the first one for the last), as long as
        this one where it can be: a shorter track stays at its last pose."""
        other = self._cases[(case.slot + 1) % len(self._cases)]
        row = self._index.rows[other.row_index]
        window = self._window(other.frames)
        track = read_cameras(self._reader, row, start_frame=other.start_frame, **window)
        poses = np.asarray(track.c2w_N44)
        frames = case.frames or self._cut.frames
        held = np.repeat(poses[-1:], max(0, frames - len(poses)), axis=0)
        return np.concatenate([poses[:frames], held])

    def _window(self, frames: int) -> dict[str, Any]:
        cut = self._cut
        return {
            "frames": frames or cut.frames,
            "height": cut.height,
            "width": cut.width,
            "fps": cut.fps,
            "rules": self._rules,
        }

    def _measure(self, row: Row) -> tuple[int, int]:
        num_frames = self._num_frames(row)
        frames = self._frames(row, num_frames)
        offsets = frame_offsets(frames, source_fps=row.fps, output_fps=self._cut.fps)
        return num_frames, offsets[-1] + 1

    def _num_frames(self, row: Row) -> int:
        manifest: Mapping[str, Any] = {}
        if not row.num_frames:
            manifest = manifest_of(self._reader, row)
        return num_frames_of(row, manifest)

    def _frames(self, row: Row, num_frames: int) -> int:
        left = 0 if self._rule.starts != "row" else row.start_frame or 0
        available = retimed_frames(num_frames - left, source_fps=row.fps, output_fps=self._cut.fps)
        return self._cut.fitting(available)

    def _identify(self, row: Row, start: int) -> ClipIdentity:
        frames = self._frames(row, self._num_frames(row))
        track: Track = read_cameras(self._reader, row, start_frame=start, **self._window(frames))
        member = self._reader.read(row.shard, row.camera_member or "", shard_size=row.shard_size)
        published: dict[str, Any] = {}
        if self._cut.whole_track:
            dataset, stem = public_names(row.sample_id, row.dataset or "")
            published = {
                "rollout_length_source": "camera",
                "physical_dataset": dataset,
                "publish_stem": stem,
                "publication_pixel_frames": frames,
                "publication_source_frame_last": track.frame_indices[-1],
                "camera_publication_convention": "absolute_c2w_opencv",
            }
        scene = (row.extra.get("metadata") or {}).get("scene", "")
        return ClipIdentity(
            fingerprint=blake2s(member).hexdigest(),
            prompt=track.caption,
            frames=frames,
            metadata={
                "key": row.key,
                "source_shard": row.shard,
                "source_row_ordinal": row.ordinal,
                "dataset": row.dataset or "",
                "scene": scene,
                "source_num_frames": track.source_num_frames,
                "source_pixel_frames": frames,
                "train_latent_frames": self._cut.latents,
                "source_frame_last": track.frame_indices[-1],
                "camera_translation_transform": self._cut.translation_transform,
                "validation_input_status": "ok",
                "artifact_valid": True,
                **published,
            },
        )
