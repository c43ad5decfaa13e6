"""The weights each role of a run starts from: declared, checked before anything is allocated, then
loaded. Checks read manifests and embedded configs; needs no torch but for a bare `model.pt`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solarwm.checkpoints.sources import WeightSource, open_source, require_source
from solarwm.errors.types import SolarError

STUDENT = "student"
_EARLIER = {"stage0p5": "stage0p5", "stage1": "stage0p5", "stage2": "stage1"}
FLOW_MAP = "anyflow_forward_map"
DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWeights:
    """What one role starts from."""

    source: WeightSource
    weights: str
    """`live` or `ema`."""
    endpoint: str
    """What may differ in the endpoint embedding, as in the backbone seam."""


def start_weights(resolved: Any) -> dict[str, StartWeights]:
    """The sources of all roles by name, found and checked; empty where a run starts from its base
    model or from drawn weights.

    Raises `weights.*` or `checkpoint.*` (exit 3) naming what is expected and what was found.
    """
    checkpoint = resolved.config.checkpoint
    mode = getattr(checkpoint, "mode", "none")
    if mode == "stage2_roles" and checkpoint.roles is not None:
        roles = {name: getattr(checkpoint.roles, name) for name in resolved.route.roles}
        return {name: _of_role(resolved, name, section) for name, section in roles.items()}
    if mode == "weights_only" and checkpoint.path:
        return {STUDENT: _single(resolved)}
    return {}


def teacher_identity(resolved: Any) -> str:
    """What names the weights of a frozen teacher, wherever they lie; empty for a route without.

    Raises as `start_weights` does.
    """
    teacher = start_weights(resolved).get("teacher") if "teacher" in resolved.route.roles else None
    return teacher.source.weights_id(teacher.weights) if teacher is not None else ""


def _single(resolved: Any) -> StartWeights:
    config = resolved.config
    checkpoint = config.checkpoint
    source = open_source(Path(checkpoint.path))
    weights = checkpoint.weights or "live"
    chosen = weights if isinstance(weights, str) else weights[0]
    declared = checkpoint.source_contract
    expected: dict[str, str | None] = {}
    if declared is not None or source.contract:
        expected = {
            "family": resolved.route.family,
            "stage": declared.stage if declared else _EARLIER.get(resolved.route.stage),
            "camera_translation_transform": config.model.camera_translation_transform,
        }
    if declared is not None:
        expected |= _objective(declared.objective)
        expected["camera_translation_transform"] = declared.camera_translation_transform
    if config.train.allow_camera_translation_transform_change_on_init:
        expected.pop("camera_translation_transform", None)
    _require(resolved, source, expected, chosen, "checkpoint.path", step=checkpoint.source_step)
    endpoint = "fill" if resolved.route.objective == FLOW_MAP else "exact"
    return StartWeights(source=source, weights=chosen, endpoint=endpoint)


def _of_role(resolved: Any, name: str, section: Any) -> StartWeights:
    where = f"checkpoint.roles.{name}"
    source = open_source(Path(section.path))
    expected: dict[str, str | None] = {
        "family": resolved.route.family,
        "stage": section.expected_stage,
        "camera_translation_transform": section.expected_camera_translation_transform,
        **_objective(section.expected_objective),
    }
    own = resolved.config.model.camera_translation_transform
    if section.expected_camera_translation_transform != own:
        raise SolarError(
            "checkpoint.source-mismatch",
            f"the {name} was trained with another camera transform than the run uses",
            where=f"{where}.expected_camera_translation_transform",
            why=f"Expected {own!r} (model.camera_translation_transform), found "
            f"{section.expected_camera_translation_transform!r}.",
            fixes=[f"--set model.camera_translation_transform={own}"],
        )
    _require(resolved, source, expected, section.weights, f"{where}.path")
    endpoint = "exact"
    if name == STUDENT and section.expected_objective.startswith(FLOW_MAP):
        endpoint = _student_endpoint(resolved, section, where)
    return StartWeights(source=source, weights=section.weights, endpoint=endpoint)


def _student_endpoint(resolved: Any, section: Any, where: str) -> str:
    if resolved.config.train.delta_policy != DROP:
        return "exact"
    if not section.allow_anyflow_delta_drop:
        raise SolarError(
            "checkpoint.source-mismatch",
            "the student's endpoint embedding would be dropped, and the config does not allow it",
            where=f"{where}.allow_anyflow_delta_drop",
            why="A flow map has four tensors that a student with delta_policy drop has not.",
            fixes=[
                f"--set {where}.allow_anyflow_delta_drop=true",
                "--set train.delta_policy=keep_diagonal",
            ],
        )
    return DROP


def _require(
    resolved: Any,
    source: WeightSource,
    expected: Mapping[str, str | None],
    weights: str,
    where: str,
    *,
    step: int | None = None,
) -> None:
    require_source(source, expected=expected, weights=weights, step=step, where=where)
    profile = source.model.get("profile")
    if profile is not None and profile != resolved.config.model.profile:
        raise SolarError(
            "checkpoint.source-mismatch",
            f"the weights in {source.path.name} have another size than the run",
            where=where,
            why=f"Expected profile {resolved.config.model.profile!r}, found {profile!r}.",
            fixes=[f"--set model.profile={profile}"],
        )


def _objective(text: str) -> dict[str, str | None]:
    objective, _, variant = text.partition(":")
    return {"objective": objective, "objective_variant": variant or None}
