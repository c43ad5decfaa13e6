"""Rank layouts and clip lengths of the published configs: what is refused, by which key, with what to paste."""

from __future__ import annotations

from pathlib import Path

import pytest

from solarwm.config import examples
from solarwm.config.resolve import resolve
from solarwm.errors.types import FaultList, SolarError

EXAMPLES = {example.name: example.path for example in examples.every()}
WAN = EXAMPLES["wan22_ti2v_5b/train_stage0p5_fm_81f"]
A14B = EXAMPLES["wan22_i2v_a14b/train_stage0p5_fm_81f"]
LTX = EXAMPLES["ltx25/stage0p5-train-153f-lora384-sp2"]
H3 = EXAMPLES["minimax_h3/stage0p5-158f-lora384-sp2"]
SP = "distributed.sequence_parallel_size"


def faults(path: Path, *sets: str) -> list[SolarError]:
    with pytest.raises(FaultList) as caught:
        resolve(path, sets)
    assert caught.value.exit_code == 2
    return list(caught.value.faults)


@pytest.mark.parametrize(
    ("path", "size", "degrees", "fix"),
    [
        (WAN, 16, "1, 2, 3, 4, 6, 8, 12, 24", "8"),
        (A14B, 16, "1, 2, 4, 5, 8, 10, 20, 40", "8"),
        (LTX, 64, "1, 2, 4, 8, 16, 32", "16"),
        (H3, 64, "1, 2, 4, 7, 8, 14, 28, 56", "8"),
    ],
)
def test_a_group_size_the_heads_forbid_names_the_legal_ones(
    path: Path, size: int, degrees: str, fix: str
) -> None:
    found = faults(path, f"{SP}={size}")
    assert {fault.context["path"] for fault in found} == {SP}
    assert {fault.where for fault in found} == {"--set #1"}
    heads = next(fault for fault in found if "attention heads" in fault.headline)
    assert f"legal degrees of this model are {degrees};" in heads.why
    assert heads.fixes == (f"--set {SP}={fix}",)


def test_a_group_size_the_world_and_the_heads_forbid_is_told_for_both() -> None:
    found = faults(WAN, f"{SP}=5")
    assert [fault.code for fault in found] == ["config.topology"] * 2
    assert found[0].fixes == found[1].fixes == (f"--set {SP}=4", f"--set {SP}=8")


@pytest.mark.parametrize(
    ("latents", "frames", "size", "split"),
    [
        (21, 81, 8, [3, 3, 3, 3, 3, 2, 2, 2]),
        (39, 153, 2, [20, 19]),
        (39, 153, 4, [10, 10, 10, 9]),
    ],
)
def test_latents_no_group_divides_are_split_whole_with_the_padding_shown(
    latents: int, frames: int, size: int, split: list[int]
) -> None:
    path = EXAMPLES[f"wan22_ti2v_5b/train_stage0p5_fm_{frames}f"]
    shown = resolve(path, [f"{SP}={size}", f"train.global_batch_size={256 // size}"]).topology
    assert shown.latents == latents
    assert list(shown.latents_per_sp_rank) == split
    assert [max(split) - part for part in split] == list(shown.padding_latents_per_sp_rank)


@pytest.mark.parametrize(
    ("path", "frames", "formula", "fix"),
    [
        (WAN, 80, "4 n + 1", 81),
        (WAN, 82, "4 n + 1", 81),
        (WAN, 158, "4 n + 1", 153),
        (A14B, 80, "4 n + 1", 81),
        (LTX, 80, "8 n + 1", 153),
        (LTX, 158, "8 n + 1", 153),
        (H3, 80, "17 n + 5", 158),
        (H3, 153, "17 n + 5", 158),
    ],
)
def test_an_illegal_clip_length_names_the_formula_and_a_length_that_resolves(
    path: Path, frames: int, formula: str, fix: int
) -> None:
    found = faults(path, f"data.pixel_frames={frames}")
    assert {fault.context["path"] for fault in found} == {"data.pixel_frames"}
    told = next(fault for fault in found if fault.code == "config.geometry")
    assert formula in told.why
    assert told.fixes[0] == f"--set data.pixel_frames={fix}"
    if f"{fix}f" in path.stem:
        resolve(path, [f"data.pixel_frames={fix}"])


def test_a_tiny_clip_may_have_any_length_of_whole_chunks() -> None:
    quick = EXAMPLES["quickstart/stage0p5"]
    (fault,) = faults(quick, "data.pixel_frames=34")
    for fix in fault.fixes:
        resolve(quick, [fix.removeprefix("--set ")])


def test_all_repairs_of_a_wrong_batch_resolve() -> None:
    (fault,) = faults(WAN, "train.micro_batch_size=2")
    assert "(256 / 1) x 2 x 1 = 512" in fault.why
    for fix in fault.fixes:
        resolve(WAN, ["train.micro_batch_size=2", fix.removeprefix("--set ")])
