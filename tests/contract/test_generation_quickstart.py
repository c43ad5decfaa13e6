"""The commands `tools/quickstart.py` runs, checked against the real options and configs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from solarwm.config.resolve import require_no_placeholders, resolve

TOOL = Path(__file__).parents[2] / "tools" / "quickstart.py"


@pytest.fixture
def quickstart(monkeypatch):
    spec = importlib.util.spec_from_file_location("quickstart_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def _recorded(quickstart, monkeypatch, arguments, code=0):
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(quickstart.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["quickstart.py", *map(str, arguments)])
    quickstart.main()
    return commands


def _resolved(command):
    after = command[command.index("solarwm") + 2 :]
    sets = [after[place + 1] for place, word in enumerate(after) if word == "--set"]
    action = command[command.index("solarwm") + 1]
    return resolve(Path(after[after.index("--config") + 1]), sets, action=action, environ={})


@pytest.mark.parametrize(("profile", "generations"), [("quick", 1), ("long", 3)])
def test_every_step_is_a_command_that_resolves(
    quickstart, monkeypatch, tmp_path, profile, generations
):
    commands = _recorded(quickstart, monkeypatch, ["--profile", profile, "--out", tmp_path])
    render, first, second, *rest = commands
    infers, later = rest[:generations], rest[generations:]
    assert render[1:3] == ["data", "synthesize"]
    assert "--stop-after" in first
    assert second[-2:] == ["--resume", "latest"]
    assert len(infers) == generations
    stage1, stage2, long_world, *made = later
    assert long_world[1:3] == ["data", "synthesize"]
    assert [_resolved(command).config.train.stage for command in (stage1, stage2, *made)] == [
        "stage1",
        "stage2",
        "stage1",
        "stage2",
        "stage2",
    ]
    trained = _resolved(stage2).config.data.latent_frames
    assert _resolved(made[-1]).config.validation.passes[0].rollout_latent_frames == 4 * trained
    for command in (first, second, *infers, stage1, stage2, *made):
        assert command[1:5] == ["--standalone", "--nproc-per-node=2", "-m", "solarwm"]
        resolved = _resolved(command)
        require_no_placeholders(resolved)
        assert resolved.config.distributed.world_size == 2
    seeds = [_resolved(command).config.validation.noise_seed for command in infers]
    assert len(set(seeds)) == generations
    assert _resolved(first).config.model.profile == _resolved(infers[0]).config.model.profile
    assert _resolved(first).config.model.timestep_shift == (
        _resolved(infers[0]).config.model.timestep_shift
    )
    assert (tmp_path / "index.html").is_file()


def test_the_long_profile_covers_sixteen_clips_and_three_seeds(quickstart, monkeypatch, tmp_path):
    commands = _recorded(quickstart, monkeypatch, ["--profile", "long", "--out", tmp_path])
    for command in commands[3:6]:
        assert _resolved(command).config.validation.sample_count >= 16


def test_a_failing_step_ends_the_chain_with_its_code(quickstart, monkeypatch, tmp_path):
    with pytest.raises(SystemExit) as caught:
        _recorded(quickstart, monkeypatch, ["--out", tmp_path], code=5)
    assert caught.value.code == 5


def test_a_second_call_keeps_the_world_and_the_checkpoints(quickstart, monkeypatch, tmp_path):
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "test-index.jsonl.gz").touch()
    (tmp_path / "training" / "checkpoint_model_000100").mkdir(parents=True)
    plan = tmp_path / "inference" / "generation" / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.touch()
    resume, infer, *_ = _recorded(quickstart, monkeypatch, ["--out", tmp_path])
    assert resume[-2:] == ["--resume", "latest"]
    assert infer[-1] == "--resume"
