"""From file and overrides to a checked run: the cases people meet."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from solarwm.config import examples
from solarwm.config.resolve import ResolvedRun, require_no_placeholders, resolve
from solarwm.errors.types import FaultList, SolarError

EXAMPLES = {example.name: example.path for example in examples.every()}
BASE = EXAMPLES["wan22_ti2v_5b/train_stage0p5_fm_81f"]
A14B = EXAMPLES["wan22_i2v_a14b/train_stage0p5_fm_81f"]


def faults(path: Path, *sets: str, **options: Any) -> list[SolarError]:
    with pytest.raises(FaultList) as caught:
        resolve(path, sets, **options)
    assert caught.value.exit_code == 2
    return list(caught.value.faults)


def edited(tmp_path: Path, **changes: str) -> Path:
    """The base file with lines put in after the line that starts a section (`top` = at the end)."""
    lines = BASE.read_text().splitlines()
    for section, line in changes.items():
        if section == "top":
            lines.append(line)
        else:
            lines.insert(lines.index(f"{section}:") + 1, f"  {line}")
    path = tmp_path / "run.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def published(value: Any, found: Any, path: str = "") -> list[str]:
    """Where a published value is not kept in the resolved config."""
    if isinstance(value, dict) and isinstance(found, dict):
        return [
            text for key in value for text in published(value[key], found.get(key), f"{path}.{key}")
        ]
    if isinstance(value, list) and isinstance(found, list) and len(value) == len(found):
        return [
            text
            for one, two in zip(value, found, strict=True)
            for text in published(one, two, path)
        ]
    return [] if value == found else [f"{path}: {value!r} became {found!r}"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_resolves_and_reloads_with_the_same_digest(name: str, tmp_path: Path) -> None:
    run = resolve(EXAMPLES[name])
    assert run.source_digest == hashlib.blake2s(EXAMPLES[name].read_bytes()).hexdigest()
    text = json.dumps(
        run.canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    bare, envelope = tmp_path / "bare.json", tmp_path / "envelope.json"
    bare.write_text(text + "\n")
    assert run.resolved_digest == hashlib.blake2s(bare.read_bytes()).hexdigest()
    again = resolve(bare)
    assert again.resolved_digest == again.source_digest == run.resolved_digest
    envelope.write_text(json.dumps(run.envelope()))
    preview = resolve(envelope)
    assert preview.canonical == run.canonical
    assert preview.topology == run.topology


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("wan22")])
def test_published_wan_values_stand_unchanged_in_the_resolved_config(name: str) -> None:
    values = yaml.safe_load(EXAMPLES[name].read_text())
    assert published(values, resolve(EXAMPLES[name]).canonical) == []


def test_all_misplaced_keys_of_a_file_are_listed_with_their_place(tmp_path: Path) -> None:
    path = edited(tmp_path, top="learning_rate: 1e-4", train="num-epochs: 3", data="max_steps: 7")
    found = faults(path)
    assert [fault.context["path"] for fault in found] == [
        "data.max_steps",
        "train.num-epochs",
        "learning_rate",
    ]
    assert "belongs under train" in found[0].headline
    assert found[1].fixes == ("did you mean train.max_steps?",)
    assert "belongs under train.optimizer" in found[2].headline
    lines = path.read_text().splitlines()
    for fault, key in zip(found, ("max_steps: 7", "num-epochs", "learning_rate"), strict=True):
        assert fault.where is not None
        assert key in lines[int(fault.where.split(":")[1]) - 1]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("train.lerning_rate=1.0e-5", "train.optimizer.lr"),
        ("checkpoint.pth=/x", "checkpoint.path"),
        ("data.transport.rot=/x", "data.transport.root"),
        ("distributed.wrld_size=8", "distributed.world_size"),
        ("train.Max-Steps=3", "train.max_steps"),
        ("train.optimizer.learnin_rate=1", "train.optimizer.lr"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_key(text: str, target: str) -> None:
    (fault,) = faults(BASE, text)
    assert fault.code == "config.unknown-key"
    assert fault.where == "--set #1"
    assert target in fault.fixes[0]


def test_exponent_numbers_are_numbers_however_they_are_written(tmp_path: Path) -> None:
    plain = resolve(BASE, ["train.optimizer.lr=0.0001"])
    for text in ("1e-4", "1E-4", "1.0e-4", '"1e-4"', "10e-5"):
        assert (
            resolve(BASE, [f"train.optimizer.lr={text}"]).resolved_digest == plain.resolved_digest
        )
    path = tmp_path / "run.yaml"
    path.write_text(BASE.read_text().replace("lr: 5.0e-5", "lr: 1e-4"))
    assert resolve(path).resolved_digest == plain.resolved_digest
    assert resolve(BASE, ["train.optimizer.lr=1e+4"]).config.train.optimizer.lr == 10_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.optimizer.lr=abc", "a number"),
        ("train.optimizer.lr=true", "a number"),
        ("train.max_steps=1.5", "a whole number"),
        ('train.max_steps="10"', "a whole number"),
        ("train.max_steps=true", "a whole number"),
        ('runtime.require_clean_source="false"', "true or false"),
        ("runtime.require_clean_source=0", "true or false"),
        ("name=5", "text"),
        ("data=5", "a mapping"),
    ],
)
def test_a_wrong_type_names_key_and_type(text: str, expected: str) -> None:
    (fault,) = [fault for fault in faults(BASE, text) if fault.code == "config.type"]
    assert fault.context["path"] == text.partition("=")[0]
    assert f"must be {expected}" in fault.headline


def test_explicit_zeros_stay_zeros() -> None:
    config = resolve(
        BASE,
        [
            "train.optimizer.weight_decay=0",
            "validation.sample_count=0",
            "runtime.validate_every=0",
            "runtime.save_every=0",
        ],
    ).config
    assert config.train.optimizer.weight_decay == 0
    assert config.validation.sample_count == 0
    assert config.runtime.validate_every == config.runtime.save_every == 0


@pytest.mark.parametrize("value", ["/a/x=1/y", "/a dir/with spaces", "/unicode/ä"])
def test_odd_paths_are_kept_to_the_byte(value: str) -> None:
    assert resolve(BASE, [f"data.index_root={value}"]).canonical["data"]["index_root"] == value


@pytest.mark.parametrize("text", ["data.index_root=${NOPE}", "data.index_root=", "data.index_root"])
def test_unusable_overrides_are_refused(text: str) -> None:
    assert faults(BASE, text)[0].where == "--set #1"


def test_published_aliases_work_in_files_and_overrides_and_clash_with_their_canonical_name() -> (
    None
):
    canonical = resolve(BASE, ["train.optimizer.lr=3e-4"])
    assert (
        resolve(BASE, ["train.optimizer.learning_rate=3e-4"]).resolved_digest
        == canonical.resolved_digest
    )
    (fault,) = faults(BASE, "train.optimizer={lr: 1e-4, learning_rate: 1e-4}")
    assert fault.code == "config.alias-conflict"


def test_the_batch_equation_is_checked_for_training_only(tmp_path: Path) -> None:
    sets = ["distributed.world_size=8", "train.grad_accum=2", "train.global_batch_size=16"]
    assert resolve(BASE, sets).topology.equation == "(8 / 1) x 1 x 2 = 16"
    (fault,) = faults(BASE, *sets, "train.micro_batch_size=2")
    assert fault.code == "config.batch"
    assert "(8 / 1) x 2 x 2 = 32" in fault.why
    infer = EXAMPLES["wan22_ti2v_5b/infer_stage0p5_fm_81f"]
    assert resolve(infer, ["distributed.world_size=2"]).topology.world_size == 2


def test_sequence_parallel_sizes_are_held_against_the_heads_of_the_model() -> None:
    for path, size, legal in (
        (BASE, 5, "1, 2, 3, 4, 6, 8, 12, 24"),
        (A14B, 16, "1, 2, 4, 5, 8, 10, 20, 40"),
    ):
        found = faults(path, f"distributed.sequence_parallel_size={size}")
        assert any(legal in fault.why for fault in found)


def test_latents_are_split_over_eight_ranks() -> None:
    run = resolve(
        BASE,
        [
            "distributed.world_size=8",
            "distributed.sequence_parallel_size=8",
            "train.global_batch_size=1",
        ],
    )
    assert run.topology.latents_per_sp_rank == (3, 3, 3, 3, 3, 2, 2, 2)
    assert run.topology.padding_latents_per_sp_rank == (0, 0, 0, 0, 0, 1, 1, 1)


def test_deviations_from_the_published_recipe_are_notes_and_the_published_file_has_none() -> None:
    assert resolve(BASE).notes == ()
    (note,) = resolve(BASE, ["train.optimizer.lr=1e-3"]).notes
    assert "train.optimizer.lr is 0.001" in note
    assert "5e-05" in note


def test_geometry_binds_the_released_model_and_is_filled_in_for_the_tiny_one() -> None:
    assert faults(BASE, "model.latent_channels=16")[0].code == "config.binding-value"
    keys = [fault.context["path"] for fault in faults(BASE, "data.pixel_frames=117")]
    assert "data.pixel_frames" in keys
    quick = EXAMPLES["quickstart/stage0p5"]
    config = resolve(quick, ["data.pixel_frames=45", "data.height=128"]).config
    assert (config.data.latent_frames, config.model.frame_sequence_length) == (12, 8 * 6)
    assert faults(quick, "data.latent_frames=99")[0].context["path"] == "data.latent_frames"
    (fault,) = faults(quick, "data.height=100")
    assert [fix.partition("=")[2] for fix in fault.fixes] == ["96", "128"]


@pytest.mark.parametrize(
    "text",
    [
        "zz.b=1",
        "a..b=1",
        "train.zz.b.c=1",
        "train.zz={a: {b: 1}}",
        "validation.passes.0.name=x",
        "validation.passes[0].name=x",
        "validation.passes=[{name: x, zz: 3}]",
        "train.optimizer={lr: 010}",
        "distributed.sp_size=2",
        "preencode.dtype=float16",
    ],
)
def test_faults_of_an_override_stand_at_the_override(text: str) -> None:
    found = faults(BASE, "name=x", text)
    assert {fault.where for fault in found} == {"--set #2"}
    assert all(fault.fixes for fault in found)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("runtime.require_clean_source=yes", "--set runtime.require_clean_source=true"),
        ("runtime.require_clean_source='off'", "--set runtime.require_clean_source=false"),
        ("train.max_steps=1e3", "--set train.max_steps=1000"),
        ("train.max_steps=08", "--set train.max_steps=8"),
        ("train.max_steps=-1", "--set train.max_steps=1"),
        ("name=12", """--set 'name="12"' if text is meant"""),
        ("runtime.trackers.wandb=false", "--set runtime.trackers.wandb=off"),
    ],
)
def test_a_wrong_word_comes_with_the_right_one(text: str, fix: str) -> None:
    (fault,) = faults(BASE, text)
    assert fault.fixes == (fix,)


def test_words_of_yaml_1_1_are_text_where_text_is_meant() -> None:
    canonical = resolve(BASE, ["name=on", "runtime.trackers.wandb=off"]).canonical
    assert (canonical["name"], canonical["runtime"]["trackers"]["wandb"]) == ("on", "off")


def test_secrets_stop_a_config_and_their_value_is_shown_nowhere(tmp_path: Path) -> None:
    path = edited(tmp_path, runtime="hf_token: hf_SECRET1", data="password: SECRET2")
    found = faults(path, "metadata.a.api_key=SECRET3", "metadata.u=https://me:SECRET4@host/x")
    assert [fault.code for fault in found] == ["config.secret"] * 4
    assert not any("SECRET" in f"{f} {f.where} {f.why} {f.fixes} {f.context}" for f in found)


def test_placeholders_are_listed_and_refused_only_when_asked() -> None:
    run = resolve(BASE)
    assert set(run.placeholders) == {
        "model.base_path",
        "data.transport.root",
        "data.index_root",
        "runtime.output_dir",
    }
    with pytest.raises(FaultList) as caught:
        require_no_placeholders(run)
    lines = BASE.read_text(encoding="utf-8").splitlines()
    for fault, name in zip(caught.value.faults, run.placeholders, strict=True):
        _, line, _ = str(fault.where).rsplit(":", 2)
        assert lines[int(line) - 1].strip().startswith(f"{name.rpartition('.')[2]}:")
    sets = [f"{name}=/real/{name}" for name in run.placeholders]
    require_no_placeholders(resolve(BASE, sets))


def test_placeholders_of_overrides_and_resolved_previews_are_placed_too(tmp_path: Path) -> None:
    set_by_hand = resolve(BASE, ["runtime.output_dir=/path/to/out"])
    assert "--set #1" in set_by_hand.placeholder_places
    preview = tmp_path / "preview.json"
    preview.write_text(json.dumps(set_by_hand.envelope(), indent=2), encoding="utf-8")
    again = resolve(preview)
    lines = preview.read_text(encoding="utf-8").splitlines()
    for place, name in zip(again.placeholder_places, again.placeholders, strict=True):
        assert f'"{name.rpartition(".")[2]}"' in lines[int(place.split(":")[1]) - 1]


def test_relative_paths_are_refused_where_absolute_ones_are_needed() -> None:
    (fault,) = faults(BASE, "data.transport.root=data")
    assert fault.code == "config.path"
    assert fault.fixes[0].startswith("--set data.transport.root=/")
    assert resolve(BASE, ["runtime.output_dir=out"]).canonical["runtime"]["output_dir"] == "out"
    for key in ("/abs/x", "../x", "a//b", "gs://x"):
        assert faults(BASE, f"data.train_index={key}")[0].code == "config.path"


def test_a_config_for_another_command_is_refused() -> None:
    (fault,) = faults(BASE, action="infer")
    assert fault.code == "cli.action-mismatch"
    assert "solarwm train" in fault.headline


def test_a_changed_envelope_is_stale(tmp_path: Path) -> None:
    envelope = resolve(BASE).envelope()
    envelope["config"]["train"]["max_steps"] = 7
    path = tmp_path / "old.json"
    path.write_text(json.dumps(envelope))
    with pytest.raises(SolarError) as caught:
        resolve(path)
    assert (caught.value.code, caught.value.exit_code) == ("config.stale-digest", 2)


def test_overrides_apply_to_a_resolved_config_too(tmp_path: Path) -> None:
    path = tmp_path / "resolved.json"
    path.write_text(json.dumps(resolve(BASE).envelope()))
    changed = resolve(path, ["train.max_steps=7"])
    assert changed.resolved_digest == resolve(BASE, ["train.max_steps=7"]).resolved_digest


def test_unsupported_combinations_say_why_and_list_what_runs() -> None:
    found = faults(A14B, "train.stage=stage1", "train.causal_mode=teacher_forcing")
    (fault,) = [fault for fault in found if fault.code == "route.unsupported"]
    assert "no Stage1 or Stage2" in fault.why
    assert fault.context["legal"] == ["wan22_i2v_a14b:stage0p5:bidirectional:flow_matching"]


def test_code_loading_and_the_parallel_camera_mode_are_refused() -> None:
    assert faults(BASE, "runtime.provider_entrypoint=os:system")[0].code == "config.unsupported"
    assert faults(BASE, "model._target_=os.system")[0].code == "config.unsupported"
    assert "parallel" in faults(BASE, "model.camera_attention_mode=parallel")[0].why


def test_the_published_provider_entrypoint_is_dropped_with_a_note() -> None:
    run: ResolvedRun = resolve(EXAMPLES["ltx25/stage0p5-train-153f-lora384-sp2"])
    assert "provider_entrypoint" not in run.canonical["runtime"]
    assert any("provider_entrypoint" in note for note in run.notes)


def test_a_file_text_can_be_an_override(tmp_path: Path) -> None:
    path = tmp_path / "name.txt"
    path.write_text("from-a-file\n")
    assert resolve(BASE, files=[f"name={path}"]).config.name == "from-a-file"


@pytest.mark.parametrize(
    ("name", "saves", "validations", "waves"),
    [
        ("wan22_ti2v_5b/train_stage0p5_fm_81f", 60, 60, 60 * 2),
        ("ltx25/stage0p5-train-153f-lora384-sp2", 60, 60, 60 * 2 * 2),
        ("minimax_h3/stage1-158f-lora384-w6-sp2", 31, 30, 30 * 2),
    ],
)
def test_saves_and_validations_are_counted_for_every_family(
    name: str, saves: int, validations: int, waves: int
) -> None:
    topology = resolve(EXAMPLES[name]).topology
    assert topology.checkpoints_expected == saves
    assert topology.validations_expected == validations
    assert topology.validation_waves_expected == waves


@pytest.mark.parametrize(
    "key",
    [
        "distributed.world_size",
        "distributed.sequence_parallel_size",
        "train.micro_batch_size",
        "train.grad_accum",
    ],
)
@pytest.mark.parametrize("value", ["0", "-2", "abc", "1e30", "1.5"])
def test_the_batch_equation_is_not_told_beside_a_number_it_cannot_use(key: str, value: str) -> None:
    (fault,) = faults(BASE, f"{key}={value}")
    assert fault.context["path"] == key
