"""What is read of a dump of PyTorch's flight recorder."""

from __future__ import annotations

import json

from solarwm.distributed.flight import TOLD_ENTRIES, read_trace


def test_the_latest_entries_are_told_in_order_without_their_stacks() -> None:
    entries = [
        {
            "collective_seq_id": number,
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[4]],
            "output_sizes": [[4]],
            "state": "completed" if number < 99 else "started",
            "frames": [{"name": "long"}],
        }
        for number in range(100)
    ]
    told = read_trace(json.dumps({"version": "2.4", "entries": entries}))
    assert [entry["collective_seq_id"] for entry in told] == list(range(100 - TOLD_ENTRIES, 100))
    assert told[-1]["state"] == "started"
    assert all("frames" not in entry for entry in told)


def test_a_dump_that_cannot_be_read_tells_nothing() -> None:
    assert [read_trace(text) for text in ("", "[]", "{}", "{", '{"entries": null}')] == [[]] * 5
