"""Real preencoding through the command line, and training from what it wrote."""

from __future__ import annotations

import json
import shutil
import tarfile
from hashlib import blake2b
from pathlib import Path

import pytest
import yaml

from solarwm.data.index import read_index
from solarwm.data.packing import index_bytes
from solarwm.data.stored_tensors import from_bytes, to_bytes


def _config(folder: Path, world: Path, **changes) -> Path:
    """A preencode config whose every output lies below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "schema": "solarwm.run.v1",
        "action": "preencode",
        "name": "latents",
        "model": {"family": "wan22_ti2v_5b", "profile": "tiny"},
        "data": {
            "transport": {"kind": "local", "root": str(world)},
            "index_root": str(world),
            "index": changes.pop("index", "train-index.jsonl.gz"),
            "pixel_frames": changes.pop("pixel_frames", 33),
        },
        "preencode": {
            "generation_id": "small",
            "output_root": str(folder / "physical"),
            "logical_output_root": str(folder / "logical"),
            "shard_max_samples": 2,
            **changes,
        },
        "runtime": {"output_dir": str(folder / "run"), "device": "cpu", "threads_per_rank": 1},
    }
    path = folder / "preencode.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _encode(warm, folder: Path, world: Path, *, world_size: int = 1, patch: str = "", **changes):
    path = _config(folder, world, **changes)
    arguments = ["preencode", "--config", str(path)]
    if world_size > 1:
        arguments += ["--set", f"distributed.world_size={world_size}"]
    return warm.launch(folder / "run", arguments, world_size=world_size, patch=patch)


def _tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): blake2b(path.read_bytes()).hexdigest()
        for name in ("physical", "logical")
        for path in sorted((folder / name).rglob("*"))
        if path.is_file()
    }


def _members(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for shard in (folder / "physical").rglob("*.tar"):
        with tarfile.open(shard) as tar:
            for member in tar:
                reading = tar.extractfile(member)
                assert reading is not None
                found[member.name] = reading.read()
    return found


@pytest.fixture(scope="module")
def latents(warm, small_world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("latents")
    ended = _encode(warm, folder, small_world)
    assert ended.codes == [0], ended.texts
    return folder


def test_a_data_set_has_the_published_files_and_a_marker_that_tells_its_making(
    latents: Path,
) -> None:
    names = set(_tree(latents))
    assert names == {
        "physical/COMPLETE.json",
        "physical/control/encoder-contract.json",
        "physical/control/physical-index.jsonl.gz",
        "physical/control/ranks/rank-00000.json",
        *(f"physical/local/shards/kept-high-r0000-{n:06d}.tar" for n in range(3)),
        *(f"physical/local/shards/_parts/tasks/kept-high-r0000-{n:06d}.json" for n in range(3)),
        "logical/COMPLETE.json",
        "logical/recipe.json",
        "logical/stats.json",
        "logical/train-index.jsonl.gz",
    }
    marker = json.loads((latents / "logical" / "COMPLETE.json").read_bytes())
    assert marker["schema"] == "solarwm.wan22-preencode-logical-complete.v1"
    assert {"index_digest", "codec_digest", "dtype", "height", "width", "pixel_frames"} <= set(
        marker["fingerprint"]
    )
    assert not list(latents.glob(".*preencode"))


def test_two_ranks_make_the_same_records_as_one(warm, small_world, latents, tmp_path) -> None:
    ended = _encode(warm, tmp_path, small_world, world_size=2)
    assert ended.codes == [0, 0], ended.texts
    assert _members(tmp_path) == _members(latents)
    rows = read_index(tmp_path / "logical" / "train-index.jsonl.gz").rows
    source = read_index(small_world / "train-index.jsonl.gz").rows
    assert [row.sample_id for row in rows] == [row.sample_id for row in source]


@pytest.mark.parametrize("place", ["put", "_write_shard", "publish", "publish_logical"])
def test_a_killed_run_started_again_ends_with_the_identical_tree(
    warm, small_world: Path, latents: Path, tmp_path: Path, place: str
) -> None:
    owner = "latent_publication" if place == "publish_logical" else "latent_publication.LatentStore"
    kill = (
        "import os, signal\n"
        "from solarwm.inference import latent_publication\n"
        f"real = {owner}.{place}\n"
        "calls = []\n"
        "def once(*args, **options):\n"
        "    calls.append(1)\n"
        f"    if len(calls) == {3 if place in ('put', '_write_shard') else 1}:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*args, **options)\n"
        f"{owner}.{place} = once\n"
    )
    killed = _encode(warm, tmp_path, small_world, patch=kill)
    assert killed.codes == [-9]
    assert not (tmp_path / "logical").exists()
    again = _encode(warm, tmp_path, small_world)
    assert again.codes == [0], again.texts
    assert _tree(tmp_path) == _tree(latents)
    start = again.events(kind="preencode_start")
    if place == "publish_logical":
        assert start[1:] == []
    else:
        assert start[-1]["missing"] == (4 if place == "put" else 0)


def test_a_stopped_run_ends_with_143_and_goes_on_where_it_stopped(
    warm, small_world: Path, latents: Path, tmp_path: Path
) -> None:
    stop = (
        "import os, signal\n"
        "from solarwm.inference import latent_publication\n"
        "real = latent_publication.LatentStore.put\n"
        "def put(self, record):\n"
        "    real(self, record)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "latent_publication.LatentStore.put = put\n"
    )
    stopped = _encode(warm, tmp_path, small_world, patch=stop)
    assert stopped.codes == [143], stopped.texts
    assert stopped.result["exit_code"] == 143
    again = _encode(warm, tmp_path, small_world)
    assert again.codes == [0]
    assert 0 < again.events(kind="preencode_start")[-1]["missing"] < 6
    assert _tree(tmp_path) == _tree(latents)


def test_a_finished_run_started_again_changes_nothing_and_another_config_is_refused(
    warm, small_world: Path, tmp_path: Path
) -> None:
    assert _encode(warm, tmp_path, small_world).codes == [0]
    before = _tree(tmp_path)
    assert _encode(warm, tmp_path, small_world).codes == [0]
    ended = _encode(warm, tmp_path, small_world, dtype="bfloat16")
    assert ended.codes == [2]
    assert "dtype is 'float32' there and 'bfloat16' here" in ended.texts[0]
    assert _tree(tmp_path) == before


def _damaged(world: Path, folder: Path, count: int) -> Path:
    """The world with the first videos cut to nothing playable, its rows made to fit."""
    rows = [json.loads(text) for text in _lines(world / "train-index.jsonl.gz")]
    shard = (world / rows[0]["shard"]).read_bytes()
    with tarfile.open(world / rows[0]["shard"]) as tar:
        for row in rows[:count]:
            member = tar.getmember(row["video_member"])
            place = member.offset_data + 40
            shard = shard[:place] + b"\0" * (member.size - 40) + shard[place + member.size - 40 :]
    target = folder / rows[0]["shard"]
    target.parent.mkdir(parents=True)
    target.write_bytes(shard)
    for row in rows:
        for name in ("shard_digest", "shard_md5_b64", "shard_generation"):
            row.pop(name)
    (folder / "train-index.jsonl.gz").write_bytes(index_bytes(rows))
    return folder


def _lines(path: Path) -> list[str]:
    import gzip

    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_a_bad_clip_is_named_the_others_are_published_and_the_code_is_four(
    warm, small_world: Path, tmp_path: Path
) -> None:
    world = _damaged(small_world, tmp_path / "world", 1)
    ended = _encode(warm, tmp_path, world, world_size=2)
    assert sorted(ended.codes) == [4, 4], ended.texts
    assert ended.result["exit_code"] == 4
    lines = (tmp_path / "physical" / "control" / "errors.jsonl").read_text().splitlines()
    failed = [json.loads(line) for line in lines]
    assert [item["sample_id"] for item in failed] == ["local/room-1-train-000000"]
    assert failed[0]["code"].startswith("video.")
    assert len(read_index(tmp_path / "logical" / "train-index.jsonl.gz").rows) == 5
    assert _encode(warm, tmp_path, world, world_size=2).codes == [4, 4]


def test_when_no_clip_can_be_encoded_nothing_is_published(warm, small_world, tmp_path) -> None:
    world = _damaged(small_world, tmp_path / "world", 6)
    assert _encode(warm, tmp_path, world).codes == [3]
    assert not (tmp_path / "physical").exists()


def _train(warm, folder: Path, latents: Path | None, *sets: str, world_size: int = 1):
    if latents is not None:
        sets = (
            "data.encoding=preencoded",
            f"data.index_root={latents / 'logical'}",
            f"data.transport.root={latents / 'physical'}",
            *sets,
        )
    return warm.train(
        folder, "train.max_steps=3", "runtime.save_every=0", *sets, world_size=world_size
    )


def _losses(ended) -> list[float]:
    return [record["losses"]["flow_matching"] for record in ended.events()]


@pytest.mark.parametrize("world_size", [1, 2])
def test_training_from_latents_and_from_raw_clips_gives_the_same_losses(
    warm, latents: Path, tmp_path: Path, world_size: int
) -> None:
    raw = _train(warm, tmp_path / "raw", None, world_size=world_size)
    encoded = _train(warm, tmp_path / "latents", latents, world_size=world_size)
    assert (raw.codes, encoded.codes) == ([0] * world_size, [0] * world_size), encoded.texts
    assert len(_losses(raw)) == 3
    assert _losses(encoded) == _losses(raw)


def _rewritten(latents: Path, folder: Path, change) -> Path:
    """A copy of the data set whose first record's members went through `change`."""
    shutil.copytree(latents, folder, ignore=shutil.ignore_patterns("run", "run-output"))
    (folder / "logical" / "COMPLETE.json").unlink()
    path = folder / "logical" / "train-index.jsonl.gz"
    rows = [json.loads(text) for text in _lines(path)]
    row = rows[0]
    shard = folder / "physical" / row["shard"]
    with tarfile.open(shard) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    change(members, row)
    with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members.items():
            import io

            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    for other in rows:
        for name in ("shard_digest", "shard_md5_b64", "shard_generation"):
            other.pop(name)
        if other["shard"] == row["shard"]:
            other["shard_size"] = shard.stat().st_size
    path.write_bytes(index_bytes(rows))
    return folder


def _block(members, row, **changes) -> None:
    name = row["manifest_member"]
    manifest = json.loads(members[name])
    manifest["preencoding"].update(changes)
    members[name] = json.dumps(manifest).encode()


def _one_latent_less(members, row) -> None:
    tensors, _ = from_bytes(members[row["preencoded_member"]])
    short = type(tensors["latents"])("float32", tensors["latents"].array[:-1].copy())
    members[row["preencoded_member"]] = to_bytes({**tensors, "latents": short}, {})
    manifest = json.loads(members[row["manifest_member"]])
    del manifest["preencoding"]["codec_digest"]
    members[row["manifest_member"]] = json.dumps(manifest).encode()


CASES = {
    "another VAE": (
        lambda members, row: _block(members, row, codec_digest="0" * 64),
        "latent.other-encoder",
        "found 0000000000000000",
    ),
    "another size": (
        lambda members, row: _block(members, row, target_h=96),
        "latent.manifest",
        "target_h: expected 64, found 96",
    ),
    "one latent less": (_one_latent_less, "latent.contract", "float32[8, 48, 4, 6]"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_record_that_does_not_fit_ends_training_with_code_three_and_its_name(
    warm, latents: Path, tmp_path: Path, case: str
) -> None:
    change, code, words = CASES[case]
    folder = _rewritten(latents, tmp_path / "set", change)
    ended = _train(warm, tmp_path / "run", folder)
    assert ended.codes == [3]
    assert code in ended.texts[0]
    assert words in ended.texts[0]
    assert "local/room-1-train-000000" in ended.texts[0]


def test_a_set_of_another_size_or_codec_is_refused_before_the_first_step(
    warm, latents: Path, tmp_path: Path
) -> None:
    ended = _train(warm, tmp_path / "size", latents, "data.pixel_frames=45")
    assert ended.codes == [3]
    assert "pixel_frames: expected 45, found 33" in ended.texts[0]
    folder = tmp_path / "set"
    shutil.copytree(latents, folder, ignore=shutil.ignore_patterns("run", "run-output"))
    marker = folder / "logical" / "COMPLETE.json"
    told = json.loads(marker.read_bytes())
    told["fingerprint"]["codec_digest"] = "0" * 64
    marker.write_text(json.dumps(told))
    ended = _train(warm, tmp_path / "codec", folder)
    assert ended.codes == [3]
    assert "latent.other-encoder" in ended.texts[0]


@pytest.mark.parametrize("frames", [81, 153])
def test_the_published_frame_counts_are_encoded_and_trained_from(
    warm, tmp_path: Path, frames: int
) -> None:
    from solarwm.synthetic.writer import synthesize

    world = tmp_path / "world"
    synthesize(world, clips=2, frames=frames + 3, height=64, width=96, seed=5)
    rows = [json.loads(text) for text in _lines(world / "train-index.jsonl.gz")]
    rows[0] |= {"start_frame": 2, "source_frame_indices": list(range(2, 2 + frames))}
    (world / "train-index.jsonl.gz").write_bytes(index_bytes(rows))
    assert _encode(warm, tmp_path, world, pixel_frames=frames).codes == [0]
    tensors, _ = from_bytes(
        next(data for name, data in _members(tmp_path).items() if name.endswith("safetensors"))
    )
    assert tensors["latents"].shape == (1 + (frames - 1) // 4, 48, 4, 6)
    batch = ("train.micro_batch_size=1", "train.grad_accum=1", "train.global_batch_size=1")
    sets = (f"data.pixel_frames={frames}", *batch)
    ended = _train(warm, tmp_path / "trained", tmp_path, *sets)
    here = (f"data.index_root={world}", f"data.transport.root={world}")
    raw = _train(warm, tmp_path / "raw", None, *sets, *here)
    assert (ended.codes, raw.codes) == ([0], [0]), ended.texts
    assert _losses(ended) == _losses(raw)


def test_rows_that_cannot_be_encoded_are_all_named_before_anything_is_written(
    warm, small_world: Path, tmp_path: Path
) -> None:
    rows = [json.loads(text) for text in _lines(small_world / "train-index.jsonl.gz")]
    del rows[0]["kept_tier"]
    rows[1]["split"] = rows[1]["recipe_role"] = "other"
    rows[2] |= {"start_frame": 0, "source_frame_indices": [0, 1, 2]}
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "index.jsonl.gz").write_bytes(index_bytes(rows))
    path = _config(tmp_path, small_world, index="index.jsonl.gz")
    arguments = ["preencode", "--config", str(path), "--set", f"data.index_root={tmp_path / 'bad'}"]
    ended = warm.launch(tmp_path / "run", arguments)
    assert ended.codes == [3]
    for words in ("`kept_tier` must be", "`split` must be", "the window has 3 frames"):
        assert words in ended.texts[0]
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob(".physical*"))
