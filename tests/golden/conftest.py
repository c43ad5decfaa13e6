"""Golden numbers: ours, or those of `SOLARWM_GOLDEN_DIR` where a file of the same name lies there.

A test takes every tensor or value through `GoldenFile`; one that was not taken fails the test, and
so does a file without any. Comparisons are counted and the counts printed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

OURS = Path(__file__).parent / "files"


def golden_path(name: str) -> Path:
    folder = os.environ.get("SOLARWM_GOLDEN_DIR")
    if folder and (Path(folder) / name).is_file():
        return Path(folder) / name
    return OURS / name


class GoldenFile:
    """The tensors of one safetensors file; remembers what was used and compared."""

    def __init__(self, name: str) -> None:
        from safetensors import safe_open

        self.path = golden_path(name)
        with safe_open(str(self.path), framework="pt") as handle:
            self.metadata = handle.metadata() or {}
            self.tensors = {key: handle.get_tensor(key) for key in handle.keys()}  # noqa: SIM118
        self.used: set[str] = set()
        self.compared = 0
        self.largest = 0.0

    @property
    def config(self) -> dict:
        return json.loads(self.metadata["config"])

    def __contains__(self, key: str) -> bool:
        return key in self.tensors

    def __getitem__(self, key: str) -> Tensor:
        self.used.add(key)
        return self.tensors[key]

    def keys(self) -> list[str]:
        return sorted(self.tensors)

    def compare(self, key: str, actual: Tensor, *, atol: float = 1e-5, rtol: float = 1e-5) -> None:
        expected = self[key]
        self.compared += 1
        assert tuple(actual.shape) == tuple(expected.shape), f"{key}: shape {tuple(actual.shape)}"
        if not expected.dtype.is_floating_point:
            assert torch.equal(actual.to(expected.dtype), expected), key
            return
        difference = (actual.double() - expected.double()).abs()
        self.largest = max(self.largest, float(difference.max()))
        allowed = atol + rtol * expected.double().abs()
        assert bool((difference <= allowed).all()), f"{key}: off by {float(difference.max()):.3g}"

    def finish(self) -> None:
        unused = set(self.tensors) - self.used
        print(f"{self.path.name}: {self.compared} tensors compared, off by {self.largest:.3g}")
        assert self.compared > 0, f"{self.path.name}: nothing was compared"
        assert not unused, f"{self.path.name}: keys not used: {sorted(unused)}"


class GoldenValues:
    """A JSON file of numbers; every leaf below a dict must be taken with `take` or `compare`."""

    def __init__(self, name: str, *, prose: tuple[str, ...] = ()) -> None:
        self.path = golden_path(name)
        self.document = json.loads(self.path.read_text(encoding="utf-8"))
        self.leaves = {
            leaf for leaf in _leaves(self.document, ()) if leaf[0] not in ("_about", *prose)
        }
        self.used: set[tuple] = set()
        self.compared = 0
        self.largest = 0.0

    def take(self, *place):
        """The value at a place; marks every leaf below as used."""
        value = self.document
        for step in place:
            value = value[step]
        self.used |= {leaf for leaf in self.leaves if leaf[: len(place)] == place}
        return value

    def compare(self, place: tuple, actual, *, atol: float = 1e-5, rtol: float = 1e-6) -> None:
        expected = np.asarray(self.take(*place), dtype=np.float64)
        value = np.asarray(actual, dtype=np.float64)
        self.compared += 1
        assert value.shape == expected.shape, f"{place}: shape {value.shape}"
        difference = np.abs(value - expected)
        self.largest = max(self.largest, float(difference.max(initial=0.0)))
        assert bool((difference <= atol + rtol * np.abs(expected)).all()), (
            f"{place}: off by {float(difference.max()):.3g}"
        )

    def finish(self) -> None:
        unused = self.leaves - self.used
        print(f"{self.path.name}: {self.compared} values compared, off by {self.largest:.3g}")
        assert self.compared > 0, f"{self.path.name}: nothing was compared"
        assert not unused, f"{self.path.name}: values not used: {sorted(map(str, unused))}"


def _leaves(value, place: tuple) -> list[tuple]:
    if isinstance(value, dict):
        return [leaf for key, part in value.items() for leaf in _leaves(part, (*place, key))]
    if isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        return [leaf for i, part in enumerate(value) for leaf in _leaves(part, (*place, i))]
    return [place]


@pytest.fixture
def golden():
    """Opens golden files; checks at the end that each was used up."""
    opened = []

    def open_file(name: str, **options):
        kind = GoldenFile if name.endswith(".safetensors") else GoldenValues
        opened.append(kind(name, **options))
        return opened[-1]

    yield open_file
    for file in opened:
        file.finish()
