"""The published examples: their names, their values, and that they resolve without a deviation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from solarwm.config.resolve import ResolvedRun, resolve

ROOT = Path(__file__).parents[3] / "configs" / "examples"
PUBLISHED = {
    "wan22_ti2v_5b": [
        "train_stage0p5_fm_81f",
        "train_stage0p5_fm_153f",
        "train_stage1_tf_fm_81f",
        "train_stage1_tf_anyflow_v1_5_81f",
        "train_stage2_sgf_81f",
        "infer_stage0p5_fm_81f",
        "infer_stage0p5_fm_153f",
        "infer_stage1_tf_anyflow_v1_5_81f",
        "infer_stage2_sgf_81f",
        "infer_stage2_sgf_camera_length",
        "preencode_153f",
    ],
    "wan22_i2v_a14b": [
        "train_stage0p5_fm_81f",
        "train_stage0p5_fm_153f",
        "infer_stage0p5_fm_81f",
        "preencode_153f",
    ],
    "ltx25": [
        "stage0p5-train-153f-lora384-sp2",
        "stage0p5-train-online-153f-unpaired",
        "stage0p5-infer-153f",
        "preencode-153f",
    ],
    "minimax_h3": [
        "stage0p5-158f-lora384-sp2",
        "stage1-158f-lora384-w6-sp2",
        "stage2-158f-lora384-w6-sp4",
        "infer-158f-lora384-sp2",
        "infer-stage1-158f-sp2",
        "infer-stage2-158f-sp4",
        "infer-stage2-source-length-sp8",
        "preencode-158f",
    ],
}
NAMES = [f"{folder}/{name}" for folder, names in PUBLISHED.items() for name in names]

# file: (dotted key, published value) pairs, written down from the published description.
VALUES: dict[str, dict[str, Any]] = {
    "wan22_ti2v_5b/train_stage0p5_fm_81f": {
        "name": "wan22-ti2v-5b-stage0p5-fm-81f",
        "model.timestep_shift": 5.0,
        "model.frame_sequence_length": 405,
        "model.local_attn_size": 21,
        "data.latent_shape": [21, 48, 30, 54],
        "data.num_workers": 8,
        "data.random_start": True,
        "distributed.world_size": 256,
        "train.global_batch_size": 256,
        "train.optimizer.lr": 5e-5,
        "train.optimizer.betas": [0.9, 0.95],
        "train.ema.decay": 0.9999,
        "train.fsdp.activation_checkpointing": False,
        "validation.max_rel_translation": 20.0,
        "runtime.output_dir": "/path/to/outputs/wan22-ti2v-5b-stage0p5-fm-81f",
        "runtime.save_every": 500,
    },
    "wan22_ti2v_5b/train_stage0p5_fm_153f": {
        "model.num_output_frames": 39,
        "model.local_attn_size": 21,
        "data.preencode_schema": "solarwm.wan22_ti2v_5b.480p.153f.v1",
        "data.train_index": (
            "recipes/clean-153f/latent-wds/wan22-ti2v5b-153f-480p-v1/train-index.jsonl.gz"
        ),
        "checkpoint.weights": ["live", "ema"],
        "checkpoint.source_step": 30000,
        "train.fsdp.activation_checkpointing": True,
    },
    "wan22_ti2v_5b/train_stage1_tf_anyflow_v1_5_81f": {
        "model.use_echorope": False,
        "model.max_prior_clean_chunks": 5,
        "train.objective_variant": "v1_5",
        "train.anyflow_gate": 0.25,
        "train.anyflow_epsilon": 5.0,
        "train.anyflow_negative_embedding": "conditioning/wan_negemb_cn.pth",
        "train.ema.warmup_steps": 1000,
        "train.max_steps": 20000,
        "validation.max_camera_abs": None,
        "validation.fixed_plan_pixel_frames": 237,
        "validation.passes[3].num_inference_steps": 4,
        "runtime.compile_flex": True,
    },
    "wan22_ti2v_5b/train_stage2_sgf_81f": {
        "model.local_attn_size": 18,
        "model.score_local_attn_size": 21,
        "train.denoising_step_list": [1000.0, 750.0, 500.0, 250.0],
        "train.optimizer.lr": 2e-6,
        "train.optimizer.grad_clip": 10.0,
        "train.critic_optimizer.lr": 4e-7,
        "train.ema.start_step": 39,
        "train.score_max_timestep": 980.0,
        "checkpoint.roles.student.allow_anyflow_delta_drop": True,
        "checkpoint.roles.teacher.weights": "live",
        "checkpoint.transaction_members": ["critic.pt", "model.pt"],
    },
    "wan22_ti2v_5b/infer_stage2_sgf_camera_length": {
        "validation.passes[0].weights": "model",
        "validation.passes[0].rollout_latent_frames": None,
        "inference.length": "camera",
        "inference.output_layout": "dataset_triplet_v1",
        "data.random_start": False,
    },
    "wan22_i2v_a14b/train_stage0p5_fm_153f": {
        "model.timestep_shift": 3.0,
        "model.local_attn_size": 39,
        "data.i2v_y_shape": [39, 20, 60, 104],
        "distributed.sp_frame_splits": [20, 19],
        "distributed.sp_token_splits": [31200, 29640],
        "train.global_batch_size": 128,
        "train.fsdp.strategy": "FULL_SHARD",
        "checkpoint.source_step": 22000,
    },
    "ltx25/stage0p5-train-153f-lora384-sp2": {
        "train.grad_accum": 2,
        "train.optimizer.lr": 1e-4,
        "train.fsdp.sharding_strategy": "HYBRID_SHARD",
        "train.timestep_sampling.epsilon": 1e-3,
        "data.encoded_latents": 20,
        "data.artifact_version": "solarwm_ltx25_video_153f_h512_w768_v1",
        "validation.inference.guidance.stg_blocks": [28],
        "checkpoint.ema.trainable_only": True,
        "checkpoint.save_every_steps": 500,
    },
    "minimax_h3/stage2-158f-lora384-w6-sp4": {
        "model.rows_per_latent": 1008,
        "model.camera_prope_head_dim_start": 96,
        "data.max_rel_translation": 20.0,
        "distributed.sequence_parallel_size": 4,
        "train.global_batch_size": 64,
        "train.optimizer.eps": 1e-8,
        "train.fsdp.frozen_base_shard_size": 8,
        "train.score_min_sigma": 0.02,
        "validation.rollout_latents": 50,
        "validation.camera_frames": 158,
        "validation.passes": ["live", "ema"],
        "checkpoint.save_steps": [20],
        "checkpoint.initialization.teacher.stage": "stage0p5",
    },
    "minimax_h3/stage1-158f-lora384-w6-sp2": {
        "data.train_target_latents": 45,
        "train.finite_difference_epsilon": 5.0,
        "train.optimizer.warmup_steps": 1000,
        "validation.camera_frames": 170,
    },
}


def _resolve(name: str) -> ResolvedRun:
    return resolve(ROOT / f"{name}.yaml", [], environ={})


def _at(tree: Any, dotted: str) -> Any:
    for part in dotted.replace("[", ".[").split("."):
        tree = tree[int(part[1:-1])] if part.startswith("[") else tree[part]
    return tree


def test_the_examples_are_the_published_ones() -> None:
    present = {str(path.relative_to(ROOT).with_suffix("")) for path in ROOT.glob("*/*.yaml")}
    assert present - {name for name in present if name.startswith("quickstart/")} == set(NAMES)
    assert len(NAMES) == 27


@pytest.mark.parametrize("name", NAMES)
def test_a_published_example_resolves_without_deviating_from_the_recipe(name: str) -> None:
    notes = [note for note in _resolve(name).notes if "provider_entrypoint" not in note]
    assert [note for note in notes if "recipe" in note] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_resolved_config_resolves_to_itself(name: str, tmp_path: Path) -> None:
    first = _resolve(name)
    path = tmp_path / "resolved.json"
    path.write_text(json.dumps(first.canonical))
    again = resolve(path, [], environ={})
    assert again.canonical == first.canonical
    assert again.resolved_digest == first.resolved_digest


@pytest.mark.parametrize("name", VALUES)
def test_a_published_example_has_the_published_values(name: str) -> None:
    canonical = _resolve(name).canonical
    assert {key: _at(canonical, key) for key in VALUES[name]} == VALUES[name]


def test_the_negative_prompt_of_stage2_has_nineteen_items() -> None:
    prompt = _resolve("wan22_ti2v_5b/train_stage2_sgf_81f").canonical["train"]["negative_prompt"]
    items = prompt.split("\uff0c")
    assert len(items) == len(set(items)) == 19
    assert items[0] == "\u8272\u8c03\u8273\u4e3d"
    assert items[-1] == "\u6742\u4e71\u7684\u80cc\u666f"


@pytest.mark.parametrize(
    ("name", "every", "validate", "decay", "warmup"),
    [
        ("wan22_ti2v_5b/train_stage0p5_fm_81f", 500, 500, 0.9999, 1000),
        ("ltx25/stage0p5-train-153f-lora384-sp2", 500, 500, 0.999, 500),
        ("minimax_h3/stage1-158f-lora384-w6-sp2", 1000, 1000, 0.999, 1000),
    ],
)
def test_every_family_tells_its_cadence_the_same_way(
    name: str, every: int, validate: int, decay: float, warmup: int
) -> None:
    config = _resolve(name).config
    assert (config.save_every, config.validate_every) == (every, validate)
    assert (config.ema.decay, config.warmup_steps) == (decay, warmup)
    assert config.ema.update_every == 1
    assert [item.weights for item in config.validation.named_passes] == ["live", "ema"]


@pytest.mark.parametrize("name", ["stage0p5", "stage0p5-long", "infer", "infer-long"])
def test_the_quickstart_needs_only_the_place_of_its_world(name: str) -> None:
    overrides = ["data.index_root=/world", "data.transport.root=/world"]
    if name.startswith("infer"):
        overrides.append("checkpoint.path=/run/checkpoint_model_000800")
    run = resolve(ROOT / "quickstart" / f"{name}.yaml", overrides, environ={})
    assert run.placeholders == ()
    assert run.topology.frames == 81
    assert run.topology.latents == 21
    assert run.topology.tokens == 21 * 4 * 6
    cameras = [item.camera for item in run.config.validation.named_passes]
    expected = ["source", "inverse", "mirror", "frozen", "other"]
    assert cameras == (expected if name.startswith("infer") else [])
