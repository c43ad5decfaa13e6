"""Encoder contracts of all families and their published digests."""

from __future__ import annotations

import json

from solarwm.config.route import load
from solarwm.data.record_contracts import contract_of
from solarwm.routes.table import ROOMS
from tests.golden.conftest import golden_path


def test_every_contract_and_its_digest_equal_the_published_ones() -> None:
    document = json.loads(golden_path("plan_encoder_contracts.json").read_text(encoding="utf-8"))
    contracts = document["contracts"]
    print(f"{len(contracts)} contracts compared")
    assert contracts
    for name, expected in contracts.items():
        told = expected["contract"]
        family = name.split("/")[0]
        profile = load(f"{ROOMS[family]}.spec:SPEC").profiles["released"]
        made = contract_of(
            family,
            profile,
            pixel_frames=told["pixel_frames"],
            height=told["height"],
            width=told["width"],
            silence="silence bound" in name,
            **({"identity": told["extras"]["encoder_identity"]} if family == "minimax_h3" else {}),
        )
        assert made.plain() == told, name
        assert made.digest == expected["digest"], name
