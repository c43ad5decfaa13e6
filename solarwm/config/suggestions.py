"""Where an unknown key probably belongs: a nearest name, the right section, or a known mistake."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from pydantic import BaseModel

from solarwm.config.aliases import ALIASES
from solarwm.config.binding import fields

# Names from other trainers, and what they are called here.
KNOWN_MISTAKES: dict[str, tuple[str, str]] = {
    "accumulation": ("train.grad_accum", ""),
    "batch_size": ("train.micro_batch_size", "the batch of one rank and one forward pass"),
    "bs": ("train.micro_batch_size", "the batch of one rank and one forward pass"),
    "ckpt": ("checkpoint.path", ""),
    "checkpoint_dir": ("runtime.output_dir", "checkpoints are written into the run directory"),
    "checkpoint_every": ("runtime.save_every", ""),
    "clip_grad_norm": ("train.optimizer.grad_clip", ""),
    "dataset_path": ("data.transport.root", ""),
    "ema_decay": ("train.ema.decay", ""),
    "epochs": ("train.max_steps", "there are no epochs: a run is counted in optimizer steps"),
    "eval_every": ("runtime.validate_every", ""),
    "fps_target": ("data.fps", ""),
    "gpus": ("distributed.world_size", ""),
    "grad_accum_steps": ("train.grad_accum", ""),
    "gradient_accumulation": ("train.grad_accum", ""),
    "gradient_clipping": ("train.optimizer.grad_clip", ""),
    "iterations": ("train.max_steps", ""),
    "learning_rate": ("train.optimizer.lr", ""),
    "log_dir": ("runtime.output_dir", ""),
    "lr": ("train.optimizer.lr", ""),
    "max_epochs": ("train.max_steps", "there are no epochs: a run is counted in optimizer steps"),
    "max_grad_norm": ("train.optimizer.grad_clip", ""),
    "num_epochs": ("train.max_steps", "there are no epochs: a run is counted in optimizer steps"),
    "num_frames": ("data.pixel_frames", ""),
    "num_gpus": ("distributed.world_size", ""),
    "num_steps": ("train.max_steps", ""),
    "num_train_epochs": (
        "train.max_steps",
        "there are no epochs: a run is counted in optimizer steps",
    ),
    "output": ("runtime.output_dir", ""),
    "precision": ("train.fsdp.param_dtype", ""),
    "random_seed": ("data.seed", ""),
    "resume": ("", "resume with `solarwm train --resume latest`"),
    "save_steps": ("runtime.save_every", ""),
    "sp_size": ("distributed.sequence_parallel_size", ""),
    "steps": ("train.max_steps", ""),
    "train_batch_size": ("train.micro_batch_size", "the batch of one rank and one forward pass"),
    "val_every": ("runtime.validate_every", ""),
    "wd": ("train.optimizer.weight_decay", ""),
    "workers": ("data.num_workers", ""),
    "world": ("distributed.world_size", ""),
}
_REVERSED = {canonical: alias for alias, canonical in ALIASES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What to say about an unknown key."""

    target: str
    """Dotted key that is probably meant; empty when nothing comes near."""
    misplaced: bool
    """The name is right, but it belongs elsewhere."""
    remark: str
    legal: tuple[str, ...]
    """Keys of the section the unknown key stands in."""


def suggest(model: type[BaseModel], section: str, key: str) -> Suggestion:
    """The best guess for `key` in the section with dotted name `section` (empty for the top level)."""
    known = [dotted for dotted, _ in fields(model)]
    prefix = f"{section}." if section else ""
    legal = tuple(
        sorted(
            dotted.removeprefix(prefix).removesuffix("[]")
            for dotted in known
            if dotted.startswith(prefix) and "." not in dotted.removeprefix(prefix)
        )
    )
    name = key.strip().replace("-", "_").lower()
    if name in legal:
        return Suggestion(target=f"{prefix}{name}", misplaced=False, remark="", legal=legal)
    target, remark = KNOWN_MISTAKES.get(name, ("", ""))
    if target in known or (remark and not target):
        elsewhere = bool(target) and target.rpartition(".")[0] != section
        return Suggestion(target=target, misplaced=elsewhere, remark=remark, legal=legal)
    by_leaf: dict[str, list[str]] = {}
    for dotted in known:
        leaf = dotted.rpartition(".")[2]
        by_leaf.setdefault(leaf, []).append(dotted)
        if leaf in _REVERSED:
            by_leaf.setdefault(_REVERSED[leaf], []).append(dotted)
    if name in by_leaf:
        return Suggestion(
            target=_closest(by_leaf[name], section), misplaced=True, remark="", legal=legal
        )
    here = {leaf: f"{prefix}{leaf}" for leaf in legal}
    here |= {_REVERSED[leaf]: f"{prefix}{leaf}" for leaf in legal if leaf in _REVERSED}
    close = difflib.get_close_matches(name, list(here), n=1, cutoff=0.72)
    if close:
        return Suggestion(target=here[close[0]], misplaced=False, remark="", legal=legal)
    close = difflib.get_close_matches(name, list(by_leaf), n=1, cutoff=0.8)
    if close:
        return Suggestion(
            target=_closest(by_leaf[close[0]], section), misplaced=False, remark="", legal=legal
        )
    return Suggestion(target="", misplaced=False, remark="", legal=legal)


def _closest(candidates: list[str], section: str) -> str:
    head = section.partition(".")[0]
    inside = [dotted for dotted in candidates if dotted.startswith(f"{head}.")]
    return min(
        inside or candidates, key=lambda dotted: (dotted.count("."), candidates.index(dotted))
    )
