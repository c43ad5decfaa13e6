"""Damage and malice: whatever is changed in a checkpoint is found, and nothing in it is run."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from solarwm.checkpoints.manifest import MANIFEST_NAME, MARKER_NAME, verify
from solarwm.checkpoints.metadata import parse_metadata
from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2b_hex, blake2s_hex, canonical_json

SEED = 11
METADATA_MODULE = b"torch.distributed.checkpoint.metadata"


def save(root: Path) -> Path:
    """A small checkpoint of random values."""
    torch.manual_seed(0)
    tensors = {"a": torch.randn(40), "b": torch.randn(3, 5)}
    facts = Facts(
        occurrences=1,
        route="r",
        resolved_digest="0" * 64,
        numerics="corrected",
        topology={},
        versions={},
        contract={},
        config={"name": "n"},
    )
    state = CheckpointState(
        roles={"student": RoleState(model=tensors, ema=tensors)},
        facts=facts,
        rank_record={"rng": [1, 2]},
    )
    return CheckpointStore(root).save(1, state)


def exit_code(work: Callable[[], object]) -> int:
    """What `work` would end a process with; anything but a SolarError passes through."""
    try:
        work()
    except SolarError as fault:
        return fault.exit_code
    return 0


def load(path: Path) -> None:
    """Load the model part."""
    target = {"a": torch.zeros(40), "b": torch.zeros(3, 5)}
    CheckpointStore(path.parent).load_into(path, {"student": RoleState(model=target)})


@pytest.mark.parametrize("rounds", [1000, pytest.param(3000, marks=pytest.mark.soak)])
def test_any_flipped_byte_is_found_by_verify_and_by_a_load_that_reads_it(
    tmp_path: Path, rounds: int
) -> None:
    path = save(tmp_path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    draws = random.Random(SEED)
    print(f"seed {SEED}")
    sizes = [file.stat().st_size for file in files]
    for count in range(rounds):
        file = draws.choices(files, sizes)[0] if count % 2 else draws.choice(files)
        data = bytearray(file.read_bytes())
        place = draws.randrange(len(data))
        data[place] ^= 1 << draws.randrange(8)
        good = file.read_bytes()
        file.write_bytes(data)
        with pytest.raises(SolarError) as told:
            verify(path)
        assert told.value.exit_code == 3
        if file.parent.name == "student-model" or file.parent == path:
            with pytest.raises(SolarError) as refused:
                load(path)
            assert refused.value.exit_code == 3
        file.write_bytes(good)
    verify(path)
    load(path)


@pytest.mark.parametrize("rounds", [300, pytest.param(5000, marks=pytest.mark.soak)])
def test_mutated_manifests_and_markers_are_refused_without_a_traceback(
    tmp_path: Path, rounds: int
) -> None:
    path = save(tmp_path)
    draws = random.Random(SEED)
    good = {name: (path / name).read_bytes() for name in (MANIFEST_NAME, MARKER_NAME)}
    for _ in range(rounds):
        manifest = json.loads(good[MANIFEST_NAME])
        _mutate(manifest, draws)
        data = canonical_json(manifest)
        if data == good[MANIFEST_NAME]:
            continue
        marker = json.loads(good[MARKER_NAME]) | {"manifest_digest": blake2s_hex(data)}
        (path / MANIFEST_NAME).write_bytes(data)
        (path / MARKER_NAME).write_bytes(canonical_json(marker))
        assert exit_code(lambda: load(path)) in {0, 3}
    for junk in (b"", b"[]", b"{", b"\xff", b"null\n", b"[" * 100_000, b'{"schema":1}\n'):
        (path / MARKER_NAME).write_bytes(junk)
        with pytest.raises(SolarError) as told:
            verify(path)
        assert told.value.exit_code == 3


def _mutate(record: dict[str, Any], draws: random.Random) -> None:
    junk: list[Any] = [None, -1, 1 << 70, "", "../x", "/etc/passwd", [], {}, True, 1.5, "\0"]
    place: Any = record
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = draws.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and draws.random() < 0.8:
            place = place[key]
            continue
        place[key] = draws.choice(junk)
        return


@pytest.mark.parametrize("what", ["missing", "longer", "shorter", "link", "directory"])
def test_a_file_that_is_not_the_saved_one_is_named(tmp_path: Path, what: str) -> None:
    path = save(tmp_path)
    file = next((path / "student-model").glob("*.distcp"))
    data = file.read_bytes()
    file.unlink()
    if what == "longer":
        file.write_bytes(data + b"x")
    elif what == "shorter":
        file.write_bytes(data[:-1])
    elif what == "link":
        (tmp_path / "copy").write_bytes(data)
        file.symlink_to(tmp_path / "copy")
    elif what == "directory":
        file.mkdir()
    for look in (lambda: verify(path, deep=False), lambda: verify(path), lambda: load(path)):
        with pytest.raises(SolarError) as told:
            look()
        assert told.value.code == "checkpoint.damaged"
        assert file.name in str(told.value)


def test_every_bad_file_is_listed_at_once_and_strays_are_only_noted(tmp_path: Path) -> None:
    path = save(tmp_path)
    (path / "release-manifest.json").write_text("{}")
    assert verify(path).strays == ("release-manifest.json",)
    for member in ("student-model", "student-ema"):
        file = next((path / member).glob("*.distcp"))
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(SolarError) as told:
        verify(path)
    assert len(told.value.faults) == 2  # type: ignore[attr-defined]


class Payload:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch HACKED",)


def sound_metadata(file_name: str = "__0_0.distcp") -> Metadata:
    """DCP metadata of one tensor."""
    entry = TensorStorageMetadata(
        properties=TensorProperties(dtype=torch.float32),
        size=torch.Size([2]),
        chunks=[ChunkStorageMetadata(offsets=torch.Size([0]), sizes=torch.Size([2]))],
    )
    return Metadata(
        state_dict_metadata={"w": entry},
        storage_data={MetadataIndex("w", [0]): _StorageInfo(file_name, 0, 8)},
    )


def test_sound_metadata_is_accepted() -> None:
    data = pickle.dumps(sound_metadata())
    assert parse_metadata(data, Path("m")) == sound_metadata()


def malicious() -> dict[str, bytes]:
    """Pickles that must not be loaded."""
    with_payload = sound_metadata()
    with_payload.planner_data = Payload()
    with_bytes = sound_metadata()
    with_bytes.state_dict_metadata["x"] = BytesStorageMetadata()
    with_transform = sound_metadata()
    index = next(iter(with_transform.storage_data))
    with_transform.storage_data[index] = _StorageInfo("__0_0.distcp", 0, 8, ["x"])
    return {
        "a reduce payload": pickle.dumps(Payload()),
        "a payload inside metadata": pickle.dumps(with_payload),
        "a builtin": b"cbuiltins\neval\n(V1+1\ntR.",
        "a dotted way out": b"ctorch.serialization\nos.system\n(Vtouch HACKED\ntR.",
        "a torch function": b"ctorch\nload\n(Vx\ntR.",
        "a changed class": (b"c" + METADATA_MODULE + b"\nMetadata\n(N}X\x01\x00\x00\x00xI1\nstb."),
        "byte items": pickle.dumps(with_bytes),
        "a transform": pickle.dumps(with_transform),
        "a parent path": pickle.dumps(sound_metadata("../x")),
        "an absolute path": pickle.dumps(sound_metadata("/etc/passwd")),
        "a dot": pickle.dumps(sound_metadata("..")),
    }


@pytest.mark.parametrize("kind", sorted(malicious()))
def test_metadata_that_holds_more_than_tensors_is_refused_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SolarError) as told:
        parse_metadata(malicious()[kind], Path("m"))
    assert (told.value.code, told.value.exit_code) == ("checkpoint.unsafe", 3)
    assert not list(tmp_path.iterdir())


def test_a_payload_in_a_checkpoint_whose_digests_agree_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    _swap(path, "student-model/.metadata", pickle.dumps(Payload()))
    verify(path)
    with pytest.raises(SolarError) as told:
        load(path)
    assert told.value.code == "checkpoint.unsafe"
    shutil.rmtree(path)
    path = save(tmp_path / "run")
    file = next((path / "student-model").glob("*.distcp"))
    evil = pickle.dumps(Payload())
    _swap(path, f"student-model/{file.name}", evil + bytes(file.stat().st_size - len(evil)))
    with pytest.raises(SolarError) as told:
        load(path)
    assert told.value.code == "checkpoint.damaged"
    assert [item.name for item in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("rounds", [1000, pytest.param(5000, marks=pytest.mark.soak)])
def test_mutated_metadata_never_ends_in_a_traceback(rounds: int) -> None:
    draws = random.Random(SEED)
    good = pickle.dumps(sound_metadata())
    for _ in range(rounds):
        data = bytearray(good)
        for _ in range(draws.randint(1, 4)):
            data[draws.randrange(len(data))] = draws.randrange(256)
        assert exit_code(lambda data=data: parse_metadata(bytes(data), Path("m"))) in {0, 3}


def test_a_number_in_the_file_does_not_size_memory() -> None:
    memo = b"\x80\x04N" + b"r" + (1 << 30).to_bytes(4, "little") + b"."
    array = b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"."
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in (memo, array):
        with pytest.raises(SolarError):
            parse_metadata(data, Path("m"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def _swap(path: Path, name: str, data: bytes) -> None:
    """Put other bytes into a checkpoint and make all its digests agree with them."""
    (path / name).write_bytes(data)
    manifest = json.loads((path / MANIFEST_NAME).read_bytes())
    for file in manifest["files"]:
        if file["path"] == name:
            file |= {"size": len(data), "blake2b": blake2b_hex(data)}
    body = canonical_json(manifest)
    (path / MANIFEST_NAME).write_bytes(body)
    marker = json.loads((path / MARKER_NAME).read_bytes()) | {"manifest_digest": blake2s_hex(body)}
    (path / MARKER_NAME).write_bytes(canonical_json(marker))
