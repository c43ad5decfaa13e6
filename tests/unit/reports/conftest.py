from __future__ import annotations

import json
import math

import pytest


def _dump(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture
def training_root(tmp_path):
    root = tmp_path / "run" / "training"
    _dump(root / "resolved-config.json", {"name": "my <run>", "data": {"pixel_frames": 81}})
    _dump(root / "launch-manifest.json", {"route": "wan22_ti2v_5b:stage0p5"})
    _dump(root / "run-result.json", {"status": "complete", "exit_code": 0})
    lines = []
    for step in [*range(1, 61), *range(41, 121)]:
        if step == 41 and len(lines) > 41:
            lines.append({"event": "resume", "step": 40})
        loss = 0.3 + math.exp(-step / 30)
        event = {"event": "optimizer_step", "step": step, "losses": {"mean": loss}}
        lines.append({**event, "lr": 1e-3, "step_time_s": 0.25, "data_wait_s": 0.01})
    path = root / "events" / "rank-00000.jsonl"
    path.parent.mkdir()
    body = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(body + '{"event": "optimizer_st', encoding="utf-8")
    return root


def _quality(offset):
    cameras = {"source": 17.0, "inverse": 16.2, "mirror": 16.4, "frozen": 16.3, "other": 16.0}
    passes = {}
    for camera, value in cameras.items():
        entry = {"camera": camera, "clips": 2, "solver": "euler", "num_inference_steps": 10}
        entry |= {"psnr_truth": value + offset, "psnr_reconstruction": value + 7 + offset}
        if camera != "source":
            entry["loss"] = {"clips": 2, "psnr_truth": 17 - value, "psnr_reconstruction": 3.0}
        passes[f"ema_{camera}"] = entry
    names = ("static", "blur_4", "blur_8", "blur_16", "mean_latent")
    baselines = {name: {"truth": 15.0, "reconstruction": 20.0} for name in names}
    baselines["vae"] = {"truth": 20.5}
    return {
        "right": "ema_source",
        "passes": passes,
        "baselines": baselines,
        "flow_loss": {"source": 0.3, "inverse": 0.42},
    }


@pytest.fixture
def generation_root(tmp_path):
    root = tmp_path / "run" / "generation seed 1"
    _dump(root / "resolved-config.json", {"validation": {"noise_seed": 1}})
    _dump(root / "generation" / "quality.json", _quality(0.0))
    _dump(root / "generation" / "COMPLETE.json", {})
    for camera in ("source", "inverse"):
        for slot in range(2):
            folder = root / "generation" / f"ema_{camera}" / f"slot-{slot:06d}"
            case = {"slot": slot, "sample_id": f"local/{slot}", "prompt": "A <b>room</b>."}
            metrics = {"camera": camera, "psnr_truth": 16.5}
            metrics["baselines"] = {"static": {"truth": 15.0}}
            artifacts = [
                {"path": f"slot-{slot:06d}/{name}"} for name in ("compare.mp4", "video.mp4")
            ]
            _dump(
                folder / "manifest.json",
                {"case": case, "metrics": metrics, "artifacts": artifacts},
            )
    return root


@pytest.fixture
def make_quality():
    return _quality
