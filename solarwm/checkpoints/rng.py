"""State of the random generators of libraries, as plain JSON that is checked before it is used.

Our own draws are keyed (`nn.random`) and need none of this; it keeps third-party code in step.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, ValidationError

from solarwm.checkpoints.manifest import Record
from solarwm.errors.types import SolarError

Word = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
Words = Annotated[list[Word], Field(min_length=624, max_length=624)]


class PythonState(Record):
    """State of the `random` module."""

    schema_: Literal["solarwm.python-rng-state.v1"] = Field(alias="schema")
    version: Literal[3]
    words: Words
    position: int = Field(ge=0, le=624)
    gaussian: float | None


class NumpyState(Record):
    """State of numpy's legacy generator."""

    schema_: Literal["solarwm.numpy-rng-state.v1"] = Field(alias="schema")
    bit_generator: Literal["MT19937"]
    words: Words
    position: int = Field(ge=0, le=624)
    has_gaussian: Literal[0, 1]
    cached_gaussian: float


class TorchState(Record):
    """State of torch's CPU generator and of each CUDA device, base64 of the bytes."""

    schema_: Literal["solarwm.torch-rng-state.v1"] = Field(alias="schema")
    cpu: str = Field(max_length=1 << 16)
    cuda: list[str]


class RngRecord(Record):
    """All three, of one rank."""

    schema_: Literal["solarwm.rng-state.v1"] = Field(alias="schema")
    python: PythonState
    numpy: NumpyState
    torch: TorchState


def capture() -> dict[str, Any]:
    """The present state of python, numpy and torch generators in this process."""
    version, words, gaussian = random.getstate()
    legacy: Any = np.random.get_state(legacy=True)
    cuda: list[torch.Tensor] = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "schema": "solarwm.rng-state.v1",
        "python": {
            "schema": "solarwm.python-rng-state.v1",
            "version": version,
            "words": list(words[:-1]),
            "position": words[-1],
            "gaussian": gaussian,
        },
        "numpy": {
            "schema": "solarwm.numpy-rng-state.v1",
            "bit_generator": str(legacy[0]),
            "words": [int(word) for word in legacy[1]],
            "position": int(legacy[2]),
            "has_gaussian": int(legacy[3]),
            "cached_gaussian": float(legacy[4]),
        },
        "torch": {
            "schema": "solarwm.torch-rng-state.v1",
            "cpu": _encode(torch.get_rng_state()),
            "cuda": [_encode(state) for state in cuda],
        },
    }


def restore(record: Mapping[str, Any], *, place: str) -> None:
    """Put a captured state back; `checkpoint.damaged` (exit 3) on anything malformed, nothing
    changed.
    """
    try:
        parsed = RngRecord.model_validate(dict(record))
        cpu = _decode(parsed.torch.cpu)
        cuda = [_decode(text) for text in parsed.torch.cuda]
        torch.Generator().set_state(cpu)
    except (ValidationError, ValueError, RuntimeError) as fault:
        raise SolarError(
            "checkpoint.damaged",
            "the saved random state is malformed",
            where=place,
            why=" ".join(str(fault).split())[:160],
        ) from fault
    words = (*parsed.python.words, parsed.python.position)
    random.setstate((parsed.python.version, words, parsed.python.gaussian))
    legacy = parsed.numpy
    words_array = np.array(legacy.words, dtype=np.uint32)
    np.random.set_state(
        ("MT19937", words_array, legacy.position, legacy.has_gaussian, legacy.cached_gaussian)
    )
    torch.set_rng_state(cpu)
    if cuda and torch.cuda.is_available() and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode("ascii")


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8)
