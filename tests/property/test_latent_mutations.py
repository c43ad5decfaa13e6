"""Damaged latent records are refused by name, whatever the damage; nothing else is raised.

`SOLARWM_LATENT_MUTATIONS` raises the count.
"""

from __future__ import annotations

import os
import random

from solarwm.data.latent_records import read_record, write_record
from solarwm.errors.types import SolarError
from tests.unit.data.latent_samples import FAMILIES, contract, tensors

COUNT = int(os.environ.get("SOLARWM_LATENT_MUTATIONS", "1000"))


def _cut(data: bytearray, draw: random.Random) -> bytearray:
    return data[: draw.randrange(len(data))]


def _flip(data: bytearray, draw: random.Random) -> bytearray:
    for _ in range(draw.choice((1, 3, 50))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return data


def _flip_header(data: bytearray, draw: random.Random) -> bytearray:
    length = int.from_bytes(data[:8], "little")
    for _ in range(draw.choice((1, 2, 8))):
        data[draw.randrange(8 + length)] = draw.randrange(256)
    return data


def _grow(data: bytearray, draw: random.Random) -> bytearray:
    place = draw.randrange(len(data))
    return data[:place] + draw.randbytes(draw.choice((1, 8, 64))) + data[place:]


def _swap(data: bytearray, draw: random.Random) -> bytearray:
    old, new = draw.choice(
        [
            (b"BF16", b"F16"),
            (b"BF16", b"F32"),
            (b"I64", b"I32"),
            (b"[", b"[-"),
            (b"0", b"99999999999999999999"),
            (b":", b",:"),
            (b"data_offsets", b"shape"),
        ]
    )
    length = int.from_bytes(data[:8], "little")
    header = bytes(data[8 : 8 + length]).replace(old, new, draw.choice((1, 2, -1)))
    return bytearray(len(header).to_bytes(8, "little") + header) + data[8 + length :]


def test_mutated_records_are_read_as_sound_numbers_or_refused_with_code_three() -> None:
    draw = random.Random(20)
    made = {family: contract(family) for family in FAMILIES}
    sound = {
        family: write_record(made[family], tensors(made[family]), sample_id="demo/one")
        for family in FAMILIES
    }
    faults: list[SolarError] = []
    for number in range(COUNT):
        family = FAMILIES[number % len(FAMILIES)]
        change = draw.choice((_cut, _flip, _flip_header, _grow, _swap))
        data = bytes(change(bytearray(sound[family]), draw))
        try:
            found = read_record(made[family], data, sample_id="demo/one")
        except SolarError as fault:
            faults.append(fault)
        else:
            assert set(found) == set(made[family].stored)
            assert all(tensor.is_finite() for tensor in found.values())
    print(f"{COUNT} mutations, {len(faults)} refused")
    assert len(faults) > COUNT // 2
    assert {fault.exit_code for fault in faults} == {3}
    assert all("demo/one" in str(fault) for fault in faults)
