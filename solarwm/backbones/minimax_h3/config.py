"""Run configs of MiniMax-H3, one a route."""

from __future__ import annotations

from solarwm.backbones.minimax_h3.data_section import (
    H3Data,
    H3Distributed,
    H3PreencodeData,
    H3Stage1Data,
)
from solarwm.backbones.minimax_h3.model_section import (
    H3CausalModel,
    H3CodecModel,
    H3PreencodeModel,
    H3Stage2Model,
)
from solarwm.backbones.minimax_h3.rules import rules
from solarwm.backbones.minimax_h3.run_sections import (
    H3CausalValidation,
    H3Checkpoint,
    H3Inference,
    H3Preencode,
    H3Runtime,
    H3Stage0p5Checkpoint,
    H3Stage2Checkpoint,
    H3Validation,
)
from solarwm.backbones.minimax_h3.train_section import H3Stage0p5Train, H3Stage1Train, H3Stage2Train
from solarwm.config.adapter_sections import AdapterRun
from solarwm.config.sections import PreencodeRun as PreencodeBase
from solarwm.config.strict import section

__all__ = ["PreencodeRun", "Stage0p5Run", "Stage1AnyFlowRun", "Stage2Run", "rules"]


class H3Run(AdapterRun):
    """What every route of this family shares."""

    distributed: H3Distributed = section()
    """Ranks."""
    inference: H3Inference = section()
    """Generation with `solarwm infer`."""
    runtime: H3Runtime
    """Output directory, device."""


class Stage0p5Run(H3Run):
    """Bidirectional flow matching: training and generation."""

    model: H3CodecModel
    """Backbone."""
    data: H3Data
    """Clips."""
    train: H3Stage0p5Train = section()
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""
    validation: H3Validation = section()
    """Held-out generation."""
    checkpoint: H3Stage0p5Checkpoint = section()
    """Start weights, resume, retention, running average."""


class Stage1AnyFlowRun(H3Run):
    """Teacher-forced AnyFlow: training and generation."""

    model: H3CausalModel
    """Backbone."""
    data: H3Stage1Data
    """Clips."""
    train: H3Stage1Train = section()
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""
    validation: H3CausalValidation = section()
    """Held-out generation."""
    checkpoint: H3Checkpoint = section()
    """Start weights, resume, retention, running average."""


class Stage2Run(H3Run):
    """Self-gradient forcing: training and generation."""

    model: H3Stage2Model
    """Backbone."""
    data: H3Data
    """Clips."""
    train: H3Stage2Train = section()
    """Training rule, batch, optimizers; the batch is provenance for `infer`."""
    validation: H3CausalValidation = section()
    """Held-out generation."""
    checkpoint: H3Stage2Checkpoint = section()
    """Start weights, resume, retention, running average."""


class PreencodeRun(PreencodeBase):
    """Encoding clips into a latent data set."""

    model: H3PreencodeModel
    """Codec."""
    data: H3PreencodeData
    """Raw clips."""
    distributed: H3Distributed = section()
    """Ranks; each encodes its own part."""
    preencode: H3Preencode
    """How and where to."""
    runtime: H3Runtime
    """Output directory, device."""
