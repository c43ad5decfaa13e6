"""What a generation leaves on disk: one directory per clip, published whole or not at all, markers
last.

    generation/plan.json                         what is made; a resume must ask for the same
    generation/<pass>/slot-NNNNNN/manifest.json  beside its artifacts, renamed into place together
    generation/<pass>/errors/slot-NNNNNN.json    why a clip is missing
    generation/<pass>/sheet.png                  every clip at a few moments (`sheets`)
    generation/<pass>/ordered-manifest.jsonl     every sample manifest in slot order
    generation/<pass>/COMPLETE.json              the pass is whole
    generation/COMPLETE.json                     every pass is whole

A pass may be read when its marker exists. Slots are independent, so a resumed run fills the missing
ones only.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from solarwm.errors.types import SolarError
from solarwm.inference.cases import Case
from solarwm.storage import digests, durable

PLAN_SCHEMA = "solarwm.inference-plan.v1"
SAMPLE_SCHEMA = "solarwm.inference-sample.v1"
ERROR_SCHEMA = "solarwm.inference-error.v1"
PASS_SCHEMA = "solarwm.inference-complete.v1"
GENERATION_SCHEMA = "solarwm.wan22-generation-complete.v1"

MANIFEST = "manifest.json"
ORDERED = "ordered-manifest.jsonl"
COMPLETE = "COMPLETE.json"


@dataclass(slots=True, kw_only=True)
class SlotDraft:
    """A clip being written: put artifacts into `folder`, then say what they are."""

    folder: Path
    shape: tuple[int, ...] = ()
    dtype: str = "uint8"
    metrics: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)


class GenerationStore:
    """The `generation/` directory of one run. Ranks write disjoint slots; one rank begins and
    commits."""

    def __init__(self, root: Path, *, family: str) -> None:
        self.root = root
        self.family = family

    def pass_root(self, pass_name: str) -> Path:
        """Directory of one pass."""
        return self.root / pass_name

    def slot_path(self, pass_name: str, slot: int) -> Path:
        """Public directory of one clip of one pass."""
        return self.pass_root(pass_name) / slot_name(slot)

    def check(self, plan: Mapping[str, Any], *, resume: bool) -> None:
        """Refuse (exit 2) a second start without `resume`, or with another plan. Writes nothing."""
        path = self.root / "plan.json"
        if not path.exists():
            return
        if not resume:
            raise SolarError(
                "inference.output-exists",
                "this output directory already holds a generation",
                where=str(self.root),
                fixes=[
                    "add --resume to fill its missing clips",
                    "--set runtime.output_dir=NEW_DIR",
                ],
            )
        written, asked = json.loads(path.read_bytes()), json.loads(self._plan_bytes(plan))
        changed = sorted(key for key in {*written, *asked} if written.get(key) != asked.get(key))
        if changed:
            raise SolarError(
                "inference.plan-differs",
                "the generation to resume was started for something else",
                where=str(path),
                why=f"these parts of the plan differ: {', '.join(changed)}",
                fixes=[
                    "resume with the config it was started with",
                    "--set runtime.output_dir=NEW_DIR",
                ],
            )

    def begin(self, plan: Mapping[str, Any], *, resume: bool) -> None:
        """Record what is to be made, after `check`; a resume sweeps what a killed run left half
        made."""
        self.check(plan, resume=resume)
        path = self.root / "plan.json"
        if path.exists():
            self._sweep()
            return
        durable.make_directories(self.root)
        durable.create_bytes(path, self._plan_bytes(plan))

    def filled(self, pass_name: str) -> frozenset[int]:
        """Slots of a pass that are published."""
        root = self.pass_root(pass_name)
        if not root.is_dir():
            return frozenset()
        return frozenset(
            int(path.parent.name.removeprefix("slot-")) for path in root.glob(f"slot-*/{MANIFEST}")
        )

    def is_complete(self) -> bool:
        """Whether every pass is whole."""
        return (self.root / COMPLETE).is_file()

    @contextmanager
    def slot(self, pass_name: str, case: Case, *, weights_id: str) -> Iterator[SlotDraft]:
        """A private directory for one clip, published by a no-replace rename when the block ends
        well."""
        final = self.slot_path(pass_name, case.slot)
        final.parent.mkdir(parents=True, exist_ok=True)
        with durable.staged_directory(final) as private:
            draft = SlotDraft(folder=private)
            yield draft
            manifest = {
                "schema": SAMPLE_SCHEMA,
                "family": self.family,
                "weights_id": weights_id,
                "case": case.manifest(),
                "shape": list(draft.shape),
                "dtype": draft.dtype,
                "metrics": draft.metrics,
                "provenance": draft.provenance,
                "artifacts": _artifacts(private, slot_name(case.slot)),
            }
            (private / MANIFEST).write_bytes(digests.canonical_json(manifest))
        self._error_path(pass_name, case.slot).unlink(missing_ok=True)

    def fail(self, pass_name: str, case: Case, fault: BaseException, *, world_rank: int) -> Path:
        """Record why a clip could not be made; a later try replaces the record. Gives its path."""
        code = fault.code if isinstance(fault, SolarError) else "bug.unexpected"
        record = {
            "schema": ERROR_SCHEMA,
            "family": self.family,
            "pass": pass_name,
            "case": case.manifest(),
            "error": {"code": code, "type": type(fault).__name__, "message": str(fault)},
            "world_rank": world_rank,
        }
        path = self._error_path(pass_name, case.slot)
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_bytes_atomic(path, digests.human_json(record))
        return path

    def failures(self, pass_name: str) -> tuple[dict[str, Any], ...]:
        """Error records of a pass in slot order."""
        paths = sorted((self.pass_root(pass_name) / "errors").glob("slot-*.json"))
        return tuple(json.loads(path.read_bytes()) for path in paths)

    def manifests(self, pass_name: str) -> tuple[dict[str, Any], ...]:
        """Sample manifests of a pass in slot order."""
        return tuple(
            json.loads((self.slot_path(pass_name, slot) / MANIFEST).read_bytes())
            for slot in sorted(self.filled(pass_name))
        )

    def commit_pass(
        self, pass_name: str, cases: Sequence[Case], *, weights_id: str
    ) -> dict[str, Any]:
        """Check every clip against its manifest, write the ordered manifest, then the marker of the
        pass.

        Gives the pass's entry of the generation marker. Raises `inference.incomplete` (exit 4)
        where a slot is missing or an artifact is not what its manifest says. A pass that is already
        whole is left as it is.
        """
        body = b"".join(self._checked_manifest(pass_name, case) for case in cases)
        digest = digests.blake2s_hex(body)
        marker = {
            "schema": PASS_SCHEMA,
            "family": self.family,
            "weights_id": weights_id,
            "cases": len(cases),
            "ordered_manifest_digest": digest,
        }
        root = self.pass_root(pass_name)
        create_same(root / ORDERED, body)
        create_same(root / COMPLETE, digests.canonical_json(marker))
        return {
            "pass": pass_name,
            "weights_id": weights_id,
            "cases": len(cases),
            "ordered_manifest_digest": digest,
        }

    def commit(
        self,
        passes: Sequence[Mapping[str, Any]],
        *,
        test_index: str,
        selection_seed: int,
        noise_seed: int,
        cases: int,
    ) -> None:
        """Write the marker of the whole generation, last of all."""
        marker = {
            "schema": GENERATION_SCHEMA,
            "family": self.family,
            "test_index": test_index,
            "selection_seed": selection_seed,
            "noise_seed": noise_seed,
            "cases": cases,
            "passes": [dict(entry) for entry in passes],
            "weights_ids": sorted({str(entry["weights_id"]) for entry in passes}),
            "shared_inference_validation_implementation": True,
            "logical_dp_partitioned": True,
            "node_local_artifacts": False,
        }
        create_same(self.root / COMPLETE, digests.canonical_json(marker))

    def _plan_bytes(self, plan: Mapping[str, Any]) -> bytes:
        return digests.canonical_json({"schema": PLAN_SCHEMA, "family": self.family, **plan})

    def _checked_manifest(self, pass_name: str, case: Case) -> bytes:
        folder = self.slot_path(pass_name, case.slot)
        try:
            body = (folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            raise _incomplete(folder, "the clip is missing") from None
        manifest = json.loads(body)
        if manifest["case"] != json.loads(digests.canonical_json(case.manifest())):
            raise _incomplete(folder, "the clip in this place is another one")
        for artifact in manifest["artifacts"]:
            path = self.pass_root(pass_name) / artifact["path"]
            if not path.is_file() or path.stat().st_size != artifact["bytes"]:
                raise _incomplete(path, "the artifact is missing or has another size")
            if digests.file_blake2s(path) != artifact["digest"]:
                raise _incomplete(path, "the artifact's digest is not the recorded one")
        return body

    def _error_path(self, pass_name: str, slot: int) -> Path:
        return self.pass_root(pass_name) / "errors" / f"{slot_name(slot)}.json"

    def _sweep(self) -> None:
        for private in self.root.glob("*/.slot-*"):
            if private.is_dir() and not private.is_symlink():
                shutil.rmtree(private, ignore_errors=True)


def slot_name(slot: int) -> str:
    """Directory name of a slot."""
    return f"slot-{slot:06d}"


def is_shared_fault(fault: BaseException) -> bool:
    """Whether a fault spoils the run rather than one clip: its surroundings, another rank, or a
    bug."""
    return not (isinstance(fault, SolarError) and fault.exit_code in (3, 7))


def attempt(make: Callable[[], None], on_fault: Callable[[BaseException], None]) -> bool:
    """Run `make`; a fault of one clip goes to `on_fault` and gives False, any other fault is
    raised."""
    try:
        make()
    except SolarError as fault:
        if is_shared_fault(fault):
            raise
        on_fault(fault)
        return False
    return True


def _artifacts(folder: Path, prefix: str) -> list[dict[str, Any]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        if path.name == MANIFEST:
            raise ValueError(f"{MANIFEST} is a reserved artifact name")
    return [
        {
            "path": f"{prefix}/{path.relative_to(folder).as_posix()}",
            "bytes": path.stat().st_size,
            "digest": digests.file_blake2s(path),
        }
        for path in paths
    ]


def create_same(path: Path, body: bytes) -> None:
    """Create a file; one that already holds the same bytes is taken as done, another is never
    replaced."""
    try:
        durable.create_bytes(path, body)
    except FileExistsError:
        if path.read_bytes() != body:
            raise _incomplete(path, "the file is there with other contents") from None


def _incomplete(path: Path, why: str) -> SolarError:
    return SolarError(
        "inference.incomplete",
        "the generation is not whole",
        where=str(path),
        why=why,
        fixes=["run the same command with --resume"],
    )
