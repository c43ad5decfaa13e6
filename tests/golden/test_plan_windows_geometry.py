"""Windows, latent rows, resize, audit prefix, fixed lens and logd4 of the published formats."""

from __future__ import annotations

import numpy as np

from solarwm.camera.full_length import full_length
from solarwm.camera.guards import audited_frames, audited_latents
from solarwm.camera.intrinsics import FIXED_CENTRE, FIXED_FX, FIXED_FY, fixed_intrinsics
from solarwm.camera.poses import LTX_CYCLE, h3_latent_rows, latent_rows
from solarwm.camera.transforms import logd4_translation
from solarwm.data.framing import cover_h3, cover_ltx, cover_wan
from solarwm.data.windows import window_153_hashed, windows_81, windows_153_six

COVERS = {"wan5b": cover_wan, "wan14b": cover_wan, "ltx": cover_ltx, "h3": cover_h3}
ROWS = {
    "wan": latent_rows,
    "ltx": lambda count: latent_rows(count, cycle=LTX_CYCLE),
    "h3": h3_latent_rows,
}


def test_windows_and_geometry_equal_the_golden_ones(golden) -> None:
    file = golden("plan_windows_geometry.json", prose=("note", "schema"))
    windows = {
        "w81": lambda case: (
            {**case, "starts": list(windows_81(case["num_frames"]))}
            | {"count": len(windows_81(case["num_frames"]))}
        ),
        "w153_long": lambda case: {**case, "starts": list(windows_153_six(case["num_frames"]))},
        "w153_hash": lambda case: {
            **case,
            "start": window_153_hashed(case["num_frames"], case["source_sample_id"]),
        },
    }
    for name in file.document["windows"]:
        for number in range(len(file.document["windows"][name])):
            check(file, ("windows", name, number), windows[name])
    for family in file.document["geometry"]["cover"]:
        for number in range(len(file.document["geometry"]["cover"][family])):
            check(
                file, ("geometry", "cover", family, number), lambda case, f=family: covered(f, case)
            )
    for number in range(len(file.document["geometry"]["audit_rows"]["wan"])):
        check(file, ("geometry", "audit_rows", "wan", number), audited)
    for number in range(len(file.document["geometry"]["h3_full_length"])):
        check(file, ("geometry", "h3_full_length", number), at_full_length)

    geometry = file.document["geometry"]
    for name in geometry["latent_pixel_rows"]:
        expected = file.take("geometry", "latent_pixel_rows", name)
        assert list(ROWS[name.split("_")[0]](len(expected))) == expected, name
        file.compared += 1
    lens = {"fx": FIXED_FX, "fy": FIXED_FY, "cx": FIXED_CENTRE, "cy": FIXED_CENTRE}
    for name in geometry["fixed_K"]:
        file.compare(("geometry", "fixed_K", name), lens[name], atol=1e-12)
    matrix = fixed_intrinsics()
    assert [matrix[0, 0], matrix[1, 1]] == [np.float32(FIXED_FX), np.float32(FIXED_FY)]
    given = np.asarray(file.take("geometry", "logd4", "input"), np.float32)
    file.compare(("geometry", "logd4", "output"), logd4_translation(given), atol=1e-7)


def check(file, place, recompute) -> None:
    case = file.take(*place)
    assert recompute(case) == case, place
    file.compared += 1


def covered(family: str, case: dict) -> dict:
    cover = COVERS[family](*case["source"], *case["target"])
    return {
        **case,
        "resized": [cover.resized_height, cover.resized_width],
        "top": cover.top,
        "left": cover.left,
    }


def audited(case: dict) -> dict:
    rows = latent_rows(1 + (case["px"] - 1) // 4)
    return {
        **case,
        "pixels": audited_frames(case["px"], case["fps"]),
        "latents": audited_latents(rows, case["px"], case["fps"]),
    }


def at_full_length(case: dict) -> dict:
    plan = full_length(case["source_frames"])
    return {
        "source_frames": plan.source_frames,
        "decoded_frames": plan.decoded_frames,
        "decode_latents": plan.decode_latents,
        "rollout_latents": plan.rollout_latents,
        "camera_indices": list(plan.camera_indices),
        "tail_camera_rows": plan.tail_camera_rows,
    }
