"""Batch and rank arithmetic against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solarwm.config.batching import Batch, repairs
from solarwm.config.topology import Inputs, build, check, divisors, split_latents

BASE = Inputs(
    world_size=8,
    local_world_size=None,
    sequence_parallel_size=1,
    micro_batch_size=1,
    accumulation=2,
    global_batch_size=16,
    frames=81,
    latents=21,
    tokens_per_latent=405,
    num_heads=24,
    frame_splits=None,
    token_splits=None,
    max_steps=1000,
    save_every=300,
    save_steps=(),
    validate_every=500,
    validation_steps=(),
    sample_count=20,
    num_passes=2,
    checks_batch=True,
)


def codes(inputs: Inputs) -> list[str]:
    return [finding.code for finding in check(inputs)]


def test_a_fitting_batch_shows_its_equation() -> None:
    assert check(BASE) == []
    topology = build(BASE)
    assert topology.equation == "(8 / 1) x 1 x 2 = 16"
    assert topology.samples_per_step == topology.global_batch_size == 16
    assert topology.logical_dp == 8


@pytest.mark.parametrize(
    ("change", "product"),
    [({"micro_batch_size": 2}, 32), ({"accumulation": 3}, 24), ({"world_size": 4}, 8)],
)
def test_a_batch_that_does_not_fit_is_refused_with_the_equation_filled_in(change, product) -> None:
    (finding,) = check(BASE._replace(**change))
    assert finding.code == "config.batch"
    assert f"= {product}" in finding.why
    assert f"--set train.global_batch_size={product}" in finding.fixes


def test_the_batch_is_not_checked_for_inference() -> None:
    assert check(BASE._replace(global_batch_size=999, checks_batch=False)) == []


@given(
    st.integers(1, 64),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 512),
)
def test_every_proposed_repair_makes_the_equation_hold(dp, sp, micro, accumulation, wanted) -> None:
    batch = Batch(
        world_size=dp * sp,
        sequence_parallel_size=sp,
        micro_batch_size=micro,
        accumulation=accumulation,
        global_batch_size=wanted,
    )
    for repair in repairs(batch):
        key, value = repair.removeprefix("--set train.").split("=")
        factors = {
            "global_batch_size": wanted,
            "micro_batch_size": micro,
            "grad_accum": accumulation,
        } | {key: int(value)}
        assert (
            dp * factors["micro_batch_size"] * factors["grad_accum"] == factors["global_batch_size"]
        )


@given(st.integers(1, 200), st.integers(1, 64))
def test_latents_are_split_whole_with_the_remainder_on_low_ranks(latents: int, parts: int) -> None:
    shares = split_latents(latents, parts)
    assert sum(shares) == latents
    assert len(shares) == parts
    assert list(shares) == sorted(shares, reverse=True)
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 5000))
def test_divisors_are_those_of_trial_division(number: int) -> None:
    assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


def test_eight_ranks_share_twenty_one_latents_with_padding() -> None:
    inputs = BASE._replace(sequence_parallel_size=8, global_batch_size=2)
    assert check(inputs) == []
    topology = build(inputs)
    assert topology.latents_per_sp_rank == (3, 3, 3, 3, 3, 2, 2, 2)
    assert topology.padding_latents_per_sp_rank == (0, 0, 0, 0, 0, 1, 1, 1)
    assert topology.tokens_per_sp_rank[0] == 3 * 405


def test_two_ranks_share_forty_seven_latents() -> None:
    assert build(BASE._replace(sequence_parallel_size=2, latents=47)).latents_per_sp_rank == (
        24,
        23,
    )


@pytest.mark.parametrize(("heads", "size"), [(24, 5), (24, 16), (40, 16), (12, 8)])
def test_heads_that_do_not_divide_are_refused_with_the_legal_degrees(heads: int, size: int) -> None:
    inputs = BASE._replace(
        num_heads=heads, world_size=size, sequence_parallel_size=size, checks_batch=False
    )
    (finding,) = check(inputs)
    legal = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
    assert legal in finding.why
    assert f"{heads} attention heads" in finding.message


def test_more_ranks_than_latents_are_refused() -> None:
    inputs = BASE._replace(world_size=24, sequence_parallel_size=24, checks_batch=False)
    (finding,) = check(inputs)
    assert "21 latent frames" in finding.message
    assert "legal are 1, 2, 3, 4, 6, 8, 12" in finding.why
    assert finding.fixes == ("--set distributed.sequence_parallel_size=12",)


def test_an_impossible_group_size_is_told_without_what_follows_from_it() -> None:
    inputs = BASE._replace(
        num_heads=24, world_size=256, sequence_parallel_size=16, frame_splits=(11, 10)
    )
    (finding,) = check(inputs)
    assert finding.path == ("distributed", "sequence_parallel_size")
    assert finding.fixes == ("--set distributed.sequence_parallel_size=8",)


def test_a_world_that_is_no_multiple_is_refused() -> None:
    assert codes(BASE._replace(sequence_parallel_size=3)) == ["config.topology"]


@pytest.mark.parametrize("splits", [(12, 9), (10, 11), (21,), (11, 9), (11, 10, 0)])
def test_wrong_frame_splits_are_refused_with_the_right_ones(splits: tuple[int, ...]) -> None:
    inputs = BASE._replace(sequence_parallel_size=2, global_batch_size=8, frame_splits=splits)
    (finding,) = check(inputs)
    assert "11, 10" in finding.why


def test_right_splits_are_accepted() -> None:
    inputs = BASE._replace(
        sequence_parallel_size=2,
        global_batch_size=8,
        frame_splits=(11, 10),
        token_splits=(4455, 4050),
    )
    assert check(inputs) == []


def test_saves_and_validation_waves_are_counted() -> None:
    topology = build(BASE)
    assert topology.checkpoints_expected == len([n for n in range(1, 1001) if n % 300 == 0])
    assert topology.validations_expected == 2
    assert topology.validation_waves_expected == 2 * 2 * 3  # 20 cases over 8 partitions are 3 waves
    off = build(BASE._replace(save_every=0, validate_every=0))
    assert off.checkpoints_expected == off.validation_waves_expected == 0


@given(st.integers(0, 60), st.integers(0, 20), st.lists(st.integers(0, 80), max_size=5).map(tuple))
def test_saves_are_counted_as_a_loop_over_the_steps_would(
    steps: int, every: int, further: tuple[int, ...]
) -> None:
    inputs = BASE._replace(max_steps=steps, save_every=every, save_steps=further)
    due = [n for n in range(1, steps + 1) if (every and n % every == 0) or n in further]
    assert build(inputs).checkpoints_expected == len(due)


@pytest.mark.parametrize(
    ("strategy", "local", "axes"),
    [
        ("none", 4, {}),
        ("FULL_SHARD", None, {"shard": 8}),
        ("SHARD_GRAD_OP", 4, {"shard": 8}),
        ("HYBRID_SHARD", 4, {"replicate": 2, "shard": 4}),
        ("HYBRID_SHARD", 8, {"shard": 8}),
        ("HYBRID_SHARD", None, {}),
    ],
)
def test_the_axes_of_the_meshes_are_named_and_hold_every_rank(strategy, local, axes) -> None:
    topology = build(
        BASE._replace(
            strategy=strategy, local_world_size=local, sequence_parallel_size=2, accumulation=4
        )
    )
    assert topology.data_mesh == {"dp": 4, "sp": 2}
    assert topology.shard_mesh == axes
    assert list(topology.shard_mesh) == list(axes)
