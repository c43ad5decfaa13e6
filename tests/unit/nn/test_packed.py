from __future__ import annotations

import copy

import torch
from torch import nn

from solarwm.nn.packed import pack, project


def layers(seed=0):
    torch.manual_seed(seed)
    return nn.ModuleList(nn.Linear(8, size) for size in (8, 8, 4))


def outputs_and_gradients(run, modules, x):
    x = x.clone().requires_grad_()
    out = run(x)
    loss = sum((part * (i + 1)).square().sum() for i, part in enumerate(out))
    return out, torch.autograd.grad(loss, [x, *modules.parameters()])


def same(first, second):
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_one_product_equals_one_a_layer():
    modules, x = layers(), torch.randn(2, 5, 8)
    apart = outputs_and_gradients(lambda x: [m(x) for m in modules], modules, x)
    keys = list(modules.state_dict())
    pack(list(modules))
    assert list(modules.state_dict()) == keys
    storages = {p.untyped_storage().data_ptr() for p in modules.parameters()}
    assert len(storages) == 2
    together = outputs_and_gradients(lambda x: project(list(modules), x), modules, x)
    same(apart[0], together[0])
    same(apart[1], together[1])


def test_an_optimizer_step_is_seen_by_the_packed_product():
    modules, x = layers(), torch.randn(3, 8)
    pack(list(modules))
    optimizer = torch.optim.AdamW(modules.parameters(), lr=0.1, fused=True)
    sum(part.sum() for part in project(list(modules), x)).backward()
    optimizer.step()
    same(project(list(modules), x), [m(x) for m in modules])


def test_copies_casts_and_loads_stay_right():
    modules, x = layers(), torch.randn(3, 8)
    pack(list(modules))
    other = layers(seed=1)
    expected = [m(x) for m in other]
    clone = copy.deepcopy(modules)
    clone.load_state_dict(other.state_dict())
    same(project(list(clone), x), expected)
    same(project(list(modules), x), [m(x) for m in modules])
    same(project(list(clone.double()), x.double()), [e.double() for e in expected])
    clone.float().load_state_dict(modules.state_dict(), assign=True)
    same(project(list(clone), x), [m(x) for m in modules])


def test_a_replaced_layer_is_called():
    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x)

    modules, x = list(layers()), torch.randn(3, 8)
    pack(modules)
    replaced = [modules[0], Doubled(modules[1]), modules[2]]
    same(project(replaced, x), [m(x) for m in replaced])


def test_a_frozen_layer_gets_no_gradient():
    modules, x = layers(), torch.randn(3, 8)
    pack(list(modules))
    modules[1].requires_grad_(False)
    sum(part.square().sum() for part in project(list(modules), x)).backward()
    assert modules[1].weight.grad is None
    assert modules[0].weight.grad is not None


def test_meta_layers_stay_on_meta():
    with torch.device("meta"):
        modules = layers()
    pack(list(modules))
    assert all(p.is_meta for p in modules.parameters())
    assert project(list(modules), torch.empty(3, 8, device="meta"))[0].shape == (3, 8)
