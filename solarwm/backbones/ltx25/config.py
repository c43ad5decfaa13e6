"""Run configs of LTX-2.5: Stage0.5 of the video stream, and encoding."""

from __future__ import annotations

from collections.abc import Mapping

from solarwm.backbones.ltx25.rules import rules
from solarwm.backbones.ltx25.sections import (
    LtxCodecModel,
    LtxData,
    LtxDistributed,
    LtxInference,
    LtxModel,
    LtxPreencode,
    LtxPreencodeData,
    LtxTrain,
    LtxValidation,
)
from solarwm.config.adapter_sections import AdapterRun, SteppedCheckpoint
from solarwm.config.sections import PreencodeRun as PreencodeBase
from solarwm.config.strict import section

__all__ = ["DROPPED", "PreencodeRun", "Stage0p5Run", "rules"]

DROPPED: Mapping[str, tuple[object, str]] = {
    "runtime.provider_entrypoint": (
        "solarwm.backends.ltx25.official:create_provider",
        "runtime.provider_entrypoint is ignored: code is named by the route table, not by a config",
    ),
}
"""Published fields that mean nothing here: the one accepted value, and the note about it."""


class Stage0p5Run(AdapterRun):
    """Rectified flow on the video stream: training and generation."""

    model: LtxModel
    """Backbone."""
    data: LtxData
    """Clips."""
    distributed: LtxDistributed = section()
    """Ranks."""
    train: LtxTrain = section()
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""
    validation: LtxValidation = section()
    """Held-out generation during training."""
    checkpoint: SteppedCheckpoint = section()
    """Resume, retention, running average."""
    inference: LtxInference = section()
    """Generation with `solarwm infer`."""


class PreencodeRun(PreencodeBase):
    """Encoding clips into a latent data set."""

    model: LtxCodecModel
    """Codec."""
    data: LtxPreencodeData
    """Raw clips."""
    preencode: LtxPreencode
    """How and where to."""
