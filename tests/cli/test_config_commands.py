"""`solarwm config` as a person and as CI meet it: real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BASE = ROOT / "configs" / "examples" / "wan22_ti2v_5b" / "train_stage0p5_fm_81f.yaml"


def solarwm(
    *args: str, code: int = 0, cwd: Path = ROOT, **environ: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    assert "--verbose" in args or "Traceback" not in done.stdout + done.stderr
    return done


def test_routes_are_printed_as_a_sorted_array() -> None:
    keys = json.loads(solarwm("config", "routes").stdout)
    assert keys == sorted(keys)
    assert len(keys) == 9


def test_resolve_prints_the_envelope_with_sorted_keys_and_a_topology() -> None:
    text = solarwm("config", "resolve", "--config", str(BASE)).stdout
    value = json.loads(text)
    assert set(value) == {
        "schema", "source", "source_digest", "resolved_digest", "route", "config", "topology", "notes", "placeholders",
    }  # fmt: skip
    assert value["source"] == str(BASE)
    assert value["topology"]["equation"] == "(256 / 1) x 1 x 1 = 256"
    assert text == json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def test_resolve_with_output_writes_the_file_and_prints_nothing(tmp_path: Path) -> None:
    target = tmp_path / "resolved.json"
    for _ in range(2):
        done = solarwm("config", "resolve", "--config", str(BASE), "--output", str(target))
        assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["resolved.json"]
    solarwm("config", "check", str(target))
    target.write_text(target.read_text().replace('"max_steps": 30000', '"max_steps": 3'))
    assert "config.stale-digest" in solarwm("config", "check", str(target), code=2).stderr


def test_a_bad_config_writes_nothing_and_json_stays_json(tmp_path: Path) -> None:
    target = tmp_path / "resolved.json"
    args = (
        "config",
        "resolve",
        "--config",
        str(BASE),
        "--output",
        str(target),
        "--set",
        "train.lerning_rate=1",
        "--json",
    )
    done = solarwm(*args, code=2)
    value = json.loads(done.stdout)
    assert value["faults"][0]["code"] == "config.unknown-key"
    assert "did you mean train.optimizer.lr" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_secret_is_in_no_output_of_any_command(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(BASE.read_text() + "metadata: {hf_token: SECRETVALUE}\n")
    for args in (
        ("config", "resolve", "--config", str(path)),
        ("config", "check", str(path), "--json"),
        ("config", "diff", str(path), str(BASE)),
        ("train", "--config", str(path), "--json"),
        ("train", "--config", str(path), "--dry-run", "--verbose"),
        (
            "config",
            "resolve",
            "--config",
            str(BASE),
            "--set",
            "a.token=SECRETVALUE",
            "--set",
            "b='SECRETVALUE",
        ),
    ):
        done = solarwm(*args, code=2, cwd=tmp_path)
        assert "SECRETVALUE" not in done.stdout + done.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["run.yaml"]


TOKEN = "ghp_" + "a1B2c3D4" * 5


def test_a_token_is_refused_and_hidden_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from solarwm.cli.app import run

    text = BASE.read_text()
    files = {
        "value.yaml": text.replace("\nname:", f"\nname: {TOKEN}\nunused:", 1),
        "key.yaml": text + f"{TOKEN}: 1\n",
        "twice.yaml": text + f"{TOKEN}: 1\n{TOKEN}: 2\n",
        "inner.yaml": text + f"metadata: {{note: [see {TOKEN}]}}\n",
        "query.yaml": text + f"metadata: {{note: /data/x?api_key={TOKEN}}}\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    runs = [("config", "resolve", "--config", name, "--json") for name in files]
    runs += [("config", "check", name) for name in files]
    runs += [("config", "diff", name, str(BASE)) for name in files]
    base = ("config", "resolve", "--config", str(BASE), "--set")
    runs += [(*base, f"name={TOKEN}"), (*base, f"{TOKEN}=1"), (*base, f"train.{TOKEN}={TOKEN}")]
    monkeypatch.chdir(tmp_path)
    assert run(["config", "routes", TOKEN, "--explain"]) == 0
    assert TOKEN not in "".join(capsys.readouterr())
    for args in runs:
        assert run(list(args)) == 2, args
        told = "".join(capsys.readouterr())
        assert TOKEN not in told, args
        assert "config.secret" in told, args
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(files)


def test_check_takes_many_files_and_strict_refuses_placeholders() -> None:
    other = BASE.with_name("infer_stage0p5_fm_81f.yaml")
    assert json.loads(solarwm("config", "check", str(BASE), str(other)).stdout)["ok"] is True
    value = json.loads(solarwm("config", "check", str(BASE), str(other), "--strict", code=2).stdout)
    assert [item["ok"] for item in value["files"]] == [False, False]
    assert {fault["code"] for item in value["files"] for fault in item["faults"]} == {
        "config.placeholder"
    }


def test_list_show_and_copy_work_from_any_directory(tmp_path: Path) -> None:
    names = [item["name"] for item in json.loads(solarwm("config", "list", cwd=tmp_path).stdout)]
    assert "wan22_ti2v_5b/train_stage0p5_fm_81f" in names
    shown = solarwm("config", "show", "wan22_ti2v_5b/train_stage0p5_fm_81f", cwd=tmp_path).stdout
    assert shown == BASE.read_text()
    args = ("config", "copy", "wan22_ti2v_5b/train_stage0p5_fm_81f", "mine")
    solarwm(*args, cwd=tmp_path)
    copied = tmp_path / "mine" / BASE.name
    assert copied.read_bytes() == BASE.read_bytes()
    assert "cli.file-exists" in solarwm(*args, code=2, cwd=tmp_path).stderr
    solarwm(*args[:3], "tiny", "--tiny", "--world", "2", cwd=tmp_path)
    twin = yaml.safe_load((tmp_path / "tiny" / BASE.name).read_text())
    assert twin["model"]["profile"] == "tiny"
    assert twin["distributed"]["world_size"] == 2
    assert (
        "cli.usage"
        in solarwm(
            *args[:3], "odd", "--tiny", "--world", "3", "--sp", "2", code=2, cwd=tmp_path
        ).stderr
    )
    assert not (tmp_path / "odd").exists()


def test_diff_takes_run_directories(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    target = tmp_path / "run" / "resolved-config.json"
    solarwm("config", "resolve", "--config", str(BASE), "--set", "train.optimizer.lr=1e-3", "--set", "name=x",
            "--output", str(target))  # fmt: skip
    value = json.loads(solarwm("config", "diff", str(BASE), str(tmp_path / "run")).stdout)
    assert [item["key"] for item in value["resume_breaking"]] == ["train.optimizer.lr"]
    assert [item["key"] for item in value["harmless"]] == ["name"]
    assert "config.file" in solarwm("config", "diff", str(BASE), str(tmp_path), code=2).stderr


def test_schema_is_a_json_schema() -> None:
    value = json.loads(solarwm("config", "schema").stdout)
    assert value["$schema"].startswith("https://json-schema.org")
    key = "wan22_i2v_a14b:stage1:teacher_forcing:flow_matching"
    assert "route.unsupported" in solarwm("config", "schema", "--route", key, code=2).stderr


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("confg",), "Did you mean 'config'"),
        (("config", "resolv"), "Did you mean 'resolve'"),
        (("config", "resolve"), "--config"),
        (("config", "resolve", "--confg", "x"), "--config"),
        (("config", "copy", "x", "y", "--world", "two"), "whole number"),
        (("train",), "--config"),
        (("explain", "config.bath"), "config.batch"),
        (("config", "resolve", "--config", "/none.yaml"), "no config at /none.yaml"),
        (
            ("train", "--config", str(BASE.with_name("infer_stage0p5_fm_81f.yaml"))),
            "for `solarwm infer`",
        ),
    ],
)
def test_wrong_command_lines_end_with_2_and_a_hint(args: tuple[str, ...], word: str) -> None:
    assert word in solarwm(*args, code=2).stderr
    assert json.loads(solarwm(*args, "--json", code=2).stdout)["exit_code"] == 2


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\x00", b"", b"\xff\xfea\x00", b"- 1\n", b"a: [\n"]
)
def test_files_that_are_no_configs_end_with_2(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(data)
    done = solarwm("train", "--config", str(path), code=2, cwd=tmp_path)
    assert "run.yaml" in done.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["run.yaml"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("args", [("config", "routes"), ("config", "schema"), ("--help",)])
def test_a_full_disk_behind_the_output_ends_with_5_and_no_traceback(args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "solarwm", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 5
    assert "disk.full" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "codes"),
    [
        (("config", "copy", "quickstart/stage0p5", "taken"), {"cli.file-exists"}),
        (("config", "copy", "quickstart/stage0p5", "taken/x"), {"disk.failed"}),
        (("config", "resolve", "--config", str(BASE), "--output", "taken/x"), {"cli.file-exists"}),
        (("config", "resolve", "--config", str(BASE), "--output", "folder"), {"disk.failed"}),
        (("config", "resolve", "--config", str(BASE), "--output", "a" * 300), {"disk.failed"}),
    ],
)
def test_places_that_cannot_be_written_are_no_bugs(
    args: tuple[str, ...], codes: set[str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("kept")
    (tmp_path / "folder").mkdir()
    code = 2 if codes == {"cli.file-exists"} else 5
    told = json.loads(solarwm(*args, "--json", code=code, cwd=tmp_path).stdout)
    assert told["code"] in codes
    assert ".partial" not in json.dumps(told["faults"])
    assert (tmp_path / "taken").read_text() == "kept"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "taken"]


def test_a_package_that_is_absent_is_named_with_its_extra(monkeypatch, capsys) -> None:
    from solarwm.cli.app import run

    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr("solarwm.cli.environment.survey", lambda: __import__("av"))
    assert run(["environment", "probe", "--json"]) == 5
    told = json.loads(capsys.readouterr().out)
    assert told["code"] == "data.extra-missing"
    assert told["faults"][0]["fixes"] == ["pip install 'solarwm[data]'"]


def test_every_command_has_help_with_an_example() -> None:
    from solarwm.cli.commands import COMMANDS
    from solarwm.cli.lazy import load

    for name in COMMANDS:
        command = load(name)
        leaves = list(getattr(command, "commands", {}).values()) or [command]
        for leaf in leaves:
            assert leaf.help, f"{name} {leaf.name}"
            assert (leaf.epilog or "").startswith("Example: "), f"{name} {leaf.name}"
            options = {option for item in leaf.params for option in item.opts}
            assert {"--json", "--verbose"} <= options, f"{name} {leaf.name}"
