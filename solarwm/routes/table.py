"""Every combination that runs, as plain rows. Adding a backbone or an objective is adding a line here."""

from __future__ import annotations

from solarwm.routes.spec import Route

FLOW_MATCHING = "solarwm.objectives.flow_matching:create"
RECTIFIED_FLOW = "solarwm.objectives.rectified_flow:create"
ANYFLOW = "solarwm.objectives.anyflow:create"
SELF_GRADIENT_FORCING = "solarwm.objectives.sgf:create"

ROOMS: dict[str, str] = {
    "wan22_ti2v_5b": "solarwm.backbones.wan22_5b",
    "wan22_i2v_a14b": "solarwm.backbones.wan22_a14b",
    "ltx25_video": "solarwm.backbones.ltx25",
    "minimax_h3": "solarwm.backbones.minimax_h3",
}
"""The folder of each family, by import path."""

ALIASES: dict[str, str] = {
    "wan2.2-ti2v-5b": "wan22_ti2v_5b",
    "wan2.2-i2v-a14b": "wan22_i2v_a14b",
    "ltx-2.5": "ltx25_video",
    "minimax-h3": "minimax_h3",
}
"""Other published spellings of a family; spelling is compared without case."""


def _row(
    family: str,
    stage: str,
    causal_mode: str,
    objective: str,
    variant: str | None,
    frames: tuple[int, ...],
    roles: tuple[str, ...],
    model: str,
    factory: str,
) -> Route:
    room = ROOMS[family]
    return Route(
        family=family,
        stage=stage,
        causal_mode=causal_mode,
        objective=objective,
        variant=variant,
        frames=frames,
        roles=roles,
        backbone_spec=f"{room}.spec:SPEC",
        config_model=f"{room}.config:{model}",
        objective_factory=factory,
    )


_ONE = ("student",)
_THREE = ("student", "teacher", "critic")

# fmt: off
ROUTES: tuple[Route, ...] = (
    _row("wan22_ti2v_5b", "stage0p5", "bidirectional", "flow_matching", None, (81, 153), _ONE, "Stage0p5Run", FLOW_MATCHING),
    _row("wan22_ti2v_5b", "stage1", "teacher_forcing", "flow_matching", None, (81,), _ONE, "Stage1Run", FLOW_MATCHING),
    _row("wan22_ti2v_5b", "stage1", "teacher_forcing", "anyflow_forward_map", "v1_5", (81,), _ONE, "Stage1AnyFlowRun", ANYFLOW),
    _row("wan22_ti2v_5b", "stage2", "self_gradient_forcing", "flow_matching", None, (81,), _THREE, "Stage2Run", SELF_GRADIENT_FORCING),
    _row("wan22_i2v_a14b", "stage0p5", "bidirectional", "flow_matching", None, (81, 153), _ONE, "Stage0p5Run", FLOW_MATCHING),
    _row("ltx25_video", "stage0p5", "bidirectional", "native_rectified_flow", None, (153,), _ONE, "Stage0p5Run", RECTIFIED_FLOW),
    _row("minimax_h3", "stage0p5", "bidirectional", "flow_matching", None, (158,), _ONE, "Stage0p5Run", FLOW_MATCHING),
    _row("minimax_h3", "stage1", "teacher_forcing", "anyflow_forward_map", "v1_5", (158,), _ONE, "Stage1AnyFlowRun", ANYFLOW),
    _row("minimax_h3", "stage2", "self_gradient_forcing", "flow_matching", None, (158,), _THREE, "Stage2Run", SELF_GRADIENT_FORCING),
)
# fmt: on


def preencode_route(family: str) -> Route:
    """The pseudo route of `action: preencode` for `family`; it is not a training route and is not listed."""
    return _row(family, "preencode", "none", "none", None, (), (), "PreencodeRun", "")


def keys() -> list[str]:
    """The published route keys, sorted."""
    return sorted(row.key for row in ROUTES)


def canonical_family(spelling: str) -> str | None:
    """The canonical family name of a published spelling, or None."""
    lowered = spelling.strip().lower()
    if lowered in ROOMS:
        return lowered
    return ALIASES.get(lowered)
