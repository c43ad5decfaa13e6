from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from solarwm.nn.norms import gated, layer_norm, modulated, norm_rotate, rms_norm
from solarwm.nn.rope import rotate, rotation_table


def test_norm_with_rotation_has_the_gradient_of_its_parts():
    table = rotation_table((0, 1, 2), 2, 2, 8).to(torch.complex128)
    x = torch.randn(2, 12, 16, dtype=torch.float64, requires_grad=True)
    w = torch.rand(16, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: norm_rotate(x, w, 1e-6, table), (x, w))
    assert torch.autograd.gradcheck(lambda x, w: rms_norm(x, w, 1e-6), (x, w))
    expected = rotate(F.rms_norm(x, (16,), w, 1e-6), table)
    torch.testing.assert_close(norm_rotate(x, w, 1e-6, table), expected, atol=1e-12, rtol=0)


def test_half_precision_is_normed_in_fp32():
    x = (torch.randn(4, 64) * 300).bfloat16()
    w = torch.rand(64).bfloat16()
    exact = F.rms_norm(x.double(), (64,), w.double(), 1e-6)
    out = rms_norm(x, w, 1e-6)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, exact.bfloat16(), atol=0, rtol=0.008)


def test_modulation_and_gate_take_one_row_a_frame():
    x = torch.randn(2, 3, 4, 8)
    shift, scale, gate = (torch.randn(2, 3, 1, 8) for _ in range(3))
    layer = nn.LayerNorm(8, 1e-6, elementwise_affine=False)
    for frame in range(3):
        one = layer(x[:, frame]) * (1 + scale[:, frame]) + shift[:, frame]
        torch.testing.assert_close(modulated(x, layer, shift, scale)[:, frame], one)
    torch.testing.assert_close(gated(x, x, gate), x + x * gate)


def test_float64_stays_float64():
    x = torch.randn(2, 8, dtype=torch.float64)
    layer = nn.LayerNorm(8, 1e-6).double()
    assert layer_norm(x, layer).dtype == torch.float64
    torch.testing.assert_close(layer_norm(x, layer), layer(x), atol=1e-14, rtol=0)
