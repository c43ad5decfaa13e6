"""The watching thread, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, signal, sys, threading, time
from solarwm.runs.signals import SignalWatcher
left = threading.Event()
def leave(number):
    print("left", number, flush=True)
    os._exit(9)
watcher = SignalWatcher(leave=leave, tick=lambda: None, tick_s=0.05, boundary_s=0.6)
watcher.start()
{body}
"""


def _run(body: str) -> subprocess.CompletedProcess[str]:
    code = SCRIPT.format(body=body)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_signal_becomes_a_request_and_the_process_goes_on() -> None:
    done = _run(
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.3)\n"
        "print('asked', watcher.requested)\n"
        "watcher.reached_boundary(); time.sleep(0.6); watcher.stop()\n"
        "print('open', signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["asked 15", "open set()"]


def test_no_boundary_in_time_means_leaving() -> None:
    done = _run("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n")
    assert (done.returncode, done.stdout.strip()) == (9, "left 2")


def test_the_same_signal_twice_in_a_moment_is_one_request() -> None:
    done = _run(
        "for _ in range(3): os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1)\n"
        "watcher.reached_boundary(); time.sleep(0.1); watcher.stop(); print('calm')\n"
    )
    assert done.stdout.strip() == "calm"


def test_a_second_signal_later_means_leaving_at_once() -> None:
    done = _run(
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.3); watcher.reached_boundary()\n"
        "time.sleep(2.2); os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)\n"
    )
    assert (done.returncode, done.stdout.strip()) == (9, "left 15")


def test_a_thread_started_with_the_signals_open_does_not_swallow_them() -> None:
    done = _run(
        "def idle():\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]); time.sleep(30)\n"
        "threading.Thread(target=idle, daemon=True).start(); time.sleep(0.1)\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)\n"
    )
    assert (done.returncode, done.stdout.strip()) == (9, "left 15")


def test_a_forked_child_has_the_ordinary_meaning_of_signals() -> None:
    done = _run(
        "pid = os.fork()\n"
        "if pid == 0: time.sleep(30); os._exit(0)\n"
        "time.sleep(0.1); os.kill(pid, signal.SIGTERM)\n"
        "print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "watcher.stop()\n"
    )
    assert done.stdout.strip() == "child -15"
