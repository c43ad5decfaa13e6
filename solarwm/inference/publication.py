"""The camera-length publication `dataset_triplet_v1`: clips by data set and name, beside the runs that
made them.

    OUTPUT/generate/<dataset>/<clip>.mp4       the clip
    OUTPUT/compare/<dataset>/<clip>.mp4        truth left, clip right
    OUTPUT/camera/<dataset>/<clip>.npy         float64 absolute camera-to-world [frames,4,4]
    OUTPUT/runs/<run id>/                      the run: generation/, publication/, COMPLETE.json last

The three are second names of the files of the generation (copies where there are no hard links). Every
name is created once and never replaced. No torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.errors.types import SolarError
from solarwm.inference.cases import Case
from solarwm.inference.transaction import (
    COMPLETE,
    MANIFEST,
    ORDERED,
    GenerationStore,
    create_same,
    slot_name,
)
from solarwm.storage import digests, durable

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.distributed.environment import Launcher

LAYOUT = "dataset_triplet_v1"
SAMPLE_SCHEMA = "solarwm.wan22-camera-publication-sample.v1"
PUBLICATION_SCHEMA = "solarwm.wan22-camera-publication-complete.v1"
RUN_SCHEMA = "solarwm.camera-inference-run-complete.v1"
FILES = {"generate": "video.mp4", "compare": "compare.mp4", "camera": "camera.npy"}
"""Public folder to artifact of a slot."""
_LONGEST = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraPublication:
    """Where the clips of one run are published."""

    output: Path
    run_id: str
    pass_name: str

    @property
    def run_root(self) -> Path:
        """The run directory."""
        return self.output / "runs" / self.run_id

    @property
    def root(self) -> Path:
        """Receipts and markers of the publication."""
        return self.run_root / "publication"

    @property
    def is_complete(self) -> bool:
        """Whether the run is whole, published and marked."""
        return (self.run_root / COMPLETE).is_file()

    def targets(self, case: Case) -> dict[str, Path]:
        """The public names of a case."""
        dataset, stem = case.metadata["physical_dataset"], case.metadata["publish_stem"]
        return {
            folder: self.output / folder / dataset / f"{stem}{Path(name).suffix}"
            for folder, name in FILES.items()
        }

    def check_names(self, cases: Sequence[Case], store: GenerationStore) -> None:
        """Refuse (exit 2) names that two cases share or that somebody else's file has. Writes
        nothing."""
        seen: dict[Path, Case] = {}
        for case in cases:
            own = self._artifacts(case, store)
            for folder, target in self.targets(case).items():
                other = seen.setdefault(target, case)
                if other is not case:
                    raise _taken(target, f"{other.sample_id} and {case.sample_id} share this name")
                if target.exists() and not _is(target, own.get(FILES[folder])):
                    raise _taken(target, "another run published a file of this name")

    def publish(self, cases: Sequence[Case], store: GenerationStore, *, weights_id: str) -> None:
        """Give every clip its public names, then write receipts, the ordered manifest and the marker.
        What an earlier try published stays. For one rank, after the generation is whole."""
        body = b"".join(self._publish(case, store) for case in cases)
        marker = {
            "schema": PUBLICATION_SCHEMA,
            "layout": LAYOUT,
            "run_id": self.run_id,
            "family": store.family,
            "weights_id": weights_id,
            "generation_pass": self.pass_name,
            "generation_complete_digest": digests.file_blake2s(store.root / COMPLETE),
            "cases": len(cases),
            "ordered_manifest_digest": digests.blake2s_hex(body),
        }
        create_same(self.root / ORDERED, body)
        create_same(self.root / COMPLETE, digests.canonical_json(marker))

    def complete(self, resolved_digest: str) -> None:
        """Write the marker of the run, last of all; its result must be there."""
        marker = {
            "schema": RUN_SCHEMA,
            "layout": LAYOUT,
            "run_id": self.run_id,
            "resolved_config_digest": resolved_digest,
            "publication_complete_digest": digests.file_blake2s(self.root / COMPLETE),
            "run_result_digest": digests.file_blake2s(self.run_root / "run-result.json"),
        }
        create_same(self.run_root / COMPLETE, digests.canonical_json(marker))

    def _publish(self, case: Case, store: GenerationStore) -> bytes:
        slot = store.slot_path(self.pass_name, case.slot)
        own = self._artifacts(case, store)
        artifacts: dict[str, Any] = {}
        for folder, target in self.targets(case).items():
            source, entry = slot / FILES[folder], own[FILES[folder]]
            durable.make_directories(target.parent)
            try:
                durable.link_create_only(source, target)
            except FileExistsError:
                if not _is(target, entry):
                    raise _taken(target, "another run published a file of this name") from None
            artifacts[folder] = {
                "path": target.relative_to(self.output).as_posix(),
                "bytes": entry["bytes"],
                "digest": entry["digest"],
            }
        receipt = digests.canonical_json(
            {
                "schema": SAMPLE_SCHEMA,
                "slot": case.slot,
                "sample_id": case.sample_id,
                "physical_dataset": case.metadata["physical_dataset"],
                "stem": case.metadata["publish_stem"],
                "published_pixel_frames": case.metadata["publication_pixel_frames"],
                "source_manifest_digest": digests.file_blake2s(slot / MANIFEST),
                "artifacts": artifacts,
            }
        )
        path = self.root / "samples" / f"{slot_name(case.slot)}.json"
        durable.make_directories(path.parent)
        create_same(path, receipt)
        return receipt

    def _artifacts(self, case: Case, store: GenerationStore) -> dict[str, dict[str, Any]]:
        """Artifacts of a case by name, from its manifest; none while it is not made."""
        path = store.slot_path(self.pass_name, case.slot) / MANIFEST
        if not path.is_file():
            return {}
        return {
            Path(entry["path"]).name: entry for entry in json.loads(path.read_bytes())["artifacts"]
        }


def publication_of(resolved: ResolvedRun, output: Path) -> CameraPublication | None:
    """The publication a config asks for under its absolute output directory; None for
    `transaction_v1`.

    Raises `config.conflict` (exit 2) where there is not exactly one pass.
    """
    config: Any = resolved.config
    section: Any = getattr(config, "inference", None)
    if getattr(section, "output_layout", None) != LAYOUT:
        return None
    passes = config.validation.passes
    if len(passes) != 1:
        raise SolarError(
            "config.conflict",
            f"{LAYOUT} publishes one pass, not {len(passes)}",
            where="validation.passes",
            why="a clip has one public name",
            fixes=["keep one pass", "--set inference.length=fixed"],
        )
    return CameraPublication(
        output=output,
        run_id=section.run_id or slug(config.name),
        pass_name=passes[0].name,
    )


def generation_root(resolved: ResolvedRun, output: Path, *, own: bool = False) -> Path:
    """The run directory of a generation under its output directory; a picture of the user's (`own`) is
    never published."""
    publication = None if own else publication_of(resolved, output)
    return output if publication is None else publication.run_root


def require_one_node(launcher: Launcher) -> None:
    """Refuse (exit 2) ranks on several machines: public names are created on one file system."""
    if launcher.world_size != launcher.local_world_size:
        raise SolarError(
            "config.conflict",
            f"{LAYOUT} is made on one machine",
            where="inference.output_layout",
            why=f"{launcher.world_size} ranks, {launcher.local_world_size} of them here",
            fixes=["start the ranks of this run on one machine"],
        )


def public_names(sample_id: str, dataset: str) -> tuple[str, str]:
    """(data set, clip name) of a sample as parts of a path."""
    head, _, rest = sample_id.rpartition("/")
    dataset = dataset or head.partition("/")[0]
    inside = sample_id.removeprefix(f"{dataset}/") if dataset else rest
    return slug(dataset), slug(inside)


def slug(text: str) -> str:
    """`text` as a file name, by the published rule: runs outside `[A-Za-z0-9_.-]` become `_`, edges lose
    `._`, at most 160 characters, the last 18 of a longer one from its digest."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("._")
    mark = blake2s(text.encode()).hexdigest()[:16]
    if not name:
        return mark
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 18]}__{mark}"


def _is(target: Path, entry: dict[str, Any] | None) -> bool:
    return (
        entry is not None
        and target.is_file()
        and target.stat().st_size == entry["bytes"]
        and digests.file_blake2s(target) == entry["digest"]
    )


def _taken(target: Path, why: str) -> SolarError:
    return SolarError(
        "inference.name-taken",
        "the name of a clip to publish is taken",
        where=str(target),
        why=why,
        fixes=["--set runtime.output_dir=NEW_DIR"],
    )
