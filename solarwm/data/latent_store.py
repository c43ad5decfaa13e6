"""A latent data set being made: finished records kept one by one, then shards, markers, publication.

Records lie in a private work directory beside the target until every rank is done, so a killed run
goes on where it stopped and ends with the same bytes. Layout and file names are the published ones.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s, md5
from pathlib import Path
from typing import Any

from solarwm.data.packing import index_bytes
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json, human_json
from solarwm.storage.durable import (
    fsync_directory,
    make_directories,
    staged_directory,
    storage_errors,
    sync_tree,
    write_bytes_atomic,
)
from solarwm.storage.operations import LOCAL

PREFIX = "solarwm.wan22-preencode"
SAMPLE_SCHEMA = "solarwm.preencoded-sample.v1"
MARKER = "COMPLETE.json"
_RECORD_SIZE = 10240


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One encoded sample: member bytes by suffix, and its index row without shard and members."""

    sample_id: str
    ordinal: int
    members: Mapping[str, bytes]
    provenance: Mapping[str, Any]
    row: Mapping[str, Any]


def folder_of(sample_id: str) -> str:
    """Where a sample's members stand in a shard: `samples/<24 hex of BLAKE2s(sample_id)>`."""
    return f"samples/{blake2s_hex(sample_id.encode())[:24]}"


def entries(record: Record) -> bytes:
    """The tar entries of a record, without the end of the archive: suffixes sorted, provenance last."""
    folder = folder_of(record.sample_id)
    target = io.BytesIO()
    tar = tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
    provenance = canonical_json(dict(record.provenance))
    for suffix, data in [*sorted(record.members.items()), ("provenance.json", provenance)]:
        info = tarfile.TarInfo(f"{folder}/{suffix}")
        info.size, info.mode, info.mtime = len(data), 0o644, 0
        tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


@dataclass(frozen=True, slots=True)
class _Finished:
    """A record in the work directory."""

    place: Path
    ordinal: int
    num_bytes: int
    digest: str
    row: dict[str, Any]
    estimate: int


@dataclass(slots=True)
class _Shard:
    """Records that will lie in one file."""

    records: list[_Finished] = field(default_factory=list[_Finished])
    size: int = 0


class LatentStore:
    """The work directory `.NAME.preencode` beside a target directory `NAME`; ranks share it."""

    def __init__(self, target: Path) -> None:
        self.target = Path(target)
        self.work = self.target.parent / f".{self.target.name}.preencode"
        self._records = self.work / "records"
        self.stage = self.work / "stage"

    def begin(self, fingerprint: Mapping[str, Any]) -> None:
        """Open the work directory, new or left by an earlier start of the same work. For rank 0.

        Raises `preencode.other-work` (exit 2) when what lies there was made from something else.
        """
        path = self.work / "fingerprint.json"
        wanted = canonical_json(dict(fingerprint))
        if path.is_file():
            _require_same(path, json.loads(path.read_bytes()), fingerprint)
        make_directories(self._records)
        write_bytes_atomic(path, wanted)
        if self.stage.exists():
            shutil.rmtree(self.stage)

    def has(self, sample_id: str) -> bool:
        """Whether the record of a sample is there, whole."""
        found = self._finished(sample_id)
        return found is not None and found.place.stat().st_size == found.num_bytes

    def put(self, record: Record) -> None:
        """Keep a finished record. Raises `disk.*` (exit 5)."""
        data = entries(record)
        place = self._place(record.sample_id, ".tar")
        write_bytes_atomic(place, data)
        note = {
            "sample_id": record.sample_id,
            "ordinal": record.ordinal,
            "bytes": len(data),
            "digest": blake2s_hex(data),
            "members": sorted(record.members),
            "estimate": sum(map(len, record.members.values())) + 1024 * (len(record.members) + 3),
            "row": dict(record.row),
        }
        write_bytes_atomic(self._place(record.sample_id, ".json"), canonical_json(note))

    def assemble(self, sample_ids: Iterable[str], *, world_rank: int, limits: Limits) -> RankPart:
        """Write this rank's shards and their receipts into the stage; gives what it wrote."""
        shards: dict[tuple[str, str], list[_Shard]] = {}
        for sample_id in sample_ids:
            found = self._finished(sample_id)
            if found is None:
                continue
            group = shards.setdefault((found.row["dataset"], found.row["kept_tier"]), [])
            if not group or not _has_room(group[-1], found, limits):
                group.append(_Shard())
            group[-1].records.append(found)
            group[-1].size += found.estimate
        rows: list[tuple[int, dict[str, Any]]] = []
        receipts: list[dict[str, Any]] = []
        for (dataset, tier), group in shards.items():
            for number, shard in enumerate(group):
                name = f"kept-{tier}-r{world_rank:04d}-{number:06d}"
                identity = self._write_shard(f"{dataset}/shards/{name}.tar", shard)
                rows += [(item.ordinal, {**item.row, **identity}) for item in shard.records]
                receipt = {
                    "schema": f"{PREFIX}-shard-receipt.v1",
                    **identity,
                    "sample_ids": [item.row["sample_id"] for item in shard.records],
                }
                path = self.stage / dataset / "shards" / "_parts" / "tasks" / f"{name}.json"
                make_directories(path.parent)
                write_bytes_atomic(path, canonical_json(receipt))
                receipts.append(receipt)
        part = {"world_rank": world_rank, "samples": len(rows), "shards": len(receipts)}
        path = self.stage / "control" / "ranks" / f"rank-{world_rank:05d}.json"
        make_directories(path.parent)
        write_bytes_atomic(path, canonical_json(part))
        return RankPart(rows=rows, shards=len(receipts))

    def publish(
        self,
        rows: Sequence[Mapping[str, Any]],
        failures: Sequence[Mapping[str, Any]],
        *,
        contract: Mapping[str, Any],
        marker: Mapping[str, Any],
    ) -> None:
        """Write index, contract, errors and the marker, then show the whole tree at once. For rank 0."""
        control = self.stage / "control"
        data = index_bytes(dict(row) for row in rows)
        write_bytes_atomic(control / "physical-index.jsonl.gz", data)
        write_bytes_atomic(control / "encoder-contract.json", canonical_json(dict(contract)))
        if failures:
            lines = b"".join(canonical_json(dict(failure)) for failure in failures)
            write_bytes_atomic(control / "errors.jsonl", lines)
        complete = {**marker, "index_digest": blake2s_hex(data), "failed": len(failures)}
        write_bytes_atomic(self.stage / MARKER, canonical_json(complete))
        with storage_errors(self.target):
            sync_tree(self.stage)
            LOCAL.publish_directory(self.stage, self.target)
        fsync_directory(self.target.parent)

    def clear(self) -> None:
        """Remove the work directory of a published set. For rank 0."""
        shutil.rmtree(self.work, ignore_errors=True)

    def _write_shard(self, name: str, shard: _Shard) -> dict[str, Any]:
        path = self.stage / name
        make_directories(path.parent)
        digest, checksum, size = blake2s(), md5(usedforsecurity=False), 0
        with storage_errors(path), open(path, "wb") as file:
            for block in self._blocks(shard):
                file.write(block)
                digest.update(block)
                checksum.update(block)
                size += len(block)
        return {
            "shard": name,
            "shard_size": size,
            "shard_digest": digest.hexdigest(),
            "shard_md5_b64": b64encode(checksum.digest()).decode("ascii"),
            "shard_generation": f"local-digest:{digest.hexdigest()}",
        }

    def _blocks(self, shard: _Shard) -> Iterator[bytes]:
        size = 0
        for item in shard.records:
            data = item.place.read_bytes()
            if blake2s_hex(data) != item.digest:
                raise SolarError(
                    "latent.unreadable",
                    f"the kept record of {item.row['sample_id']} was altered",
                    where=str(item.place),
                    why=f"digest {blake2s_hex(data)[:16]}, written as {item.digest[:16]}",
                    fixes=[f"rm {item.place}", "run the same command again"],
                )
            size += len(data)
            yield data
        yield b"\0" * (1024 + (-(size + 1024)) % _RECORD_SIZE)

    def _finished(self, sample_id: str) -> _Finished | None:
        place = self._place(sample_id, ".tar")
        try:
            note = json.loads(self._place(sample_id, ".json").read_bytes())
        except (OSError, ValueError):
            return None
        if note["sample_id"] != sample_id or not place.is_file():
            return None
        folder = folder_of(sample_id)
        row = note["row"] | {
            "members": {suffix: f"{folder}/{suffix}" for suffix in note["members"]},
            "provenance_member": f"{folder}/provenance.json",
        }
        return _Finished(
            place, note["ordinal"], note["bytes"], note["digest"], row, note["estimate"]
        )

    def _place(self, sample_id: str, ending: str) -> Path:
        return self._records / f"{folder_of(sample_id).removeprefix('samples/')}{ending}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large a shard may become."""

    samples: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """What one rank put into the stage: index rows by source ordinal, and how many shards."""

    rows: list[tuple[int, dict[str, Any]]]
    shards: int


def publish_logical(
    root: Path, rows: Sequence[Mapping[str, Any]], *, recipe: Mapping[str, Any]
) -> None:
    """The indexes training reads, with recipe, statistics and marker, shown at once. For rank 0.

    A split without rows gets no index. Raises `index.overlap` (exit 3) when a sample or its source
    stands in both splits.
    """
    by_split = {
        split: [dict(row) for row in rows if row["split"] == split] for split in ("train", "test")
    }
    for name in ("sample_id", "source_sample_id"):
        shared = {row[name] for row in by_split["train"]} & {row[name] for row in by_split["test"]}
        if shared:
            raise SolarError(
                "index.overlap",
                f"{len(shared)} {name}s stand in both the train and the test split",
                where=str(root),
                why=f"for example {sorted(shared)[0]}",
                fixes=["give every window of a source the same split in the index"],
            )
    make_directories(root.parent)
    with staged_directory(root) as stage:
        digests: dict[str, str] = {}
        for split, found in by_split.items():
            if found:
                data = index_bytes(found)
                (stage / f"{split}-index.jsonl.gz").write_bytes(data)
                digests[split] = blake2s_hex(data)
        counts = {split: len(found) for split, found in by_split.items()}
        stats = {
            "schema": f"{PREFIX}-stats.v1",
            "samples": counts,
            "datasets": _counted(row["dataset"] for row in rows),
            "tiers": _counted(row["kept_tier"] for row in rows),
        }
        (stage / "recipe.json").write_bytes(human_json({"schema": f"{PREFIX}-recipe.v1", **recipe}))
        (stage / "stats.json").write_bytes(human_json(stats))
        marker = {
            "schema": f"{PREFIX}-logical-complete.v1",
            **recipe,
            "samples": counts,
            "index_digests": digests,
        }
        (stage / MARKER).write_bytes(canonical_json(marker))


def read_marker(root: Path) -> dict[str, Any] | None:
    """The completion marker of a data set, or None where there is none.

    Raises `latent.marker` (exit 3) for one that cannot be read.
    """
    path = Path(root) / MARKER
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        found = str(error)
    if not isinstance(found, dict):
        raise SolarError(
            "latent.marker",
            "the completion marker cannot be read",
            where=str(path),
            why=str(found),
            fixes=["encode the data set again, or copy the marker again"],
        )
    return found


def _require_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    different = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    if different:
        key = different[0]
        raise SolarError(
            "preencode.other-work",
            "the place holds another preencoding",
            where=str(path.parent),
            why=f"{key} is {found.get(key)!r} there and {wanted.get(key)!r} here"
            + (f"; also {', '.join(different[1:])} differ" if different[1:] else ""),
            fixes=["--set preencode.output_root=NEW_DIR", f"rm -r {path.parent}"],
        )


def require_same_marker(target: Path, marker: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse (exit 2) a published set whose fingerprint is another one."""
    _require_same(target / MARKER, marker.get("fingerprint") or {}, wanted)


def _has_room(shard: _Shard, item: _Finished, limits: Limits) -> bool:
    return len(shard.records) < limits.samples and shard.size + item.estimate <= limits.num_bytes


def _counted(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return found
