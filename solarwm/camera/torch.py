"""The torch twins of `poses` and `transforms`, for tensors on any device. Same maths, same
conventions.

Shapes: ...44 poses, B batch, F latents. float32 and float64 are kept; half precision is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor


def invert_se3(poses: Tensor) -> Tensor:
    """Inverse of rigid poses [...,4,4]: `R' = R^T, t' = -R^T t`, bottom row exact."""
    _full_precision(poses)
    rotation = poses[..., :3, :3].transpose(-1, -2)
    translation = -(rotation @ poses[..., :3, 3:])
    bottom = poses.new_tensor([0, 0, 0, 1]).expand(*poses.shape[:-2], 1, 4)
    return torch.cat([torch.cat([rotation, translation], dim=-1), bottom], dim=-2)


def relative_to_first(c2w_BF44: Tensor) -> Tensor:
    """Poses seen from the first camera of each track [...,F,4,4]: `C_0^-1 C_i`, row 0 the identity
    exactly.
    """
    _full_precision(c2w_BF44)
    relative = invert_se3(c2w_BF44[..., :1, :, :]) @ c2w_BF44
    identity = torch.eye(4, dtype=relative.dtype, device=relative.device).expand_as(
        relative[..., :1, :, :]
    )
    return torch.cat([identity, relative[..., 1:, :, :]], dim=-3)


def viewmats(c2w_BF44: Tensor) -> Tensor:
    """First-frame-relative world-to-camera [...,F,4,4]; row 0 the identity exactly."""
    return invert_se3(relative_to_first(c2w_BF44))


def linear(viewmats_BF44: Tensor) -> Tensor:
    """The matrices as they are."""
    return viewmats_BF44


def logd4(viewmats_BF44: Tensor) -> Tensor:
    """`t' = t log(1+|t|) / (4|t|)`, 0 at 0; rotations untouched."""
    _full_precision(viewmats_BF44)
    translation = viewmats_BF44[..., :3, 3:]
    length = translation.square().sum(dim=-2, keepdim=True).sqrt()
    safe = torch.where(length > 0, length, torch.ones_like(length))
    moved = translation * (torch.log1p(length) / (4 * safe))
    upper = torch.cat([viewmats_BF44[..., :3, :3], moved], dim=-1)
    return torch.cat([upper, viewmats_BF44[..., 3:, :]], dim=-2)


TRANSFORMS = {"linear": linear, "logd4": logd4}


def _full_precision(poses: Tensor) -> None:
    if poses.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"camera matrices are float32 or float64, not {poses.dtype}")
