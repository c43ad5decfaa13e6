"""What differs between two resolved configs, and whether a run could be resumed across it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from solarwm.config.plain import is_list, is_mapping

ABSENT = "(absent)"
SCHEDULE_END = "train.max_steps"
BOUND = "data.order: published binds a run to its ranks and workers"

# Where a run writes, how it is watched, where its files lie: none of it changes a number that is trained.
_HARMLESS = (
    "action",
    "checkpoint.async_save",
    "checkpoint.copy_to",
    "checkpoint.keep_every",
    "checkpoint.keep_last",
    "checkpoint.when_busy",
    "data.cache_dir",
    "data.gcs_prefetch_shards",
    "data.index_root",
    "data.latent_cache_dir",
    "data.max_bad_samples",
    "data.on_bad_sample",
    "data.prefetch_factor",
    "data.streaming_index",
    "data.tar_cache_size",
    "data.test_index",
    "data.transport",
    "distributed.check_collectives",
    "distributed.check_peers_every",
    "distributed.timeout_s",
    "inference",
    "metadata",
    "model.assets",
    "model.base_path",
    "model.checkpoint_path",
    "name",
    "runtime",
    "train.ema.device",
    "train.fsdp.activation_checkpointing",
    "train.fsdp.cpu_offload",
    "train.fsdp.recompute_every",
    "train.max_non_finite",
    "train.on_non_finite",
    "validation",
)
# Start weights are read once, before the first step; a resumed run skips them.
_INITIAL = ("checkpoint",)
# With keyed draws and a keyed order, only the global batch counts, not how it is cut.
_CUT = (
    "data.num_workers",
    "data.partition_mode",
    "data.shuffle_buffer",
    "distributed",
    "train.fsdp.strategy",
    "train.grad_accum",
    "train.micro_batch_size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key with two values."""

    key: str
    before: Any
    after: Any
    breaks_resume: bool
    reason: str


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Every leaf that differs between two canonical configs, sorted by key."""
    indexed = all(_at(config, "data", "order") == "indexed" for config in (before, after))
    published = "published" in (_at(before, "model", "numerics"), _at(after, "model", "numerics"))
    left, right = dict(_leaves(before, "")), dict(_leaves(after, ""))
    found: list[Difference] = []
    for key in sorted(left.keys() | right.keys()):
        one, two = left.get(key, ABSENT), right.get(key, ABSENT)
        if type(one) is type(two) and one == two:
            continue
        breaks, reason = _judge(key, elastic=indexed and not published)
        found.append(
            Difference(key=key, before=one, after=two, breaks_resume=breaks, reason=reason)
        )
    return found


def _judge(key: str, *, elastic: bool) -> tuple[bool, str]:
    if _under(key, _HARMLESS):
        return False, "changes no trained number"
    if _under(key, _INITIAL):
        return False, "start weights are skipped on resume"
    if _under(key, _CUT):
        if elastic:
            return False, "only the global batch counts with data.order: indexed"
        return True, BOUND
    if key == SCHEDULE_END:
        return False, "the learning rate follows the new end from the checkpoint on"
    return True, "part of what is trained"


def _under(key: str, prefixes: tuple[str, ...]) -> bool:
    return any(key == prefix or key.startswith((f"{prefix}.", f"{prefix}[")) for prefix in prefixes)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if is_mapping(value) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif is_list(value) and any(is_mapping(item) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def _at(config: Mapping[str, Any], section: str, key: str) -> Any:
    inner = config.get(section)
    return inner.get(key) if is_mapping(inner) else None
