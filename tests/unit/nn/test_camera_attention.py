from __future__ import annotations

import math

import pytest
import torch

from solarwm.nn.attention import attend
from solarwm.nn.camera_attention import camera_matrices, transform


def poses(count, seed=0):
    """Random rigid 4x4 in float64."""
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.eye(4, dtype=torch.float64).repeat(count, 1, 1)
    rotation, _ = torch.linalg.qr(
        torch.randn(count, 3, 3, dtype=torch.float64, generator=generator)
    )
    rotation = rotation * torch.linalg.det(rotation)[:, None, None]
    matrices[:, :3, :3] = rotation
    matrices[:, :3, 3] = torch.randn(count, 3, dtype=torch.float64, generator=generator)
    return matrices


def lens(fx=0.5, fy=0.9):
    return torch.tensor([[fx, 0, 0.5], [0, fy, 0.5], [0, 0, 1]], dtype=torch.float64)


def by_hand(q, k, v, view, intrinsics, per_frame):
    """One token and one channel group at a time, float64, matrix inverse by solver."""
    scale = torch.diag(
        torch.stack([intrinsics[0, 0], intrinsics[1, 1], torch.ones(()), torch.ones(())])
    )
    p = [scale.double() @ m for m in view]
    q, k, v = q.double().clone(), k.double().clone(), v.double().clone()
    for token in range(q.shape[1]):
        forward = p[token // per_frame]
        back = torch.linalg.inv(forward)
        for group in range(0, q.shape[-1], 4):
            part = slice(group, group + 4)
            q[0, token, :, part] = q[0, token, :, part] @ forward
            k[0, token, :, part] = k[0, token, :, part] @ back.T
            v[0, token, :, part] = v[0, token, :, part] @ back.T
    logits = torch.einsum("blhd,bkhd->bhlk", q, k) / math.sqrt(q.shape[-1])
    out = torch.einsum("bhlk,bkhd->blhd", logits.softmax(-1), v)
    for token in range(q.shape[1]):
        for group in range(0, q.shape[-1], 4):
            part = slice(group, group + 4)
            out[0, token, :, part] = out[0, token, :, part] @ p[token // per_frame].T
    return out


def camera_attention(q, k, v, camera):
    out = attend(
        transform(q, camera.query_BFGG),
        transform(k, camera.key_BFGG),
        transform(v, camera.key_BFGG),
    )
    return transform(out, camera.out_BFGG)


@pytest.mark.parametrize(("heads", "width"), [(2, 16), (3, 4), (1, 12)])
def test_matrices_a_frame_equal_matrices_a_token(heads, width):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 6, heads, width) for _ in range(3))
    view = poses(3)
    camera = camera_matrices(view[None].float(), lens()[None].float())
    out = camera_attention(q, k, v, camera)
    expected = by_hand(q, k, v, view, lens(), 2)
    torch.testing.assert_close(out, expected.float(), atol=2e-5, rtol=1e-5)


def test_only_relative_cameras_matter():
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 8, 2, 8) for _ in range(3))
    view, world = poses(4), poses(1, seed=9)
    out, moved = (
        camera_attention(q, k, v, camera_matrices(v4.float()[None], lens()[None]))
        for v4 in (view, view @ world)
    )
    torch.testing.assert_close(out, moved, atol=2e-5, rtol=1e-5)


def test_equal_cameras_are_plain_attention():
    q, k, v = (torch.randn(1, 8, 2, 8) for _ in range(3))
    view = poses(1).expand(4, 4, 4)
    camera = camera_matrices(view[None].float(), lens()[None])
    torch.testing.assert_close(
        camera_attention(q, k, v, camera), attend(q, k, v), atol=2e-5, rtol=1e-5
    )


def test_both_or_none():
    assert camera_matrices(None, None) is None
    with pytest.raises(ValueError, match="intrinsics missing"):
        camera_matrices(torch.eye(4).expand(1, 2, 4, 4), None)
    with pytest.raises(ValueError, match="viewmats missing"):
        camera_matrices(None, torch.eye(3)[None])
