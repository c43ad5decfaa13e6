"""Run configs of Wan2.2 TI2V-5B, one a route."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.backbones.wan22_core.data_section import WanData, WanPreencodeData
from solarwm.backbones.wan22_core.model_section import (
    WanAssetsModel,
    WanModel,
)
from solarwm.backbones.wan22_core.rules import rules
from solarwm.backbones.wan22_core.run_sections import (
    WanCheckpoint,
    WanDistributed,
    WanInference,
    WanPreencode,
    WanValidation,
)
from solarwm.backbones.wan22_core.train_section import (
    Stage0p5Train,
)
from solarwm.config.marks import Format
from solarwm.config.runtime_section import CadenceRuntime
from solarwm.config.sections import PreencodeRun as PreencodeBase
from solarwm.config.sections import RunConfig
from solarwm.config.strict import section

__all__ = ["PreencodeRun", "Stage0p5Run", "rules"]

Family = Literal["wan22_ti2v_5b"]
Size = Literal["released", "tiny", "small"]
NAME = "Wan2.2-TI2V-5B-Camera"
Name = Annotated[str, Format(value=NAME)]


class Stage0p5Model(WanModel):
    """Stage0.5 of the 5B model."""

    family: Family
    """Backbone family."""
    profile: Size = "released"
    """`released`, or `tiny` (128 wide) and `small` (192 wide) for a CPU."""
    name: Name = NAME
    """Name of the model."""


class PreencodeModel(WanAssetsModel):
    """The codec of the 5B model."""

    family: Family
    """Backbone family."""
    profile: Size = "released"
    """`released`, or `tiny` and `small` for a CPU."""


class WanRun(RunConfig):
    """What every route of this family shares."""

    data: WanData
    """Clips."""
    distributed: WanDistributed = section()
    """Ranks."""
    validation: WanValidation = section()
    """Held-out generation."""
    checkpoint: WanCheckpoint = section()
    """Start weights, resume, retention."""
    inference: WanInference = section()
    """Generation with `solarwm infer`."""
    runtime: CadenceRuntime
    """Output directory, device, cadence."""


class Stage0p5Run(WanRun):
    """Bidirectional flow matching: training and generation."""

    model: Stage0p5Model
    """Backbone."""
    train: Stage0p5Train = section()
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""


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
