"""Published spellings that differ between families, and the one spelling this project keeps."""

from __future__ import annotations

_OPTIMIZER = {"learning_rate": "lr", "epsilon": "eps", "gradient_clip": "grad_clip"}
_GUARDS = {"max_relative_translation": "max_rel_translation", "max_camera_absolute_value": "max_camera_abs"}

ALIASES: dict[str, dict[str, str]] = {
    "data": _GUARDS,
    "train": {
        "gradient_accumulation_steps": "grad_accum",
        "diffusion_ratio": "anyflow_diffusion_ratio",
        "consistency_ratio": "anyflow_consistency_ratio",
        "finite_difference_epsilon": "anyflow_epsilon",
        "deltatime_type": "anyflow_deltatime_type",
        "weight_type": "anyflow_weight_type",
        "match_context": "self_gradient_forcing_match_context",
        "cache_mode": "self_gradient_forcing_cache_mode",
    },
    "train.optimizer": _OPTIMIZER,
    "train.critic_optimizer": _OPTIMIZER,
    "train.fsdp": {"sharding_strategy": "strategy"},
    "validation": {**_GUARDS, "validate_every_steps": "validate_every"},
    "checkpoint": {"save_every_steps": "save_every"},
    "checkpoint.ema": {"update_every_steps": "update_every"},
}
"""Section -> {published alias: canonical key}. Sections themselves stay as each family published them."""
