"""A camera-length publication: three public names a clip, created once, markers last, whole after a kill
and on file systems without hard links and exclusive renames."""

from __future__ import annotations

import json
from hashlib import blake2s
from pathlib import Path

import numpy as np
import pytest

from solarwm.inference.publication import public_names, slug

CONFIG = Path(__file__).parents[2] / "configs" / "examples" / "quickstart" / "infer-stage2.yaml"
PASSES = json.dumps(
    [
        {
            "name": "nfe1",
            "weights": "model",
            "mode": "autoregressive",
            "solver": "self_forcing",
            "num_inference_steps": 1,
        }
    ]
)
KILL = """
import os, signal
from solarwm.storage import durable
real, count = durable.link_create_only, 0
def link(*args, **kwargs):
    global count
    count += 1
    if count == {number}: os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
durable.link_create_only = link
"""
MIDWAY = """
import os, signal
from solarwm.inference.video import VideoWriter
real = VideoWriter.write
def write(self, frames):
    real(self, frames)
    if ".slot-000001." in str(self._path): os.kill(os.getpid(), signal.SIGKILL)
VideoWriter.write = write
"""
BROKEN = """
from solarwm.errors.types import SolarError
from solarwm.inference.video import VideoWriter
real = VideoWriter.write
def write(self, frames):
    if ".slot-000000." in str(self._path): raise SolarError("inference.video", "the encoder gave up")
    return real(self, frames)
VideoWriter.write = write
"""
BARE = """
import errno, os
from solarwm.storage import operations
def link(*args, **kwargs): raise OSError(errno.EPERM, os.strerror(errno.EPERM))
os.link = link
operations._rename_exclusive = lambda source, target: False
"""


@pytest.fixture(scope="module")
def publish(warm, small_world, drawn_weights):
    def run(
        output: Path,
        run_id: str,
        *options: str,
        patch: str = "",
        world_size: int = 1,
        **more: object,
    ):
        values = {
            "model.max_prior_clean_chunks": 1,
            "data.index_root": small_world,
            "data.transport.root": small_world,
            "data.pixel_frames": 33,
            "data.height": 32,
            "data.width": 32,
            "distributed.world_size": 1,
            "train.delta_policy": "drop",
            "validation.sample_count": 2,
            "validation.passes": PASSES,
            "checkpoint.path": drawn_weights,
            "checkpoint.weights": "live",
            "inference.length": "camera",
            "inference.run_id": run_id,
            "runtime.output_dir": output,
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        arguments = ["infer", "--config", str(CONFIG), *words, *options]
        return warm.launch(output, arguments, patch=patch, world_size=world_size)

    return run


def _tree(output: Path, run_id: str) -> dict[str, bytes]:
    places = [output / name for name in ("generate", "compare", "camera")]
    places += [output / "runs" / run_id / name for name in ("generation", "publication")]
    return {
        str(path.relative_to(output)): path.read_bytes()
        for place in places
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def _blake2s(path: Path) -> str:
    return blake2s(path.read_bytes()).hexdigest()


def test_a_publication_has_the_published_names_receipts_and_markers(publish, tmp_path) -> None:
    output = tmp_path / "out"
    ended = publish(output, "first")
    assert ended.codes == [0], ended.texts
    run = output / "runs" / "first"
    names = {
        str(path.relative_to(output))
        for folder in ("generate", "compare", "camera")
        for path in (output / folder).rglob("*")
        if path.is_file()
    }
    stems = ("room-1-test-000000", "room-1-test-000001")
    assert names == {
        f"{folder}/local/{stem}.{kind}"
        for folder, kind in (("generate", "mp4"), ("compare", "mp4"), ("camera", "npy"))
        for stem in stems
    }
    receipts = [
        json.loads(path.read_bytes())
        for path in sorted((run / "publication" / "samples").glob("slot-*.json"))
    ]
    assert [receipt["slot"] for receipt in receipts] == [0, 1]
    for receipt in receipts:
        slot = run / "generation" / "nfe1" / f"slot-{receipt['slot']:06d}"
        assert receipt["source_manifest_digest"] == _blake2s(slot / "manifest.json")
        assert receipt["published_pixel_frames"] == 33
        for entry in receipt["artifacts"].values():
            path = output / entry["path"]
            assert (entry["bytes"], entry["digest"]) == (path.stat().st_size, _blake2s(path))
        camera = output / receipt["artifacts"]["camera"]["path"]
        assert camera.samefile(slot / "camera.npy")
        track = np.load(camera, allow_pickle=False)
        assert (track.dtype, track.shape) == (np.float64, (33, 4, 4))
    published = json.loads((run / "publication" / "COMPLETE.json").read_bytes())
    assert published["ordered_manifest_digest"] == _blake2s(
        run / "publication" / "ordered-manifest.jsonl"
    )
    assert published["generation_complete_digest"] == _blake2s(run / "generation" / "COMPLETE.json")
    marker = json.loads((run / "COMPLETE.json").read_bytes())
    assert marker == {
        "schema": "solarwm.camera-inference-run-complete.v1",
        "layout": "dataset_triplet_v1",
        "run_id": "first",
        "resolved_config_digest": marker["resolved_config_digest"],
        "publication_complete_digest": _blake2s(run / "publication" / "COMPLETE.json"),
        "run_result_digest": _blake2s(run / "run-result.json"),
    }
    before = _tree(output, "first")
    again, other = publish(output, "first"), publish(output, "second")
    assert (again.codes, other.codes) == ([2], [2])
    assert "inference.name-taken" in other.texts[0]
    assert not (output / "runs" / "second").exists()
    assert publish(output, "first", "--resume").codes == [0]
    assert _tree(output, "first") == before


def test_a_publication_killed_midway_and_between_two_names_is_finished_by_a_resume(
    publish, tmp_path
) -> None:
    output = tmp_path / "out"
    assert publish(output, "run").codes == [0]
    whole = _tree(output, "run")
    output.rename(tmp_path / "straight")
    ended = publish(output, "run", patch=MIDWAY)
    assert ended.codes == [-9]
    assert list(output.rglob(".slot-*/video.mp4"))
    assert not list(output.rglob("slot-000001"))
    ended = publish(output, "run", "--resume", patch=KILL.format(number=2))
    assert ended.codes == [-9]
    assert not (output / "runs" / "run" / "publication" / "COMPLETE.json").exists()
    ended = publish(output, "run", "--resume", patch=KILL.format(number=5))
    assert ended.codes == [-9]
    ended = publish(output, "run", "--resume")
    assert ended.codes == [0], ended.texts
    assert _tree(output, "run") == whole
    assert (output / "runs" / "run" / "COMPLETE.json").is_file()


def test_names_are_created_where_there_are_no_links_and_no_exclusive_rename(
    publish, tmp_path
) -> None:
    output = tmp_path / "out"
    ended = publish(output, "run", patch=BARE, validation__sample_count=1)
    assert ended.codes == [0], ended.texts
    slot = output / "runs" / "run" / "generation" / "nfe1" / "slot-000000"
    copied = output / "generate" / "local" / "room-1-test-000000.mp4"
    assert copied.read_bytes() == (slot / "video.mp4").read_bytes()
    assert not copied.samefile(slot / "video.mp4")
    assert not list(output.rglob(".*.partial"))
    taken = publish(output, "other", patch=BARE, validation__sample_count=1)
    assert taken.codes == [2]


def test_two_ranks_that_share_a_clip_publish_the_bytes_of_one(publish, tmp_path) -> None:
    trees = []
    for world_size in (1, 2):
        output = tmp_path / f"out-{world_size}"
        ended = publish(
            output,
            "run",
            world_size=world_size,
            validation__sample_count=1,
            distributed__world_size=world_size,
            distributed__sequence_parallel_size=world_size,
        )
        assert ended.codes == [0] * world_size, ended.texts
        trees.append(
            {
                str(path.relative_to(output)): path.read_bytes()
                for folder in ("generate", "compare", "camera")
                for path in (output / folder).glob("*/*")
            }
        )
    assert len(trees[0]) == 3
    assert trees[0] == trees[1]


def test_a_failing_encoder_of_the_publishing_rank_leaves_its_peers_in_step(
    publish, tmp_path
) -> None:
    output = tmp_path / "out"
    ended = publish(
        output,
        "run",
        patch=BROKEN,
        world_size=2,
        distributed__world_size=2,
        distributed__sequence_parallel_size=2,
    )
    assert ended.codes == [4, 4], ended.texts
    here = output / "runs" / "run" / "generation" / "nfe1"
    assert [path.name for path in here.glob("slot-*")] == ["slot-000001"]
    assert [path.name for path in (here / "errors").iterdir()] == ["slot-000000.json"]
    assert not (output / "generate").exists()
    assert not list(output.rglob("COMPLETE.json"))


def test_two_passes_have_no_one_public_name(publish, tmp_path) -> None:
    two = [*json.loads(PASSES), {**json.loads(PASSES)[0], "name": "other"}]
    ended = publish(tmp_path / "out", "run", validation__passes=json.dumps(two))
    assert ended.codes == [2]
    assert "validation.passes" in ended.texts[0]
    assert not (tmp_path / "out").exists()


def test_public_names_are_safe_parts_of_a_path_and_stay_distinct() -> None:
    assert public_names("local/room-1", "local") == ("local", "room-1")
    assert public_names("set/sub/clip 7", "") == ("set", "sub_clip_7")
    assert slug("../..//a b.mp4") == "a_b.mp4"
    assert slug("...") == blake2s(b"...").hexdigest()[:16]
    long = [slug("x" * 200 + tail) for tail in ("a", "b")]
    assert [len(name) for name in long] == [160, 160]
    assert long[0] != long[1]
