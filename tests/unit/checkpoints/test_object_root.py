"""Checkpoints in object stores: whole or not there, whatever cuts a copy short."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import pytest

from solarwm.checkpoints.manifest import verify
from solarwm.checkpoints.object_root import ObjectRoot
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from tests.fault.small_state import check_after_fault, state_of

NUM_VALUES = 500


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    store = CheckpointStore(tmp_path_factory.mktemp("run"))
    return [store.save(step, state_of(step, num_values=NUM_VALUES)) for step in (1, 2, 3)]


@pytest.fixture
def root() -> ObjectRoot:
    return ObjectRoot(f"memory://{uuid.uuid4().hex}/run")


def files(root: ObjectRoot) -> list[str]:
    return sorted(fsspec.filesystem("memory").find(root._path))


class Cut(BaseException):
    """The end of a process in the middle of a copy."""


def cut_at(root: ObjectRoot, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """End at the `number`-th write."""
    real, made = root._system.put_file, 0

    def put_file(source, there, **more):
        nonlocal made
        made += 1
        if made == number:
            raise Cut
        return real(source, there, **more)

    monkeypatch.setattr(root._system, "put_file", put_file)


def test_a_copy_comes_back_equal_and_a_second_one_writes_nothing(root, run, tmp_path) -> None:
    assert root.listing().complete == root.listing().partial == ()
    address = root.push(run[0])
    assert address == f"{root.address}/checkpoint_model_000001"
    before = {name: root._system.created(name) for name in files(root)}
    root.push(run[0])
    assert {name: root._system.created(name) for name in files(root)} == before
    path = root.fetch(tmp_path / "there")
    assert check_after_fault(tmp_path / "there", allowed={1}, num_values=NUM_VALUES) == 1
    assert verify(path).strays == ()
    with pytest.raises(FileExistsError):
        root.fetch(tmp_path / "there")


def test_a_copy_cut_at_any_write_is_partial_and_the_one_before_stays(
    run, tmp_path, monkeypatch
) -> None:
    writes = len(list(path for path in run[1].rglob("*") if path.is_file()))
    assert writes > 6
    for number in range(1, writes + 1):
        root = ObjectRoot(f"memory://{uuid.uuid4().hex}/run")
        root.push(run[0])
        with monkeypatch.context() as patch:
            cut_at(root, patch, number)
            with pytest.raises(Cut):
                root.push(run[1])
        assert root.listing().complete == ("checkpoint_model_000001",)
        if number > 1:
            assert root.listing().partial == ("checkpoint_model_000002",)
            with pytest.raises(SolarError) as told:
                root.fetch(tmp_path, name="checkpoint_model_000002")
            assert (told.value.code, told.value.exit_code) == ("checkpoint.incomplete", 3)
        root.push(run[1])
        assert root.listing().newest == "checkpoint_model_000002"


def test_a_flipped_byte_or_a_missing_object_is_found_and_nothing_is_left(
    root, run, tmp_path
) -> None:
    root.push(run[0])
    for name in files(root):
        data = root._system.cat_file(name)
        if not data:
            continue
        flipped = bytes([data[0] ^ 1]) + data[1:]
        for act in (lambda: root._system.pipe_file(name, flipped), lambda: root._system.rm(name)):  # noqa: B023
            act()
            with pytest.raises(SolarError) as told:
                root.fetch(tmp_path / "there", name="checkpoint_model_000001")
            assert told.value.exit_code == 3
            assert not (tmp_path / "there").exists() or not any((tmp_path / "there").iterdir())
            root._system.pipe_file(name, data)
    root.fetch(tmp_path / "there")


def test_a_store_that_keeps_fewer_bytes_or_refuses_is_told_and_has_no_marker(
    root, run, monkeypatch
) -> None:
    with monkeypatch.context() as patch:
        real = root._system.put_file
        patch.setattr(
            root._system,
            "put_file",
            lambda source, there, **more: (
                real(source, there, **more),
                root._system.pipe_file(there, b"x"),
            ),
        )
        with pytest.raises(SolarError) as told:
            root.push(run[0])
    assert (told.value.code, told.value.exit_code) == ("store.no-answer", 5)
    with monkeypatch.context() as patch:

        def refuse(*_, **__):
            raise PermissionError("no")

        patch.setattr(root._system, "put_file", refuse)
        with pytest.raises(SolarError) as told:
            root.push(run[0])
    assert (told.value.code, told.value.exit_code) == ("store.denied", 5)
    assert root.listing().complete == ()


def test_another_run_at_the_same_address_is_refused(root, run, tmp_path) -> None:
    root.push(run[0])
    other = CheckpointStore(tmp_path, run_id="other")
    with pytest.raises(SolarError) as told:
        root.push(other.save(1, state_of(1, num_values=NUM_VALUES)))
    assert (told.value.code, told.value.exit_code) == ("checkpoint.exists", 5)


def test_retention_removes_markers_first_and_never_the_newest(root, run, monkeypatch) -> None:
    for path in run:
        root.push(path)
    assert root.prune(keep_last=0) == ()
    with monkeypatch.context() as patch:

        def cut(*_, **__):
            raise Cut

        patch.setattr(root._system, "rm", cut)
        with pytest.raises(Cut):
            root.prune(keep_last=1, keep_every=2)
    assert root.listing().partial == ("checkpoint_model_000001",)
    assert root.prune(keep_last=1) == ("checkpoint_model_000002",)
    assert root.listing().complete == ("checkpoint_model_000003",)


def test_an_s3_bucket_holds_checkpoints_too(run, tmp_path, monkeypatch) -> None:
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=settings["AWS_ENDPOINT_URL"])
        client.create_bucket(Bucket="checkpoints")
        root = ObjectRoot("s3://checkpoints/run", options={"skip_instance_cache": True})
        assert root.listing().newest is None
        for path in run[:2]:
            root.push(path)
        client.delete_object(Bucket="checkpoints", Key="run/checkpoint_model_000002/COMPLETE.json")
        assert root.listing().complete == ("checkpoint_model_000001",)
        assert root.listing().partial == ("checkpoint_model_000002",)
        root.fetch(tmp_path / "there")
        assert check_after_fault(tmp_path / "there", allowed={1}, num_values=NUM_VALUES) == 1
        root.push(run[1])
        assert root.prune(keep_last=1) == ("checkpoint_model_000001",)
        assert root.listing().complete == ("checkpoint_model_000002",)
    finally:
        server.stop()
