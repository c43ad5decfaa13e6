"""Run configs of Wan2.2 I2V-A14B: Stage0.5 of the high-noise expert, and encoding."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.backbones.wan22_core.data_section import WanImageData, WanPreencodeData
from solarwm.backbones.wan22_core.model_section import WanAssetsModel, WanModel
from solarwm.backbones.wan22_core.rules import rules
from solarwm.backbones.wan22_core.run_sections import (
    WanCheckpoint,
    WanInference,
    WanPreencode,
    WanSplitDistributed,
    WanValidation,
)
from solarwm.backbones.wan22_core.train_section import ImageStage0p5Train
from solarwm.config.marks import Format
from solarwm.config.runtime_section import CadenceRuntime
from solarwm.config.sections import PreencodeRun as PreencodeBase
from solarwm.config.sections import RunConfig
from solarwm.config.strict import section

__all__ = ["PreencodeRun", "Stage0p5Run", "rules"]

Family = Literal["wan22_i2v_a14b"]
Size = Literal["released", "tiny"]
_NAME = "Wan2.2-I2V-A14B-High-Camera"


class Stage0p5Model(WanModel):
    """Stage0.5 of the high-noise expert."""

    family: Family
    """Backbone family."""
    profile: Size = "released"
    """`released`, or `tiny` for a CPU."""
    name: Annotated[str, Format(value=_NAME)] = _NAME
    """Name of the model."""


class PreencodeModel(WanAssetsModel):
    """The codec of the family."""

    family: Family
    """Backbone family."""
    profile: Size = "released"
    """`released`, or `tiny` for a CPU."""


class Stage0p5Run(RunConfig):
    """Bidirectional flow matching: training and generation."""

    model: Stage0p5Model
    """Backbone."""
    data: WanImageData
    """Clips."""
    distributed: WanSplitDistributed = section()
    """Ranks."""
    train: ImageStage0p5Train = section()
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""
    validation: WanValidation = section()
    """Held-out generation."""
    checkpoint: WanCheckpoint = section()
    """Start weights, resume, retention."""
    inference: WanInference = section()
    """Generation with `solarwm infer`."""
    runtime: CadenceRuntime
    """Output directory, device, cadence."""


class PreencodeRun(PreencodeBase):
    """Encoding clips into a latent data set."""

    model: PreencodeModel
    """Codec."""
    data: WanPreencodeData
    """Raw clips."""
    preencode: WanPreencode
    """How and where to."""
    runtime: CadenceRuntime
    """Output directory, device."""
