"""Heavy half of Wan 2.2 TI2V-5B: the shared Wan code at this family's profile."""

from __future__ import annotations

from typing import Any

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.backbone import WanBackbone
from solarwm.routes.spec import Profile


def create(profile: Profile, model_config: Any) -> WanBackbone:
    """The backbone of a resolved `model` section (`camera_translation_transform` is read)."""
    transform = getattr(model_config, "camera_translation_transform", None) or "linear"
    return WanBackbone(SPEC, profile, translation_transform=transform)
