"""Launcher variables: complete, consistent, and equal to what the config asks for."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from solarwm.distributed.environment import check_launcher, read_launcher
from solarwm.errors.types import SolarError


@dataclass(frozen=True)
class Counts:
    world_size: int
    sequence_parallel_size: int = 1


def _torchrun(**changes: str) -> dict[str, str]:
    values = {
        "RANK": "11",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    return values | changes


def test_torchrun_variables_give_node_and_ranks() -> None:
    launcher = read_launcher(_torchrun(), process_id=1)
    assert (launcher.world_rank, launcher.world_size, launcher.local_rank) == (11, 16, 3)
    assert (launcher.num_nodes, launcher.node_index) == (2, 1)
    assert launcher.under_launcher


def test_no_variables_mean_one_process_that_watches_no_parent() -> None:
    launcher = read_launcher({"HOME": "/"}, process_id=7)
    assert (launcher.world_rank, launcher.world_size) == (0, 1)
    assert not launcher.under_launcher


def test_tokens_are_equal_on_all_ranks_and_differ_between_launches() -> None:
    one = read_launcher(_torchrun(TORCHELASTIC_RUN_ID="a"), process_id=1)
    other = read_launcher(
        _torchrun(TORCHELASTIC_RUN_ID="a", RANK="0", LOCAL_RANK="0"), process_id=2
    )
    again = read_launcher(_torchrun(TORCHELASTIC_RUN_ID="b"), process_id=1)
    assert one.token == other.token != again.token


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"])
def test_any_missing_variable_is_named(name: str) -> None:
    environ = _torchrun()
    del environ[name]
    with pytest.raises(SolarError) as caught:
        read_launcher(environ, process_id=1)
    assert caught.value.code == "launcher.incomplete"
    assert caught.value.exit_code == 5
    assert f"{name} not set" in caught.value.why


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"])
def test_one_variable_alone_is_never_completed_with_defaults(name: str) -> None:
    with pytest.raises(SolarError) as caught:
        read_launcher({name: "1"}, process_id=1)
    assert caught.value.code == "launcher.incomplete"


@pytest.mark.parametrize(
    "changes",
    [
        {"RANK": "3", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        {"RANK": "-1"},
        {"WORLD_SIZE": "two"},
        {"LOCAL_RANK": "8"},
        {"WORLD_SIZE": "12"},
        {"WORLD_SIZE": "0"},
        {"MASTER_PORT": "abc"},
        {"MASTER_PORT": "99999"},
        {"MASTER_PORT": "0"},
        {"MASTER_PORT": "-1"},
    ],
)
def test_contradictions_are_refused_with_the_values_seen(changes: dict[str, str]) -> None:
    with pytest.raises(SolarError) as caught:
        read_launcher(_torchrun(**changes), process_id=1)
    assert (caught.value.code, caught.value.exit_code) == ("launcher.malformed", 5)
    name, value = next(iter(changes.items()))
    assert f"{name}={value}" in caught.value.why


@pytest.mark.parametrize("environ", [{}, _torchrun(WORLD_SIZE="8", RANK="0", LOCAL_RANK="0")])
def test_a_launch_of_another_size_than_the_config_shows_seen_and_expected(
    environ: dict[str, str],
) -> None:
    launcher = read_launcher(environ, process_id=1)
    with pytest.raises(SolarError) as caught:
        check_launcher(launcher, Counts(16))
    assert (caught.value.code, caught.value.exit_code) == ("launcher.mismatch", 5)
    assert caught.value.context == {"seen": launcher.world_size, "expected": 16}
    assert "--nproc-per-node=16" in caught.value.fixes[0]


def test_a_matching_launch_passes() -> None:
    check_launcher(read_launcher(_torchrun(), process_id=1), Counts(16, 2))


def test_sequence_parallel_groups_may_span_machines() -> None:
    launcher = read_launcher(_torchrun(), process_id=1)
    assert launcher.local_world_size < 16
    check_launcher(launcher, Counts(16, 16))


def test_reading_the_launcher_needs_no_torch() -> None:
    code = "import solarwm.distributed.environment, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
