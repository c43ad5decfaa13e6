"""What must hold between fields of an LTX-2.5 config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from solarwm.config import common_rules
from solarwm.config.common_rules import missing
from solarwm.config.finding import Finding
from solarwm.routes.spec import BackboneSpec, Profile


def rules(config: Any, spec: BackboneSpec, profile: Profile) -> list[Finding]:
    """Every fault between fields of a validated LTX run config, all at once."""
    released = profile.name == "released"
    faults = [
        *common_rules.base_faults(config, profile, "checkpoint_path", "codec"),
        *common_rules.geometry_faults(config.data, profile, chunk=spec.chunk_latents),
        *common_rules.transport_faults(config.data),
    ]
    if config.action == "preencode":
        return [*faults, *_text_encoder(config, released), *_rank_index(config)]
    faults += common_rules.pass_faults(config)
    faults += common_rules.even_cases(config)
    faults += _guidance(config)
    if config.data.input_mode == "raw_online":
        faults += _text_encoder(config, released)
    if config.action == "train" and config.data.test_index is None:
        faults.append(
            missing(("data", "test_index"), "validation during training takes its clips from it")
        )
    if config.action == "infer":
        faults += _generation(config, released)
    return faults


def _text_encoder(config: Any, released: bool) -> Iterator[Finding]:
    codec = config.model.codec
    if released and codec is not None and codec.gemma4_path is None:
        yield missing(("model", "codec", "gemma4_path"), "captions are encoded in this run")


def _rank_index(config: Any) -> Iterator[Finding]:
    path = config.preencode.index_relative_path
    parts = path.split("/")
    if path.count("{rank}") != 1 or not path.endswith(".jsonl") or ".." in parts or "" in parts:
        yield Finding(
            path=("preencode", "index_relative_path"),
            code="config.value",
            message=f"index_relative_path {path!r} must be a relative .jsonl path with a {{rank}}",
            fixes=("--set preencode.index_relative_path='indexes/preencoded.rank-{rank}.jsonl'",),
        )


def _guidance(config: Any) -> Iterator[Finding]:
    samplers = {
        ("validation", "inference"): config.validation.inference,
        ("inference",): config.inference,
    }
    for path, sampler in samplers.items():
        if sampler.guidance.stg_scale > 0 and not sampler.guidance.stg_blocks:
            yield missing(
                (*path, "guidance", "stg_blocks"),
                "stg_scale is not 0, so some block must be skipped",
            )


def _generation(config: Any, released: bool) -> Iterator[Finding]:
    if config.model.adapter_checkpoint_path is None:
        yield missing(("model", "adapter_checkpoint_path"), "generation needs a trained adapter")
    if released and config.data.input_mode != "preencoded":
        yield Finding(
            path=("data", "input_mode"),
            code="config.value",
            message="generation takes preencoded conditions, not raw clips",
            fixes=("--set data.input_mode=preencoded",),
        )
