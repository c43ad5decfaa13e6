"""What the launcher said: the torchrun variables, read once and held against the config."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from solarwm.errors.types import SolarError

REQUIRED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")


class ProcessCounts(Protocol):
    """What of a topology a launcher must agree with. Groups of ranks that share a sample may span
    machines, so their size is no matter of the launcher."""

    @property
    def world_size(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Place of this process among those started together."""

    world_rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    under_launcher: bool
    """True when the torchrun variables were set; only then is the parent process watched."""
    token: str
    """Equal on all ranks of one launch, different between launches: it tells whose files are whose."""

    @property
    def num_nodes(self) -> int:
        """Machines in this launch."""
        return self.world_size // self.local_world_size

    @property
    def node_index(self) -> int:
        """Machine of this process, 0..num_nodes-1."""
        return self.world_rank // self.local_world_size


def read_launcher(environ: Mapping[str, str], *, process_id: int) -> Launcher:
    """The launcher variables of `environ`; none at all means one process started by hand.

    Raises `launcher.incomplete` when only some are set and `launcher.malformed` when they are no
    integers or contradict each other (both exit 5). `process_id` makes the token of a process
    started by hand.
    """
    seen = {name: environ[name] for name in REQUIRED if environ.get(name, "") != ""}
    if not seen:
        return Launcher(
            world_rank=0,
            world_size=1,
            local_rank=0,
            local_world_size=1,
            under_launcher=False,
            token=f"process-{process_id}",
        )
    if len(seen) < len(REQUIRED):
        raise _incomplete(environ, REQUIRED)
    values: dict[str, int] = {}
    for name, text in seen.items():
        try:
            values[name] = int(text)
        except ValueError:
            raise _malformed(environ, f"{name}={text!r} is not an integer") from None
    world_rank, world_size = values["RANK"], values["WORLD_SIZE"]
    local_rank, local_world_size = values["LOCAL_RANK"], values["LOCAL_WORLD_SIZE"]
    if world_size < 1 or local_world_size < 1:
        raise _malformed(environ, "WORLD_SIZE and LOCAL_WORLD_SIZE must be at least 1")
    if not 0 <= world_rank < world_size:
        raise _malformed(environ, f"RANK={world_rank} is outside 0..{world_size - 1}")
    if not 0 <= local_rank < local_world_size:
        raise _malformed(environ, f"LOCAL_RANK={local_rank} is outside 0..{local_world_size - 1}")
    if world_size % local_world_size:
        raise _malformed(
            environ,
            f"WORLD_SIZE={world_size} is not a multiple of LOCAL_WORLD_SIZE={local_world_size}",
        )
    if world_size > 1 and any(not environ.get(name) for name in RENDEZVOUS):
        raise _incomplete(environ, REQUIRED + RENDEZVOUS)
    port = environ.get("MASTER_PORT", "")
    if world_size > 1 and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise _malformed(environ, f"MASTER_PORT={port} is not a port (1..65535)")
    parts = [environ.get(name, "") for name in RENDEZVOUS]
    parts += [environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")]
    return Launcher(
        world_rank=world_rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_world_size,
        under_launcher=True,
        token="launch-" + ":".join(parts),
    )


def check_launcher(launcher: Launcher, topology: ProcessCounts, *, command: str = "train") -> None:
    """Refuse (exit 5) processes that are not the ones the config asks for; 1 is never assumed."""
    expected = topology.world_size
    if launcher.world_size != expected:
        seen = (
            f"WORLD_SIZE={launcher.world_size}"
            if launcher.under_launcher
            else "no launcher variables"
        )
        raise SolarError(
            "launcher.mismatch",
            f"the config asks for {expected} processes, this launch has {launcher.world_size}",
            where="distributed.world_size",
            why=f"seen: {seen}; expected: WORLD_SIZE={expected} with "
            f"{', '.join(REQUIRED)} set by torchrun",
            fixes=[
                launch_line(expected, command),
                f"--set distributed.world_size={launcher.world_size}, with the batch numbers that fit it"
                if command == "train"
                else f"--set distributed.world_size={launcher.world_size}",
            ],
            context={"seen": launcher.world_size, "expected": expected},
        )


def launch_line(world_size: int, command: str) -> str:
    """The shell line that starts `world_size` processes on one machine."""
    words = ["torchrun", "--standalone", f"--nproc-per-node={world_size}", "-m", "solarwm", command]
    return shlex.join(words) + " --config ..."


def _seen_line(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return ", ".join(
        f"{name}={environ[name]}" if environ.get(name) else f"{name} not set" for name in names
    )


def _incomplete(environ: Mapping[str, str], names: tuple[str, ...]) -> SolarError:
    missing = [name for name in names if not environ.get(name)]
    return SolarError(
        "launcher.incomplete",
        f"launcher variables are missing: {', '.join(missing)}",
        where="environment",
        why=f"seen: {_seen_line(environ, names)}; expected: all of {', '.join(names)}, or none of "
        f"{', '.join(REQUIRED)}",
        fixes=["start with torchrun, which sets all of them", f"unset {' '.join(REQUIRED)}"],
        context={"missing": missing},
    )


def _malformed(environ: Mapping[str, str], reason: str) -> SolarError:
    return SolarError(
        "launcher.malformed",
        "the launcher variables contradict each other",
        where="environment",
        why=f"{reason}; seen: {_seen_line(environ, REQUIRED)}",
        fixes=["start with torchrun, which sets all of them", f"unset {' '.join(REQUIRED)}"],
    )
