"""Training goes on from its own weights, whatever becomes of a validation pass."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from solarwm.distributed.sharding import Replicated, fingerprint
from solarwm.training.ema import ShardEma
from solarwm.training.validating import TrainingValidation


@pytest.fixture
def role():
    torch.manual_seed(0)
    module = nn.Linear(4, 3).train()
    average = ShardEma(module, decay=0.9)
    with torch.no_grad():
        module.weight.add_(1.0)
    average.update(1)
    return SimpleNamespace(module=module, ema=average, layout=Replicated(group=None))


@pytest.mark.parametrize("weights", ["live", "ema"])
def test_the_live_weights_are_back_when_a_pass_raises(role, weights) -> None:
    validation = SimpleNamespace(_stage=SimpleNamespace(role=role))
    before = [p.detach().clone() for p in role.module.parameters()]
    held = fingerprint(role.module.parameters())
    seen = []

    def broken_pass() -> None:
        with TrainingValidation._weights(validation, weights):
            seen.append(fingerprint(role.module.parameters()))
            assert not role.module.training
            raise RuntimeError("the decoder broke")

    with pytest.raises(RuntimeError, match="decoder"):
        broken_pass()
    assert torch.equal(seen[0], held) == (weights == "live")
    after = list(role.module.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert role.module.training
