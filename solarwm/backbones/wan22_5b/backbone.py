"""Heavy half of Wan 2.2 TI2V-5B: the shared Wan code at this family's profile."""

from __future__ import annotations

from typing import Any

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.backbone import WanBackbone
from solarwm.nn.chunks import ChunkWindow
from solarwm.routes.spec import Profile

PRIOR_CHUNKS = 5


def create(profile: Profile, model_config: Any) -> WanBackbone:
    """The backbone of a resolved `model` section; what it leaves out comes from the profile.

    `numerics: auto` means `corrected`. Chunks see `max_prior_clean_chunks` chunks before their own
    and never more than `local_attn_size` latents with it.
    """
    transform = getattr(model_config, "camera_translation_transform", None) or "linear"
    numerics = getattr(model_config, "numerics", None) or "auto"
    numerics = "published" if numerics == "published" else "corrected"
    return WanBackbone(
        SPEC,
        profile,
        translation_transform=transform,
        numerics=numerics,
        window=_window(profile, model_config, aligned=numerics == "corrected"),
    )


def _window(profile: Profile, model_config: Any, *, aligned: bool) -> ChunkWindow:
    def given(name: str) -> int | None:
        return getattr(model_config, name, None)

    chunk = SPEC.chunk_latents
    frames = given("num_output_frames") or profile.geometry.latents(profile.default_frames) or chunk
    prior = given("max_prior_clean_chunks")
    if prior is None:
        prior = max(0, min(PRIOR_CHUNKS, frames // chunk - 2))
    local = given("local_attn_size") or -1
    if local > 0:
        prior = min(prior, max(0, local // chunk - 1))
    sink = given("sink_size") or 0
    trained = given("rope_train_frames") or frames
    return ChunkWindow(
        chunk_frames=chunk,
        prior_chunks=prior,
        sink_frames=sink,
        slot_frames=max(trained, (prior + 1) * chunk + sink),
        aligned=aligned,
        clean_windowed=aligned,
    )
