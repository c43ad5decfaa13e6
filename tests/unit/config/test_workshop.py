"""Tiny twins, differences, schema, examples, descriptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from solarwm.config import examples
from solarwm.config.binding import fields
from solarwm.config.descriptions import describe
from solarwm.config.difference import compare
from solarwm.config.resolve import resolve
from solarwm.config.schema import json_schema, run_models
from solarwm.config.tiny import twin
from solarwm.errors.types import SolarError

PUBLISHED = [item for item in examples.every() if not item.name.startswith("quickstart/")]
BASE = examples.find("wan22_ti2v_5b/train_stage0p5_fm_81f").path


def test_the_27_published_examples_are_there() -> None:
    assert len(PUBLISHED) == 27


@pytest.mark.parametrize("example", PUBLISHED, ids=lambda item: item.name)
def test_every_published_config_has_a_tiny_twin_on_the_same_route(example, tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(twin(example.path, world_size=4, sequence_parallel_size=2))
    run, source = resolve(path), resolve(example.path)
    assert run.route.key == source.route.key
    assert run.config.model.profile == "tiny"
    assert run.config.action == source.config.action
    if run.config.action != "preencode":
        assert (run.topology.world_size, run.topology.sequence_parallel_size) == (4, 2)


def test_names_of_examples_may_be_short_where_they_are_unique() -> None:
    assert examples.find("infer_stage2_sgf_81f.yaml").name == "wan22_ti2v_5b/infer_stage2_sgf_81f"
    with pytest.raises(SolarError) as caught:
        examples.find("train_stage0p5_fm_81f")
    assert len(caught.value.context["candidates"]) == 2
    with pytest.raises(SolarError) as caught:
        examples.find("wan22_ti2v_5b/train_stage0p5_fm_81")
    assert "train_stage0p5_fm_81f" in caught.value.fixes[0]


def test_the_table_of_examples_says_what_their_texts_say() -> None:
    listed = examples.table()
    assert [item["name"] for item in listed] == [item.name for item in examples.every()]
    for item, example in zip(listed, examples.every(), strict=True):
        assert item == {"name": item["name"], "path": item["path"], **examples.describe(example)}


def test_an_example_whose_text_changed_is_read_again(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "wan22_ti2v_5b"
    folder.mkdir()
    text = BASE.read_text().replace("action: train", "action: infer")
    (folder / BASE.name).write_text(text)
    (folder / "mine.yaml").write_text("action: preencode\nmodel: {family: x}\n")
    monkeypatch.setattr(examples, "root", lambda: tmp_path)
    assert [item["action"] for item in examples.table()] == ["preencode", "infer"]


def changes(*sets: str) -> dict[str, bool]:
    before = resolve(BASE, ["data.order=indexed"]).canonical
    after = resolve(BASE, ["data.order=indexed", *sets]).canonical
    return {item.key: item.breaks_resume for item in compare(before, after)}


def test_a_config_does_not_differ_from_itself() -> None:
    assert changes() == {}


def test_differences_are_grouped_by_whether_they_break_a_resume() -> None:
    assert changes(
        "runtime.output_dir=/x", "validation.sample_count=1", "checkpoint.keep_last=2"
    ) == {
        "runtime.output_dir": False,
        "validation.sample_count": False,
        "checkpoint.keep_last": False,
    }
    assert changes("train.optimizer.lr=1e-3", "data.seed=1") == {
        "train.optimizer.lr": True,
        "data.seed": True,
    }


def test_how_a_global_batch_is_cut_matters_only_in_the_published_order() -> None:
    cut = ("distributed.world_size=64", "train.grad_accum=4")
    assert not any(changes(*cut).values())
    one, two = resolve(BASE).canonical, resolve(BASE, cut).canonical
    assert all(item.breaks_resume for item in compare(one, two))


def test_another_type_of_the_same_value_is_a_difference() -> None:
    assert [item.key for item in compare({"a": {"b": True}}, {"a": {"b": 1}})] == ["a.b"]


def test_the_schema_is_json_and_knows_every_key_of_every_route() -> None:
    schema = json.loads(json.dumps(json_schema()))
    properties = {name for item in schema["$defs"].values() for name in item.get("properties", {})}
    for model in run_models():
        leaves = {dotted.rpartition(".")[2].removesuffix("[]") for dotted, _ in fields(model)}
        assert leaves <= properties
    assert {"learning_rate", "gradient_accumulation_steps"} <= properties


def test_the_schema_of_one_route_describes_its_fields() -> None:
    schema = json_schema("wan22_ti2v_5b:stage0p5:bidirectional:flow_matching")
    top = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert set(top["required"]) == {"schema", "action", "name", "model", "data", "runtime"}
    optimizer = schema["$defs"]["OptimizerSection"]["properties"]
    assert "learning rate" in optimizer["lr"]["description"].lower()


def test_every_field_of_every_route_has_a_description() -> None:
    for model in run_models():
        sections = [model]
        while sections:
            section = sections.pop()
            texts = describe(section)
            for name, info in section.model_fields.items():
                assert texts.get(name), f"{section.__name__}.{name}"
                for part in getattr(info.annotation, "__args__", (info.annotation,)):
                    if isinstance(part, type) and hasattr(part, "model_fields"):
                        sections.append(part)
