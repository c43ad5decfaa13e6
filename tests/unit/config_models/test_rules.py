"""Faults between fields are found together, each at its place with a fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from solarwm.config.resolve import ResolvedRun, resolve
from solarwm.errors.types import FaultList, SolarError

ROOT = Path(__file__).parents[3] / "configs" / "examples"
QUICK = "quickstart/stage0p5"
WAN = "wan22_ti2v_5b"


def _resolve(name: str, *overrides: str) -> ResolvedRun:
    return resolve(ROOT / f"{name}.yaml", list(overrides), environ={})


def _faults(name: str, *overrides: str) -> list[SolarError]:
    with pytest.raises(FaultList) as caught:
        _resolve(name, *overrides)
    return list(caught.value.faults)


@pytest.mark.parametrize(
    ("name", "override", "code", "words"),
    [
        (QUICK, "data.pixel_frames=80", "config.geometry", "69, 81"),
        (QUICK, "data.pixel_frames=37", "config.geometry", "33, 45"),
        (QUICK, "data.height=70", "config.geometry", "multiple of 32"),
        (QUICK, "data.random_start=1", "config.type", "random_start"),
        (QUICK, "model.latent_channels=16", "config.binding-value", "48"),
        (QUICK, "data.transport.cache_dir=/c", "config.conflict", "cache"),
        (QUICK, "inference.length=camera", "config.conflict", "Stage2"),
        (QUICK, "model.camera_attention_mode=parallel", "config.binding-value", "parallel"),
        ("quickstart/infer", "checkpoint.path=null", "config.missing-key", "checkpoint.path"),
        (f"{WAN}/train_stage0p5_fm_81f", "data.height=512", "config.binding-value", "480"),
        (f"{WAN}/train_stage0p5_fm_81f", "model.causal=true", "config.binding-value", "false"),
        (f"{WAN}/train_stage0p5_fm_81f", "model.base_path=null", "config.missing-key", "base_path"),
        (f"{WAN}/train_stage1_tf_fm_81f", "checkpoint.mode=none", "config.value", "weights_only"),
        (f"{WAN}/train_stage1_tf_fm_81f", "data.encoding=preencoded", "config.conflict", "online"),
        (
            f"{WAN}/train_stage1_tf_anyflow_v1_5_81f",
            "train.anyflow_consistency_ratio=0.6",
            "config.conflict",
            "1.1",
        ),
        (
            f"{WAN}/train_stage1_tf_anyflow_v1_5_81f",
            "train.anyflow_negative_embedding=null",
            "config.missing-key",
            "negative",
        ),
        (
            f"{WAN}/train_stage2_sgf_81f",
            "train.score_max_timestep=10.0",
            "config.conflict",
            "rise",
        ),
        (f"{WAN}/train_stage2_sgf_81f", "train.denoising_step_list=[250,500]", "config.value", ""),
        (f"{WAN}/train_stage2_sgf_81f", "checkpoint.roles=null", "config.missing-key", "roles"),
        (
            f"{WAN}/train_stage2_sgf_81f",
            "validation.fixed_plan_pixel_frames=240",
            "config.geometry",
            "237",
        ),
        (
            f"{WAN}/train_stage2_sgf_81f",
            "validation.variable_rollout_by_source=false",
            "config.conflict",
            "60",
        ),
        (
            f"{WAN}/preencode_153f",
            "preencode.logical_output_root=/path/to/latent-dataset-root",
            "config.conflict",
            "inside",
        ),
        (
            "ltx25/stage0p5-train-online-153f-unpaired",
            "model.codec.gemma4_path=null",
            "config.missing-key",
            "gemma4_path",
        ),
        (
            "ltx25/stage0p5-train-153f-lora384-sp2",
            "validation.sample_count=100",
            "config.value",
            "128",
        ),
        (
            "ltx25/preencode-153f",
            "preencode.index_relative_path=out.jsonl",
            "config.value",
            "rank",
        ),
        (
            "minimax_h3/stage1-158f-lora384-w6-sp2",
            "data.raw_test_index=null",
            "config.missing-key",
            "raw_test_index",
        ),
        (
            "minimax_h3/stage2-158f-lora384-w6-sp4",
            "checkpoint.initialization.critic=null",
            "config.missing-key",
            "critic",
        ),
        (
            "minimax_h3/infer-stage2-source-length-sp8",
            "inference.plan=null",
            "config.missing-key",
            "plan",
        ),
        (
            "minimax_h3/infer-158f-lora384-sp2",
            "model.camera_translation_transform=linear",
            "config.binding-value",
            "logd4",
        ),
    ],
)
def test_a_contradiction_is_told_with_its_code(
    name: str, override: str, code: str, words: str
) -> None:
    faults = _faults(name, override)
    found = [fault for fault in faults if fault.code == code]
    assert found, [(fault.code, fault.headline) for fault in faults]
    assert any(words in f"{fault.headline} {fault.why} {fault.fixes}" for fault in found)
    assert all(fault.exit_code == 2 for fault in faults)


def test_all_faults_are_told_at_once() -> None:
    faults = _faults(QUICK, "data.height=70", "data.pixel_frames=80", "data.transport.cache_dir=/c")
    assert {fault.code for fault in faults} >= {"config.geometry", "config.conflict"}
    assert len(faults) >= 3


def test_tiny_geometry_follows_one_override() -> None:
    run = _resolve(QUICK, "data.pixel_frames=45", "data.height=128")
    assert run.canonical["data"]["latent_shape"] == [12, 48, 8, 6]
    assert run.canonical["model"]["num_output_frames"] == 12
    assert run.canonical["model"]["frame_sequence_length"] == 48


def test_the_720p_latent_format_fixes_the_taller_geometry() -> None:
    name = f"{WAN}/train_stage0p5_fm_153f"
    schema = "data.preencode_schema=solarwm.wan22_ti2v_5b.720p.153f.v1"
    sizes = ["data.height=704", "data.width=1280", "data.latent_shape=[39,48,44,80]"]
    run = _resolve(name, schema, *sizes, "model.frame_sequence_length=880")
    assert run.canonical["data"]["height"] == 704
    assert any(fault.code == "config.binding-value" for fault in _faults(name, schema))


def test_a_stage0p5_pass_may_walk_by_euler() -> None:
    run = _resolve("quickstart/infer")
    assert {item.solver for item in run.config.validation.passes} == {"euler"}
    passes = "validation.passes=[{name: a, solver: flowmap}]"
    assert any("flowmap" in fault.headline for fault in _faults("quickstart/infer", passes))


def test_two_passes_cannot_share_a_directory() -> None:
    passes = "validation.passes=[{name: a, solver: euler}, {name: a, solver: euler}]"
    (fault,) = _faults("quickstart/infer", passes)
    assert fault.code == "config.conflict"


def test_provider_code_other_than_the_published_name_is_refused() -> None:
    name = "ltx25/stage0p5-train-153f-lora384-sp2"
    run = _resolve(name)
    assert any("provider_entrypoint" in note for note in run.notes)
    assert "provider_entrypoint" not in run.canonical["runtime"]
    assert _faults(name, "runtime.provider_entrypoint=my.module:factory")
