"""Which blocks are recomputed and compiled, and where compiling is refused."""

from __future__ import annotations

import importlib.util
import shutil

import pytest
import torch
from torch import nn

from solarwm.distributed.devices import require_compiler
from solarwm.errors.types import SolarError
from solarwm.training.stage import checkpoint_activations, compile_blocks


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.weight + x.sin()


@pytest.mark.parametrize(
    ("every", "calls"), [(1, [2, 2, 2, 2, 2]), (2, [2, 1, 2, 1, 2]), (5, [2, 1, 1, 1, 1])]
)
def test_every_nth_block_is_run_again_in_the_backward_with_equal_gradients(
    every: int, calls: list[int]
) -> None:
    plain, recomputed = (nn.Sequential(*(Block() for _ in range(5))) for _ in range(2))
    checkpoint_activations(recomputed, block_class="Block", every=every)
    x = torch.arange(3.0)
    for module in (plain, recomputed):
        module(x).sum().backward()
    assert [block.calls for block in plain] == [1] * 5
    assert [block.calls for block in recomputed] == calls
    for one, two in zip(plain.parameters(), recomputed.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)
    assert list(plain.state_dict()) == list(recomputed.state_dict())


def test_blocks_and_nothing_else_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def note(function, *args, **more):
        compiled.append(function.__self__)
        return function

    monkeypatch.setattr(torch, "compile", note)
    module = nn.Sequential(Block(), nn.Linear(3, 3), Block())
    compile_blocks(module, block_class="Block")
    assert compiled == [module[0], module[2]]


def test_compiling_is_refused_where_nothing_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for device, what in (("cpu", "C++ compiler"), ("cuda", "Triton"), ("mps", "Triton")):
        with pytest.raises(SolarError, match=device) as told:
            require_compiler(device)
        assert (told.value.code, told.value.exit_code) == ("environment.no-compiler", 5)
        assert what in str(told.value.why)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++" if name == "g++" else None)
    require_compiler("cpu")
