"""Optimizer state as tensors keyed by parameter name, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from solarwm.checkpoints.manifest import MemberEntry
from solarwm.errors.types import SolarError

_WRAPPERS = frozenset({"_orig_mod", "module", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


def clean_name(name: str) -> str:
    """A parameter name without the segments that wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers of `module` by clean name, in place (not copied)."""
    tensors: dict[str, Tensor] = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor):
            tensors[clean_name(name)] = value
    return tensors


def named_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of `module` by clean name."""
    return {clean_name(name): parameter for name, parameter in module.named_parameters()}


def optimizer_tensors(
    optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """The state as `<parameter name>/<slot>` to tensor, not copied.

    Parameters without state yet are left out. A slot that is no tensor is a bug of the caller
    (TypeError).
    """
    names = _names(optimizer, parameters)
    tensors: dict[str, Tensor] = {}
    for parameter, slots in cast("dict[nn.Parameter, object]", optimizer.state).items():
        for slot, value in cast("dict[str, object]", slots).items():
            if not isinstance(value, Tensor):
                raise TypeError(f"optimizer slot {slot} is a {type(value).__name__}, not a tensor")
            tensors[f"{names[parameter]}/{slot}"] = value
    return tensors


def describe_groups(
    optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]
) -> list[dict[str, Any]]:
    """Each parameter group as plain JSON: its settings, and `parameters` as names in order."""
    names = _names(optimizer, parameters)
    return [
        {
            "parameters": [names[parameter] for parameter in group["params"]],
            "settings": {key: _plain(value) for key, value in group.items() if key != "params"},
        }
        for group in optimizer.param_groups
    ]


def restore_groups(
    optimizer: Optimizer,
    parameters: Mapping[str, nn.Parameter],
    groups: Sequence[Mapping[str, Any]],
    *,
    place: str,
) -> None:
    """Put saved group settings back; `checkpoint.mismatch` (exit 3) unless the groups hold equal
    names.
    """
    current = describe_groups(optimizer, parameters)
    if [group["parameters"] for group in current] != [group["parameters"] for group in groups]:
        raise SolarError(
            "checkpoint.mismatch",
            "the optimizer's parameter groups differ",
            where=place,
            why=f"{len(groups)} groups were saved, {len(current)} exist, or their names differ.",
        )
    for group, saved in zip(optimizer.param_groups, groups, strict=True):
        for key, value in saved["settings"].items():
            group[key] = tuple(value) if isinstance(group.get(key), tuple) else value


def allocate_state(
    optimizer: Optimizer, parameters: Mapping[str, nn.Parameter], member: MemberEntry, *, place: str
) -> dict[str, Tensor]:
    """Give a fresh optimizer empty state shaped like `member`; the tensors, to be filled by a load.

    Slots shaped like their parameter are sharded and placed like it, in the saved dtype; scalars
    are plain. Raises `checkpoint.mismatch` (exit 3) for a parameter the model does not have.
    """
    tensors: dict[str, Tensor] = {}
    state: dict[nn.Parameter, dict[str, Tensor]] = {}
    on_device = any(
        group.get("fused") or group.get("capturable") for group in optimizer.param_groups
    )
    for entry in member.tensors:
        name, _, slot = entry.name.rpartition("/")
        parameter = parameters.get(name)
        if parameter is None:
            raise SolarError(
                "checkpoint.mismatch",
                "the checkpoint has optimizer state of an unknown parameter",
                where=place,
                why=f"The model has no parameter {name!r}.",
            )
        dtype = cast(torch.dtype, getattr(torch, entry.dtype))
        if entry.shape == list(parameter.shape):
            value = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        else:
            device = parameter.device if on_device else torch.device("cpu")
            value = torch.zeros(entry.shape, dtype=dtype, device=device)
        state.setdefault(parameter, {})[slot] = value
        tensors[entry.name] = value
    optimizer.state.clear()
    cast("dict[nn.Parameter, dict[str, Tensor]]", optimizer.state).update(state)
    return tensors


def _names(optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[nn.Parameter, str]:
    names = {parameter: name for name, parameter in parameters.items()}
    held: Iterable[nn.Parameter] = (p for group in optimizer.param_groups for p in group["params"])
    for parameter in held:
        if parameter not in names:
            raise ValueError("the optimizer holds a parameter that the module does not name")
    return names


def _plain(value: object) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    return value
