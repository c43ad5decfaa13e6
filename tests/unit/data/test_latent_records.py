"""Latent records of all families: bytes, shapes, number types, and everything that is refused."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_numpy
from safetensors.torch import load as load_torch
from safetensors.torch import save as save_torch

from solarwm.data.latent_records import read_record, write_record
from solarwm.data.stored_tensors import from_bytes, stored, to_bytes
from solarwm.errors.types import SolarError
from tests.unit.data.latent_samples import FAMILIES, contract, tensors


@pytest.mark.parametrize("family", FAMILIES)
def test_a_record_is_read_back_bit_for_bit_and_the_library_reads_it_too(family: str) -> None:
    made = contract(family)
    given = tensors(made)
    data = write_record(made, given, sample_id="demo/one", codec_identity="codec")
    found = read_record(made, data, sample_id="demo/one")
    by_library = load_torch(data)
    assert set(found) == set(given) == set(by_library)
    for name, tensor in given.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name].array, tensor.array)
        widened = by_library[name].float().numpy()
        np.testing.assert_array_equal(found[name].widened(), widened)


def test_bfloat16_is_rounded_as_torch_rounds_it() -> None:
    values = np.random.default_rng(0).standard_normal(4096).astype(np.float32) * 1e3
    ties = np.array([1.00390625, 1.01171875, -1.00390625, 0.0, 3e38], np.float32)
    values = np.concatenate([values, ties])
    expected = torch.from_numpy(values).to(torch.bfloat16)
    made = stored(values, "bfloat16")
    assert torch.equal(torch.from_numpy(made.widened()), expected.float())
    assert from_bytes(save_torch({"x": expected}))[0]["x"].array.tolist() == made.array.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_another_size_names_sample_expected_and_found(family: str) -> None:
    made, other = contract(family), contract(family, height=96)
    data = write_record(other, tensors(other), sample_id="demo/one")
    with pytest.raises(SolarError) as raised:
        read_record(made, data, sample_id="demo/one")
    fault = raised.value
    assert (fault.code, fault.exit_code) == ("latent.contract", 3)
    assert "demo/one" in fault.headline
    assert "expected" in fault.why
    assert "found" in fault.why


def test_twenty_latents_where_twenty_one_are_due_are_refused_with_both_numbers() -> None:
    made, short = (
        contract("wan22_ti2v_5b", pixel_frames=81),
        contract("wan22_ti2v_5b", pixel_frames=77),
    )
    data = write_record(short, tensors(short), sample_id="demo/short")
    with pytest.raises(SolarError) as raised:
        read_record(made, data, sample_id="demo/short")
    assert "bfloat16[21, 48, 4, 6]" in raised.value.why
    assert "bfloat16[20, 48, 4, 6]" in raised.value.why


def _spoilt(family: str, name: str, change) -> SolarError:
    made = contract(family)
    given = tensors(made)
    array = np.array(given[name].array)
    change(array)
    given[name] = type(given[name])(given[name].dtype, array)
    with pytest.raises(SolarError) as raised:
        write_record(made, given, sample_id="demo/one")
    data = to_bytes(given, _metadata(made))
    with pytest.raises(SolarError) as again:
        read_record(made, data, sample_id="demo/one")
    assert again.value.code == raised.value.code
    assert "demo/one" in str(raised.value)
    return raised.value


def _metadata(made) -> dict[str, str]:
    sound = write_record(made, tensors(made), sample_id="demo/one")
    return from_bytes(sound)[1]


def _set(place, value):
    def change(array: np.ndarray) -> None:
        array[place] = value

    return change


@pytest.mark.parametrize(
    ("family", "name", "change", "code"),
    [
        ("wan22_ti2v_5b", "latents", _set((0, 0, 0, 0), 0x7FC0), "latent.not-finite"),
        ("wan22_ti2v_5b", "prompt_embeds", _set((0, 0), 0xFF80), "latent.not-finite"),
        ("wan22_i2v_a14b", "i2v_y", _set((1, 0), 0x3F80), "latent.contract"),
        ("ltx25_video", "first_frame_latent", _set((0, 0, 0, 0), 0x4000), "latent.contract"),
        ("ltx25_video", "prompt_attention_mask", _set(slice(None), 0), "latent.contract"),
        ("ltx25_video", "prompt_attention_mask", _set(-1, 0), "latent.contract"),
        ("ltx25_video", "source_indices", _set(3, 0), "latent.contract"),
        ("ltx25_video", "camera_source_indices", _set(1, 9), "latent.contract"),
        ("ltx25_video", "relative_w2c", _set((0, 0, 3), 0.5), "latent.contract"),
        ("ltx25_video", "relative_w2c", _set((2, 0, 0), 1.5), "camera.not-rigid"),
        ("ltx25_video", "camera_K", _set((0, 0, 0), 900.0), "camera.lens"),
        ("minimax_h3", "text_token_tags", _set(0, 2), "latent.contract"),
        ("minimax_h3", "source_frame_indices", _set(0, 0), "latent.contract"),
        ("minimax_h3", "camera_c2w", _set((1, 3, 3), 2.0), "camera.not-rigid"),
        ("minimax_h3", "camera_K", _set((0, 0, 0), -1.0), "camera.lens"),
    ],
)
def test_the_rules_of_a_family_hold_when_written_and_when_read(family, name, change, code) -> None:
    assert _spoilt(family, name, change).code == code


def test_a_wan_record_with_an_image_condition_belongs_to_the_other_family() -> None:
    made = contract("wan22_ti2v_5b")
    given = tensors(made) | {"i2v_y": stored(np.zeros((9, 20, 4, 6)), "bfloat16")}
    with pytest.raises(SolarError, match="other tensors"):
        write_record(made, given, sample_id="demo/one")


def test_a_record_of_another_sample_is_refused_where_the_format_names_its_sample() -> None:
    made = contract("ltx25_video")
    data = write_record(made, tensors(made), sample_id="demo/one")
    with pytest.raises(SolarError, match="sample_id") as raised:
        read_record(made, data, sample_id="demo/two")
    assert raised.value.code == "latent.contract"


class _Payload:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def _payloads(path: str) -> dict[str, bytes]:
    whole = io.BytesIO()
    torch.save({"latents": _Payload(path)}, whole)
    pickled = io.BytesIO()
    np.savez(pickled, latents=np.array([_Payload(path)], dtype=object))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("data.pkl", pickle.dumps(_Payload(path)))
    return {
        "pickle": pickle.dumps(_Payload(path)),
        "torch": whole.getvalue(),
        "npz": pickled.getvalue(),
        "zip": archive.getvalue(),
    }


@pytest.mark.parametrize("kind", ["pickle", "torch", "npz", "zip"])
def test_a_planted_payload_is_refused_and_never_executed(kind: str, tmp_path) -> None:
    made = contract("wan22_ti2v_5b")
    mark = tmp_path / "executed"
    with pytest.raises(SolarError) as raised:
        read_record(made, _payloads(str(mark))[kind], sample_id="demo/one")
    assert (raised.value.code, raised.value.exit_code) == ("latent.unreadable", 3)
    assert "never opened" in raised.value.why
    assert not mark.exists()


def test_a_gap_an_overlap_and_a_repeated_name_are_refused() -> None:
    sound = save_numpy({"a": np.zeros(4, np.float32), "b": np.ones(4, np.float32)})
    for old, new in ((b"[16,32]", b"[12,28]"), (b'"b"', b'"a"'), (b"[4]", b"[5]")):
        assert old in sound
        with pytest.raises(ValueError, match=r"."):
            from_bytes(sound.replace(old, new, 1))
