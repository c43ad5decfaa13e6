"""What an unknown key probably means: names of other trainers, of other sections, and slips."""

from __future__ import annotations

from collections import Counter

import pytest

from solarwm.config.binding import fields
from solarwm.config.schema import run_models
from solarwm.config.suggestions import suggest
from solarwm.config.synonyms import GROUPS

MODELS = {f"{model.__module__.split('.')[-2]}:{model.__name__}": model for model in run_models()}
WAN = MODELS["wan22_5b:Stage0p5Run"]


@pytest.mark.parametrize(
    ("section", "key", "target"),
    [
        ("distributed", "sp_size", "distributed.sequence_parallel_size"),
        ("distributed", "ulysses_degree", "distributed.sequence_parallel_size"),
        ("", "context-parallel-size", "distributed.sequence_parallel_size"),
        ("train", "learning_rate", "train.optimizer.lr"),
        ("train", "LR", "train.optimizer.lr"),
        ("train.optimizer", "adam_epsilon", "train.optimizer.eps"),
        ("train", "batch_size", "train.micro_batch_size"),
        ("data", "per_device_train_batch_size", "train.micro_batch_size"),
        ("", "gradient_accumulation_steps", "train.grad_accum"),
        ("train", "max_train_steps", "train.max_steps"),
        ("train", "gradient_checkpointing", "train.fsdp.activation_checkpointing"),
        ("train", "mixed_precision", "train.fsdp.param_dtype"),
        ("train", "checkpointing_steps", "runtime.save_every"),
        ("runtime", "report_to", "runtime.trackers"),
        ("model", "pretrained_model_name_or_path", "model.base_path"),
        ("data", "frame_rate", "data.fps"),
        ("train.optimizer", "lrr", "train.optimizer.lr"),
        ("", "num_workers", "data.num_workers"),
        ("data", "zz_qwx", ""),
    ],
)
def test_the_key_that_is_meant_is_found(section: str, key: str, target: str) -> None:
    assert suggest(WAN, section, key).target == target


@pytest.mark.parametrize("key", ["tp_size", "resume_from_checkpoint"])
def test_what_has_no_key_here_is_explained(key: str) -> None:
    found = suggest(WAN, "distributed", key)
    assert found.target == ""
    assert found.remark


def test_a_family_gets_its_own_key() -> None:
    ltx = next(model for name, model in MODELS.items() if name.startswith("ltx25"))
    assert suggest(ltx, "model", "lora_rank").target == "model.adapter.rank"
    assert suggest(ltx, "train", "save_interval").target == "checkpoint.save_every_steps"


def test_synonyms_lead_to_keys_that_exist_and_stand_once() -> None:
    known = {dotted for model in MODELS.values() for dotted, _ in fields(model)}
    assert [target for group in GROUPS for target in group.targets if target not in known] == []
    names = Counter(name for group in GROUPS for name in group.names.split())
    assert [name for name, count in names.items() if count > 1] == []
    assert all(name == name.lower() and "-" not in name for name in names)


def test_a_key_that_exists_is_suggested_by_itself_in_every_model() -> None:
    for model in MODELS.values():
        for dotted, _ in fields(model):
            section, _, leaf = dotted.rpartition(".")
            assert suggest(model, section, leaf).target == dotted.removesuffix("[]")
