"""Real training through the command line: topologies, resume, sharding. One test uses torchrun
itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp

from solarwm.cli.app import run


def _losses(ended) -> list[float]:
    return [record["losses"]["flow_matching"] for record in ended.events()]


def _samples(ended, world_size: int) -> list[list[tuple[int, str]]]:
    """Per step the (occurrence, sample) pairs of all ranks, sorted."""
    per_rank = [ended.events(world_rank) for world_rank in range(world_size)]
    steps = []
    for records in zip(*per_rank, strict=True):
        pairs = [
            pair
            for record in records
            for micro in record["microbatches"]
            for pair in zip(
                micro["identity"]["occurrences"], micro["identity"]["sample_ids"], strict=True
            )
        ]
        steps.append(sorted(pairs))
    return steps


def _tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint by member and name, read by torch's own reader."""
    found = {}
    for folder in sorted(checkpoint.glob("student-*")):
        metadata = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
        state = {
            key: torch.empty(value.size, dtype=value.properties.dtype)
            for key, value in metadata.items()
        }
        load_dcp(state, storage_reader=FileSystemReader(str(folder)), no_dist=True)
        found.update({f"{folder.name}/{key}": value for key, value in state.items()})
    return found


def _assert_equal(one: Path, other: Path) -> None:
    mine, theirs = _tensors(one), _tensors(other)
    assert {name.split("/")[0] for name in mine} == {
        "student-model",
        "student-optimizer",
        "student-ema",
    }
    assert set(mine) == set(theirs)
    different = [name for name in mine if not torch.equal(mine[name], theirs[name])]
    assert different == []


def test_resumed_training_equals_uninterrupted_training_bit_for_bit_on_one_rank(
    warm, tmp_path: Path
) -> None:
    straight = warm.train(tmp_path / "straight", "train.max_steps=6", "runtime.save_every=3")
    first = warm.train(
        tmp_path / "parts",
        "train.max_steps=6",
        "runtime.save_every=3",
        options=("--stop-after", "3"),
    )
    second = warm.train(
        tmp_path / "parts",
        "train.max_steps=6",
        "runtime.save_every=3",
        options=("--resume", "latest"),
    )
    assert (straight.codes, first.codes, second.codes) == ([0], [0], [0])
    assert _losses(second) == _losses(straight)
    assert _samples(second, 1) == _samples(straight, 1)
    name = "checkpoint_model_000006"
    _assert_equal(straight.root / name, second.root / name)


@pytest.mark.parametrize("world_size", [1, 2])
def test_ten_steps_a_kill_and_ten_more_equal_twenty_steps_bit_for_bit(
    warm, tmp_path: Path, world_size: int
) -> None:
    sets = ("train.max_steps=20", "runtime.save_every=10", "train.ema.start_step=4")
    straight = warm.train(tmp_path / "straight", *sets, world_size=world_size)
    killed = warm.train(
        tmp_path / "killed",
        *sets,
        world_size=world_size,
        patch=(
            "import os, signal\n"
            "from solarwm.training import stage\n"
            "real = stage.SingleRoleStage.backward\n"
            "def backward(self, batch, *, step):\n"
            "    if step == 13: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return real(self, batch, step=step)\n"
            "stage.SingleRoleStage.backward = backward\n"
        ),
    )
    assert killed.codes == [-9] * world_size
    resumed = warm.train(
        tmp_path / "killed", *sets, world_size=world_size, options=("--resume", "latest")
    )
    assert (straight.codes, resumed.codes) == ([0] * world_size, [0] * world_size)
    steps = [record["step"] for record in resumed.events()]
    assert steps == [*range(1, 14), *range(11, 21)]
    assert _losses(resumed)[13:] == _losses(straight)[10:]
    assert _samples(resumed, world_size)[13:] == _samples(straight, world_size)[10:]
    name = "checkpoint_model_000020"
    _assert_equal(straight.root / name, resumed.root / name)


def test_going_back_to_an_earlier_checkpoint_is_refused_in_place_and_branches_elsewhere(
    warm, tmp_path: Path
) -> None:
    whole = warm.train(tmp_path / "run", "train.max_steps=4")
    earlier = ("--resume", str(whole.root / "checkpoint_model_000002"))
    before = (whole.root / "run-result.json").read_bytes()
    refused = warm.train(tmp_path / "run", "train.max_steps=4", options=earlier)
    assert refused.codes == [2]
    assert "train.later-checkpoints" in refused.texts[0]
    assert "checkpoint_model_000004" in refused.texts[0]
    assert (whole.root / "run-result.json").read_bytes() == before
    branch = warm.train(tmp_path / "branch", "train.max_steps=4", options=earlier)
    assert branch.codes == [0]
    assert _losses(branch) == _losses(whole)[2:]


def test_resume_latest_says_which_checkpoint_it_passed_over(warm, tmp_path: Path) -> None:
    whole = warm.train(tmp_path / "run", "train.max_steps=4")
    (whole.root / "checkpoint_model_000004" / "COMPLETE.json").unlink()
    again = warm.train(tmp_path / "run", "train.max_steps=4", options=("--resume", "latest"))
    assert "passed over checkpoint_model_000004" in again.texts[0]
    assert any("checkpoint_model_000004" in note["text"] for note in again.events(kind="note"))


def test_equal_global_batches_train_equally_on_one_and_two_ranks_and_when_sharded(
    warm, tmp_path: Path
) -> None:
    one = warm.train(tmp_path / "one", "train.max_steps=3")
    two = warm.train(tmp_path / "two", "train.max_steps=3", world_size=2)
    sharded = warm.train(
        tmp_path / "sharded", "train.max_steps=3", "train.fsdp.strategy=FULL_SHARD", world_size=2
    )
    assert (one.codes, two.codes, sharded.codes) == ([0], [0, 0], [0, 0])
    assert _samples(one, 1) == _samples(two, 2) == _samples(sharded, 2)
    for other in (two, sharded):
        assert abs(_losses(other)[0] - _losses(one)[0]) < 1e-6
        for mine, theirs in zip(_losses(one), _losses(other), strict=True):
            assert abs(mine - theirs) < 1e-4
        for mine, theirs in zip(one.events(), other.events(), strict=True):
            assert abs(mine["gradient_norm"] - theirs["gradient_norm"]) < 1e-4


DOUBLE = """
from solarwm.training import assembly
real = assembly.build_module
assembly.build_module = lambda *arguments: real(*arguments).double()
"""
COUNTING = """
import torch
real = torch.optim.AdamW.step
def step(self, *args, **more):
    print("AdamW stepped", flush=True)
    return real(self, *args, **more)
torch.optim.AdamW.step = step
"""
TWO_MACHINES = """
import os
os.environ["LOCAL_RANK"] = str(int(os.environ["RANK"]) % 2)
os.environ["LOCAL_WORLD_SIZE"] = "2"
"""


def test_twenty_steps_in_float64_are_equal_to_1e_9_on_any_topology(warm, tmp_path: Path) -> None:
    steps = (
        "train.max_steps=20",
        "runtime.save_every=0",
        "train.ema.enabled=false",
        "data.pixel_frames=9",
    )
    wide = ("train.fsdp.param_dtype=null", "train.fsdp.reduce_dtype=null")
    single = ("train.micro_batch_size=1", "train.grad_accum=1")
    shared = ("distributed.sequence_parallel_size=2",)
    layouts = {
        "one": (1, ()),
        "four microbatches": (1, ("train.micro_batch_size=1", "train.grad_accum=4")),
        "two": (2, ()),
        "two sharded": (2, ("train.fsdp.strategy=FULL_SHARD", *wide)),
        "two keeping parameters": (2, ("train.fsdp.strategy=SHARD_GRAD_OP", *wide)),
        "two in one machine": (2, ("train.fsdp.strategy=HYBRID_SHARD", *wide)),
        "two replicas": (2, ("train.fsdp.strategy=NO_SHARD", *wide)),
        "two of one clip": (2, (*shared, "train.grad_accum=2")),
        "two of one clip, sharded": (
            2,
            (*shared, "train.grad_accum=2", "train.fsdp.strategy=FULL_SHARD", *wide),
        ),
        "four": (4, single),
        "four of two clips": (4, (*shared, "train.grad_accum=1")),
        "four in two machines": (4, ("train.fsdp.strategy=HYBRID_SHARD", *wide, *single)),
    }
    traces = {}
    for name, (world_size, sets) in layouts.items():
        patch = DOUBLE + (TWO_MACHINES if "machines" in name else "")
        root = tmp_path / name.replace(" ", "-")
        ended = warm.train(root, *steps, *sets, world_size=world_size, patch=patch)
        assert ended.codes == [0] * world_size, ended.texts
        traces[name] = _losses(ended)
    for name, trace in traces.items():
        assert len(trace) == 20
        worst = max(abs(a - b) for a, b in zip(trace, traces["one"], strict=True))
        assert worst < 1e-9, (name, worst)


def test_accumulated_microbatches_make_one_optimizer_step(warm, tmp_path: Path) -> None:
    sets = ("train.max_steps=2", "train.micro_batch_size=1", "train.grad_accum=4")
    ended = warm.train(tmp_path / "run", *sets, patch=COUNTING)
    assert ended.codes == [0]
    assert [record["grad_accum"] for record in ended.events()] == [4, 4]
    assert [len(record["microbatches"]) for record in ended.events()] == [4, 4]
    assert ended.texts[0].count("AdamW stepped") == 2
    counts = {
        float(value)
        for name, value in _tensors(ended.root / "checkpoint_model_000002").items()
        if name.startswith("student-optimizer/") and name.endswith("step")
    }
    assert counts == {2.0}


def test_a_checkpoint_of_two_sharded_ranks_resumes_on_one(warm, tmp_path: Path) -> None:
    start = warm.train(
        tmp_path / "run",
        "train.max_steps=4",
        "train.fsdp.strategy=FULL_SHARD",
        world_size=2,
        options=("--stop-after", "2"),
    )
    whole = warm.train(tmp_path / "whole", "train.max_steps=4")
    end = warm.train(tmp_path / "run", "train.max_steps=4", options=("--resume", "latest"))
    assert (start.codes, whole.codes, end.codes) == ([0, 0], [0], [0])
    for mine, theirs in zip(_losses(whole)[2:], _losses(end)[2:], strict=True):
        assert abs(mine - theirs) < 1e-4


def test_resume_at_the_last_step_ends_at_once_with_a_note(warm, tmp_path: Path) -> None:
    warm.train(tmp_path / "run", "train.max_steps=2")
    before = (tmp_path / "run" / "run-result.json").read_bytes()
    again = warm.train(tmp_path / "run", "train.max_steps=2", options=("--resume", "latest"))
    assert again.codes == [0]
    assert "nothing to do" in again.texts[0]
    assert (tmp_path / "run" / "run-result.json").read_bytes() == before


def test_a_run_stopped_on_request_says_how_far_it_is_to_go(warm, tmp_path: Path) -> None:
    from solarwm.runs.status import read_status

    ended = warm.train(tmp_path / "run", "train.max_steps=6", options=("--stop-after", "2"))
    assert "run stopped after step 2, as asked" in ended.texts[0]
    assert (ended.result["step"], ended.result["max_steps"]) == (2, 6)
    status = read_status(ended.root)
    assert (status.step, status.max_steps) == (2, 6)
    last = ended.events()[-1]
    assert status.figures["loss"] == last["losses"]["mean"]
    assert status.figures["step_time_s"] == last["step_time_s"]


def test_resume_refuses_another_recipe_at_the_start_and_tells_a_moved_end(
    warm, tmp_path: Path
) -> None:
    root, resume = tmp_path / "run", ("--resume", "latest")
    warm.train(root, "train.max_steps=4", options=("--stop-after", "2"))
    before = (root / "run-result.json").read_bytes()
    other = warm.train(root, "train.max_steps=4", "train.optimizer.lr=0.1", options=resume)
    assert other.codes == [3]
    assert "train.resume-mismatch" in other.texts[0]
    assert "train.optimizer.lr: saved 0.0015, now 0.1" in other.texts[0]
    assert "--set train.optimizer.lr=0.0015" in other.texts[0]
    assert (root / "run-result.json").read_bytes() == before
    longer = warm.train(root, "train.max_steps=5", "runtime.log_every=3", options=resume)
    assert longer.codes == [0]
    assert "train.max_steps: saved 4, now 5" in longer.texts[0]
    assert any("train.max_steps" in note["text"] for note in longer.events(kind="note"))


@pytest.mark.parametrize(
    ("sets", "code"),
    [
        (["train.max_steps=9"], 0),
        (["train.grad_accum=1", "train.micro_batch_size=4"], 0),
        (["train.fsdp.activation_checkpointing=true"], 0),
        (["validation.sample_count=1", "runtime.log_every=2", "name=other"], 0),
        (["train.optimizer.weight_decay=0.5"], 3),
        (["train.ema.decay=0.5"], 3),
        (["train.global_batch_size=2", "train.grad_accum=1"], 3),
        (["data.seed=5", "name=other"], 3),
        (["model.numerics=published"], 3),
    ],
)
def test_what_config_diff_says_of_a_change_is_what_a_resume_does(
    saved_run: tuple[Path, list[str]], sets: list[str], code: int, capsys
) -> None:
    root, settings = saved_run
    capsys.readouterr()
    changed = [*settings, *(word for text in sets for word in ("--set", text))]
    assert run(["config", "resolve", *changed, "--json"]) == 0
    after = root.parent / "after.json"
    after.write_text(capsys.readouterr().out)
    assert run(["config", "diff", str(root), str(after), "--json"]) == 0
    difference = json.loads(capsys.readouterr().out)
    keys = [item["key"] for name in ("resume_breaking", "harmless") for item in difference[name]]
    assert len(keys) >= len(sets)
    assert bool(difference["resume_breaking"]) is (code == 3)
    assert run(["train", *changed, "--resume", "latest", "--dry-run", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    breaking = sorted(item["key"] for item in difference["resume_breaking"])
    assert [fault["code"] for fault in report["faults"]] == ["train.resume-mismatch"] * bool(code)
    assert all(key in fault["why"] for fault in report["faults"] for key in breaking)


@pytest.fixture(scope="module")
def saved_run(warm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run saved after step 2 of 4, and its settings."""
    root = tmp_path_factory.mktemp("saved") / "run"
    assert warm.train(root, options=("--stop-after", "2")).codes == [0]
    return root, warm.settings(root, 1, ())


def test_average_and_its_update_count_survive_a_resume(warm, tmp_path: Path) -> None:
    sets = (
        "train.max_steps=6",
        "train.ema.start_step=3",
        "train.ema.decay=0.9",
        "train.ema.warmup_steps=0",
    )
    straight = warm.train(tmp_path / "straight", *sets, "runtime.save_every=6")
    warm.train(tmp_path / "parts", *sets, "runtime.save_every=5", options=("--stop-after", "5"))
    parts = warm.train(tmp_path / "parts", *sets, options=("--resume", "latest"))
    counts = [record["ema_updates"] for record in straight.events()]
    assert counts == [0, 0, 1, 2, 3, 4]
    assert [record["ema_updates"] for record in parts.events()] == counts
    _assert_equal(straight.root / "checkpoint_model_000006", parts.root / "checkpoint_model_000006")


def test_resume_expecting_an_average_from_a_checkpoint_without_one_is_refused(
    warm, tmp_path: Path
) -> None:
    warm.train(tmp_path / "run", "train.ema.enabled=false", options=("--stop-after", "2"))
    ended = warm.train(tmp_path / "run", options=("--resume", "latest"))
    assert ended.codes == [3]
    assert "train.ema.enabled: saved False, now True" in ended.texts[0]
    assert ended.result["exit_code"] == 0


def test_torchrun_trains_two_ranks_and_the_run_directory_tells_all(warm, tmp_path: Path) -> None:
    root = tmp_path / "run"
    command = [
        str(Path(sys.executable).parent / "torchrun"),
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "solarwm",
        "train",
        *warm.settings(root, 2, ("train.max_steps=2",)),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "step 2/2" in done.stderr
    assert json.loads((root / "run-result.json").read_text())["status"] == "complete"
    names = {path.name for path in root.iterdir()}
    assert {"resolved-config.json", "launch-manifest.json", "events", "heartbeats"} <= names
    assert (root / "checkpoint_model_000002" / "COMPLETE.json").exists()
    events = [json.loads(line) for line in (root / "events" / "rank-00001.jsonl").open()]
    step = next(event for event in events if event["event"] == "optimizer_step")
    for name in ("losses", "gradient_norm", "lr", "step_time_s", "data_wait_s", "samples_per_s"):
        assert name in step
    assert step["world_rank"] == 1
    assert step["resident_bytes"] > 0


def test_held_out_clips_are_generated_while_training_and_leave_its_bits_alone(
    warm, tmp_path: Path
) -> None:
    passes = (
        "[{name: live, weights: live, num_inference_steps: 2}, "
        "{name: ema, weights: ema, num_inference_steps: 2}]"
    )
    sets = ("train.max_steps=2", "validation.sample_count=2", f"validation.passes={passes}")
    plain = warm.train(tmp_path / "plain", "train.max_steps=2", world_size=2)
    ended = warm.train(tmp_path / "run", *sets, "runtime.validate_every=1", world_size=2)
    assert (plain.codes, ended.codes) == ([0, 0], [0, 0])
    reports = [record["report"] for record in ended.events(kind="validation")]
    assert [report["step"] for report in reports] == [1, 2]
    assert [report["slots_missing"] for report in reports] == [[], []]
    for step in (1, 2):
        folder = ended.root / "validation" / f"step_{step:06d}"
        videos = sorted(str(path.relative_to(folder)) for path in folder.rglob("video.mp4"))
        assert len(videos) == 4
    assert _losses(ended) == _losses(plain)
    _assert_equal(plain.root / "checkpoint_model_000002", ended.root / "checkpoint_model_000002")


def test_a_resume_check_names_the_samples_that_the_resumed_run_takes(warm, tmp_path: Path) -> None:
    from solarwm.config.resolve import resolve
    from solarwm.training.resume_check import resume_check

    first = warm.train(tmp_path / "run", "train.max_steps=4", options=("--stop-after", "2"))
    before = sorted(path.name for path in first.root.rglob("*"))
    report = resume_check(first.root, count=4)
    assert sorted(path.name for path in first.root.rglob("*")) == before
    assert (report["step"], report["max_steps"], report["resumable"]) == (2, 4, True)
    resumed = warm.train(tmp_path / "run", "train.max_steps=4", options=("--resume", "latest"))
    told = [(item["occurrence"], item["sample_id"]) for item in report["next_samples"]]
    assert told == _samples(resumed, 1)[2]
    own = first.root / "resolved-config.json"
    other = resolve(own, ["train.optimizer.lr=0.1", "runtime.log_every=3"]).canonical
    refused = resume_check(first.root, config=other)
    assert not refused["resumable"]
    marks = {item["key"]: item["refused"] for item in refused["differences"]}
    assert marks == {"train.optimizer.lr": True, "runtime.log_every": False}
