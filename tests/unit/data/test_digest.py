"""Row digests: the quick encoder must never differ from the standard library."""

from __future__ import annotations

import json
from hashlib import blake2s

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solarwm.data.digest import canonical_row, inspect_index
from solarwm.errors.types import SolarError

numbers = st.one_of(
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e-5, 1e-4, 9.99e-5, 1e15, 1e16, 1e22, 5e-324, 16.0, 0.1, -1e-7]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
tokens = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.sampled_from(["-0", "-0.0", "0e5", "1E2", "1e-0", "0.00001", "0.0001", "-0.00012"]),
)


def exact(text: bytes) -> bytes:
    row = json.loads(text)
    plain = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return (plain + "\n").encode()


def read(text: bytes):
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(), values, max_size=6), st.booleans(), st.integers(0, 2))
def test_random_rows_encode_as_the_standard_library_does(row, escaped, spacing) -> None:
    separators = [(",", ":"), (", ", ": "), (" ,\t", " :  ")][spacing]
    try:
        text = json.dumps(row, ensure_ascii=escaped, separators=separators).encode()
        expected = exact(text)
    except UnicodeEncodeError:
        return
    assert canonical_row(text, read(text)) == expected


@settings(max_examples=400, deadline=None)
@given(st.lists(tokens, min_size=1, max_size=4), st.sampled_from(["", " ", "\t"]))
def test_random_number_tokens_encode_as_the_standard_library_does(found, gap) -> None:
    listed = f",{gap}".join(found)
    text = f'{{"a":{gap}[{gap}{listed}{gap}],"b":{gap}{found[0]}}}'.encode()
    try:
        row = json.loads(text)
        expected = exact(text)
    except ValueError:
        return
    if "Infinity" in expected.decode():
        return
    assert row["a"]
    assert canonical_row(text, read(text)) == expected


def test_key_order_spacing_and_repeated_keys_do_not_matter(tmp_path) -> None:
    base = b'{"sample_id":"a","key":"k","shard":"s.tar","x":1.0}\n'
    other = b'{ "x":7, "shard": "s.tar","key":"k" , "sample_id":"a", "x": 1.0}\n'
    reports = []
    for number, text in enumerate((base, other)):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(text)
        reports.append(inspect_index(path))
    assert reports[0].ordered_row_digest == reports[1].ordered_row_digest
    assert reports[0].decompressed_digest != reports[1].decompressed_digest


def test_digests_are_those_of_the_published_rule(tmp_path) -> None:
    rows = [
        {"sample_id": "é", "key": "k", "shard": "s.tar", "epoch_repeats": 3, "lr": 1e-8},
        {"sample_id": "b", "key": "k", "shard": "s.tar", "big": 2**70, "e": 16.0},
    ]
    text = b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(row).encode() for row in rows)
    path = tmp_path / "i.jsonl"
    path.write_bytes(text)
    report = inspect_index(path)
    assert (report.rows, report.virtual_occurrences) == (2, 4)
    assert report.index == str(path)
    assert report.ordered_sample_id_digest == blake2s("é\nb\n".encode()).hexdigest()
    assert report.decompressed_digest == blake2s(text).hexdigest()
    whole = b"".join(exact(json.dumps(row).encode()) for row in rows)
    assert report.ordered_row_digest == blake2s(whole).hexdigest()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"\\ud800"'])
def test_a_row_without_canonical_form_fails_inspect_but_not_reading(tmp_path, value) -> None:
    from solarwm.data.index import read_index

    path = tmp_path / "i.jsonl"
    path.write_text(f'{{"sample_id":"a","key":"k","shard":"s.tar","x": {value}}}\n')
    assert len(read_index(path)) == 1
    with pytest.raises(SolarError) as caught:
        inspect_index(path)
    assert (caught.value.code, caught.value.exit_code) == ("index.no-digest", 3)


def test_without_digests_rows_are_counted_and_checked_all_the_same(tmp_path):
    row = {"sample_id": "a", "key": "a", "shard": "a.tar", "epoch_repeats": 3}
    path = tmp_path / "index.jsonl"
    path.write_text("\n".join(json.dumps(row | {"sample_id": str(n)}) for n in range(300)))
    report = inspect_index(path, digests=False)
    assert (report.rows, report.virtual_occurrences) == (300, 900)
    assert report.ordered_row_digest == ""
    with path.open("a") as stream:
        stream.write("\n" + json.dumps(row | {"sample_id": "7"}))
    with pytest.raises(SolarError) as caught:
        inspect_index(path, digests=False)
    assert caught.value.code == "index.duplicate-id"
