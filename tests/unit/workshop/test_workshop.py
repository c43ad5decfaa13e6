"""Weights converted, merged, quantised: against numpy, the libraries' own readers, and closed forms."""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from solarwm.backbones.weight_files import TensorSource
from solarwm.checkpoints.headers import read_headers
from solarwm.cli.app import run
from solarwm.errors.types import SolarError
from solarwm.workshop.merge import Policies, categories, in_memory, merge_difference
from solarwm.workshop.names import without_wrappers
from solarwm.workshop.quantize import quantized
from solarwm.workshop.tensors import open_tensors


def state(seed: int = 0, dtype=torch.float32) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shapes = {
        "patch.weight": (8, 3, 1, 2),
        "blocks.0.ffn.weight": (160, 130),
        "blocks.0.ffn.bias": (160,),
        "blocks.1.attn.proj_l.weight": (8, 8),
        "blocks.1.attn.q.weight": (130, 260),
        "head.weight": (4, 8),
    }
    made = {name: torch.randn(shape, generator=draw).to(dtype) for name, shape in shapes.items()}
    return made | {"steps": torch.tensor(7), "empty": torch.zeros(0, 3)}


def command(capsys, *words, code: int = 0) -> dict:
    assert run(["checkpoint", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def same(one, two) -> bool:
    return set(one) == set(two) and all(
        one[name].dtype == two[name].dtype and torch.equal(one[name], two[name]) for name in one
    )


def read(path: Path, **options) -> dict[str, torch.Tensor]:
    return dict(open_tensors(path, **options).items())


def test_every_layout_becomes_every_other_bit_for_bit(tmp_path, capsys):
    start = tmp_path / "start.safetensors"
    save_file(state(), str(start))
    layouts = {
        "one.safetensors": (),
        "two.pt": (),
        "three": ("--shard-gib", 0.0001),
        "four.dcp": (),
        "five.pt": ("--format", "released"),
    }
    for name, more in layouts.items():
        command(capsys, "convert", start, tmp_path / name, *more)
        assert same(read(tmp_path / name), state()), name
        for other, options in layouts.items():
            out = tmp_path / f"from-{name.partition('.')[0]}-{other}"
            command(capsys, "convert", tmp_path / name, out, *options)
            assert same(read(out), state()), (name, other)
    # The libraries' own readers agree.
    assert same(load_file(str(tmp_path / "one.safetensors")), state())
    assert same(torch.load(tmp_path / "two.pt", weights_only=True), state())
    index = json.loads(
        (tmp_path / "three" / "diffusion_pytorch_model.safetensors.index.json").read_text()
    )
    shards = {
        name: load_file(str(tmp_path / "three" / name))
        for name in set(index["weight_map"].values())
    }
    assert len(shards) > 1
    assert same({n: shards[f][n] for n, f in index["weight_map"].items()}, state())


def test_floats_take_the_type_that_is_asked_for_and_nothing_else_does(tmp_path, capsys):
    save_file(state(), str(tmp_path / "a.safetensors"))
    command(
        capsys,
        "convert",
        tmp_path / "a.safetensors",
        tmp_path / "b.safetensors",
        "--dtype",
        "bfloat16",
    )
    found = load_file(str(tmp_path / "b.safetensors"))
    expected = {n: v.bfloat16() if v.is_floating_point() else v for n, v in state().items()}
    assert same(found, expected)


@given(st.lists(st.sampled_from(["module.", "net.", "model.", "_orig_mod."]), max_size=4))
@hypothesis_settings(max_examples=30)
def test_wrappers_are_taken_off_in_any_nesting(wrappers):
    names = ["blocks.0._checkpoint_wrapped_module.w", "blocks.1.w", "head.w"]
    found = without_wrappers("".join(wrappers) + name for name in names)
    assert sorted(found) == ["blocks.0.w", "blocks.1.w", "head.w"]


def test_averaged_weights_and_roles_are_chosen_by_what_names_and_files_say(tmp_path, capsys):
    live, ema = state(1), state(2)
    torch.save({"generator": live, "generator_ema": ema, "global_step": 3}, tmp_path / "model.pt")
    assert same(read(tmp_path / "model.pt", weights="ema"), ema)
    both = {f"net.{n}": v for n, v in live.items()} | {f"net_ema.{n}": v for n, v in ema.items()}
    save_file(both, str(tmp_path / "both.safetensors"))
    command(
        capsys, "convert", tmp_path / "both.safetensors", tmp_path / "t.dcp", "--strip-prefix", ""
    )
    assert same(read(tmp_path / "t.dcp"), live)
    torch.distributed.checkpoint.save(both, checkpoint_id=str(tmp_path / "td"), no_dist=True)
    assert same(read(tmp_path / "td", weights="ema"), ema)
    assert same(read(tmp_path / "td"), live)
    roles = {
        f"roles.{r}.transformer.{n}": v
        for r, s in (("student", live), ("critic", ema))
        for n, v in s.items()
    }
    torch.distributed.checkpoint.save(
        roles | {"step": 3}, checkpoint_id=str(tmp_path / "fv"), no_dist=True
    )
    assert same(read(tmp_path / "fv", role="critic"), ema)
    answer = command(
        capsys,
        "convert",
        tmp_path / "model.pt",
        tmp_path / "x.safetensors",
        "--role",
        "critic",
        code=3,
    )
    assert answer["code"] == "weights.role-missing"


def test_what_stands_there_is_replaced_only_when_asked_and_only_by_a_whole_result(tmp_path, capsys):
    save_file(state(), str(tmp_path / "a.safetensors"))
    out = tmp_path / "b.safetensors"
    out.write_bytes(b"mine")
    assert (
        command(capsys, "convert", tmp_path / "a.safetensors", out, code=5)["code"]
        == "checkpoint.exists"
    )
    assert out.read_bytes() == b"mine"
    (tmp_path / "bad.safetensors").write_bytes(b"x" * 100)
    assert (
        command(capsys, "convert", tmp_path / "bad.safetensors", out, "--overwrite", code=3)["code"]
        == "weights.unreadable"
    )
    assert out.read_bytes() == b"mine"
    command(capsys, "convert", tmp_path / "a.safetensors", out, "--overwrite")
    assert same(load_file(str(out)), state())
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.safetensors",
        "b.safetensors",
        "bad.safetensors",
    ]


def test_an_interrupt_leaves_nothing_half_written(tmp_path, monkeypatch):
    from solarwm.workshop import writing

    save_file(state(), str(tmp_path / "a.safetensors"))
    found = open_tensors(tmp_path / "a.safetensors")

    def stop(count):
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        writing.in_place_of(tmp_path / "b", overwrite=False, num_bytes=1) as private,
    ):
        writing.write(found, private, format="sharded", progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_full_disk_is_told_with_code_five_and_leaves_nothing(tmp_path):
    save_file({"x": torch.zeros(400_000)}, str(tmp_path / "a.safetensors"))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from solarwm.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    words = [
        "checkpoint",
        "convert",
        str(tmp_path / "a.safetensors"),
        str(tmp_path / "b.safetensors"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


class Attack:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def _bad_files(root: Path) -> dict[str, Path]:
    good = root / "good.safetensors"
    save_file({"x": torch.zeros(4)}, str(good))
    data = good.read_bytes()
    header = json.dumps({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                         "y": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}).encode()  # fmt: skip
    twice = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    twice += b'"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
    made = {
        "truncated": data[:-5],
        "header": data[:20],
        "overlap": struct.pack("<Q", len(header)) + header + bytes(24),
        "huge": struct.pack("<Q", 65 << 20) + b"{" + bytes(100),
        "twice": struct.pack("<Q", len(twice)) + twice + bytes(8),
        "html": b"<!DOCTYPE html>" * 20,
        "none": b"",
    }
    paths = {}
    for name, content in made.items():
        paths[name] = root / f"{name}.safetensors"
        paths[name].write_bytes(content)
    paths["pickle"] = root / "pickle.pt"
    paths["pickle"].write_bytes(pickle.dumps({"x": Attack()}))
    paths["zip"] = root / "zip.pt"
    torch.save({"x": Attack()}, paths["zip"])
    (root / "dcp").mkdir()
    (root / "dcp" / ".metadata").write_bytes(pickle.dumps(Attack()))
    paths["dcp"] = root / "dcp"
    stray = root / "stray"
    stray.mkdir()
    (stray / "a.safetensors").write_bytes(data)
    (stray / "b.safetensors").write_bytes(data)
    (stray / "m.safetensors.index.json").write_text('{"weight_map": {"x": "a.safetensors"}}')
    paths["stray"] = stray
    lacking = root / "lacking"
    lacking.mkdir()
    (lacking / "a.safetensors").write_bytes(data)
    text = '{"weight_map": {"x": "a.safetensors", "y": "gone.safetensors"}}'
    (lacking / "m.safetensors.index.json").write_text(text)
    paths["lacking"] = lacking
    return paths


def test_bad_files_are_refused_with_code_three_nothing_run_nothing_written(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    paths = _bad_files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for name, path in paths.items():
        answer = command(capsys, "convert", path, tmp_path / "out.safetensors", code=3)
        assert answer["code"].startswith(("weights.", "checkpoint.")), name
        command(capsys, "merge", "--base", path, "--diff-base", path, "--diff-target", path,
                "--output", tmp_path / "out.safetensors", code=3)  # fmt: skip
        command(capsys, "quantize", path, tmp_path / "out.safetensors", code=3)
    answer = command(capsys, "convert", paths["lacking"], tmp_path / "out", code=3)
    assert "gone.safetensors" in json.dumps(answer)
    assert sorted(tmp_path.rglob("*")) == before


def test_looking_into_a_file_needs_no_torch_runs_nothing_and_reads_little(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    torch.save({"generator": state(), "global_step": 3, "bad": Attack()}, tmp_path / "model.pt")
    found = command(capsys, "inspect", tmp_path / "model.pt", "--keys", "*/blocks.*")
    assert (found["kind"], found["tensors"], found["metadata"]) == (
        "torch",
        len(state()),
        {"global_step": 3},
    )
    assert found["dtypes"] == {"float32": 7, "int64": 1}
    assert {"name": "generator/blocks.0.ffn.bias", "shape": [160], "dtype": "float32"} in found[
        "keys"
    ]
    assert found["not_tensors"] == ["bad"]
    assert not (tmp_path / "executed").exists()
    torch.distributed.checkpoint.save(state(), checkpoint_id=str(tmp_path / "d"), no_dist=True)
    assert {item.name: item.shape for item in read_headers(tmp_path / "d").tensors} == {
        name: tuple(value.shape) for name, value in state().items()
    }
    sparse = tmp_path / "sparse.safetensors"
    size = 40 << 30
    header = json.dumps(
        {"x": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}
    ).encode()
    with sparse.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    code = (
        "import sys; from solarwm.cli.app import run\n"
        "def io(): return int(open('/proc/self/io').read().split('rchar: ')[1].split()[0])\n"
        "run(['checkpoint', 'inspect', sys.argv[1], '--json']); a = io()\n"
        "code = run(['checkpoint', 'inspect', sys.argv[1], '--json'])\n"
        "print(code, io() - a, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(sparse)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    code_, num_bytes, torch_in = done.stderr.split()[-3:]
    assert (code_, torch_in) == ("0", "False")
    assert int(num_bytes) <= 1 << 20


def test_a_weight_file_is_read_whole_and_its_numbers_are_looked_at(tmp_path, capsys):
    save_file(state(), str(tmp_path / "a.safetensors"))
    report = command(capsys, "verify", tmp_path / "a.safetensors")
    assert (report["tensors"], report["values_read"], report["nonfinite"]) == (
        len(state()),
        True,
        0,
    )
    bad = state()
    bad["head.weight"][0, :3] = float("nan")
    save_file(bad, str(tmp_path / "b.safetensors"))
    answer = command(capsys, "verify", tmp_path / "b.safetensors", code=3)
    assert answer["code"] == "weights.nonfinite"
    assert "head.weight: 3" in json.dumps(answer)
    assert command(capsys, "verify", tmp_path / "b.safetensors", "--quick")["values_read"] is False


def test_two_files_are_held_against_each_other(tmp_path, capsys):
    save_file(state(), str(tmp_path / "a.safetensors"))
    other = {n: v for n, v in state().items() if n != "head.weight"} | {"new": torch.zeros(2)}
    other["blocks.0.ffn.bias"] = torch.zeros(3)
    save_file(other, str(tmp_path / "b.safetensors"))
    found = command(
        capsys, "inspect", tmp_path / "a.safetensors", "--diff", tmp_path / "b.safetensors"
    )["diff"]
    assert (found["only_here"], found["only_there"]) == (["head.weight"], ["new"])
    assert [item["name"] for item in found["differing"]] == ["blocks.0.ffn.bias"]


KEYS = st.dictionaries(
    st.sampled_from("abcdefg"),
    st.tuples(st.sampled_from([(2,), (3,), (2, 3)]), st.integers(0, 99)),
    max_size=6,
)


def _numpy(spec) -> dict[str, np.ndarray]:
    return {
        name: np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        for name, (shape, seed) in spec.items()
    }


@given(KEYS, KEYS, KEYS, st.floats(-2, 2, width=32))
@hypothesis_settings(max_examples=60)
def test_a_merge_is_what_numpy_gives_and_every_key_has_one_category(base, diff_base, target, w):
    parts = [_numpy(spec) for spec in (base, diff_base, target)]
    sources = [
        in_memory(str(i), {n: torch.from_numpy(v) for n, v in p.items()})
        for i, p in enumerate(parts)
    ]
    expected = {}
    for name, value in parts[0].items():
        others = [part.get(name) for part in parts[1:]]
        if all(o is not None and o.shape == value.shape for o in others):
            expected[name] = value + np.float32(w) * (others[1] - others[0])
        else:
            expected[name] = value
    expected |= {name: value for name, value in parts[2].items() if name not in parts[0]}
    found = categories(*sources)
    told = [name for name in found.__slots__ for _ in getattr(found, name)]
    assert len(told) == len(set(base) | set(diff_base) | set(target))
    touched = len(found.merged) + len(found.only_target)
    if not touched:
        with pytest.raises(SolarError) as caught:
            merge_difference(*sources, weight=w, policies=Policies())
        assert (caught.value.code, caught.value.exit_code) == ("merge.refused", 3)
        return
    merged = merge_difference(*sources, weight=w, policies=Policies())
    got = dict(merged.tensors.items())
    assert set(got) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name].numpy(), value, rtol=1e-6, atol=1e-6)


def test_policies_and_odd_weights_end_as_they_say(tmp_path, capsys):
    a = {"x": torch.ones(2, dtype=torch.bfloat16), "y": torch.ones(3), "only": torch.ones(1)}
    b = {"x": torch.zeros(2), "y": torch.ones(4), "gone": torch.ones(1)}
    c = {"x": torch.full((2,), 0.5), "y": torch.ones(4), "proj_l": torch.ones(1)}
    for name, value in (("a", a), ("b", b), ("c", c)):
        torch.save({"state_dict": value}, tmp_path / f"{name}.pt")
    sources = (
        "--base",
        tmp_path / "a.pt",
        "--diff-base",
        tmp_path / "b.pt",
        "--diff-target",
        tmp_path / "c.pt",
    )
    out = ("--output", tmp_path / "o.safetensors")
    report = command(capsys, "merge", *sources, *out, "--w", 2)
    counts = {name: found["count"] for name, found in report["categories"].items()}
    assert counts == {
        "merged": 1, "shape_mismatch": 1, "missing": 1, "only_target": 1, "only_diff_base": 1, "not_tensors": 0
    }  # fmt: skip
    assert (
        json.loads((tmp_path / "o.safetensors.report.json").read_text())["categories"]
        == report["categories"]
    )
    got = load_file(str(tmp_path / "o.safetensors"))
    assert torch.equal(got["x"], torch.full((2,), 2.0, dtype=torch.bfloat16))
    assert set(got) == {"x", "y", "only", "proj_l"}
    for flag, value in (
        ("--on-shape-mismatch", "error"),
        ("--on-missing", "error"),
        ("--on-new", "error"),
    ):
        assert (
            command(capsys, "merge", *sources, *out, "--overwrite", flag, value, code=3)["code"]
            == "merge.refused"
        )
    assert (
        command(capsys, "merge", *sources, *out, "--overwrite", "--w", "nan", code=2)["code"]
        == "merge.weight"
    )
    assert command(capsys, "merge", *sources[:4], *out, code=2)["code"] == "cli.usage"
    command(capsys, "merge", *sources, *out, "--overwrite", "--on-new", "drop")
    assert "proj_l" not in load_file(str(tmp_path / "o.safetensors"))
    assert command(capsys, "merge", "--selftest")["largest_error"] == 0.0


def test_an_average_is_the_weighted_mean(tmp_path, capsys):
    for seed in (1, 2):
        save_file(state(seed), str(tmp_path / f"{seed}.safetensors"))
    files = [word for seed in (1, 2) for word in ("--average", tmp_path / f"{seed}.safetensors")]
    weights = ("--average-weight", 3, "--average-weight", 1)
    command(capsys, "merge", *files, *weights, "--output", tmp_path / "m.safetensors")
    got = load_file(str(tmp_path / "m.safetensors"))
    for name, value in state(1).items():
        expected = 0.75 * value + 0.25 * state(2)[name] if value.is_floating_point() else value
        torch.testing.assert_close(got[name], expected)
    zero = ("--average-weight", 1, "--average-weight", -1)
    assert (
        command(capsys, "merge", *files, *zero, "--output", tmp_path / "n.pt", code=2)["code"]
        == "merge.weight"
    )


@pytest.mark.parametrize("style", ["peft", "kohya"])
def test_an_adapter_goes_into_its_base_and_out_again(tmp_path, capsys, style):
    base = state()
    save_file(base, str(tmp_path / "base.safetensors"))
    draw = torch.Generator().manual_seed(5)
    down, up = torch.randn(4, 130, generator=draw), torch.randn(160, 4, generator=draw)
    if style == "peft":
        names = [f"base_model.model.blocks.0.ffn.lora_{half}.weight" for half in "AB"]
        (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 8, "r": 4}')
        adapter = dict(zip(names, (down, up), strict=True))
    else:
        names = [f"blocks.0.ffn.lora_{half}.weight" for half in ("down", "up")]
        adapter = dict(zip(names, (down, up), strict=True)) | {
            "blocks.0.ffn.alpha": torch.tensor(8.0)
        }
    save_file(adapter, str(tmp_path / "adapter.safetensors"))
    words = (
        "merge",
        "--base",
        tmp_path / "base.safetensors",
        "--lora",
        tmp_path / "adapter.safetensors",
    )
    report = command(capsys, *words, "--output", tmp_path / "m.safetensors")
    assert (report["modules"], report["scales"]) == (1, [2.0])
    assert report["unmerge_error"] < 1e-5
    got = load_file(str(tmp_path / "m.safetensors"))
    expected = base["blocks.0.ffn.weight"].numpy() + 2.0 * (up.numpy() @ down.numpy())
    np.testing.assert_allclose(got["blocks.0.ffn.weight"].numpy(), expected, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(got[n], v) for n, v in base.items() if n != "blocks.0.ffn.weight")
    adapter = {name.replace("ffn", "other"): value for name, value in adapter.items()}
    save_file(adapter, str(tmp_path / "adapter.safetensors"))
    assert command(capsys, *words, "--output", tmp_path / "n.pt", code=3)["code"] == "merge.refused"


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 99))
@hypothesis_settings(max_examples=25)
def test_blocks_of_eight_bits_follow_the_rule(rows, columns, seed):
    weight = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    numbers, scale = quantized(torch.from_numpy(weight), "int8-block128")
    assert scale.shape == (math.ceil(rows / 128), math.ceil(columns / 128))
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            block = weight[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128]
            most = np.float32(max(1e-8, np.abs(block).max()))
            expected = np.clip(np.round(block * (np.float32(128) / most)), -128, 127)
            got = numbers[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128].numpy()
            assert np.abs(got - expected).max() <= 1
            assert np.mean(got != expected) < 0.001
            assert scale[i, j].item() == pytest.approx(most / 128, rel=1e-6)
    assert numbers.max() <= 127


@pytest.mark.parametrize("scheme", ["int8-block128", "int8-channel", "fp8-e4m3"])
def test_a_quantised_file_says_itself_how_to_read_it(tmp_path, capsys, scheme):
    source = state(dtype=torch.bfloat16)
    save_file(source, str(tmp_path / "a.safetensors"))
    words = ("quantize", tmp_path / "a.safetensors", tmp_path / "q.safetensors", "--scheme", scheme)
    report = command(capsys, *words)
    assert {layer["layer"] for layer in report["layers"]} == {"blocks.0.ffn", "blocks.1.attn.q"}
    raw = load_file(str(tmp_path / "q.safetensors"))
    assert "blocks.0.ffn.weight" not in raw
    assert torch.equal(raw["blocks.1.attn.proj_l.weight"], source["blocks.1.attn.proj_l.weight"])
    again = TensorSource.open(tmp_path / "q.safetensors", "live")
    assert sorted(again.names()) == sorted(source)
    assert again.shapes() == {name: tuple(value.shape) for name, value in source.items()}
    found = dict(again.tensors({name: name for name in source}))
    for layer in report["layers"]:
        name = f"{layer['layer']}.weight"
        assert found[name].dtype == torch.bfloat16
        error = (found[name].float() - source[name].float()).norm() / source[name].float().norm()
        assert error == pytest.approx(layer["relative"], rel=0.1)
        assert layer["relative"] < 0.04
    assert same(
        {n: v for n, v in found.items() if "blocks" not in n},
        {n: v for n, v in source.items() if "blocks" not in n},
    )
    words = (
        "quantize",
        tmp_path / "a.safetensors",
        tmp_path / "r.safetensors",
        "--within",
        "nowhere.",
    )
    assert command(capsys, *words, code=3)["code"] == "quantize.nothing"
