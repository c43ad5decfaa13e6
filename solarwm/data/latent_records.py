"""Latent records of every family: tensors with their metadata, checked alike when written and read.

Nothing in a record is executed: the tensors are safetensors, parsed by `stored_tensors`. Every
refusal names the sample, what was expected and what was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from solarwm.camera.poses import LTX_CYCLE, h3_latent_rows, latent_rows
from solarwm.data.record_contracts import LTX_READER, LTX_SCHEMA, EncoderContract
from solarwm.data.stored_tensors import StoredTensor, from_bytes, to_bytes
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Tensors = Mapping[str, StoredTensor]
SUFFIXES = {"ltx25_video": "ltx25.safetensors", "minimax_h3": "tensors.safetensors"}
WAN_SUFFIX = "preencoded.safetensors"


def suffix_of(family: str) -> str:
    """The member suffix of a family's tensors."""
    return SUFFIXES.get(family, WAN_SUFFIX)


def write_record(
    contract: EncoderContract, tensors: Tensors, *, sample_id: str, codec_identity: str = ""
) -> bytes:
    """The bytes of a record that keeps its contract. Raises SolarError `latent.*` (exit 3)."""
    check_tensors(contract, tensors, sample_id)
    return to_bytes(tensors, _metadata(contract, sample_id, codec_identity))


def read_record(
    contract: EncoderContract, data: bytes, *, sample_id: str
) -> dict[str, StoredTensor]:
    """The tensors of a record. Raises SolarError (exit 3): `latent.unreadable`, `latent.contract`,
    `latent.not-finite`, `camera.not-rigid`."""
    try:
        tensors, metadata = from_bytes(data)
    except ValueError as error:
        hint = ""
        if data[:1] == b"\x80" or data[:2] == b"PK":
            hint = "; it looks like a pickle or zip, which is never opened"
        refuse(
            "latent.unreadable",
            "the latent record is no safetensors file",
            sample_id,
            f"{error}{hint}",
        )
    expected = _metadata(contract, sample_id, metadata.get("codec_identity", ""))
    for name, value in expected.items():
        if metadata.get(name) != value:
            why = f"it is {metadata.get(name)!r}, not {value!r}"
            refuse("latent.contract", f"metadata {name} of the record is wrong", sample_id, why)
    check_tensors(contract, tensors, sample_id)
    return tensors


def check_tensors(contract: EncoderContract, tensors: Tensors, sample_id: str) -> None:
    """Names, sizes, number types, finite numbers, then the rules of the family."""
    rules = contract.stored
    if set(tensors) != set(rules):
        why = f"expected {', '.join(sorted(rules))}; found {', '.join(sorted(tensors)) or 'none'}"
        refuse("latent.contract", "the latent record holds other tensors", sample_id, why)
    for name, rule in rules.items():
        tensor = tensors[name]
        fits = rule.fits(tensor.shape) or tensor.shape in _other_shapes(contract, name)
        if not fits or tensor.dtype != rule.dtype:
            shape = [size if size is not None else "any" for size in rule.shape]
            refuse(
                "latent.contract",
                f"tensor `{name}` does not fit the data section",
                sample_id,
                f"expected {rule.dtype}{shape} ({contract.pixel_frames} frames of "
                f"{contract.height}x{contract.width}), found {tensor.dtype}{list(tensor.shape)}",
            )
        if not tensor.is_finite():
            why = "it holds NaN or infinity"
            refuse("latent.not-finite", f"tensor `{name}` is not finite", sample_id, why)
    _FAMILY_RULES.get(contract.family, _wan_rules)(contract, tensors, sample_id)


def _metadata(contract: EncoderContract, sample_id: str, codec_identity: str) -> dict[str, str]:
    if contract.family == "minimax_h3":
        return {"format": contract.format_version}
    if contract.family == "ltx25_video":
        return {
            "schema": LTX_SCHEMA,
            "version": contract.format_version,
            "reader_contract": LTX_READER,
            "sample_id": sample_id,
            "codec_identity": codec_identity,
        }
    return {}


def _other_shapes(contract: EncoderContract, name: str) -> tuple[tuple[int, ...], ...]:
    """Shapes the H3 reader accepts beside that of the contract."""
    latents = contract.latent_frames
    accepted = {"camera_c2w": ((latents, 4, 4),), "camera_K": ((latents, 3, 3), (3, 3))}
    return accepted.get(name, ()) if contract.family == "minimax_h3" else ()


def _wan_rules(contract: EncoderContract, tensors: Tensors, sample_id: str) -> None:
    """A Wan record has no rule beyond its shapes; the mask of A14B is binary."""
    if "i2v_y" not in tensors:
        return
    mask = tensors["i2v_y"].widened()[:, :4]
    if not (mask[0] == 1).all() or mask[1:].any():
        why = "its first four channels must be 1 at the first latent and 0 elsewhere"
        refuse("latent.contract", "the mask of tensor `i2v_y` is wrong", sample_id, why)


def _ltx_rules(contract: EncoderContract, tensors: Tensors, sample_id: str) -> None:
    import numpy as np

    whole, first = tensors["video_latent"].array, tensors["first_frame_latent"].array
    if not np.array_equal(whole[:, :1], first):
        why = "it must equal slice 0 of video_latent bit for bit"
        refuse("latent.contract", "tensor `first_frame_latent` is wrong", sample_id, why)
    mask = tensors["prompt_attention_mask"].array.astype(np.int64)
    is_binary = bool(np.isin(mask, (0, 1)).all())
    if not is_binary or not mask.any() or bool((np.diff(mask) < 0).any()):
        why = "it must hold 0 and 1 only, padding (0) left of at least one token (1)"
        refuse("latent.contract", "tensor `prompt_attention_mask` is wrong", sample_id, why)
    indices = _contiguous("source_indices", tensors, sample_id)
    rows = np.array(latent_rows(contract.latent_frames, cycle=LTX_CYCLE)) + indices[0]
    found = tensors["camera_source_indices"].array
    if not np.array_equal(found, rows):
        why = f"expected {rows.tolist()}, found {found.tolist()}"
        refuse("latent.contract", "tensor `camera_source_indices` is wrong", sample_id, why)
    poses = tensors["relative_w2c"].widened()
    _rigid(poses, sample_id)
    if float(np.abs(poses[0] - np.eye(4)).max()) > 1e-5:
        why = "row 0 must be the identity: poses are relative to the first frame"
        refuse("latent.contract", "tensor `relative_w2c` is wrong", sample_id, why)
    _lens(tensors["camera_K"].widened(), sample_id)


def _h3_rules(contract: EncoderContract, tensors: Tensors, sample_id: str) -> None:
    import numpy as np

    tags, states = tensors["text_token_tags"].array, tensors["prompt_embeds"].array
    if len(tags) != len(states) or not len(tags) or not bool(np.isin(tags, (0, 1)).all()):
        why = f"{len(tags)} tags of 0 (vision) or 1 (text) for {len(states)} states"
        refuse("latent.contract", "tensor `text_token_tags` is wrong", sample_id, why)
    _contiguous("source_frame_indices", tensors, sample_id)
    _rigid(tensors["camera_c2w"].widened(), sample_id)
    _lens(tensors["camera_K"].widened().reshape(-1, 3, 3), sample_id)


_FAMILY_RULES = {"ltx25_video": _ltx_rules, "minimax_h3": _h3_rules}


def camera_rows(family: str, num_latents: int) -> tuple[int, ...]:
    """The pixel frame whose camera each latent of a family takes."""
    if family == "minimax_h3":
        return h3_latent_rows(num_latents)
    return (
        latent_rows(num_latents, cycle=LTX_CYCLE)
        if family == "ltx25_video"
        else latent_rows(num_latents)
    )


def _contiguous(name: str, tensors: Tensors, sample_id: str) -> NDArray[np.int64]:
    import numpy as np

    indices = tensors[name].array.astype(np.int64)
    if indices[0] < 0 or not np.array_equal(indices, indices[0] + np.arange(len(indices))):
        why = "it must count up by one from a frame of at least 0"
        refuse("latent.contract", f"tensor `{name}` is wrong", sample_id, why)
    return indices


def _rigid(poses_N44: NDArray[np.float32], sample_id: str) -> None:
    from solarwm.camera.guards import track_fault

    if fault := track_fault(poses_N44):
        place = "" if fault.frame is None else f"row {fault.frame}: "
        headline = "a camera pose of the record is no rigid motion"
        refuse("camera.not-rigid", headline, sample_id, f"{place}{fault.why}")


def _lens(lens_N33: NDArray[np.float32], sample_id: str) -> None:
    import numpy as np

    flat = np.abs(lens_N33.astype(np.float64))
    focal = lens_N33[:, (0, 1), (0, 1)]
    bottom = flat[:, 2] - np.array([0.0, 0.0, 1.0])
    sound = (
        bool((focal > 0).all())
        and not flat[:, (0, 1), (1, 0)].any()
        and not bottom.any()
        and float(flat.max()) <= 4.0
    )
    if not sound:
        why = "positive focal lengths, no skew, entries up to 4 (normalised by the canvas)"
        refuse("camera.lens", "the intrinsics of the record are wrong", sample_id, why)


def refuse(code: str, headline: str, sample_id: str, why: str) -> NoReturn:
    """Raise the fault of a record, naming its sample."""
    raise SolarError(
        code, f"{headline}: {sample_id}", where=sample_id, why=why, context={"sample_id": sample_id}
    )
