"""All that a generation decides from config and files before anything is written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.data.shards import ShardReader
from solarwm.data.transport.choice import open_reader
from solarwm.errors.types import SolarError
from solarwm.inference import plan as plans_of
from solarwm.inference.clips import HeldOutClips, open_clips
from solarwm.inference.own_clip import OwnClip, OwnRequest, open_own
from solarwm.inference.publication import CameraPublication, generation_root, publication_of
from solarwm.inference.transaction import GenerationStore
from solarwm.inference.weights import WeightSource, check_fit, find_weights
from solarwm.runs import assets
from solarwm.runs.admission import holds_run, refuse_foreign
from solarwm.runs.layout import RunLayout

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.inference.cases import Case
    from solarwm.inference.plan import PassPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that is decided before the run directory is touched."""

    resolved: ResolvedRun
    source: WeightSource
    clips: HeldOutClips | OwnClip
    index_path: Path | None
    """Where the cases come from; None for a picture of the user's."""
    cases: tuple[Case, ...]
    passes: tuple[PassPlan, ...]
    store: GenerationStore
    resume: bool
    publication: CameraPublication | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to make."""
        if self.publication is not None:
            return self.publication.is_complete
        return self.store.is_complete()

    @property
    def numerics(self) -> str:
        """Numerics of the weights."""
        return self.passes[0].numerics

    def plan(self) -> dict[str, Any]:
        """What is to be made, as `plan.json` keeps it."""
        validation: Any = self.resolved.config.validation
        return {
            "route": self.resolved.route.key,
            "selection_seed": validation.selection_seed,
            "noise_seed": validation.noise_seed,
            "weights": self.source.identity,
            "cases": [case.manifest() for case in self.cases],
            "passes": [asdict(plan) for plan in self.passes],
        }


def prepare(
    resolved: ResolvedRun,
    output: Path,
    reader: ShardReader,
    *,
    resume: bool,
    first_row: bool,
    own: OwnRequest | None,
) -> Prepared:
    """Weights found and cases selected. Reads only."""
    config: Any = resolved.config
    source = weight_source(resolved)
    assets.require(resolved)
    numerics = check_fit(source, resolved)
    passes = plans_of.pass_plans(resolved, numerics=numerics)
    seed = config.validation.noise_seed
    index_path: Path | None = None
    if own is not None:
        clips, passes = open_own(resolved, own, passes)
        cases = clips.cases(base_noise_seed=seed)
    else:
        path = plans_of.train_index_path if first_row else plans_of.test_index_path
        index_path = path(resolved)
        clips = open_clips(resolved, reader, index_path)
        if first_row:
            cases = clips.first(base_noise_seed=seed)
        else:
            cases = clips.select(
                config.validation.sample_count,
                selection_seed=config.validation.selection_seed,
                base_noise_seed=seed,
            )
    return Prepared(
        resolved=resolved,
        source=source,
        clips=clips,
        cases=cases,
        passes=passes,
        index_path=index_path,
        store=GenerationStore(
            generation_root(resolved, output, own=own is not None) / "generation",
            family=resolved.route.family,
        ),
        resume=resume,
        publication=publication_of(resolved, output) if own is None else None,
    )


def weight_source(resolved: ResolvedRun) -> WeightSource:
    """The weights a config names. Raises `inference.weights-missing` or `checkpoint.*` (exit 3)."""
    path = resolved.config.checkpoint.path  # type: ignore[attr-defined]
    if not path:
        raise SolarError(
            "inference.weights-missing",
            "the config names no weights",
            where="checkpoint.path",
            fixes=["--set checkpoint.path=/absolute/path/of/a/training/run"],
        )
    return find_weights(Path(path), plans_of.wanted_weights(resolved))


def check_files(
    resolved: ResolvedRun,
    output: Path,
    *,
    resume: bool = False,
    first_row: bool = False,
    own: OwnRequest | None = None,
) -> None:
    """Refuse what a generation into `output` would refuse before it writes. For rank 0."""
    plans_of.check_supported(resolved)
    layout = RunLayout(generation_root(resolved, output, own=own is not None))
    with open_reader(resolved.config.data) as reader:
        prepared = prepare(resolved, output, reader, resume=resume, first_row=first_row, own=own)
    check_directory(layout, prepared)


def check_directory(layout: RunLayout, prepared: Prepared) -> None:
    """Refuse (exit 2) a directory that holds another run or another generation. For rank 0."""
    if not prepared.resume:
        refuse_foreign(layout.root, resuming=False, resume_with="--resume")
    elif holds_run(layout.root) is not None:
        try:
            action = json.loads(layout.launch_manifest.read_bytes()).get("action")
        except (OSError, ValueError):
            action = None
        if action not in ("infer", None):
            raise SolarError(
                "run.directory-taken",
                f"the output directory holds a run of `solarwm {action}`",
                where=str(layout.root),
                fixes=["--set runtime.output_dir=NEW_DIR"],
            )
    prepared.store.check(prepared.plan(), resume=prepared.resume)
    if prepared.publication is not None:
        prepared.publication.check_names(prepared.cases, prepared.store)
