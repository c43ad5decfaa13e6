"""Run configs of the causal routes of Wan2.2 TI2V-5B."""

from __future__ import annotations

from solarwm.backbones.wan22_5b.config import NAME, Family, Name, Size, WanRun
from solarwm.backbones.wan22_core.causal_model_section import WanCausalModel, WanStage2Model
from solarwm.backbones.wan22_core.causal_train_section import (
    Stage1AnyFlowTrain,
    Stage1Train,
    Stage2Train,
)
from solarwm.backbones.wan22_core.rules import rules
from solarwm.config.strict import section

__all__ = ["Stage1AnyFlowRun", "Stage1Run", "Stage2Run", "rules"]


class CausalModel(WanCausalModel):
    """Stage1 of the 5B model."""

    family: Family
    """Backbone family."""
    profile: Size = "released"
    """`released`, or `tiny` (128 wide) and `small` (192 wide) for a CPU."""
    name: Name = NAME
    """Name of the model."""


class Stage2Model(WanStage2Model):
    """Stage2 of the 5B model."""

    family: Family
    """Backbone family."""
    profile: Size = "released"
    """`released`, or `tiny` (128 wide) and `small` (192 wide) for a CPU."""
    name: Name = NAME
    """Name of the model."""


class Stage1Run(WanRun):
    """Teacher-forced flow matching: training and generation."""

    model: CausalModel
    """Backbone."""
    train: Stage1Train = section()
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""


class Stage1AnyFlowRun(WanRun):
    """Teacher-forced AnyFlow: training and generation."""

    model: CausalModel
    """Backbone."""
    train: Stage1AnyFlowTrain = section()
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""


class Stage2Run(WanRun):
    """Self-gradient forcing: training and generation."""

    model: Stage2Model
    """Backbone."""
    train: Stage2Train
    """Training rule, batch, optimizers; the batch is provenance for `infer`."""
