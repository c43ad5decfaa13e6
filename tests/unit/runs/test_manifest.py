"""The launch manifest."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from solarwm.runs.failure import read_failures, write_failure
from solarwm.runs.layout import RunLayout
from solarwm.runs.manifest import launch_manifest, read_run_id, write_launch
from solarwm.runs.result import read_result, write_result
from solarwm.runs.source import environment_facts, source_facts
from solarwm.storage.digests import blake2s_hex, canonical_json

PUBLISHED = {
    "schema", "version", "action", "name", "route", "source_config", "resolved_config_digest",
    "source", "runtime", "data", "checkpoint", "metadata", "launch_identity_digest",
}  # fmt: skip


def resolved(**changes: Any) -> Any:
    """What the manifest reads of a resolved run."""
    canonical: dict[str, Any] = {
        "action": "train",
        "name": "n",
        "model": {"numerics": "auto"},
        "data": {
            "encoding": "online",
            "train_index": "t.gz",
            "pixel_frames": 33,
            "height": 64,
            "width": 96,
        },
        "runtime": {"output_dir": "out"},
        "metadata": {"owner": "me"},
    }
    return SimpleNamespace(
        canonical=canonical | changes,
        source=Path("/configs/run.yaml"),
        source_digest="1" * 64,
        resolved_digest="2" * 64,
        route=SimpleNamespace(key="f:s:c:o"),
        topology=SimpleNamespace(plain=lambda: {"world_size": 2}),
    )


def test_the_manifest_has_the_published_keys_and_ours(tmp_path: Path) -> None:
    manifest = launch_manifest(RunLayout(tmp_path), resolved(), launch={}, environ={})
    assert set(manifest) >= PUBLISHED
    assert manifest["schema"] == "solarwm.launch.v2"
    assert manifest["data"] == {
        "index": "t.gz",
        "test_index": None,
        "generation": "online:33f:64x96",
    }
    assert manifest["output_dir"] == str(tmp_path)
    assert manifest["topology"] == {"world_size": 2}
    assert manifest["numerics"] == "corrected"
    rest = {
        k: v for k, v in manifest.items() if k not in {"launch_identity_digest", "run_id", "launch"}
    }
    assert manifest["launch_identity_digest"] == blake2s_hex(canonical_json(rest))


def test_equal_launches_give_equal_manifests(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    one, two = (launch_manifest(layout, resolved(), launch={}, environ={}) for _ in range(2))
    assert canonical_json(one) == canonical_json(two)
    other = launch_manifest(layout, resolved(name="m"), launch={}, environ={})
    assert other["launch_identity_digest"] != one["launch_identity_digest"]


def test_a_resumed_run_keeps_its_identity_and_loses_its_old_ending(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    first = write_launch(layout, resolved(), launch={"token": "a"})
    write_result(layout, status="failed", exit_code=7)
    write_failure(layout, 1, exit_code=7)
    second = write_launch(layout, resolved(name="longer"), launch={"token": "b", "resumed_step": 4})
    assert first == second == read_run_id(tmp_path)
    assert read_result(layout) is None
    assert read_failures(layout) == []
    manifest = json.loads(layout.launch_manifest.read_bytes())
    assert manifest["launch"] == {"token": "b", "resumed_step": 4}
    assert layout.resolved_config.read_bytes() == canonical_json(resolved(name="longer").canonical)


def test_no_environment_variable_but_the_launcher_numbers_is_recorded() -> None:
    facts = environment_facts({"WORLD_SIZE": "2", "HF_TOKEN": "hidden", "AWS_SECRET": "hidden"})
    assert facts["launcher"] == {"WORLD_SIZE": "2"}
    assert "hidden" not in json.dumps(facts)
    assert facts["packages"]["pydantic"]


def test_outside_a_checkout_the_source_is_not_available(tmp_path: Path) -> None:
    assert source_facts(tmp_path)["available"] is False
