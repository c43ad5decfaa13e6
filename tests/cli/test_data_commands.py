"""`solarwm data` as real processes: published keys, exit codes, and what is not imported."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.data.stores import FlakyStore, serving

GOLDEN = Path(__file__).parents[1] / "golden" / "files" / "plan_cli_default.json"


def run(*args: object, blocked: str = "") -> subprocess.CompletedProcess[str]:
    """One command; modules named in `blocked` (comma separated) cannot be imported in it."""
    code = (
        "import sys\n"
        f"for name in {blocked.split(',') if blocked else []}: sys.modules[name] = None\n"
        "from solarwm.cli.app import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "data", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def golden() -> dict:
    return json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module")
def index(golden, tmp_path_factory) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in golden["rows"])
    path = tmp_path_factory.mktemp("index") / "index.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return path


@pytest.fixture(scope="module")
def local_world(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("world") / "w"
    sizes = ("--clips", 4, "--frames", 9, "--height", 32, "--width", 48, "--seed", 5)
    done = run("synthesize", "--out", out, *sizes)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["train_clips"], told["test_clips"]) == (3, 1)
    assert Path(told["train_index"]) == out / "train-index.jsonl.gz"
    assert "filming: 4 of 4 clips" in done.stderr
    return out


def test_inspect_prints_the_published_keys_without_torch_or_av(golden, index) -> None:
    done = run("inspect", index, blocked="torch,av,safetensors")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    expected = dict(golden["index_inspect"])
    del expected["index_text"]
    assert told == {"index": str(index), **expected}


def test_plan_prints_the_published_fingerprints_without_torch_or_av(golden, index) -> None:
    for expected in golden["expected"]:
        done = run(
            *("plan", index, "--seed", 42, "--pixel-frames", 81, "--rank", 1, "--world-size", 2),
            *("--epoch", expected["epoch"], "--limit", 3),
            blocked="torch,av,safetensors",
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert set(told) == {"full_plan_fingerprint", "full_plan_count", "shown"}
        assert told["full_plan_fingerprint"] == expected["fingerprint"]
        assert told["full_plan_count"] == expected["count"]
        assert [plan["sample_id"] for plan in told["shown"]] == [
            plan["sample_id"] for plan in expected["plans"][:3]
        ]
        assert set(told["shown"][0]) == {
            "sample_id",
            "key",
            "shard",
            "repeat_ordinal",
            "start_frame",
            "source_frame_indices",
        }


def test_plan_shows_sequence_parallel_peers_as_one_reader(index) -> None:
    told = [
        json.loads(
            run(
                *("plan", index, "--seed", 1, "--pixel-frames", 9, "--world-size", 4),
                *("--sequence-parallel-size", 2, "--rank", rank, "--limit", -1),
            ).stdout
        )
        for rank in (2, 3)
    ]
    assert told[0] == told[1]
    assert told[0]["shown"] == []
    assert (told[0]["reader"]["dp_rank"], told[0]["reader"]["dp_world"]) == (1, 2)


def test_plan_compares_what_the_readers_of_two_topologies_take(golden, index) -> None:
    done = run(
        *("plan", index, "--seed", 1, "--pixel-frames", 9, "--world-size", 2),
        *("--compare", "100x2"),
    )
    assert done.returncode == 0, done.stderr
    small, large = json.loads(done.stdout)["topologies"]
    total = golden["index_inspect"]["virtual_occurrences"]
    assert (small["topology"], large["topology"]) == ("2x1", "100x2")
    assert (small["samples"], large["samples"]) == (total, total)
    assert small["empty"] == []
    assert len(large["empty"]) == 200 - total
    wrong = run("plan", index, "--seed", 1, "--pixel-frames", 9, "--compare", "8")
    assert wrong.returncode == 2
    assert "RANKSxWORKERS" in wrong.stderr


def test_the_indexed_order_takes_every_occurrence_once(golden, index) -> None:
    done = run(
        *("plan", index, "--order", "indexed", "--seed", 1, "--pixel-frames", 81, "--limit", 999)
    )
    told = json.loads(done.stdout)
    assert told["full_plan_count"] == golden["index_inspect"]["virtual_occurrences"]
    taken = [(plan["sample_id"], plan["repeat_ordinal"]) for plan in told["shown"]]
    assert len(set(taken)) == told["full_plan_count"]


def test_a_synthesized_world_is_sound(local_world) -> None:
    for name in ("train-index.jsonl.gz", "test-index.jsonl.gz"):
        done = run("validate", local_world / name, "--decode", "--pixel-frames", 9)
        assert done.returncode == 0, done.stdout
        assert json.loads(done.stdout)["ok"] is True


def test_validate_lists_faults_and_ends_with_3(local_world) -> None:
    done = run("validate", local_world / "train-index.jsonl.gz", "--pixel-frames", 81)
    told = json.loads(done.stdout)
    assert done.returncode == 3
    assert [fault["code"] for fault in told["faults"]] == ["index.too-few-frames"] * 3
    assert [clip["frames"] for clip in told["clips"]] == [9, 9, 9]
    assert (told["rows"], told["kept"]) == (3, 0)


def test_synthesize_refuses_a_folder_that_holds_an_index(local_world) -> None:
    sizes = ("--clips", 2, "--frames", 9, "--height", 32, "--width", 48, "--seed", 5)
    before = sorted(path.stat().st_mtime_ns for path in local_world.rglob("*"))
    done = run("synthesize", "--out", local_world, *sizes)
    assert done.returncode == 2
    assert "cli.file-exists" in done.stderr
    assert sorted(path.stat().st_mtime_ns for path in local_world.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("inspect", "NOWHERE"), 3),
        (("plan", "INDEX", "--seed", "1"), 2),
        (("plan", "INDEX", "--seed", "x", "--pixel-frames", "9"), 2),
        (("plan", "INDEX", "--seed", "1", "--pixel-frames", "0"), 2),
        (("plan", "INDEX", "--seed", "1", "--pixel-frames", "9", "--order", "any"), 2),
        (("plan", "INDEX", "--seed", "1", "--pixel-frames", "9", "--rank", "4"), 2),
        (("plan", "INDEX", "--seed", "1", "--pixel-frames", "99999"), 3),
        (("synthesize", "--out", "OUT", "--clips", "1", "--frames", "9"), 2),
        (
            (
                *("synthesize", "--out", "OUT", "--clips", "1", "--frames", "9"),
                *("--height", "32", "--width", "48", "--seed", "0"),
            ),
            2,
        ),
    ],
)
def test_mistakes_end_with_their_code_and_no_traceback(args, code, index, tmp_path) -> None:
    places = {"INDEX": index, "NOWHERE": tmp_path / "none.jsonl", "OUT": tmp_path / "out"}
    done = run(*(places.get(arg, arg) for arg in args), "--json")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["exit_code"] == code
    assert list(tmp_path.iterdir()) == []


def test_warm_cache_fetches_every_shard_once_and_refuses_what_cannot_fit(
    local_world: Path, tmp_path: Path
) -> None:
    world = local_world
    index = world / "train-index.jsonl.gz"
    objects = {str(path.relative_to(world)): path.read_bytes() for path in world.rglob("*.tar")}
    wanted = {
        json.loads(line)["shard"] for line in gzip.decompress(index.read_bytes()).splitlines()
    }
    cache = tmp_path / "cache"
    with serving(FlakyStore(objects, errors=0.2)) as root:
        options = ["--root", root, "--cache-dir", str(cache), "--json"]
        for fetched in (len(wanted), 0):
            done = run("warm-cache", str(index), *options, "--max-gib", "1")
            assert done.returncode == 0, done.stderr
            value = json.loads(done.stdout)
            assert (value["shards"], value["fetched"]) == (len(wanted), fetched)
        small = run("warm-cache", str(index), *options, "--max-gib", "0.000001")
        assert small.returncode == 2
        assert "store.cache-too-small" in small.stderr
    assert sorted(path.read_bytes() for path in cache.glob("*.tar")) == sorted(
        objects[shard] for shard in wanted
    )
