"""Which combinations run, and in words why another one does not."""

from __future__ import annotations

from dataclasses import dataclass

from solarwm.errors.types import SolarError
from solarwm.routes.spec import Route
from solarwm.routes.table import ALIASES, ROOMS, ROUTES, canonical_family

STAGES = ("stage0p5", "stage1", "stage2")
_CAUSAL_MODE = {
    "stage0p5": "bidirectional",
    "stage1": "teacher_forcing",
    "stage2": "self_gradient_forcing",
}
_ONLY_STAGE0P5 = {
    "wan22_i2v_a14b": "Wan2.2 I2V-A14B has no Stage1 or Stage2 here: only its high-noise expert is trained, "
    "with bidirectional flow matching",
    "ltx25_video": "LTX-2.5 has no Stage1 or Stage2 here: only its video tower is trained, "
    "with the native rectified flow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a config asks for; None where it says nothing."""

    family: str
    stage: str | None
    causal_mode: str | None
    objective: str | None
    variant: str | None

    @property
    def key(self) -> str:
        """The asked combination in the form of a route key, `?` where nothing is said."""
        parts = [self.family, self.stage or "?", self.causal_mode or "?", self.objective or "?"]
        return ":".join([*parts, self.variant] if self.variant else parts)


def parse_key(key: str) -> Ask:
    """A route key taken apart; missing parts are None, so that part of a key can be explained."""
    parts = [part.strip() or None for part in key.split(":")]
    parts += [None] * (5 - len(parts))
    return Ask(
        family=parts[0] or "",
        stage=parts[1],
        causal_mode=parts[2],
        objective=parts[3],
        variant=parts[4],
    )


def normalise(ask: Ask) -> Ask:
    """Published spellings made canonical: family names, `v1_5` by default, the LTX objective."""
    family = canonical_family(ask.family) or ask.family
    objective, variant = ask.objective, ask.variant or None
    if family == "ltx25_video" and objective == "flow_matching":
        objective = "native_rectified_flow"
    if objective == "anyflow_forward_map" and variant is None:
        variant = "v1_5"
    return Ask(
        family=family,
        stage=ask.stage,
        causal_mode=ask.causal_mode,
        objective=objective,
        variant=variant,
    )


def find(ask: Ask) -> Route | None:
    """The row that answers `ask`, or None."""
    wanted = normalise(ask)
    for row in ROUTES:
        if (row.family, row.stage, row.causal_mode, row.objective, row.variant) == (
            wanted.family,
            wanted.stage,
            wanted.causal_mode,
            wanted.objective,
            wanted.variant,
        ):
            return row
    return None


def of_family(family: str) -> list[Route]:
    """The rows of one family, in table order."""
    return [row for row in ROUTES if row.family == family]


def nearest(ask: Ask) -> Route | None:
    """The row of the family that agrees with most of what is asked; used to go on checking."""
    wanted = normalise(ask)
    rows = of_family(wanted.family)
    if not rows:
        return None

    def score(row: Route) -> int:
        return (
            4 * (row.stage == wanted.stage)
            + 2 * (row.objective == wanted.objective)
            + (row.causal_mode == wanted.causal_mode)
            + (row.variant == wanted.variant)
        )

    return max(rows, key=score)


def reasons(ask: Ask) -> list[str]:
    """Why `ask` has no row, in whole sentences; empty when it runs."""
    wanted = normalise(ask)
    if find(wanted) is not None:
        return []
    if wanted.family not in ROOMS:
        known = ", ".join(sorted([*ROOMS, *ALIASES]))
        return [f"family {wanted.family!r} is unknown; known spellings: {known}"]
    rows = of_family(wanted.family)
    if wanted.stage is None:
        stages = sorted({row.stage for row in rows})
        return [f"no stage is given; {wanted.family} has {', '.join(stages)}"]
    if wanted.stage not in STAGES:
        return [f"stage {wanted.stage!r} is unknown; the stages are {', '.join(STAGES)}"]
    staged = [row for row in rows if row.stage == wanted.stage]
    if not staged:
        return [_ONLY_STAGE0P5[wanted.family]]
    found: list[str] = []
    mode = _CAUSAL_MODE[wanted.stage]
    if wanted.causal_mode != mode:
        said = f"not {wanted.causal_mode}" if wanted.causal_mode else "but the config gives none"
        found.append(f"{wanted.stage} runs with causal_mode {mode}, {said}")
    objectives = sorted({row.objective for row in staged})
    if wanted.objective not in objectives:
        said = f"not {wanted.objective}" if wanted.objective else "but the config gives none"
        found.append(f"{wanted.stage} of {wanted.family} takes {' or '.join(objectives)}, {said}")
    else:
        variants = sorted(
            {row.variant or "none" for row in staged if row.objective == wanted.objective}
        )
        if (wanted.variant or "none") not in variants:
            found.append(
                f"{wanted.objective} takes variant {' or '.join(variants)}, not {wanted.variant or 'none'}"
            )
    return found


def require(ask: Ask) -> Route:
    """The row that answers `ask`; `route.unsupported` with the reasons and the family's keys otherwise."""
    row = find(ask)
    if row is not None:
        return row
    wanted = normalise(ask)
    legal = sorted(row.key for row in of_family(wanted.family))
    raise SolarError(
        "route.unsupported",
        f"{wanted.key} is not a route that runs",
        why="; ".join(reasons(wanted)),
        fixes=[f"use one of {', '.join(legal)}"]
        if legal
        else ["solarwm config routes lists what runs"],
        context={"asked": wanted.key, "legal": legal},
    )
