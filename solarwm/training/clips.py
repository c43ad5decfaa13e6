"""From an occurrence of the data order to an encoded clip: substitute rule, latent cache, memory.

Shapes: F latent frames, C latent channels, H W latent height and width, T text tokens, D text
width.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2s
from itertools import islice
from typing import Any

import numpy as np
import torch

from solarwm.backbones.seam import VideoCodec
from solarwm.camera.poses import latent_rows, viewmats
from solarwm.data.cameras import CameraRules
from solarwm.data.index import Index
from solarwm.data.latent_cache import CacheKey, LatentCache
from solarwm.data.order import IndexedOrder
from solarwm.data.published_walk import PublishedWalk
from solarwm.data.read_policy import ReadPolicy, Tally, is_read_fault
from solarwm.data.records import Track, read_cameras, read_clip
from solarwm.data.rows import Row
from solarwm.data.shards import ShardReader
from solarwm.errors.types import SolarError

ATTEMPTS = 64
"""Substitutes tried for one occurrence before the data are called unusable."""
LOOK_AHEAD = 512
"""Occurrences searched for the shards that are wanted next."""
MEMORY_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedClip:
    """One sample, ready to be stacked; tensors on the CPU, fp32."""

    sample_id: str
    start_frame: int
    latents_FCHW: torch.Tensor
    text_TD: torch.Tensor
    viewmats_F44: torch.Tensor
    """First-frame-relative world-to-camera, before any translation transform."""
    intrinsics_33: torch.Tensor

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        parts = (self.latents_FCHW, self.text_TD, self.viewmats_F44, self.intrinsics_33)
        return sum(part.numel() * part.element_size() for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipGeometry:
    """How clips are cut from their sources."""

    frames: int
    height: int
    width: int
    fps: float
    """0 keeps the source rate."""
    random_start: bool


@dataclass(frozen=True, slots=True)
class Window:
    """A clip to encode: which row, from which source frame."""

    row_ordinal: int
    start_frame: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """An occurrence whose sample was refused by a guard or could not be read, and why."""

    occurrence: int
    attempt: int
    sample_id: str
    code: str
    reason: str
    is_bad: bool
    """Whether it could not be read, rather than being refused by a guard."""


class ClipSource:
    """Clips by occurrence. Encodes what the cache lacks; safe to share between threads."""

    def __init__(
        self,
        *,
        index: Index,
        order: IndexedOrder | PublishedWalk,
        reader: ShardReader,
        codec: VideoCodec,
        cache: LatentCache,
        geometry: ClipGeometry,
        rules: CameraRules,
        num_latents: int,
        on_skip: Callable[[Skip], None],
        policy: ReadPolicy | None = None,
        shards_ahead: int = 0,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._index = index
        self._order = order
        self._reader = reader
        self._codec = codec
        self._cache = cache
        self._geometry = geometry
        self._rules = rules
        self._rows = list(latent_rows(num_latents))
        self._on_skip = on_skip
        self.policy = policy or ReadPolicy()
        self._shards_ahead = shards_ahead
        self._pending: list[Skip] = []
        self._skipped = 0
        self._bad: set[str] = set()
        self._memory_bytes = memory_bytes
        self._held: OrderedDict[Window, EncodedClip] = OrderedDict()
        self._held_bytes = 0
        self._refused: dict[Window, SolarError] = {}
        self._encoding = threading.Lock()
        self._holding = threading.Lock()

    def clip(self, occurrence: int) -> EncodedClip:
        """The clip of an occurrence, or of its substitute where the policy passes over the sample.

        Each refusal is reported to `on_skip`. Raises any other fault of the data, and `train.data-
        exhausted` (exit 3) when `ATTEMPTS` substitutes in a row are refused.
        """
        fault = None
        for attempt in range(ATTEMPTS):
            window = self.window(occurrence, None if attempt == 0 else attempt - 1)
            try:
                return self.encoded(window)
            except SolarError as error:
                if not self.policy.passes_over(error):
                    raise
                fault = error
                skip = Skip(
                    occurrence=occurrence,
                    attempt=attempt,
                    sample_id=self.sample_of(window),
                    code=error.code,
                    reason=str(error),
                    is_bad=is_read_fault(error),
                )
                with self._holding:
                    self._pending.append(skip)
                self._on_skip(skip)
        raise SolarError(
            "train.data-exhausted",
            f"occurrence {occurrence} and its {ATTEMPTS - 1} substitutes were all refused",
            why=f"the last one: {fault}",
            where=str(self._index.path),
            fixes=["solarwm data validate", "--set data.max_rel_translation=null"],
        )

    def tally(self, cursor: int) -> Tally:
        """What was passed over for the occurrences before `cursor`, whatever has been made ahead;
        the cursor never goes back."""
        with self._holding:
            done = [skip for skip in self._pending if skip.occurrence < cursor]
            self._pending = [skip for skip in self._pending if skip.occurrence >= cursor]
        self._skipped += len(done)
        self._bad.update(skip.sample_id for skip in done if skip.is_bad)
        return Tally(skipped=self._skipped, bad=frozenset(self._bad))

    def window(self, occurrence: int, attempt: int | None = None) -> Window:
        """Which row and start an occurrence means, or its substitute number `attempt`."""
        if attempt is None:
            place = self._order.occurrence(occurrence)
        else:
            place = self._order.substitute(occurrence, attempt)
        row = self._index.rows[place.row_ordinal]
        geometry = self._geometry
        start = self._order.start_frame(
            occurrence,
            row,
            geometry.frames,
            fps=geometry.fps,
            random_start=geometry.random_start,
            attempt=attempt,
        )
        return Window(place.row_ordinal, start)

    def windows(self, first: int, count: int, *, limit: int) -> Iterator[Window]:
        """The different windows among `count` occurrences from `first`, in order of first use, at
        most `limit`."""
        seen: set[Window] = set()
        for occurrence in range(first, first + count):
            window = self.window(occurrence)
            if window not in seen:
                seen.add(window)
                yield window
            if len(seen) >= limit:
                return

    def look_ahead(self, occurrences: Iterable[int]) -> None:
        """Have the shards of the occurrences that come next fetched from their store."""
        if self._shards_ahead and self._reader.is_remote:
            self.look_ahead_at(self.window(k) for k in islice(occurrences, LOOK_AHEAD))

    def look_ahead_at(self, windows: Iterable[Window]) -> None:
        """The same for windows: the first `shards_ahead` different shards among them."""
        if not (self._shards_ahead and self._reader.is_remote):
            return
        wanted: dict[str, int | None] = {}
        for window in islice(windows, LOOK_AHEAD):
            row = self._index.rows[window.row_ordinal]
            wanted.setdefault(row.shard, row.shard_size)
            if len(wanted) == self._shards_ahead:
                break
        self._reader.look_ahead(wanted.items())

    def is_cached(self, window: Window) -> bool:
        """Whether the cache holds a sound entry."""
        return self._cache.get(self._key(window)) is not None

    def encoded(self, window: Window) -> EncodedClip:
        """One clip from memory, cache or source, in this order; loading checks the guards."""
        held = self._held.get(window)
        if held is not None:
            return held
        if window in self._refused:
            raise self._refused[window]
        try:
            clip = self._load(window)
        except SolarError as fault:
            # A store may answer the next time; what is wrong in a file stays wrong.
            if self.policy.passes_over(fault) and fault.exit_code == 3:
                self._refused[window] = fault
            raise
        with self._holding:
            self._hold(window, clip)
        return clip

    def _load(self, window: Window) -> EncodedClip:
        row = self._index.rows[window.row_ordinal]
        key = self._key(window)
        arrays = self._cache.get(key)
        if arrays is not None:
            track: Track = read_cameras(
                self._reader, row, start_frame=window.start_frame, **self._cut()
            )
        else:
            raw = read_clip(self._reader, row, start_frame=window.start_frame, **self._cut())
            track = raw
            # Reading and decoding go on in several threads; the codec takes one clip at a time.
            with self._encoding:
                latents = self._codec.encode_video(torch.from_numpy(raw.pixels_NYX3))
                text = self._codec.encode_text([raw.caption])[0]
            arrays = {"latents": latents.float().cpu().numpy(), "text": text.float().cpu().numpy()}
            self._cache.put(key, arrays)
        poses = np.asarray(track.c2w_N44, dtype=np.float32)[self._rows]
        return EncodedClip(
            sample_id=track.sample_id,
            start_frame=window.start_frame,
            latents_FCHW=torch.from_numpy(np.array(arrays["latents"])),
            text_TD=torch.from_numpy(np.array(arrays["text"])),
            viewmats_F44=torch.from_numpy(np.array(viewmats(poses), dtype=np.float32)),
            intrinsics_33=torch.from_numpy(np.array(track.intrinsics_33, dtype=np.float32)),
        )

    def _cut(self) -> dict[str, Any]:
        geometry = self._geometry
        return {
            "frames": geometry.frames,
            "height": geometry.height,
            "width": geometry.width,
            "fps": geometry.fps,
            "rules": self._rules,
        }

    def _key(self, window: Window) -> CacheKey:
        row: Row = self._index.rows[window.row_ordinal]
        member = row.video_member or ""
        text = (
            f"{self._reader.identity(row.shard, member)}|{row.caption or row.manifest_member or ''}"
        )
        return CacheKey(
            sample_id=row.sample_id,
            start_frame=window.start_frame,
            frames=self._geometry.frames,
            height=self._geometry.height,
            width=self._geometry.width,
            fps=self._geometry.fps,
            source=blake2s(text.encode(), digest_size=16).hexdigest(),
        )

    def sample_id(self, occurrence: int) -> str:
        """The sample that an occurrence means, before any substitute."""
        return self._index.rows[self._order.occurrence(occurrence).row_ordinal].sample_id

    def sample_of(self, window: Window) -> str:
        """The sample a window is cut from."""
        return self._index.rows[window.row_ordinal].sample_id

    def _hold(self, window: Window, clip: EncodedClip) -> None:
        if window in self._held:
            return
        self._held[window] = clip
        self._held_bytes += clip.size
        while self._held_bytes > self._memory_bytes and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._held_bytes -= dropped.size
