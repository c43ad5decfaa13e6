"""Reading config files: YAML without its traps, JSON, bounds, places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from solarwm.config import loading
from solarwm.config.yaml_reader import Reading
from solarwm.config.yaml_writer import written
from solarwm.errors.types import SolarError


def read(text: str) -> Reading:
    reading = Reading("run.yaml")
    reading.read(text)
    return reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 0.0001),
        ("1E-4", 0.0001),
        ("1e+4", 10000.0),
        ("5e5", 500000.0),
        ("1.0e5", 100000.0),
        (".5e3", 500.0),
        ("-2e-6", -2e-6),
        ("00.5", 0.5),
        ("3", 3),
        ("3.0", 3.0),
        ("0x10", 16),
        ("TRUE", True),
        ("yes", "yes"),
        ("off", "off"),
        ("<<", "<<"),
        ("08", "08"),
        ("0o17", "0o17"),
        ("1_0e1", "1_0e1"),
        ("null", None),
        ("~", None),
        ('"1e-4"', "1e-4"),
        ("1e", "1e"),
        ("e5", "e5"),
    ],
)
def test_scalars_are_read_as_numbers_where_a_person_means_numbers(text: str, value: object) -> None:
    found = read(f"a: {text}").values["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "010",
        "-010",
        "0_7",
        "1:30",
        "12:30:45",
        "1:30.5",
        "1_000",
        "2024_01",
        "1_0.5",
        "0b11",
        "0x1_0",
    ],
)
def test_numbers_that_yaml_versions_read_differently_are_refused(text: str) -> None:
    (fault,) = read(f"n: 1\na: {text}").faults
    assert (fault.code, fault.where) == ("config.value", "run.yaml:2:4")
    assert len(fault.fixes) == 2
    assert "some readers of YAML take it as" in fault.why
    assert read(f"a: '{text}'").values["a"] == text


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(
            st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f\x85\xa0"),
            max_size=12,
        ),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abcdef", min_size=1, max_size=4), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
@example("0E0")
@example("1e5")
@example("on")
@example("010")
def test_what_is_written_is_read_back_equal_by_us_and_by_pyyaml(value: object) -> None:
    text = written({"root": value})
    reading = read(text)
    assert reading.faults == []
    assert reading.values == {"root": value}
    assert yaml.safe_load(text) == {"root": value}


def test_merge_keys_are_honoured_and_written_keys_win() -> None:
    values = read("base: &b {a: 1, c: 2}\nuse: {<<: *b, a: 3}\n").values
    assert values["use"] == {"a": 3, "c": 2}


def test_places_are_lines_and_columns_of_keys_and_items() -> None:
    reading = read("a:\n  b: 1\n  c:\n    - x\n    - y\n")
    assert reading.lines[("a", "b")] == (2, 3)
    assert reading.lines[("a", "c", 1)] == (5, 7)


def test_all_faults_of_a_file_are_kept() -> None:
    reading = read("a: 2020-01-01\nb: .nan\na: 1\n1: x\nc: !!set {q}\nd: 1e999\n")
    assert [(fault.code, fault.where) for fault in reading.faults] == [
        ("config.type", "run.yaml:1:4"),
        ("config.value", "run.yaml:2:4"),
        ("config.duplicate-key", "run.yaml:3:1"),
        ("config.syntax", "run.yaml:4:1"),
        ("config.type", "run.yaml:5:4"),
        ("config.value", "run.yaml:6:4"),
    ]
    assert "line 1" in reading.faults[2].why


@pytest.mark.parametrize(
    "text",
    ["a: [", "a: *nowhere", 'a: "open', "a: b: c", "\ta: 1", "--- 1\n--- 2", "a: @x", "a: {b: ]"],
)
def test_broken_yaml_is_one_fault_with_a_line_and_no_content(text: str) -> None:
    with pytest.raises(SolarError) as caught:
        read(text.replace("open", "SECRET").replace("nowhere", "SECRET"))
    assert caught.value.code == "config.syntax"
    assert caught.value.where is not None
    assert caught.value.where.startswith("run.yaml:")
    assert "SECRET" not in caught.value.why


def test_an_alias_bomb_is_stopped_early() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(SolarError) as caught:
        read("\n".join(lines))
    assert caught.value.code == "config.too-complex"


@pytest.mark.parametrize(
    "text", ["[" * 100, "- " * 100 + "1", "&a [*a]", "a: " + "{b: " * 50 + "1" + "}" * 50]
)
def test_deep_or_cyclic_files_are_refused(text: str) -> None:
    with pytest.raises(SolarError) as caught:
        read(text)
    assert caught.value.code in ("config.too-complex", "config.syntax")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"a: \x00", "NUL"),
        (b"a: \xff\n", "UTF-8"),
        ("a: 1".encode("utf-16"), "UTF-16"),
        (b"a: 1\n" + b"#" * 600_000, "larger"),
    ],
)
def test_files_that_are_no_text_are_refused_with_the_reason(
    tmp_path: Path, data: bytes, word: str
) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(data)
    with pytest.raises(SolarError) as caught:
        loading.parse(path, loading.read_bytes(path))
    assert caught.value.code == "config.file"
    assert word in caught.value.why


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, Path("/dev/null")):
        with pytest.raises(SolarError) as caught:
            loading.read_bytes(path)
        assert caught.value.code == "config.file"


def test_a_byte_order_mark_and_crlf_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    document = loading.parse(path, b"\xef\xbb\xbfa: 1\r\nb: x\r\n")
    assert document.values == {"a": 1, "b": "x"}


def test_json_duplicates_and_nan_are_faults_with_a_place(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    document = loading.parse(path, b'{"a": 1, "a": 2, "b": NaN, "c": 1e999, "d": "\\ud800"}')
    assert sorted(fault.code for fault in document.faults) == [
        "config.duplicate-key",
        "config.value",
        "config.value",
        "config.value",
    ]


def test_broken_or_deep_json_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for data in (
        b'{"a": ',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        json.dumps([1]).encode(),
    ):
        with pytest.raises(SolarError) as caught:
            loading.parse(path, data)
        assert caught.value.exit_code == 2
