"""What there is to say of a run when somebody answers for it: what it was, how it ended, what it left, and
what nobody checked. Read from its directory, running or ended; no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from solarwm.reports.facts import StepPoint, read_generation, read_training
from solarwm.reports.html import render
from solarwm.runs.diagnosis import diagnose
from solarwm.runs.status import read_status

SCHEMA = "solarwm.run-report.v1"


def completion(root: Path) -> dict[str, Any]:
    """The report as JSON values, section by section. Raises `run.missing` (exit 3)."""
    status, training = read_status(root), read_training(root)
    launch, result, config = training.launch, training.result, training.config
    verdict = diagnose(root)
    train: Mapping[str, Any] = config.get("train", {})
    topology: Mapping[str, Any] = launch.get("topology", {})
    checkpoint: Mapping[str, Any] = launch.get("checkpoint", {})
    last = training.steps[-1] if training.steps else None
    return {
        "schema": SCHEMA,
        "run": str(root),
        "what": {
            "name": status.name,
            "action": launch.get("action") or config.get("action"),
            "route": status.route,
            "profile": config.get("model", {}).get("profile"),
            "numerics": launch.get("numerics"),
            "resolved_digest": launch.get("resolved_config_digest"),
            "code_revision": _revision(launch),
            "environment": _environment(launch),
        },
        "batch": {
            "world_size": topology.get("world_size") or config.get("distributed", {}).get("world_size"),
            "sequence_parallel_size": topology.get("sequence_parallel_size"),
            "equation": topology.get("equation"),
            "global_batch_size": train.get("global_batch_size"),
        },
        "start": {
            "mode": checkpoint.get("mode"),
            "path": checkpoint.get("path"),
            "roles": {
                name: {"path": role.get("path"), "weights": role.get("weights")}
                for name, role in (checkpoint.get("roles") or {}).items()
                if isinstance(role, dict)
            },
            "resumed_at_steps": list(training.resumes),
        },
        "end": {
            "state": status.state,
            "verdict": verdict.verdict,
            "cause": verdict.cause,
            "exit_code": status.exit_code,
            "message": status.message,
            "step": status.step,
            "max_steps": status.max_steps,
            "last_step": _point(last),
            "samples_skipped": result.get("samples_skipped"),
        },
        "left": {
            "checkpoints": sorted(
                path.parent.name for path in root.glob("checkpoint_model_*/COMPLETE.json")
            ),
            "validation": _passes(root / "validation"),
            "generation": _generation(root),
        },
        "not_verified": _not_verified(root, status.state),
    }


def text_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report for a terminal."""
    yield f"{report['run']}: {report['end']['state']} ({report['end']['verdict']})"
    for title in ("what", "batch", "start", "end", "left"):
        for name, value in report[title].items():
            if value not in (None, "", [], {}):
                yield f"  {title if name == next(iter(report[title])) else '':6} {_words(name):24} {_shown(value)}"
    for line in report["not_verified"]:
        yield f"  not verified: {line}"


def markdown(report: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    lines = [f"# {report['what']['name'] or report['run']}", "", f"{report['end']['cause']}.", ""]
    for title in ("what", "batch", "start", "end", "left"):
        lines += [f"## {title.capitalize()}", "", "| | |", "|---|---|"]
        lines += [
            f"| {_words(name)} | {_shown(value).replace('|', chr(92) + '|')} |"
            for name, value in report[title].items()
            if value not in (None, "", [], {})
        ]
        lines.append("")
    lines += ["## Not verified", "", *(f"- {line}" for line in report["not_verified"] or ["nothing open"])]
    return "\n".join(lines) + "\n"


def html(report: Mapping[str, Any], root: Path, base: Path) -> str:
    """The report as one page without outside resources; videos are links relative to `base`."""
    training = read_training(root)
    generations = [read_generation(root)] if (root / "generation").is_dir() else []
    page = render(
        training,
        generations,
        title=str(report["what"]["name"] or root.name),
        lead=f"{report['end']['cause']}.",
        base=base,
    )
    rows = "".join(
        f"<tr><td>{escape(_words(name))}</td><td>{escape(_shown(value))}</td></tr>"
        for title in ("what", "batch", "start", "end", "left")
        for name, value in report[title].items()
        if value not in (None, "", [], {})
    )
    open_points = "".join(f"<li>{escape(line)}</li>" for line in report["not_verified"])
    section = f"<h2>Report</h2><div class='card'><table id='report'>{rows}</table></div>"
    if open_points:
        section += f"<h2>Not verified</h2><div class='card'><ul>{open_points}</ul></div>"
    return page.replace("</main>", section + "</main>")


def _environment(launch: Mapping[str, Any]) -> dict[str, Any]:
    found: Mapping[str, Any] = launch.get("environment") or {}
    packages: Mapping[str, Any] = found.get("packages") or {}
    runtime: Mapping[str, Any] = launch.get("runtime") or {}
    told = {
        "solarwm": found.get("solarwm"),
        "python": found.get("python"),
        "torch": packages.get("torch"),
        "platform": found.get("platform"),
        "image": runtime.get("declared_image"),
    }
    return {name: value for name, value in told.items() if value}


def _revision(launch: Mapping[str, Any]) -> str | None:
    source: Mapping[str, Any] = launch.get("source") or {}
    commit = source.get("commit")
    return f"{commit}{'' if source.get('clean') else ' with changes'}" if commit else None


def _point(point: StepPoint | None) -> dict[str, float] | None:
    if point is None:
        return None
    values = {
        "step": point.step,
        "loss": point.loss,
        "gradient_norm": point.gradient_norm,
        "lr": point.lr,
        "step_time_s": point.step_time_s,
    }
    return {name: value for name, value in values.items() if value == value}


def _passes(folder: Path) -> list[dict[str, Any]]:
    found = []
    for step in sorted(folder.glob("step_*")):
        for path in sorted(item for item in step.iterdir() if item.is_dir()):
            slots = len(list(path.glob("slot-*/manifest.json")))
            errors = len(list(path.glob("errors/slot-*.json")))
            whole = (path / "COMPLETE.json").is_file()
            found.append(
                {"step": step.name, "pass": path.name, "clips": slots, "failed": errors, "complete": whole}
            )
    return found


def _generation(root: Path) -> dict[str, Any] | None:
    folder = root / "generation"
    if not folder.is_dir():
        return None
    made = read_generation(root)
    return {
        "complete": made.complete,
        "clips": len(made.clips),
        "failed": len(made.failures),
        "passes": sorted({clip.pass_name for clip in made.clips}),
    }


def _not_verified(root: Path, state: str) -> list[str]:
    lines = []
    if state == "running":
        lines.append("the run goes on: these are figures of now")
    if list(root.glob("checkpoint_model_*/COMPLETE.json")):
        lines.append("digests of checkpoints were not read: solarwm checkpoint verify RUN --deep")
    if not list(root.glob("validation/step_*")) and not (root / "generation").is_dir():
        lines.append("nothing was generated with these weights")
    partial = [f"{p['step']}/{p['pass']}" for p in _passes(root / "validation") if not p["complete"]]
    if partial:
        lines.append(f"passes without COMPLETE.json: {', '.join(partial)}")
    return lines


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{_words(k)} {_shown(v)}" for k, v in value.items() if v not in (None, "", {}))
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return value if isinstance(value, str) else json.dumps(value)
