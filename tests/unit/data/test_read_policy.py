"""Which faults a run may go on without, and how many of them."""

from __future__ import annotations

import pytest

from solarwm.data.read_policy import ReadPolicy, is_read_fault
from solarwm.errors.types import SolarError

OF_A_SAMPLE = (
    "camera.not-rigid",
    "index.too-few-frames",
    "latent.contract",
    "shard.missing",
    "shard.truncated",
    "store.no-answer",
    "video.timeout",
    "video.undecodable",
)
OF_THE_RUN = (
    "data.extra-missing",
    "data.reader-blocked",
    "disk.full",
    "latent.marker",
    "latent.other-encoder",
    "store.cache-too-small",
    "store.denied",
)


@pytest.mark.parametrize("code", OF_A_SAMPLE)
def test_a_fault_of_one_sample_stops_or_is_skipped_as_asked(code: str) -> None:
    fault = SolarError(code, "x")
    assert is_read_fault(fault)
    assert not ReadPolicy().passes_over(fault)
    assert ReadPolicy(on_bad_sample="skip").passes_over(fault)


@pytest.mark.parametrize("code", OF_THE_RUN)
def test_a_fault_of_machine_or_set_is_never_skipped(code: str) -> None:
    assert not ReadPolicy(on_bad_sample="skip", max_bad_samples=9).passes_over(
        SolarError(code, "x")
    )


def test_a_guard_is_passed_over_by_either_policy_and_is_no_bad_sample() -> None:
    guard = SolarError("camera.guard", "x")
    assert ReadPolicy().passes_over(guard)
    assert not is_read_fault(guard)


def test_one_more_bad_sample_than_allowed_is_refused_by_name() -> None:
    policy = ReadPolicy(on_bad_sample="skip", max_bad_samples=2)
    policy.require_few({"a", "b"})
    with pytest.raises(SolarError, match="3 samples could not be read, 2 may") as caught:
        policy.require_few({"c", "a", "b"})
    assert (caught.value.code, caught.value.exit_code) == ("data.too-many-bad-samples", 3)
    assert caught.value.context["samples"] == ["a", "b", "c"]
