"""Index files: what is read, and how every kind of damage is told."""

from __future__ import annotations

import gzip
import json

import pytest

from solarwm.data.index import ensure_disjoint, head_rows, iterate_rows, read_index
from solarwm.errors.types import SolarError


def plain(**changes) -> dict:
    row = {"sample_id": "a", "key": "k", "shard": "s/0.tar", "num_frames": 81} | changes
    return {name: value for name, value in row.items() if value is not ...}


def lines(*rows: dict) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def refused(path) -> SolarError:
    with pytest.raises(SolarError) as caught:
        read_index(path)
    assert caught.value.exit_code == 3
    assert str(path) in (caught.value.where or "")
    return caught.value


@pytest.fixture
def write(tmp_path):
    def write_file(data: bytes, name: str = "index.jsonl"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write_file


def test_rows_keep_their_order_types_and_unknown_fields(write) -> None:
    path = write(
        lines(
            plain(sample_id="b", epoch_repeats=2, fps=24, shard_size="512", novel={"x": [1]}),
            plain(
                sample_id="a",
                shard="s/1.tar",
                num_frames=0,
                manifest={"video": {"num_frames": 90, "fps": 16.0}},
            ),
        )
    )
    index = read_index(path)
    assert [row.sample_id for row in index.rows] == ["b", "a"]
    assert [row.ordinal for row in index.rows] == [0, 1]
    assert (index.rows[0].fps, index.rows[0].shard_size) == (24.0, 512)
    assert index.rows[0].extra == {"novel": {"x": [1]}}
    assert (index.rows[1].num_frames, index.rows[1].fps) == (90, 16.0)
    assert index.num_occurrences == 3
    found = [index.occurrence(place) for place in range(3)]
    assert [(row.sample_id, repeat) for row, repeat in found] == [("b", 0), ("b", 1), ("a", 0)]


def test_byte_order_mark_crlf_blank_lines_and_a_missing_last_newline_are_fine(write) -> None:
    text = lines(plain(sample_id="a"), plain(sample_id="b")).replace(b"\n", b"\r\n")
    path = write(b"\xef\xbb\xbf" + text[:-2] + b"\r\n  \r\n\r\n" + lines(plain(sample_id="c"))[:-1])
    assert [row.sample_id for row in read_index(path).rows] == ["a", "b", "c"]


def test_gzip_and_plain_read_the_same(write) -> None:
    text = lines(*(plain(sample_id=str(number), caption="ü" * number) for number in range(300)))
    packed = read_index(write(gzip.compress(text), "index.jsonl.gz"))
    assert packed.rows == read_index(write(text)).rows


def test_lines_across_read_blocks_are_whole(write, monkeypatch) -> None:
    monkeypatch.setattr("solarwm.data.lines.CHUNK_SIZE", 7)
    text = lines(*(plain(sample_id=str(number), caption="äöü") for number in range(20)))
    assert len(read_index(write(text))) == 20


def test_the_first_rows_are_read_without_the_rest(write) -> None:
    path = write(lines(plain(), plain(sample_id="b")) + b"not json\n")
    assert [row.sample_id for row in head_rows(path, 2)] == ["a", "b"]


def test_a_missing_file_is_named(tmp_path) -> None:
    assert refused(tmp_path / "none.jsonl").code == "index.missing"


def test_a_directory_in_place_of_a_file_is_named(tmp_path) -> None:
    assert refused(tmp_path).code == "index.unreadable"


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (b"", "i.jsonl", "index.empty"),
        (b"", "i.jsonl.gz", "index.empty"),
        (b"\n \r\n", "i.jsonl", "index.no-rows"),
        (gzip.compress(b"", mtime=0), "i.jsonl.gz", "index.no-rows"),
        (lines(plain()), "i.jsonl.gz", "index.not-gzip"),
        (gzip.compress(lines(plain()), mtime=0), "i.jsonl", "index.not-gzip"),
        (gzip.compress(lines(plain()) * 50, mtime=0)[:-9], "i.jsonl.gz", "index.truncated"),
        (gzip.compress(lines(plain()), mtime=0)[:12], "i.jsonl.gz", "index.truncated"),
        (b"[1]\n", "i.jsonl", "index.bad-json"),
        (b"{\n", "i.jsonl", "index.bad-json"),
        (b"[" * 100000, "i.jsonl", "index.bad-json"),
    ],
)
def test_a_damaged_file_is_refused(write, data, name, code) -> None:
    assert refused(write(data, name)).code == code


def test_a_flipped_byte_in_gzip_is_refused(write) -> None:
    data = bytearray(gzip.compress(lines(*(plain(sample_id=str(n)) for n in range(500)))))
    data[len(data) // 2] ^= 0xFF
    assert refused(write(bytes(data), "i.jsonl.gz")).code in {
        "index.truncated",
        "index.not-utf8",
        "index.bad-json",
    }


def test_utf16_is_named_with_its_offset(write) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        fault = refused(write(lines(plain()).decode().encode(encoding)))
        assert fault.code == "index.not-utf8"
        assert "UTF-16" in fault.headline
        assert "byte_offset" in fault.context


def test_gbk_is_named_with_the_offending_byte(write) -> None:
    first = lines(plain())
    second = json.dumps(plain(sample_id="b", caption="街道"), ensure_ascii=False).encode("gbk")
    fault = refused(write(first + second + b"\n"))
    assert fault.code == "index.not-utf8"
    offset = fault.context["byte_offset"]
    assert offset == len(first) + second.index("街道".encode("gbk"))
    assert "GBK" in fault.why
    assert fault.context["line"] == 2


def test_a_fault_names_row_line_byte_and_field(write) -> None:
    text = lines(plain()) + b"\n" + lines(plain(sample_id="b", num_frames="81"))
    fault = refused(write(text))
    assert fault.code == "index.bad-field"
    assert fault.context == {
        "row": 2,
        "line": 3,
        "byte_offset": len(lines(plain())) + 1,
        "field": "num_frames",
        "sample_id": "b",
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sample_id": ...}, "sample_id"),
        ({"sample_id": ""}, "sample_id"),
        ({"sample_id": 7}, "sample_id"),
        ({"key": None}, "key"),
        ({"epoch_repeats": 0}, "epoch_repeats"),
        ({"epoch_repeats": True}, "epoch_repeats"),
        ({"epoch_repeats": 1.0}, "epoch_repeats"),
        ({"epoch_repeats": None}, "epoch_repeats"),
        ({"epoch_repeats": "2"}, "epoch_repeats"),
        ({"num_frames": True}, "num_frames"),
        ({"num_frames": -1}, "num_frames"),
        ({"fps": "16"}, "fps"),
        ({"fps": -1}, "fps"),
        ({"start_frame": 1.5}, "start_frame"),
        ({"caption": 3}, "caption"),
        ({"manifest": []}, "manifest"),
        ({"shard_size": 0}, "shard_size"),
        ({"shard_size": True}, "shard_size"),
        ({"shard_size": 1.0}, "shard_size"),
        ({"shard_size": "1e3"}, "shard_size"),
        ({"shard_digest": "a" * 64}, "shard_size"),
        ({"shard_digest": "xyz", "shard_size": 9}, "shard_digest"),
        ({"shard_md5_b64": "AAAA", "shard_size": 9}, "shard_md5_b64"),
        ({"source_frame_indices": [0, 2]}, "source_frame_indices"),
        ({"source_frame_indices": [3, 4], "start_frame": 2}, "source_frame_indices"),
        ({"source_frame_indices": []}, "source_frame_indices"),
        ({"video_member": 4}, "video_member"),
        ({"role": 1}, "role"),
        ({"recipe_role": ["train"]}, "recipe_role"),
        ({"window_index": -1}, "window_index"),
        ({"window_count": "6"}, "window_count"),
        ({"window_hash_namespace": 153}, "window_hash_namespace"),
        ({"encoder_contract_digest": "A" * 64}, "encoder_contract_digest"),
        ({"tensor_digest": "a" * 63}, "tensor_digest"),
        ({"manifest_digest": 5}, "manifest_digest"),
        ({"provenance_digest": "g" * 64}, "provenance_digest"),
    ],
)
def test_a_wrong_type_or_value_is_refused(write, change, field) -> None:
    fault = refused(write(lines(plain(**change))))
    assert (fault.code, fault.context["field"]) == ("index.bad-field", field)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x.tar",
        "a/../../x.tar",
        "gs://b/x.tar",
        "a\\b",
        "a//b",
        "a/",
        "./a",
        "C:x",
    ],
)
@pytest.mark.parametrize("field", ["shard", "video_member", "camera_member"])
def test_absolute_and_escaping_paths_are_refused(write, field, path) -> None:
    fault = refused(write(lines(plain(**{field: path}))))
    assert (fault.code, fault.context["field"]) == ("index.bad-path", field)


def test_a_duplicate_id_names_both_lines(write) -> None:
    fault = refused(write(lines(plain(), plain(sample_id="b"), plain(num_frames=9))))
    assert fault.code == "index.duplicate-id"
    assert fault.context["line"] == 3
    assert "line 1" in fault.why


def test_rows_of_one_shard_must_agree_about_it(write) -> None:
    fault = refused(write(lines(plain(shard_size=5), plain(sample_id="b"))))
    assert fault.code == "index.shard-drift"


def test_bad_rows_can_be_collected_instead(write) -> None:
    path = write(lines(plain()) + b"oops\n" + lines(plain(), plain(sample_id="b", fps=[])) * 1)
    faults: list[SolarError] = []
    good = [row["sample_id"] for _, row in iterate_rows(path, on_fault=faults.append)]
    assert good == ["a"]
    assert [fault.code for fault in faults] == [
        "index.bad-json",
        "index.duplicate-id",
        "index.bad-field",
    ]


def test_train_and_test_may_not_share_samples(write) -> None:
    train = read_index(write(lines(plain(), plain(sample_id="b")), "train.jsonl"))
    test = read_index(write(lines(plain(sample_id="b")), "test.jsonl"))
    with pytest.raises(SolarError) as caught:
        ensure_disjoint(train, test)
    assert caught.value.code == "index.overlap"
    ensure_disjoint(train, read_index(write(lines(plain(sample_id="c")), "other.jsonl")))
