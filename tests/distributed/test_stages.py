"""Stage0.5 -> Stage1 -> Stage2 through the command line at the tiny size: every stage starts from the
one before, resumes bit for bit, trains on one and on two ranks, and generates."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp

QUICKSTART = Path(__file__).parents[2] / "configs" / "examples" / "quickstart"


@pytest.fixture(scope="module")
def stages(warm, small_world, tmp_path_factory):
    """The three stages, four steps each on one rank; folders by name."""
    return Chain(warm, small_world, tmp_path_factory.mktemp("chain"))


class Chain:
    def __init__(self, warm, world: Path, folder: Path) -> None:
        self.warm, self.world, self.folder = warm, world, folder
        self.ended = {}
        base = warm.train(folder / "stage0p5", "train.max_steps=2", "train.ema.warmup_steps=0")
        assert base.codes == [0], base.texts
        for stage in ("stage1", "stage2"):
            self.ended[stage] = self.train(stage, folder / stage)
            assert self.ended[stage].codes == [0], self.ended[stage].texts

    def train(self, stage: str, root: Path, *sets: str, world_size: int = 1, options=()):
        base, flow_map = self.folder / "stage0p5", self.folder / "stage1"
        values = [
            f"data.index_root={self.world}",
            f"data.transport.root={self.world}",
            f"data.latent_cache_dir={self.warm._cache}",
            "data.pixel_frames=33",
            "model.max_prior_clean_chunks=1",
            f"distributed.world_size={world_size}",
            "train.max_steps=4",
            "runtime.save_every=2",
            f"runtime.output_dir={root}",
        ]
        if stage == "stage1":
            values += [
                f"checkpoint.path={base}",
                f"train.grad_accum={2 // world_size}",
                "train.warmup_steps=0",
                "train.anyflow_fuse_guidance_scale=2.0",
            ]
        else:
            values += [
                f"checkpoint.roles.student.path={flow_map}",
                f"checkpoint.roles.teacher.path={base}",
                f"checkpoint.roles.critic.path={base}",
                f"train.micro_batch_size={4 // world_size}",
                "train.critic_updates_per_student=1",
                "train.real_guidance_scale=3.0",
                "train.negative_prompt=blur",
                "train.ema.start_step=1",
                "train.delta_policy=drop",
            ]
        words = [word for value in (*values, *sets) for word in ("--set", value)]
        arguments = ["train", "--config", str(QUICKSTART / f"{stage}.yaml"), *words, *options]
        return self.warm.launch(root, arguments, world_size=world_size)


def tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    found = {}
    for folder in sorted([*checkpoint.glob("student-*"), *checkpoint.glob("critic-*")]):
        metadata = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
        state = {
            key: torch.empty(value.size, dtype=value.properties.dtype)
            for key, value in metadata.items()
        }
        load_dcp(state, storage_reader=FileSystemReader(str(folder)), no_dist=True)
        found.update({f"{folder.name}/{key}": value for key, value in state.items()})
    return found


def losses(ended) -> list[dict[str, float]]:
    return [record["losses"] for record in ended.events()]


def test_every_number_of_every_stage_is_finite_and_every_class_and_role_is_told(stages) -> None:
    for stage, ended in stages.ended.items():
        assert len(ended.events()) == 4
        for record in ended.events():
            assert all(math.isfinite(value) for value in record["losses"].values()), stage
            assert math.isfinite(record["gradient_norm"])
    for record in losses(stages.ended["stage1"]):
        for kind in ("diffusion", "consistency", "map"):
            assert {f"{kind}_raw", f"{kind}_rescaled"} <= set(record)
    roles = [set(record["roles"]) for record in stages.ended["stage2"].events()]
    assert roles == [{"critic"}, *[{"student", "critic"}] * 3]
    assert [r["ema_updates"] for r in stages.ended["stage2"].events()] == [0, 1, 2, 3]


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_a_stage_resumed_in_the_middle_equals_the_uninterrupted_one(
    stages, tmp_path, stage
) -> None:
    half = stages.train(stage, tmp_path / "run", options=("--stop-after", "2"))
    rest = stages.train(stage, tmp_path / "run", options=("--resume", "latest"))
    assert (half.codes, rest.codes) == ([0], [0]), rest.texts
    assert losses(rest) == losses(stages.ended[stage])
    name = "checkpoint_model_000004"
    mine, whole = tensors(rest.root / name), tensors(stages.folder / stage / name)
    assert set(mine) == set(whole)
    assert [key for key in whole if not torch.equal(mine[key], whole[key])] == []
    roles = {"student"} if stage == "stage1" else {"student", "critic"}
    assert {key.split("-")[0] for key in whole} == roles
    assert any(key.startswith("student-ema/") for key in whole)
    state = [
        json.loads((path / name / "state.json").read_text())["facts"]["trainer"]
        for path in (rest.root, stages.folder / stage)
    ]
    assert state[0] == state[1]


def test_a_resume_goes_on_with_the_same_teacher_wherever_it_lies_and_with_no_other(
    stages, warm, tmp_path
) -> None:
    half = stages.train("stage2", tmp_path / "run", options=("--stop-after", "2"))
    other = warm.train(
        tmp_path / "other", "train.max_steps=2", "train.ema.warmup_steps=0", "data.seed=9"
    )
    assert (half.codes, other.codes) == ([0], [0])
    shutil.copytree(stages.folder / "stage0p5", tmp_path / "moved")
    resume = ("--resume", "latest")
    for place, codes in ((tmp_path / "other", [3]), (tmp_path / "moved", [0])):
        sets = (f"checkpoint.roles.teacher.path={place}",)
        ended = stages.train("stage2", tmp_path / "run", *sets, options=resume)
        assert ended.codes == codes, ended.texts
        if codes == [3]:
            assert "train.resume-mismatch" in ended.texts[0]
            assert "teacher" in ended.texts[0]


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
@pytest.mark.parametrize("strategy", ["none", "FULL_SHARD"])
def test_two_ranks_train_like_one(stages, tmp_path, stage, strategy) -> None:
    two = stages.train(
        stage,
        tmp_path / "two",
        "train.max_steps=2",
        f"train.fsdp.strategy={strategy}",
        world_size=2,
    )
    assert two.codes == [0, 0], two.texts
    for mine, theirs in zip(losses(two), losses(stages.ended[stage]), strict=False):
        assert set(mine) == set(theirs)
        for name, value in theirs.items():
            assert mine[name] == pytest.approx(value, rel=2e-3, abs=1e-4), name


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_two_sharded_ranks_of_one_clip_train_like_one(stages, tmp_path, stage) -> None:
    batch = "train.grad_accum=2" if stage == "stage1" else "train.micro_batch_size=4"
    two = stages.train(
        stage,
        tmp_path / "two",
        "train.max_steps=2",
        "distributed.sequence_parallel_size=2",
        "distributed.check_collectives=true",
        batch,
        "train.fsdp.strategy=FULL_SHARD",
        world_size=2,
    )
    assert two.codes == [0, 0], two.texts
    for mine, theirs in zip(losses(two), losses(stages.ended[stage]), strict=False):
        assert set(mine) == set(theirs)
        for name, value in theirs.items():
            assert mine[name] == pytest.approx(value, rel=2e-3, abs=1e-4), name


def test_ranks_with_different_exits_do_not_hang_when_sharded(stages, tmp_path) -> None:
    sets = ("train.exit_scope=slot", "train.max_steps=3")
    one = stages.train("stage2", tmp_path / "one", *sets)
    two = stages.train(
        "stage2", tmp_path / "two", *sets, "train.fsdp.strategy=FULL_SHARD", world_size=2
    )
    assert (one.codes, two.codes) == ([0], [0, 0]), two.texts
    from solarwm.objectives.rollout import exit_steps

    drawn = {
        role: exit_steps(
            (0, 1, 2, 3), seed=42, step=1, purpose=f"{role}-exit", num_steps=4, scope="slot"
        ).tolist()
        for role in ("student", "critic")
    }
    assert any(max(exits[:2]) != max(exits[2:]) for exits in drawn.values())
    for mine, theirs in zip(losses(two), losses(one), strict=True):
        for name, value in theirs.items():
            assert mine[name] == pytest.approx(value, rel=2e-3, abs=1e-4), name


def test_plain_teacher_forcing_trains_on_sharded_ranks(stages, tmp_path) -> None:
    lines = (QUICKSTART / "stage1.yaml").read_text().splitlines()
    plain = [line for line in lines if "anyflow" not in line and "objective_variant" not in line]
    where = plain.index("  causal_mode: teacher_forcing")
    config = tmp_path / "plain.yaml"
    config.write_text(
        "\n".join([*plain[: where + 1], "  objective: flow_matching", *plain[where + 1 :]])
    )
    values = {
        "data.index_root": stages.world,
        "data.transport.root": stages.world,
        "data.latent_cache_dir": stages.warm._cache,
        "data.pixel_frames": 33,
        "model.max_prior_clean_chunks": 1,
        "checkpoint.path": stages.folder / "stage0p5",
        "train.warmup_steps": 0,
        "train.max_steps": 2,
        "train.fsdp.strategy": "FULL_SHARD",
        "train.fsdp.activation_checkpointing": "true",
        "runtime.output_dir": tmp_path / "run",
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    ended = stages.warm.launch(
        tmp_path / "run", ["train", "--config", str(config), *words], world_size=2
    )
    assert ended.codes == [0, 0], ended.texts
    assert [set(record) for record in losses(ended)] == [{"flow_matching", "mean"}] * 2


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_a_trained_stage_generates_clips_longer_than_it_was_trained_on(
    stages, tmp_path, stage
) -> None:
    from solarwm.synthetic.writer import synthesize

    world = tmp_path / "long"
    synthesize(world, clips=2, frames=57, height=64, width=96, seed=3)
    text = (QUICKSTART / "infer-stage2.yaml").read_text()
    if stage == "stage1":
        keep = [line for line in text.splitlines() if "denoising" not in line]
        keep = [line for line in keep if "guidance" not in line and "delta" not in line]
        text = "\n".join(keep).replace("stage: stage2", "stage: stage1")
        text = text.replace("causal_mode: self_gradient_forcing", "causal_mode: teacher_forcing")
        text = text.replace("objective: flow_matching", "objective: anyflow_forward_map")
        text = text.replace("solver: self_forcing", "solver: flowmap")
    else:
        text = text.replace("delta_policy: keep_diagonal", "delta_policy: drop")
    config = tmp_path / "infer.yaml"
    config.write_text(text.replace("rollout_latent_frames: 84", "rollout_latent_frames: 15"))
    values = {
        "data.index_root": world,
        "data.transport.root": world,
        "data.train_index": "test-index.jsonl.gz",
        "data.pixel_frames": 33,
        "model.max_prior_clean_chunks": 1,
        "distributed.world_size": 1,
        "validation.sample_count": 1,
        "checkpoint.path": stages.folder / stage,
        "runtime.output_dir": tmp_path / "run",
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    ended = stages.warm.launch(tmp_path / "run", ["infer", "--config", str(config), *words])
    assert ended.codes == [0], ended.texts
    quality = json.loads((tmp_path / "run" / "generation" / "quality.json").read_text())
    assert set(quality["passes"]) == {"long_nfe4", "long_nfe2"}
    for name in quality["passes"]:
        schedule = next((tmp_path / "run" / "generation" / name).rglob("schedule.json"))
        assert json.loads(schedule.read_text())["latent_frames"] == 15


def test_a_pass_on_an_average_that_does_not_exist_yet_is_recorded_as_not_started(
    stages, tmp_path
) -> None:
    passes = [
        {
            "name": weights,
            "weights": weights,
            "mode": "autoregressive",
            "solver": "self_forcing",
            "num_inference_steps": 4,
            "rollout_latent_frames": 9,
        }
        for weights in ("live", "ema")
    ]
    ended = stages.train(
        "stage2",
        tmp_path / "run",
        f"validation.passes={json.dumps(passes)}",
        "validation.sample_count=1",
        "runtime.validate_every=1",
        "train.max_steps=1",
        "train.ema.start_step=2",
    )
    assert ended.codes == [0], ended.texts
    report = ended.events(kind="validation")[0]["report"]
    assert report["passes_not_started"] == ["ema"]
    step = tmp_path / "run" / "validation" / "step_000001"
    plan = json.loads((step / "plan.json").read_bytes())
    assert plan["passes_not_started"] == ["ema"]
    assert [entry["name"] for entry in plan["passes"]] == ["live"]
    assert sorted(path.name for path in step.glob("*/COMPLETE.json")) == ["COMPLETE.json"]
    assert not (step / "ema").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("checkpoint.roles.student.path={stage0p5}",), ("stage", "stage1", "stage0p5")),
        (("checkpoint.roles.teacher.path={stage1}",), ("teacher", "stage0p5", "stage1")),
        (("checkpoint.roles.student.allow_anyflow_delta_drop=false",), ("delta_policy",)),
        (
            ("model.camera_translation_transform=logd4",),
            ("camera", "logd4", "linear"),
        ),
    ],
)
def test_a_role_that_is_not_what_was_declared_is_refused_before_anything_is_built(
    stages, tmp_path, changes, words
) -> None:
    places = {name: stages.folder / name for name in ("stage0p5", "stage1")}
    sets = [change.format(**places) for change in changes]
    ended = stages.train("stage2", tmp_path / "run", *sets)
    assert ended.codes == [3]
    for word in words:
        assert word in ended.texts[0]
    assert not list((tmp_path / "run").glob("checkpoint_model_*"))


TWINS = {
    "train_stage1_tf_anyflow_v1_5_81f": "checkpoint.path={stage0p5}",
    "train_stage1_tf_fm_81f": "checkpoint.path={stage0p5}",
    "train_stage2_sgf_81f": "checkpoint.roles.student.path={stage1} "
    "checkpoint.roles.teacher.path={stage0p5} checkpoint.roles.critic.path={stage0p5}",
    "infer_stage1_tf_anyflow_v1_5_81f": "checkpoint.path={stage1}",
    "infer_stage2_sgf_81f": "checkpoint.path={stage2}",
    "infer_stage2_sgf_camera_length": "checkpoint.path={stage2}",
}


@pytest.mark.parametrize("name", TWINS)
def test_the_small_twin_of_a_published_config_runs(stages, tmp_path, name) -> None:
    from solarwm.config.examples import find
    from solarwm.config.tiny import twin

    action = name.split("_")[0]
    config = tmp_path / "twin.yaml"
    config.write_text(twin(find(f"wan22_ti2v_5b/{name}").path))
    places = {stage: stages.folder / stage for stage in ("stage0p5", "stage1", "stage2")}
    values = [
        f"data.index_root={stages.world}",
        f"data.transport.root={stages.world}",
        f"data.latent_cache_dir={stages.warm._cache}",
        "data.train_index=train-index.jsonl.gz",
        "data.test_index=test-index.jsonl.gz",
        "runtime.threads_per_rank=1",
        f"runtime.output_dir={tmp_path / 'run'}",
        *TWINS[name].format(**places).split(),
    ]
    if action == "train":
        values += ["train.max_steps=2", "runtime.validate_every=0"]
        values += ["checkpoint.source_step=2"] if "stage1" in name else []
    words = [word for value in values for word in ("--set", value)]
    ended = stages.warm.launch(tmp_path / "run", [action, "--config", str(config), *words])
    assert ended.codes == [0], ended.texts
    if action == "infer":
        run = tmp_path / "run"
        if "camera_length" in name:
            run = run / "runs" / "wan22-ti2v-5b-stage2-sgf-camera-length-inference"
            assert (run / "COMPLETE.json").exists()
        assert (run / "generation" / "COMPLETE.json").exists()
    else:
        assert [record["step"] for record in ended.events()] == [1, 2]


def test_the_small_twins_of_stage0p5_run_from_clips_and_from_stored_latents(
    warm, small_world, tmp_path
) -> None:
    """preencode -> train from its latents -> generate, and train online -> generate."""
    from solarwm.config.examples import find
    from solarwm.config.tiny import twin

    def launch(name, root, *values):
        config = tmp_path / f"{name}.yaml"
        config.write_text(twin(find(f"wan22_ti2v_5b/{name}").path))
        given = [
            f"data.transport.root={small_world}",
            f"data.index_root={small_world}",
            f"runtime.output_dir={root}",
            "runtime.threads_per_rank=1",
            *values,
        ]
        words = [word for value in given for word in ("--set", value)]
        arguments = [name.split("_")[0], "--config", str(config), *words]
        ended = warm.launch(root, arguments)
        assert ended.codes == [0], (name, ended.texts)
        return ended

    physical = tmp_path / "physical"
    launch(
        "preencode_153f",
        tmp_path / "encoded",
        "data.index=train-index.jsonl.gz",
        f"preencode.output_root={physical}",
        f"preencode.logical_output_root={tmp_path / 'logical'}",
    )
    (index,) = (tmp_path / "logical").rglob("*.jsonl*")
    clips = ["data.train_index=train-index.jsonl.gz", "data.test_index=test-index.jsonl.gz"]
    short = ["train.max_steps=2", "runtime.validate_every=0", "runtime.save_every=2"]
    sources = {
        "81f": clips,
        "153f": [
            f"data.transport.root={physical}",
            f"data.index_root={index.parent}",
            f"data.train_index={index.name}",
            f"checkpoint.path={tmp_path / 'train-81f'}",
            "checkpoint.source_step=2",
        ],
    }
    for frames, source in sources.items():
        run = tmp_path / f"train-{frames}"
        ended = launch(f"train_stage0p5_fm_{frames}", run, *source, *short)
        assert [record["step"] for record in ended.events()] == [1, 2]
        made = tmp_path / f"infer-{frames}"
        launch(f"infer_stage0p5_fm_{frames}", made, *clips, f"checkpoint.path={run}")
        assert (made / "generation" / "COMPLETE.json").exists()


def test_a_run_of_one_rank_goes_on_with_four_that_shard_and_share_clips(stages, tmp_path) -> None:
    root, resume = tmp_path / "run", ("--resume", "latest")
    one = stages.train("stage2", root, options=("--stop-after", "1"))
    four = stages.train(
        "stage2",
        root,
        "distributed.sequence_parallel_size=2",
        "train.micro_batch_size=2",
        "train.fsdp.strategy=FULL_SHARD",
        options=(*resume, "--stop-after", "3"),
        world_size=4,
    )
    last = stages.train("stage2", root, options=resume)
    assert (one.codes, four.codes, last.codes) == ([0], [0] * 4, [0]), four.texts
    mine = losses(last)
    assert [record["step"] for record in last.events()] == [1, 2, 3, 4]
    for found, whole in zip(mine, losses(stages.ended["stage2"]), strict=True):
        for name, value in whole.items():
            assert found[name] == pytest.approx(value, rel=2e-3, abs=1e-4), name
    samples = [
        sorted(
            occurrence
            for rank in ranks
            for event in ended.events(rank)
            if event["step"] == 3
            for part in event["microbatches"]
            for occurrence in part["identity"]["occurrences"]
        )
        for ended, ranks in ((four, (0, 2)), (stages.ended["stage2"], (0,)))
    ]
    assert samples[0] == samples[1]
