"""`solarwm infer` as a process: from a trained checkpoint to published clips, partial runs, resume."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from solarwm.inference.video import read_mp4
from solarwm.synthetic.writer import synthesize

CONFIGS = Path(__file__).parents[2] / "configs" / "examples" / "quickstart"
NUM_CASES = 3


def _run(*words, processes=1):
    launch = [sys.executable, "-m", "solarwm"]
    if processes > 1:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launch += [f"--nproc-per-node={processes}", "-m", "solarwm"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launch, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        timeout=300,
    )


def _sets(**values):
    return [
        word
        for key, value in values.items()
        for word in ("--set", f"{key.replace('__', '.')}={value}")
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    synthesize(root, clips=12, frames=33, height=64, width=96, seed=5)
    return root


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    root = tmp_path_factory.mktemp("run") / "training"
    done = _run(
        "train",
        "--config",
        CONFIGS / "stage0p5.yaml",
        *_places(world, root),
        *_sets(train__max_steps=2, train__global_batch_size=2, train__ema__warmup_steps=1),
    )
    assert done.returncode == 0, done.stderr
    return root


def _places(world, root):
    return _sets(
        data__index_root=world,
        data__transport__root=world,
        data__pixel_frames=33,
        distributed__world_size=1,
        runtime__output_dir=root,
    )


def _infer(world, trained, root, *more, processes=1):
    passes = [
        {"name": "right", "weights": "ema", "solver": "euler", "num_inference_steps": 2},
        {
            "name": "backwards",
            "weights": "live",
            "solver": "unipc",
            "num_inference_steps": 2,
            "camera": "inverse",
        },
    ]
    return _run(
        "infer",
        "--config",
        CONFIGS / "infer.yaml",
        *_places(world, root),
        *_sets(
            checkpoint__path=trained,
            validation__sample_count=NUM_CASES,
            validation__passes=json.dumps(passes),
            distributed__world_size=processes,
        ),
        *more,
        processes=processes,
    )


@pytest.fixture(scope="module")
def generated(world, trained, tmp_path_factory):
    root = tmp_path_factory.mktemp("run") / "generation"
    done = _infer(world, trained, root)
    assert done.returncode == 0, done.stderr
    return root


def _json(path):
    return json.loads(path.read_bytes())


def test_a_generation_leaves_clips_markers_figures_and_a_result(generated):
    result = _json(generated / "run-result.json")
    assert (result["status"], result["phase"]) == ("complete", "end")
    marker = _json(generated / "generation" / "COMPLETE.json")
    assert marker["cases"] == NUM_CASES
    assert [entry["pass"] for entry in marker["passes"]] == ["right", "backwards"]
    assert {entry["weights_id"].partition("#")[2] for entry in marker["passes"]} == {"ema", "live"}
    quality = _json(generated / "generation" / "quality.json")
    assert quality["right"] == "right"
    assert set(quality["flow_loss"]) == {"source", "inverse"}
    clip = read_mp4(generated / "generation" / "right" / "slot-000002" / "compare.mp4")
    assert clip.shape == (33, 64, 192, 3)


def test_two_processes_make_the_same_bytes_as_one(world, trained, generated, tmp_path):
    root = tmp_path / "two"
    done = _infer(world, trained, root, processes=2)
    assert done.returncode == 0, done.stderr
    for name in ("right", "backwards"):
        for slot in range(NUM_CASES):
            place = Path("generation", name, f"slot-{slot:06d}")
            one, two = (
                _json(generated / place / "manifest.json"),
                _json(root / place / "manifest.json"),
            )
            videos = [
                artifact for artifact in one["artifacts"] if "schedule" not in artifact["path"]
            ]
            others = [
                artifact for artifact in two["artifacts"] if "schedule" not in artifact["path"]
            ]
            assert videos == others
            assert one["case"] == two["case"]


def test_a_second_start_is_refused_and_changes_nothing(world, trained, generated):
    before = {path: path.read_bytes() for path in generated.glob("*.json")}
    done = _infer(world, trained, generated)
    assert done.returncode == 2
    assert "run.directory-taken" in done.stderr
    assert "fix  --resume\n" in done.stderr
    assert {path: path.read_bytes() for path in generated.glob("*.json")} == before


def test_a_resume_of_another_plan_is_refused_and_changes_nothing(world, trained, generated):
    before = {path: path.read_bytes() for path in generated.glob("*.json")}
    done = _infer(world, trained, generated, "--resume", *_sets(validation__noise_seed=1))
    assert done.returncode == 2
    assert "noise_seed" in done.stderr
    assert {path: path.read_bytes() for path in generated.glob("*.json")} == before


def test_missing_weights_are_exit_3_and_nothing_is_written(world, trained, tmp_path):
    root = tmp_path / "never"
    done = _infer(world, tmp_path / "nothing", root)
    assert done.returncode == 3
    assert not root.exists()
    assert "Traceback" not in done.stderr


def test_a_bad_video_costs_its_clip_only_and_resume_fills_it(world, trained, generated, tmp_path):
    broken = tmp_path / "world"
    shutil.copytree(world, broken)
    case = _json(generated / "generation" / "right" / "slot-000001" / "manifest.json")["case"]
    shard = broken / case["metadata"]["source_shard"]
    whole = shard.read_bytes()
    with tarfile.open(shard) as archive:
        member = next(
            item
            for item in archive.getmembers()
            if item.name.startswith(case["metadata"]["key"]) and item.name.endswith(".mp4")
        )
    damaged = bytearray(whole)
    damaged[member.offset_data : member.offset_data + member.size] = bytes(member.size)
    shard.write_bytes(damaged)

    root = tmp_path / "run"
    done = _infer(broken, trained, root)
    assert done.returncode == 4, done.stderr
    assert _json(root / "run-result.json")["exit_code"] == 4
    record = _json(root / "generation" / "right" / "errors" / "slot-000001.json")
    assert record["case"]["sample_id"] == case["sample_id"]
    assert record["error"]["code"].startswith("video.")
    assert sorted(path.name for path in (root / "generation" / "right").glob("slot-*")) == [
        "slot-000000",
        "slot-000002",
    ]
    assert not (root / "generation" / "COMPLETE.json").exists()
    assert not (root / "generation" / "right" / "COMPLETE.json").exists()
    kept = (root / "generation" / "right" / "slot-000000" / "manifest.json").stat()

    shard.write_bytes(whole)
    done = _infer(broken, trained, root, "--resume")
    assert done.returncode == 0, done.stderr
    assert (root / "generation" / "COMPLETE.json").exists()
    assert not list((root / "generation").glob("*/errors/*.json"))
    assert (root / "generation" / "right" / "slot-000000" / "manifest.json").stat() == kept
    video = Path("generation", "right", "slot-000001", "video.mp4")
    assert (root / video).read_bytes() == (generated / video).read_bytes()


def test_first_row_is_row_0_of_the_train_index(world, trained, tmp_path):
    from solarwm.data.index import read_index

    root = tmp_path / "one"
    done = _infer(world, trained, root, "--first-row")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (root / "generation" / "right").glob("slot-*")] == ["slot-000000"]
    assert _json(root / "generation" / "COMPLETE.json")["cases"] == 1
    case = _json(root / "generation" / "right" / "slot-000000" / "manifest.json")["case"]
    row = read_index(world / "train-index.jsonl.gz").rows[0]
    assert (case["sample_id"], case["prompt"]) == (row.sample_id, row.caption)


def test_any_picture_is_driven_by_keys_or_by_a_camera_file(trained, generated, tmp_path):
    picture = tmp_path / "first.png"
    Image.fromarray(read_mp4(next(generated.rglob("video.mp4")))[0]).resize((200, 100)).save(
        picture
    )
    root = tmp_path / "keys"
    own = ("--image", picture, "--prompt", "a room")
    nowhere = "/path/to/local-world"
    done = _infer(nowhere, trained, root, *own, "--trajectory", "w*5,j*3")
    assert done.returncode == 0, done.stderr
    folder = root / "generation" / "right" / "slot-000000"
    assert not (folder / "compare.mp4").exists()
    assert read_mp4(folder / "video.mp4").shape == (33, 64, 96, 3)
    track = np.load(folder / "camera.npy")
    np.testing.assert_allclose(track[20, :3, 3], (0, 0, 5 * 0.08), atol=1e-9)
    np.testing.assert_allclose(track[-1, :3, 2], (-np.sin(np.pi / 20), 0, np.cos(np.pi / 20)))
    manifest = _json(folder / "manifest.json")
    assert manifest["case"]["prompt"] == "a room"
    assert manifest["case"]["metadata"]["own"]["trajectory"] == "w*5,j*3"
    assert "psnr_truth" not in manifest["metrics"]
    again = tmp_path / "file"
    done = _infer(nowhere, trained, again, *own, "--camera", folder / "camera.npz")
    assert done.returncode == 0, done.stderr
    for name in ("right", "backwards"):
        place = Path("generation", name, "slot-000000", "video.mp4")
        assert (root / place).read_bytes() == (again / place).read_bytes()


def test_an_exported_package_makes_the_clips_of_its_checkpoint(world, trained, tmp_path, generated):
    package = tmp_path / "package"
    done = _run("checkpoint", "export", trained, "--format", "released", "--output", package)
    assert done.returncode == 0, done.stderr
    root = tmp_path / "generation"
    done = _infer(world, package, root, *_sets(validation__sample_count=1))
    assert done.returncode == 0, done.stderr
    made = sorted(root.rglob("video.mp4"))
    assert len(made) == 2
    for clip in made:
        twin = next(path for path in generated.rglob("video.mp4") if _slot(path) == _slot(clip))
        assert clip.read_bytes() == twin.read_bytes()
    wrong = _infer(world, package, tmp_path / "wrong", *_sets(model__numerics="published"))
    assert wrong.returncode == 2
    assert "corrected" in wrong.stderr


def _slot(path):
    return path.parts[-3:]
