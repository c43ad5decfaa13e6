"""Encoded negative prompts are what training would have encoded itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from solarwm.config.resolve import resolve
from solarwm.errors.types import SolarError
from solarwm.inference.negative_prompts import encode
from solarwm.training.assembly import open_backbone
from solarwm.training.negative_prompt import read_embedding

QUICKSTART = Path(__file__).parents[3] / "configs" / "examples" / "quickstart" / "stage0p5.yaml"


@pytest.mark.parametrize("prompt", ["blurred, watermark", ""])
def test_the_file_read_by_training_equals_the_prompt_encoded_at_the_start(
    prompt: str, tmp_path: Path
) -> None:
    resolved = resolve(QUICKSTART)
    path = tmp_path / "negative.pth"
    report = encode(resolved, prompt=prompt, out=path)
    backbone = open_backbone(resolved)
    dims = backbone.profile.dims
    codec = backbone.codec(base_path=None, assets=None, device=torch.device("cpu"))
    expected = codec.encode_text([prompt]).float()
    found = read_embedding(path, tokens=dims.text_len, width=dims.text_dim)
    assert torch.equal(found, expected)
    assert report["width"] == dims.text_dim
    with pytest.raises(SolarError) as raised:
        encode(resolved, prompt=prompt, out=path)
    assert raised.value.code == "cli.file-exists"


def test_a_config_without_a_negative_prompt_needs_one_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(SolarError, match="no negative prompt") as raised:
        encode(resolve(QUICKSTART), prompt=None, out=tmp_path / "negative.pth")
    assert raised.value.exit_code == 2
