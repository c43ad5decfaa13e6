"""Why a run is not well, from what it left: the first boundary that failed, evidence, and what to do.

Reads the result, failure records, heartbeats and the last events; decides by error codes, and where there
is no result by who still lives. Knows nothing that the files do not say.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from solarwm.errors.catalog import CATALOG
from solarwm.errors.remedies import remedy
from solarwm.runs.failure import read_failures
from solarwm.runs.heartbeat import age_s, read_heartbeats
from solarwm.runs.layout import RunLayout
from solarwm.runs.outlook import recent_events
from solarwm.runs.status import RunStatus, read_status

SILENT_S = 60.0
"""A heartbeat of a running rank older than this is no heartbeat: a thread of its own writes one every few
seconds."""
STALL_SHARE = 0.5
"""Share of recent steps' time spent waiting for data that makes it the boundary."""
STALL_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A verdict with its reasons."""

    verdict: str
    """`healthy`, `complete`, `interrupted`, or what failed: see `VERDICTS`."""
    cause: str
    evidence: tuple[str, ...]
    """One fact a line, each with the file it stands in."""
    verify: tuple[str, ...]
    """Commands that show it."""
    fixes: tuple[str, ...]
    """What to do, the likeliest first."""

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong."""
        return self.verdict not in ("healthy", "complete", "interrupted", "new")


VERDICTS = {
    "non-finite": "Numbers became NaN or infinite",
    "out-of-memory": "Memory did not suffice",
    "hang": "Ranks waited for one that did not come",
    "rank-lost": "A rank ended without a word",
    "ranks-differ": "Ranks that must hold the same do not",
    "checkpoint": "A checkpoint or weights could not be used",
    "validation": "Something that was to be generated is missing",
    "data": "A sample, an index or a store could not be read",
    "data-stall": "Steps wait for data",
    "disk": "The disk did not take what was written",
    "device": "Device, launcher or packages do not fit",
    "config": "The config asks for what cannot be",
    "killed": "All processes ended without a result",
    "bug": "A fault of the program",
    "other": "It failed",
}
_BY_PREFIX = {
    "disk": "disk",
    "checkpoint": "checkpoint",
    "weights": "checkpoint",
    "config": "config",
    "route": "config",
    "assets": "checkpoint",
    "launcher": "device",
    "device": "device",
    "environment": "device",
    "bug": "bug",
    **dict.fromkeys(
        ("data", "index", "shard", "video", "camera", "latent", "store", "preencode"), "data"
    ),
    "validation": "validation",
    "inference": "validation",
}
_BY_CODE = {
    "train.non-finite": "non-finite",
    "inference.not-finite": "non-finite",
    "weights.nonfinite": "non-finite",
    "latent.not-finite": "non-finite",
    "resource.memory": "out-of-memory",
    "distributed.peers-differ": "ranks-differ",
    "distributed.replicas-differ": "ranks-differ",
    "distributed.order-differs": "ranks-differ",
    "train.resume-mismatch": "checkpoint",
    "train.extra-missing": "device",
    "data.extra-missing": "device",
    "train.data-exhausted": "data",
    "distributed.peer-failed": "rank-lost",
    "distributed.agent-gone": "rank-lost",
}


def diagnose(root: Path) -> Diagnosis:
    """The verdict on a run. Changes nothing. Raises `run.missing` (exit 3)."""
    status = read_status(root)
    if status.state == "running":
        return _running(root)
    if status.state == "died":
        return _died(root, status)
    result = status.result or {}
    if status.state in ("complete", "interrupted", "new"):
        return _ended_well(root, status, result)
    return _failed(root, result)


def verdict_of(code: str, *, timed_out: bool = False) -> str:
    """What an error code means for a run."""
    if code == "distributed.collective-failed" or (timed_out and code.startswith("distributed.")):
        return "hang" if timed_out else "rank-lost"
    return _BY_CODE.get(code) or _BY_PREFIX.get(code.partition(".")[0], "other")


def _failed(root: Path, result: Mapping[str, Any]) -> Diagnosis:
    failures = read_failures(RunLayout(root))
    first = next((r for r in failures if r["world_rank"] == result.get("first_failing_rank")), None)
    code = str(result.get("code") or (first or {}).get("code") or "")
    timed_out = any(_dict(record.get("context")).get("timed_out") for record in failures)
    missing: object = result.get("missing_ranks") or []
    lost = not code and result.get("exit_code") == 6
    verdict = "rank-lost" if lost else verdict_of(code, timed_out=timed_out)
    if verdict == "rank-lost" and timed_out and missing:
        verdict = "hang"
    if str(result.get("error_type", "")).endswith(("MemoryError",)):
        verdict = "out-of-memory"
    evidence = [_said("run-result.json", result, ("exit_code", "code", "phase", "step"))]
    if result.get("message"):
        evidence.append(f"run-result.json: {result['message']}")
    if result.get("first_failing_rank") is not None:
        evidence.append(f"run-result.json: rank {result['first_failing_rank']} failed first")
    for rank, name in sorted(_dict(result.get("last_collectives")).items()):
        evidence.append(f"run-result.json: rank {rank} was last in the collective {name!r}")
    if missing:
        evidence.append(f"run-result.json: ranks {_list(missing)} did not come to it")
    for record in failures[:8]:
        place = f"ranks/rank-{record['world_rank']:05d}.failure.json"
        evidence.append(_said(place, record, ("exit_code", "code", "phase", "step", "host")))
    for name, value in list(_dict(result.get("context")).items())[:4]:
        evidence.append(f"run-result.json: {name.replace('_', ' ')}: {value}")
    last = _last(root, "optimizer_step")
    if last:
        evidence.append(_said("events", last, ("step", "gradient_norm", "lr", "resident_bytes")))
    entry = CATALOG.get(code)
    cause = entry.title if entry else VERDICTS[verdict]
    fixes = [*_ADVICE.get(verdict, _none)(result), remedy(code) if entry else ""]
    verify = [f"solarwm explain {code}"] if entry else []
    return Diagnosis(
        verdict=verdict,
        cause=f"{VERDICTS[verdict]}: {cause[0].lower()}{cause[1:]}",
        evidence=tuple(line for line in evidence if line),
        verify=(*verify, *_VERIFY.get(verdict, ())),
        fixes=tuple(dict.fromkeys(text for text in fixes if text)),
    )


def _died(root: Path, status: RunStatus) -> Diagnosis:
    evidence = [f"{root.name}: nobody holds the lock, and there is no run-result.json"]
    for place in status.ranks:
        age = "" if place.age_s is None else f", {place.age_s:.0f} s ago"
        evidence.append(
            f"heartbeats: rank {place.world_rank} was last in phase {place.phase}, step {place.step}{age}"
        )
    memory = [e["resident_bytes"] for e in recent_events(root) if e.get("resident_bytes")]
    if len(memory) > 1 and memory[-1] > 1.2 * memory[0]:
        evidence.append(f"events: memory grew from {memory[0]} to {memory[-1]} bytes")
    return Diagnosis(
        verdict="killed",
        cause="All processes ended at once without a word: a kill -9, the kernel for want of memory, the "
        "scheduler, or the machine",
        evidence=tuple(evidence),
        verify=(
            "dmesg -T | grep -i -E 'killed process|out of memory'",
            "sacct -j JOB, or kubectl describe pod",
        ),
        fixes=(
            "--resume latest goes on from the last checkpoint; nothing needs cleaning",
            "if the kernel killed it: fewer data.num_workers, a smaller data.prefetch_factor, or more memory",
        ),
    )


def _running(root: Path) -> Diagnosis:
    beats = read_heartbeats(RunLayout(root))
    ages = {int(beat.get("world_rank", 0)): age_s(beat) for beat in beats}
    silent = sorted(rank for rank, age in ages.items() if age is not None and age > SILENT_S)
    events = recent_events(root)
    steps = [event for event in events if event.get("event") == "optimizer_step"]
    last = steps[-1] if steps else {}
    evidence = [
        f"heartbeats: {len(beats)} ranks, the oldest {max(filter(None, ages.values()), default=0):.0f} s ago"
    ]
    if last:
        evidence.append(_said("events", last, ("step", "step_time_s", "data_wait_s")))
    if silent:
        return Diagnosis(
            verdict="hang",
            cause=f"{VERDICTS['hang']}: rank {_list(silent)} has given no sign of life for a minute",
            evidence=tuple(evidence),
            verify=("ps -o pid,stat,wchan:30,cmd -p PID of the heartbeat", "py-spy dump --pid PID"),
            fixes=(
                "the others give up after distributed.timeout_s and name it",
                "solarwm run stop RUN --yes --kill",
            ),
        )
    waits = [
        event["data_wait_s"] / event["step_time_s"]
        for event in steps[-2 * STALL_STEPS :]
        if event.get("step_time_s") and event.get("data_wait_s") is not None
    ]
    if len(waits) >= STALL_STEPS and statistics.median(waits) > STALL_SHARE:
        share = 100 * statistics.median(waits)
        return Diagnosis(
            verdict="data-stall",
            cause=f"{VERDICTS['data-stall']}: {share:.0f} % of a step",
            evidence=(
                *evidence,
                f"events: median share of the last {len(waits)} steps {share:.0f} %",
            ),
            verify=(
                "solarwm data warm-cache INDEX --root ROOT --cache-dir DIR",
                "solarwm run watch RUN",
            ),
            fixes=(
                "preencode the clips: solarwm preencode, then data.encoding: preencoded",
                "--set data.num_workers=N and data.prefetch_factor=N with more of each",
                "--set data.gcs_prefetch_shards=N for shards of a store",
            ),
        )
    slow = _last(root, "straggler")
    if slow:
        evidence.append(
            _said("events", slow, ("step", "slowest_rank", "slowest_rank_s", "median_rank_s"))
        )
    return Diagnosis(
        verdict="healthy",
        cause="It runs, and every rank is heard",
        evidence=tuple(evidence),
        verify=("solarwm run watch RUN",),
        fixes=(),
    )


def _ended_well(root: Path, status: RunStatus, result: Mapping[str, Any]) -> Diagnosis:
    lacking = [
        path.parent.name
        for path in sorted(root.glob("validation/step_*/plan.json"))
        if not (path.parent / "COMPLETE.json").exists()
    ]
    words = {
        "complete": "It came to its end",
        "interrupted": "It was asked to end, and did",
        "new": "It has not begun",
    }
    evidence = [_said("run-result.json", result, ("exit_code", "step", "last_checkpoint_step"))]
    if lacking and status.state == "complete":
        return Diagnosis(
            verdict="validation",
            cause=f"{VERDICTS['validation']}: {_list(lacking)} have no COMPLETE.json",
            evidence=(
                *filter(None, evidence),
                *(f"validation/{name}: no COMPLETE.json" for name in lacking),
            ),
            verify=(f"ls {root / 'validation'}/{lacking[0]}/*/errors",),
            fixes=(
                "the reasons are in its errors/ folders; infer with the same checkpoint makes them again",
            ),
        )
    go_on = ("--resume latest goes on",) if status.state == "interrupted" else ()
    return Diagnosis(
        verdict=status.state,
        cause=words[status.state],
        evidence=tuple(filter(None, evidence)),
        verify=(),
        fixes=go_on,
    )


def _none(_: Mapping[str, Any]) -> list[str]:
    return []


def _memory_advice(_: Mapping[str, Any]) -> list[str]:
    return [
        "--set train.fsdp.activation_checkpointing=true",
        "--set train.micro_batch_size=1, with train.grad_accum raised as much",
        "--set distributed.sequence_parallel_size=2 or more: ranks share a clip",
    ]


def _checkpoint_advice(_: Mapping[str, Any]) -> list[str]:
    return [
        "solarwm checkpoint list RUN shows the complete ones; --resume PATH takes an earlier one"
    ]


def _number_advice(_: Mapping[str, Any]) -> list[str]:
    return [
        "--resume latest from the last good checkpoint with a tenth of train.optimizer.lr",
        "look at the named samples: solarwm data validate INDEX --list",
    ]


def _hang_advice(result: Mapping[str, Any]) -> list[str]:
    missing: object = result.get("missing_ranks") or []
    whose = f"look at rank {_list(missing)}: its machine, its log" if missing else ""
    return [whose, "--resume latest goes on; distributed.timeout_s bounds the wait"]


_ADVICE: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "out-of-memory": _memory_advice,
    "checkpoint": _checkpoint_advice,
    "non-finite": _number_advice,
    "hang": _hang_advice,
    "rank-lost": _hang_advice,
}
_VERIFY = {
    "out-of-memory": (
        "solarwm plan memory --config RUN/resolved-config.json",
        "nvidia-smi: other processes",
    ),
    "checkpoint": ("solarwm checkpoint verify RUN --deep",),
    "data": ("solarwm data validate INDEX --decode",),
    "disk": ("df -h RUN", "df -i RUN"),
    "device": ("solarwm environment probe",),
    "hang": ("solarwm run status RUN",),
    "rank-lost": ("dmesg -T | grep -i 'killed process'",),
}


def _said(place: str, record: Mapping[str, Any], names: tuple[str, ...]) -> str:
    told = [
        f"{name.replace('_', ' ')} {record[name]}"
        for name in names
        if record.get(name) not in (None, "")
    ]
    return f"{place}: {', '.join(told)}" if told else ""


def _last(root: Path, kind: str) -> dict[str, Any]:
    found = [event for event in recent_events(root) if event.get("event") == kind]
    return found[-1] if found else {}


def _list(values: object) -> str:
    return ", ".join(map(str, cast("list[object]", values)))


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
