"""Every combination that runs, as plain rows. Adding a backbone or an objective is adding a line here."""

from __future__ import annotations

from solarwm.routes.spec import Route

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


_FACTORIES = {
    "flow_matching": "solarwm.objectives.flow_matching:create",
    "native_rectified_flow": "solarwm.objectives.rectified_flow:create",
    "anyflow_forward_map": "solarwm.objectives.anyflow:create",
    "self_gradient_forcing": "solarwm.objectives.self_gradient_forcing:create",
}


def _row(key: str, model: str, *frames: int) -> Route:
    family, stage, causal_mode, objective, *variant = key.split(":")
    room = ROOMS[family]
    distilled = causal_mode == "self_gradient_forcing"
    rule = causal_mode if distilled else objective
    return Route(
        family=family,
        stage=stage,
        causal_mode=causal_mode,
        objective=objective,
        variant=variant[0] if variant else None,
        frames=frames,
        roles=("student", "teacher", "critic") if distilled else ("student",),
        backbone_spec=f"{room}.spec:SPEC",
        config_model=f"{room}.{model}",
        objective_factory=_FACTORIES[rule],
    )


ROUTES: tuple[Route, ...] = (
    _row("wan22_ti2v_5b:stage0p5:bidirectional:flow_matching", "config:Stage0p5Run", 81, 153),
    _row("wan22_ti2v_5b:stage1:teacher_forcing:flow_matching", "causal_config:Stage1Run", 81),
    _row(
        "wan22_ti2v_5b:stage1:teacher_forcing:anyflow_forward_map:v1_5",
        "causal_config:Stage1AnyFlowRun",
        81,
    ),
    _row("wan22_ti2v_5b:stage2:self_gradient_forcing:flow_matching", "causal_config:Stage2Run", 81),
    _row("wan22_i2v_a14b:stage0p5:bidirectional:flow_matching", "config:Stage0p5Run", 81, 153),
    _row("ltx25_video:stage0p5:bidirectional:native_rectified_flow", "config:Stage0p5Run", 153),
    _row("minimax_h3:stage0p5:bidirectional:flow_matching", "config:Stage0p5Run", 158),
    _row(
        "minimax_h3:stage1:teacher_forcing:anyflow_forward_map:v1_5", "config:Stage1AnyFlowRun", 158
    ),
    _row("minimax_h3:stage2:self_gradient_forcing:flow_matching", "config:Stage2Run", 158),
)


def preencode_route(family: str) -> Route:
    """The pseudo route of `action: preencode` for `family`; it trains nothing and is not listed."""
    room = ROOMS[family]
    return Route(
        family=family,
        stage="preencode",
        causal_mode="none",
        objective="none",
        variant=None,
        frames=(),
        roles=(),
        backbone_spec=f"{room}.spec:SPEC",
        config_model=f"{room}.config:PreencodeRun",
        objective_factory="",
    )


def keys() -> list[str]:
    """The published route keys, sorted."""
    return sorted(row.key for row in ROUTES)


def canonical_family(spelling: str) -> str | None:
    """The canonical family name of a published spelling, or None."""
    lowered = spelling.strip().lower()
    if lowered in ROOMS:
        return lowered
    return ALIASES.get(lowered)
