"""One save, step by step: plan, stage privately, write shards, prove, mark, publish.

Order on disk: shards (synced by the rank that wrote them), DCP metadata, `state.json`, manifest,
all directories, `COMPLETE.json` last, then one rename that replaces nothing, then the parent
directory.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from solarwm.checkpoints.manifest import (
    MANIFEST_NAME,
    MARKER_NAME,
    METADATA_NAME,
    RUNTIME_NAME,
    STATE_NAME,
    FileEntry,
    Manifest,
    Marker,
    MemberEntry,
    record_bytes,
)
from solarwm.checkpoints.ranks import Ranks
from solarwm.checkpoints.shard_writer import ShardTask, shard_tasks, tensor_bytes, write_shards
from solarwm.checkpoints.state import CheckpointState, StateRecord, describe_tensors
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2b_hex, blake2s_hex, canonical_json
from solarwm.storage.durable import private_sibling, storage_errors, write_new
from solarwm.storage.operations import FileSystem
from solarwm.storage.space import require_free

_SMALL_FILES_SIZE = 1 << 20
_SAMPLED_VALUES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose save this is: the run, and how many saves came before it plus one."""

    run_id: str
    save_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposal:
    """What one rank brings to the plan."""

    plans: dict[str, SavePlan]
    num_bytes: int
    replicas: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """What the leader gives one rank to write, and where."""

    private: Path
    plans: dict[str, SavePlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Receipt:
    """What one rank wrote."""

    results: dict[str, list[WriteResult]]
    files: list[FileEntry]


class SaveTransaction:
    """Writes one checkpoint; `run` is a collective of `ranks`. Used once.

    On any failure on any rank the private directory is removed, nothing is published, and all ranks
    raise.
    """

    def __init__(
        self,
        final: Path,
        step: int,
        state: CheckpointState,
        *,
        ranks: Ranks,
        num_threads: int,
        fs: FileSystem,
    ) -> None:
        self._final = final
        self._step = step
        self._state = state
        self._ranks = ranks
        self._num_threads = num_threads
        self._fs = fs
        self._members = state.members()
        self._planners = {name: DefaultSavePlanner() for name in self._members}
        self._metadata: dict[str, Metadata] = {}
        self._private: Path | None = None

    def run(self, identity: Identity) -> Path:
        """Save; gives the published directory on every rank."""
        ranks = self._ranks
        try:
            proposals = ranks.together(self._propose)
            assignment = ranks.lead(lambda: self._open(proposals))
            receipts = ranks.together(lambda: self._write(assignment))
            return ranks.lead(lambda: [self._publish(receipts, identity)] * ranks.size)
        except BaseException:
            if self._private is not None:
                with contextlib.suppress(OSError):
                    self._fs.remove_tree(self._private)
            raise

    def _propose(self) -> _Proposal:
        plans: dict[str, SavePlan] = {}
        for name, tensors in self._members.items():
            planner = self._planners[name]
            cast(Any, planner).set_up_planner(dict(tensors), None, self._ranks.leads)
            plans[name] = planner.create_local_plan()
        return _Proposal(
            plans=plans,
            num_bytes=sum(
                tensor_bytes(tensors, whole=self._ranks.leads) for tensors in self._members.values()
            ),
            replicas=_replica_prints(self._members) if self._ranks.size > 1 else {},
        )

    def _open(self, proposals: Sequence[_Proposal]) -> list[_Assignment]:
        _require_equal_replicas([proposal.replicas for proposal in proposals])
        need = sum(proposal.num_bytes for proposal in proposals)
        require_free(self._final.parent, need + need // 50 + _SMALL_FILES_SIZE)
        per_rank: list[dict[str, SavePlan]] = [{} for _ in proposals]
        for name, planner in self._planners.items():
            local = [proposal.plans[name] for proposal in proposals]
            plans, self._metadata[name] = planner.create_global_plan(local)
            for chosen, plan in zip(per_rank, plans, strict=True):
                chosen[name] = plan
        private = private_sibling(self._final)
        with storage_errors(self._final):
            self._fs.make_directory(private)
            self._private = private
            for name in [*self._members, RUNTIME_NAME]:
                self._fs.make_directory(private / name)
        return [_Assignment(private=private, plans=plans) for plans in per_rank]

    def _write(self, assignment: _Assignment) -> _Receipt:
        tasks: list[ShardTask] = []
        for name, planner in self._planners.items():
            plan = planner.finish_plan(assignment.plans[name])
            index = self._ranks.index
            tasks += shard_tasks(name, plan, planner, rank_index=index, max_files=self._num_threads)
        receipts = write_shards(
            tasks, assignment.private, num_threads=self._num_threads, fs=self._fs
        )
        results: dict[str, list[WriteResult]] = {name: [] for name in self._members}
        for receipt in receipts:
            results[receipt.member] += receipt.results
        files = [receipt.file for receipt in receipts]
        if self._state.rank_record is not None:
            path = f"{RUNTIME_NAME}/rank-{self._ranks.index:05d}.json"
            data = canonical_json(dict(self._state.rank_record))
            files.append(self._write_small(assignment.private, path, data))
        return _Receipt(results=results, files=files)

    def _publish(self, receipts: Sequence[_Receipt], identity: Identity) -> Path:
        private = cast(Path, self._private)
        files = [file for receipt in receipts for file in receipt.files]
        for name in self._members:
            data = self._metadata_bytes(name, receipts)
            files.append(self._write_small(private, f"{name}/{METADATA_NAME}", data))
        record = StateRecord(
            step=self._step,
            run_id=identity.run_id,
            save_index=identity.save_index,
            world_size=self._ranks.size,
            facts=self._state.facts,
        )
        files.append(self._write_small(private, STATE_NAME, record_bytes(record)))
        manifest = record_bytes(self._manifest(files, identity))
        marker = Marker(
            schema="solarwm.checkpoint-complete.v3",
            step=self._step,
            manifest_digest=blake2s_hex(manifest),
        )
        write_new(private / MANIFEST_NAME, manifest, fs=self._fs)
        with storage_errors(self._final):
            for name in [*self._members, RUNTIME_NAME]:
                self._fs.fsync_directory(private / name)
            write_new(private / MARKER_NAME, record_bytes(marker), fs=self._fs)
            self._fs.fsync_directory(private)
            self._rename(private)
            self._fs.fsync_directory(self._final.parent)
        return self._final

    def _rename(self, private: Path) -> None:
        try:
            self._fs.publish_directory(private, self._final)
        except FileExistsError as fault:
            raise already_there(self._final) from fault
        self._private = None

    def _manifest(self, files: Sequence[FileEntry], identity: Identity) -> Manifest:
        return Manifest(
            schema="solarwm.checkpoint.v3",
            step=self._step,
            run_id=identity.run_id,
            save_index=identity.save_index,
            world_size=self._ranks.size,
            contract=self._state.facts.contract,
            required_components=sorted(self._members),
            members=[
                MemberEntry(name=name, tensors=describe_tensors(tensors))
                for name, tensors in self._members.items()
            ],
            files=sorted(files, key=lambda file: file.path),
        )

    def _metadata_bytes(self, name: str, receipts: Sequence[_Receipt]) -> bytes:
        metadata = self._metadata[name]
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {
            result.index: result.storage_data
            for receipt in receipts
            for result in receipt.results[name]
        }
        return pickle.dumps(metadata)

    def _write_small(self, private: Path, path: str, data: bytes) -> FileEntry:
        write_new(private / path, data, fs=self._fs)
        return FileEntry(path=path, size=len(data), blake2b=blake2b_hex(data))


def already_there(final: Path) -> SolarError:
    """The fault of a step that was saved before."""
    return SolarError(
        "checkpoint.exists",
        "a checkpoint of this step exists already",
        where=str(final),
        why="A save never replaces one.",
        fixes=["Resume from it (--resume latest).", "Move it away, then start again."],
    )


def _replica_prints(members: Mapping[str, Mapping[str, Tensor]]) -> dict[str, str]:
    """A cheap print of every plain tensor: shape, dtype and up to 64 of its values."""
    prints: dict[str, str] = {}
    for member, tensors in members.items():
        for name, tensor in tensors.items():
            if hasattr(tensor, "to_local"):
                continue
            flat = tensor.detach().reshape(-1)
            stride = max(1, flat.numel() // _SAMPLED_VALUES)
            sample = flat[::stride][:_SAMPLED_VALUES].cpu().contiguous().view(torch.uint8)
            digest = blake2b(sample.numpy().tobytes(), digest_size=8).hexdigest()
            prints[f"{member}/{name}"] = f"{tuple(tensor.shape)} {tensor.dtype} {digest}"
    return prints


def _require_equal_replicas(prints: Sequence[dict[str, str]]) -> None:
    first = prints[0]
    for world_rank, other in enumerate(prints):
        if other == first:
            continue
        names = sorted(set(first) ^ set(other)) or sorted(
            name for name in first if first[name] != other[name]
        )
        raise SolarError(
            "checkpoint.replicas-differ",
            "ranks hold different values under one name",
            why=f"{names[0]} on rank {world_rank} differs from rank 0; it is not sharded.",
            context={"name": names[0], "world_rank": world_rank},
        )
