"""What is done about a sample that cannot be read, and the count that all ranks agree on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from solarwm.data.records import SKIPPED_CODES
from solarwm.errors.types import SolarError

_SAMPLE_FAULTS = ("camera.", "latent.", "shard.", "video.")
_OTHER_SAMPLE_FAULTS = frozenset(("index.bad-field", "index.too-few-frames", "store.no-answer"))
_WHOLE_SETS = frozenset(("latent.marker", "latent.none", "latent.other-encoder"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """Whether training goes on without a sample that cannot be read."""

    on_bad_sample: Literal["stop", "skip"] = "stop"
    max_bad_samples: int = 0
    """Different samples that one start may pass over, all ranks together."""

    def passes_over(self, fault: SolarError) -> bool:
        """Whether a substitute is taken: always for a camera guard, with `skip` for whatever is
        wrong with one sample or its shard. A store that refuses, a full disk or a set of another
        encoder is never passed over.
        """
        if fault.code in SKIPPED_CODES:
            return True
        return self.on_bad_sample == "skip" and is_read_fault(fault)

    def require_few(self, bad: Collection[str]) -> None:
        """Refuse (`data.too-many-bad-samples`, exit 3) more bad samples than are allowed."""
        if len(bad) <= self.max_bad_samples:
            return
        named = sorted(bad)
        raise SolarError(
            "data.too-many-bad-samples",
            f"{len(named)} samples could not be read, {self.max_bad_samples} may be passed over",
            where=named[0],
            why=", ".join(named[:8]) + (f" and {len(named) - 8} more" if len(named) > 8 else ""),
            fixes=[
                "solarwm data validate INDEX --root DIR",
                "take the samples out of the index",
                f"--set data.max_bad_samples={2 * len(named)}",
            ],
            context={"samples": named[:64], "max_bad_samples": self.max_bad_samples},
        )


def is_read_fault(fault: SolarError) -> bool:
    """Whether a fault is one of a single sample: missing, cut, undecodable, wrong, or not answered
    for in time."""
    if fault.code in SKIPPED_CODES or fault.code in _WHOLE_SETS:
        return False
    return fault.code.startswith(_SAMPLE_FAULTS) or fault.code in _OTHER_SAMPLE_FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a rank passed over in this start, as far as its steps have come."""

    skipped: int = 0
    """Occurrences that took a substitute, once for each refused attempt."""
    bad: frozenset[str] = frozenset()
    """Samples that could not be read."""
