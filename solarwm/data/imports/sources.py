"""What a user points `data import` at: a folder of videos, or a table that names them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solarwm.data.imports.tracks import kind_of, natural
from solarwm.errors.types import SolarError

VIDEO_SUFFIXES = (".mp4", ".m4v")
TABLE_SUFFIXES = (".csv", ".json", ".jsonl")
_CLIP_CAMERAS = (
    "poses.npy",
    "camera.npz",
    "cameras.npz",
    "camera.npy",
    "cameras.npy",
    "transforms.json",
    "cameras.txt",
    "camera.txt",
    "poses.txt",
    "trajectory.txt",
    "sparse/0",
    "sparse",
    "colmap",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportClip:
    """One video to import, with what stands beside it."""

    name: str
    """Path below the source, without its suffix: the second half of the sample id."""
    video: Path
    caption: str = ""
    cameras: Path | None = None
    declared_fps: float | None = None
    place: str = ""
    """Where it is named, for errors: a file, or table and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns of a table are read; the defaults are DiffSynth's."""

    video: str = "video"
    caption: str = "prompt"
    fps: str = "frame_rate"
    cameras: str = "camera"


def find_clips(source: Path, columns: Columns) -> list[ImportClip]:
    """The clips of a folder or table, in natural order of their names.

    Raises SolarError `import.*` (exit 3): nothing there, a table in another encoding (with the
    offending byte), without its video column, or naming one clip twice; every bad line at once.
    """
    if not source.exists():
        raise _fault("nothing", f"there is nothing at {source}", source)
    if source.is_dir():
        clips = _folder(source)
    elif source.suffix.lower() in TABLE_SUFFIXES:
        clips = _table(source, columns)
    else:
        kinds = ", ".join(TABLE_SUFFIXES)
        raise _fault("nothing", f"{source.name} is neither a folder nor a table ({kinds})", source)
    if not clips:
        kinds = ", ".join(VIDEO_SUFFIXES)
        raise _fault("nothing", f"no videos ({kinds}) are in {source}", source)
    return clips


def _folder(root: Path) -> list[ImportClip]:
    videos = [p for p in root.rglob("*") if p.suffix.lower() in VIDEO_SUFFIXES]
    videos.sort(key=lambda path: natural(path.relative_to(root).as_posix()))
    alone: dict[Path, int] = {}
    for video in videos:
        alone[video.parent] = alone.get(video.parent, 0) + 1
    return [_beside(root, video, own_folder=alone[video.parent] == 1) for video in videos]


def _beside(root: Path, video: Path, *, own_folder: bool) -> ImportClip:
    stem = video.with_suffix("")
    relative = video.relative_to(root)
    own_folder = own_folder and video.parent != root
    name = relative.with_suffix("").as_posix()
    if own_folder and video.stem == "video":
        name = relative.parent.as_posix()
    cameras = [stem.with_name(f"{stem.name}{end}") for end in (".npz", ".camera.npz", ".npy")]
    cameras += [stem.with_name(f"{stem.name}{end}") for end in (".json", ".cameras.txt", ".txt")]
    cameras += [stem, stem / "sparse" / "0"]
    captions = [stem.with_name(f"{stem.name}{end}") for end in (".prompt.txt", ".caption.txt")]
    captions.append(stem.with_name(f"{stem.name}.txt"))
    if own_folder:
        cameras += [video.parent / place for place in _CLIP_CAMERAS]
        captions += [video.parent / "prompt.txt", video.parent / "caption.txt"]
    track = next((p for p in cameras if p.exists() and kind_of(p) is not None), None)
    words = next((p for p in captions if p.is_file() and p != track), None)
    return ImportClip(
        name=name,
        video=video,
        caption=_decoded(words.read_bytes(), words).strip() if words else "",
        cameras=track,
        place=str(video),
    )


def _table(path: Path, columns: Columns) -> list[ImportClip]:
    text = _decoded(path.read_bytes(), path)
    rows = _csv_rows(text, path) if path.suffix.lower() == ".csv" else _json_rows(text, path)
    faults: list[SolarError] = []
    clips: dict[str, ImportClip] = {}
    for line, row in rows:
        place = f"{path}:{line}"
        video = str(row.get(columns.video) or "").strip()
        if not video:
            known = ", ".join(map(str, row)) or "none"
            faults.append(
                _fault(
                    "bad-row",
                    f"the row names no {columns.video}",
                    place,
                    why=f"columns: {known}",
                    fix=f"--video-column NAME, if it is not {columns.video!r}",
                )
            )
            continue
        name = Path(video).with_suffix("").as_posix().lstrip("/")
        if name in clips:
            why = f"it stands already at {clips[name].place}"
            faults.append(_fault("bad-row", f"{video} is named twice", place, why=why))
            continue
        cameras = str(row.get(columns.cameras) or "").strip()
        fps = _rate(row.get(columns.fps), columns.fps, place, faults)
        clips[name] = ImportClip(
            name=name,
            video=path.parent / video,
            caption=_words(row.get(columns.caption)),
            cameras=path.parent / cameras if cameras else None,
            declared_fps=fps,
            place=place,
        )
    if faults:
        from solarwm.errors.types import FaultList

        raise FaultList(faults)
    return list(clips.values())


def _csv_rows(text: str, path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, Mapping[str, Any]]] = []
    try:
        for row in reader:
            if None in row:
                why = f"line {reader.line_num} has more cells than the header"
                raise _fault("bad-row", "the table is ragged", f"{path}:{reader.line_num}", why=why)
            if any(value for value in row.values()):
                rows.append((reader.line_num, row))
    except csv.Error as error:
        place = f"{path}:{reader.line_num}"
        raise _fault("bad-row", "the table is not valid CSV", place, why=str(error)) from None
    return rows


def _json_rows(text: str, path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    try:
        if path.suffix.lower() == ".json":
            values = list(enumerate(json.loads(text), start=1))
        else:
            lines = list(enumerate(text.splitlines(), start=1))
            values = [(number, json.loads(line)) for number, line in lines if line.strip()]
    except (ValueError, TypeError, RecursionError) as error:
        raise _fault("bad-row", "the table is not valid JSON", path, why=str(error)) from None
    for number, value in values:
        if not isinstance(value, dict):
            raise _fault("bad-row", "a row is not an object", f"{path}:{number}")
    return values


def _words(value: object) -> str:
    """A prompt as text: 123 and NaN are words here, an empty cell is none."""
    return "" if value is None else str(value).strip()


def _rate(value: object, column: str, place: str, faults: list[SolarError]) -> float | None:
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    try:
        rate = float(text)
        if 0 < rate < 1e4:
            return rate
    except ValueError:
        pass
    faults.append(
        _fault("bad-row", f"{column} is no frame rate", place, why=f"it is {text[:40]!r}")
    )
    return None


def _decoded(data: bytes, path: Path) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _fault("encoding", f"{path.name} is UTF-16", path, why="byte 0 is a UTF-16 mark")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        why = f"byte 0x{data[error.start]:02x} at offset {error.start} (line {line}) is not UTF-8"
        raise _fault("encoding", f"{path.name} is not UTF-8", path, why=why) from None


def _fault(kind: str, headline: str, where: object, *, why: str = "", fix: str = "") -> SolarError:
    fixes: Sequence[str] = [fix] if fix else ()
    if kind == "encoding":
        fixes = [f"iconv -f GBK -t UTF-8 {where} > fixed.csv (name the real encoding)"]
    return SolarError(f"import.{kind}", headline, where=str(where), why=why, fixes=fixes)
