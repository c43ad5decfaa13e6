"""The validation plan of a training run: which clips, from where, sampled how. Frozen at first use.

    validation/frozen-plan.json

Its key binds what makes two validations comparable (index, geometry, seeds, counts, passes), and
nothing that a move or another number of ranks changes (paths, transport, topology). No torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.config.resolve import require_no_placeholders
from solarwm.data.digest import inspect_index
from solarwm.data.transport.choice import open_reader
from solarwm.errors.types import SolarError
from solarwm.inference import plan as plans
from solarwm.inference.cases import Case
from solarwm.inference.clips import open_clips
from solarwm.runs.session import run_directory
from solarwm.storage import digests, durable

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.inference.plan import PassPlan

PLAN_SCHEMA = "solarwm.validation-plan.v1"
KEY_SCHEMA = "solarwm.validation-plan-key.v1"
FOLDER, NAME = "validation", "frozen-plan.json"
FAMILY_GROUPS = {"wan22_ti2v_5b": "wan22", "wan22_i2v_a14b": "wan22"}
"""Published name of the backend of a family; any other family is its own."""
_PASS = (
    "name", "weights", "mode", "solver", "num_inference_steps", "latents", "camera", "shift",
    "numerics", "levels", "context_sigma", "delta_policy",
)  # fmt: skip
_CUT = (
    "frames", "latents", "height", "width", "fps", "translation_transform", "least_frames",
    "step_frames", "whole_track",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPlan:
    """What a run validates on."""

    backend: str
    bound: Mapping[str, Any]
    """What the key binds, readable."""
    cases: tuple[Mapping[str, Any], ...]
    """The published `case` blocks in slot order."""

    @property
    def key(self) -> str:
        """SHA-256 of the canonical bound block."""
        return _sha256({"schema": KEY_SCHEMA, "backend": self.backend, **self.bound})

    @property
    def body(self) -> dict[str, Any]:
        """The content of the file, `payload_digest` included."""
        body = {
            "schema": PLAN_SCHEMA,
            "backend": self.backend,
            "plan_key": self.key,
            "bound": dict(self.bound),
            "case_count": len(self.cases),
            "cases": [dict(case) for case in self.cases],
        }
        return {**body, "payload_digest": _sha256(body)}

    def path(self, run: Path) -> Path:
        """Where the plan of a run directory lies."""
        return run / FOLDER / NAME


def validation_plan(
    resolved: ResolvedRun, cases: Sequence[Case], passes: Sequence[PassPlan]
) -> ValidationPlan:
    """The plan of a config whose held-out clips are `cases`. Reads the test index for its digest;
    raises `index.*` (exit 3)."""
    config: Any = resolved.config
    section = config.validation
    cut = plans.clip_cut(resolved)
    return ValidationPlan(
        backend=FAMILY_GROUPS.get(resolved.route.family, resolved.route.family),
        bound=_plain(
            {
                "index_digest": inspect_index(plans.test_index_path(resolved)).ordered_row_digest,
                "family": resolved.route.family,
                "profile": config.model.profile,
                "geometry": {
                    **{name: getattr(cut, name) for name in _CUT},
                    "camera_intrinsics_mode": config.model.camera_intrinsics_mode,
                    "max_rel_translation": section.max_rel_translation,
                    "max_camera_abs": section.max_camera_abs,
                },
                "selection_seed": section.selection_seed,
                "noise_seed": section.noise_seed,
                "sample_count": section.sample_count,
                "passes": [{name: getattr(item, name) for name in _PASS} for item in passes],
            }
        ),
        cases=tuple(_plain(case.manifest()) for case in cases),
    )


def planned(resolved: ResolvedRun, *, working_directory: Path) -> dict[str, Any]:
    """The plan of a config before any run, with `state`: `frozen` in its output directory, or `not
    frozen`. Reads the test index and its cameras; faults as `frozen`."""
    config: Any = resolved.config
    require_no_placeholders(resolved, only="data")
    plans.check_supported(resolved)
    numerics = "published" if config.model.numerics == "published" else "corrected"
    passes = plans.pass_plans(resolved, numerics=numerics)
    with open_reader(config.data) as reader:
        clips = open_clips(resolved, reader)
        cases = clips.select(
            config.validation.sample_count,
            selection_seed=config.validation.selection_seed,
            base_noise_seed=config.validation.noise_seed,
        )
    plan = validation_plan(resolved, cases, passes)
    output = run_directory(config.runtime.output_dir, working_directory)
    return {**plan.body, "state": "frozen" if frozen(output, plan) else "not frozen"}


def frozen(run: Path, plan: ValidationPlan) -> bool:
    """Whether a run directory has frozen this very plan; False while it has frozen none.

    Raises `validation.plan-differs` (exit 3) naming the first field in which the frozen one differs,
    `validation.plan-damaged` (exit 3) for a file that is not what was written.
    """
    path = plan.path(run)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as fault:
        raise _damaged(path, fault.strerror or "it cannot be read") from None
    held = _sound(path, data)
    for place, was, now in _differences(held, plan.body):
        raise SolarError(
            "validation.plan-differs",
            f"the validation plan differs from the frozen one in {place}",
            where=str(path),
            why=f"frozen: {was!r}; now: {now!r}",
            fixes=[
                "validate with the settings and the test index the run was started with",
                "--set runtime.output_dir=NEW_DIR",
            ],
            context={"field": place},
        )
    return True


def freeze(run: Path, plan: ValidationPlan) -> None:
    """Write the plan of a run, or find it frozen. For one rank; faults as `frozen`."""
    if frozen(run, plan):
        return
    path = plan.path(run)
    durable.make_directories(path.parent)
    try:
        durable.create_bytes(path, digests.canonical_json(plan.body))
    except FileExistsError:
        frozen(run, plan)


def _sound(path: Path, data: bytes) -> dict[str, Any]:
    try:
        held = json.loads(data)
        body = {name: value for name, value in held.items() if name != "payload_digest"}
        why = "" if held.get("payload_digest") == _sha256(body) else "its digest is another"
        if held.get("schema") != PLAN_SCHEMA:
            why = f"its schema is {held.get('schema')!r}, not {PLAN_SCHEMA!r}"
    except (ValueError, AttributeError):
        held, why = {}, "it is no JSON object"
    if why:
        raise _damaged(path, why)
    return held


def _damaged(path: Path, why: str) -> SolarError:
    return SolarError(
        "validation.plan-damaged",
        "the frozen validation plan is not what was written",
        where=str(path),
        why=why,
        fixes=["copy validation/frozen-plan.json again from a backup of the run"],
    )


def _differences(held: Any, now: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """(field, frozen, present) of the first difference, readable fields before digests."""
    if isinstance(held, dict) and isinstance(now, dict):
        names = [*dict.fromkeys([*now, *held])]
        names.sort(key=lambda name: name in ("plan_key", "payload_digest", "case_count"))
        for name in names:
            here = name if place in ("", "bound") else f"{place}.{name}"
            if found := _differences(held.get(name), now.get(name), here):
                return found
        return []
    if isinstance(held, list) and isinstance(now, list) and len(held) == len(now):
        for index, (was, value) in enumerate(zip(held, now, strict=True)):
            if found := _differences(was, value, f"{place}[{index}]"):
                return found
        return []
    if type(held) is list and type(now) is list:
        return [(f"{place} (count)", len(held), len(now))]
    return [] if held == now else [(place, held, now)]


def _plain(value: Any) -> Any:
    return json.loads(digests.canonical_json(value))


def _sha256(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(digests.canonical_json(value)).hexdigest()
