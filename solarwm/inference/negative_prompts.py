"""A negative prompt encoded once, into the file that training reads: `negative_prompt_embeds` [L,D].

Shapes: L tokens of the prompt, D text width.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.config.resolve import require_no_placeholders
from solarwm.errors.types import SolarError
from solarwm.storage.durable import create_bytes, make_directories

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

KEY = "negative_prompt_embeds"
FAMILIES = ("wan22_ti2v_5b", "wan22_i2v_a14b")


def encode(resolved: ResolvedRun, *, prompt: str | None, out: Path) -> dict[str, Any]:
    """Encode `prompt`, or the config's negative prompt, with the config's text encoder; fp32.

    Gives what was written. Raises `cli.file-exists` (exit 2) and what opening the codec raises.
    """
    if resolved.route.family not in FAMILIES:
        raise SolarError(
            "cli.not-available",
            f"negative prompts of {resolved.route.spec.title} are not encoded yet",
            why="only the Wan families read such a file",
        )
    if out.exists():
        raise SolarError(
            "cli.file-exists", "the output exists", where=str(out), fixes=["choose another path"]
        )
    config: Any = resolved.config
    text = prompt if prompt is not None else getattr(config.train, "negative_prompt", None)
    if text is None:
        raise SolarError(
            "cli.usage",
            "no negative prompt is given",
            why="the config has no train.negative_prompt",
            fixes=["--prompt 'blurred, watermark'"],
        )
    if any(name.startswith("model.") for name in resolved.placeholders):
        require_no_placeholders(resolved)
    import torch

    from solarwm.config.route import load
    from solarwm.distributed.devices import pick_device

    spec = resolved.route.spec
    backbone = load(spec.heavy)(spec.profiles[config.model.profile], config.model)
    base = config.model.base_path
    codec = backbone.codec(
        base_path=Path(base) if base else None,
        assets=config.model.assets,
        device=pick_device(config.runtime.device, local_rank=0),
    )
    states = codec.encode_text([text])[0].float().cpu()
    used = states.abs().amax(dim=1).nonzero()
    length = int(used[-1]) + 1 if len(used) else 1
    data = io.BytesIO()
    torch.save({KEY: states[:length].clone(), "prompt": text}, data)
    make_directories(out.absolute().parent)
    create_bytes(out, data.getvalue())
    return {"path": str(out), "prompt": text, "tokens": length, "width": states.shape[1]}
