"""The publication of a preencoding: shards and physical index first, then the indexes training reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.data.cameras import CameraRules
from solarwm.data.index import Index, read_index
from solarwm.data.latent_store import (
    MARKER,
    PREFIX,
    LatentStore,
    Limits,
    publish_logical,
    read_marker,
    require_same_marker,
)
from solarwm.data.record_contracts import EncoderContract
from solarwm.errors.types import SolarError
from solarwm.runs.session import RunSession

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.distributed.group import RankGroup

FINGERPRINT_SCHEMA = "solarwm.preencode-fingerprint.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is known before anything is written."""

    resolved: ResolvedRun
    index: Index
    contract: EncoderContract
    rules: CameraRules
    index_digest: str

    @property
    def section(self) -> Any:
        """The `preencode` section."""
        return self.resolved.config.preencode  # type: ignore[attr-defined]

    def fingerprint(self, codec_digest: str) -> dict[str, Any]:
        """What the records follow from; training compares it with its own config."""
        data: Any = self.resolved.config.data
        return {
            "schema": FINGERPRINT_SCHEMA,
            "family": self.resolved.route.family,
            "format": self.section.schema_id,
            "index_digest": self.index_digest,
            "pixel_frames": self.contract.pixel_frames,
            "latent_frames": self.contract.latent_frames,
            "height": self.contract.height,
            "width": self.contract.width,
            "fps": data.fps,
            "dtype": self.section.dtype,
            "max_rel_translation": self.rules.max_rel_translation,
            "max_camera_abs": self.rules.max_camera_abs,
            "encoder_contract_digest": self.contract.digest,
            "codec_digest": codec_digest,
            "generation_id": self.section.generation_id,
            "shard_max_samples": self.section.shard_max_samples,
            "shard_max_bytes": self.section.shard_max_bytes,
        }


def require_ours(target: Path, fingerprint: Mapping[str, Any]) -> None:
    """Refuse (exit 2) a target that is not the finished set of this very work."""
    marker = read_marker(target)
    if marker is None:
        raise SolarError(
            "preencode.other-work",
            "the target exists and is no finished data set",
            where=str(target),
            why=f"it has no {MARKER}; existing directories are never touched",
            fixes=["--set preencode.output_root=NEW_DIR"],
        )
    require_same_marker(target, marker, fingerprint)


def publish_records(
    session: RunSession,
    group: RankGroup,
    store: LatentStore,
    prepared: Prepared,
    failures: list[dict[str, Any]],
    fingerprint: Mapping[str, Any],
) -> None:
    """Every rank's shards, then the whole physical tree at once. Collective over all ranks."""
    from solarwm.distributed.collectives import share_outcome

    section = prepared.section
    limits = Limits(samples=section.shard_max_samples, num_bytes=section.shard_max_bytes)
    mine = prepared.index.rows[group.world_rank :: group.world_size]
    fault: SolarError | None = None
    part = None
    try:
        part = store.assemble(
            (row.sample_id for row in mine), world_rank=group.world_rank, limits=limits
        )
    except SolarError as error:
        fault = error
    share_outcome(group.collectives, fault, label="shards written")
    assert part is not None
    parts = group.collectives.gather_objects(part, label="shard rows")
    lacking = group.collectives.gather_objects(failures, label="failed rows")
    if session.is_main:
        try:
            rows = [row for _, row in sorted((p for q in parts for p in q.rows), key=_ordinal)]
            failed = sorted((f for q in lacking for f in q), key=lambda item: item["row"])
            _require_some(store.target, rows, failed)
            marker = {
                "schema": f"{PREFIX}-physical-complete.v1",
                "generation_id": section.generation_id,
                "samples": len(rows),
                "shards": sum(q.shards for q in parts),
                "encoder_contract_digest": prepared.contract.digest,
                "fingerprint": dict(fingerprint),
            }
            store.publish(rows, failed, contract=prepared.contract.plain(), marker=marker)
        except SolarError as error:
            fault = error
    share_outcome(group.collectives, fault, label="data set published")


def publish_indexes(
    session: RunSession,
    group: RankGroup,
    store: LatentStore,
    prepared: Prepared,
    fingerprint: Mapping[str, Any],
) -> None:
    """The logical indexes, where they are not out yet; then tell what the set lacks."""
    from solarwm.distributed.collectives import share_outcome

    section = prepared.section
    logical = Path(section.logical_output_root)
    fault: SolarError | None = None
    marker: dict[str, Any] = {}
    if session.is_main:
        try:
            marker = read_marker(store.target) or {}
            if logical.exists():
                require_ours(logical, fingerprint)
            else:
                index = read_index(store.target / "control" / "physical-index.jsonl.gz")
                recipe = {
                    "generation_id": section.generation_id,
                    "format": section.schema_id,
                    "encoder_contract_digest": prepared.contract.digest,
                    "physical_index_digest": marker["index_digest"],
                    "fingerprint": dict(fingerprint),
                }
                publish_logical(logical, [_plain_row(row) for row in index.rows], recipe=recipe)
            store.clear()
        except SolarError as error:
            fault = error
    share_outcome(group.collectives, fault, label="indexes published")
    marker = group.collectives.gather_objects(marker, label="preencode marker")[0]
    samples, failed = marker["samples"], marker["failed"]
    session.emit("note", text=f"{samples} records in {store.target}, indexes in {logical}")
    session.note_outcome(samples=samples, failed=failed, shards=marker["shards"])
    if failed:
        raise SolarError(
            "preencode.incomplete",
            f"{failed} of {samples + failed} clips could not be encoded",
            where=str(store.target / "control" / "errors.jsonl"),
            why="the data set was published without them; the file names each with its reason",
            fixes=[
                "train with what is there",
                "mend the clips and encode again with --set preencode.output_root=NEW_DIR",
            ],
        )


def _plain_row(row: Any) -> dict[str, Any]:
    """A typed row as the JSON object it was read from."""
    named = {
        field.name: getattr(row, field.name)
        for field in fields(row)
        if field.name not in ("ordinal", "extra") and getattr(row, field.name) is not None
    }
    if "source_frame_indices" in named:
        named["source_frame_indices"] = list(named["source_frame_indices"])
    return {**named, **row.extra}


def _require_some(target: Path, rows: list[Any], failed: list[dict[str, Any]]) -> None:
    if not rows:
        raise SolarError(
            "latent.none",
            f"none of {len(failed)} clips could be encoded",
            where=str(target),
            why=f"the first: {failed[0]['sample_id']}: {failed[0]['message']} ({failed[0]['why']})",
            fixes=["solarwm data validate INDEX"],
        )


def _ordinal(pair: tuple[int, Any]) -> int:
    return pair[0]
