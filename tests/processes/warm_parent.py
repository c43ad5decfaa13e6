"""A process that has imported everything heavy once and forks ranks on request.

Reads one JSON job a line: {"args": [...], "world_size": N, "patch": path or null, "folder": path,
"env": {...}}. Answers one JSON line when all ranks have ended: {"codes": [...], "seconds": [...]},
the exit codes by rank and how long each took. Ranks see the variables torchrun would set. Output of
rank r goes to FOLDER/rank-r.txt. With "wait": false it answers {"pids": [...]} at once, and a later
{"join": true} waits.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback

WARM = (
    "diffusers.models.autoencoders.autoencoder_kl_wan",
    "solarwm.backbones.wan22_5b.backbone",
    "solarwm.objectives.flow_matching",
    "solarwm.cli.app",
    "solarwm.cli.train",
    "solarwm.training.engine",
    "solarwm.training.run",
    "torch.distributed.fsdp",
)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _warm_up() -> None:
    for name in WARM:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)


def _rank(job: dict, world_rank: int, port: int, token: str) -> None:
    descriptor = os.open(
        f"{job['folder']}/rank-{world_rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    )
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(job.get("env", {}))
    if job["world_size"] > 1 or job.get("launcher"):
        size = str(job["world_size"])
        os.environ.update(
            RANK=str(world_rank),
            LOCAL_RANK=str(world_rank),
            WORLD_SIZE=size,
            LOCAL_WORLD_SIZE=size,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            TORCHELASTIC_RUN_ID=token,
        )
    code = 70
    try:
        if job.get("patch"):
            runpy.run_path(job["patch"], run_name="__patch__")
        from solarwm.cli.app import run

        code = run(job["args"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    _warm_up()
    running: dict[int, int] = {}
    codes: dict[int, int] = {}
    seconds: dict[int, float] = {}
    started = 0.0
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        if not job.get("join"):
            port, token, started = _free_port(), os.urandom(6).hex(), time.monotonic()
            codes, seconds, running = {}, {}, {}
            for world_rank in range(job["world_size"]):
                pid = os.fork()
                if pid == 0:
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
                    _rank(job, world_rank, port, token)
                running[pid] = world_rank
            if job.get("wait") is False:
                print(json.dumps({"pids": list(running)}), flush=True)
                continue
        while running:
            pid, status = os.wait()
            world_rank = running.pop(pid)
            codes[world_rank] = os.waitstatus_to_exitcode(status)
            seconds[world_rank] = time.monotonic() - started
        answer = {
            name: [found[r] for r in sorted(found)]
            for name, found in (("codes", codes), ("seconds", seconds))
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
