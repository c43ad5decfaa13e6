"""Canonical JSON and content digests."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
from pathlib import Path

import pytest

from solarwm.storage import digests


def test_canonical_json_is_the_published_spelling() -> None:
    value = {"b": 1e-8, "a": [1, 16.0, None, True], "ü": "é"}
    assert digests.canonical_json(value).decode() == '{"a":[1,16.0,null,true],"b":1e-08,"ü":"é"}\n'
    assert json.loads(digests.human_json(value)) == value


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        digests.canonical_json({"a": math.nan})


def test_file_digests_equal_those_of_the_bytes_and_of_b2sum(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000
    path = tmp_path / "f"
    path.write_bytes(data)
    assert digests.file_blake2s(path) == hashlib.blake2s(data).hexdigest()
    assert digests.file_blake2b(path) == digests.blake2b_hex(data)
    done = subprocess.run(["b2sum", "-l", "256", path], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == digests.file_blake2b(path)
