"""Fused PRoPE: self-attention that sees only the relative camera of two tokens.

With viewmat V_i (world to camera, SE(3)) and L = diag(fx, fy, 1, 1), P_i = L V_i. Every group of
four consecutive channels of every head is multiplied by one 4x4 of its frame, after the rotary
positions:

    q'_i = P_i^T q_i,  k'_j = P_j^-1 k_j,  v'_j = P_j^-1 v_j
    o_i = P_i sum_j softmax(q'_i k'_j) v'_j

The logit holds P_i P_j^-1 alone, so a common change of world frame changes nothing.

Shapes: B batch, F frames, S tokens of a frame, L = F S tokens, H heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from solarwm.camera.torch import invert_se3

# One 4x4 is laid out this many times along a diagonal, so that the multiply is a matrix product a
# CPU does well: 16 x 16 was 2.5 to 3 times as fast as 4 x 4 (measured, widths 128 to 768).
GROUPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraMatrices:
    """What attention multiplies by, a matrix a frame, fp32, transposed for row vectors."""

    query_BFGG: Tensor
    key_BFGG: Tensor
    out_BFGG: Tensor

    @property
    def num_frames(self) -> int:
        """Frames covered."""
        return self.query_BFGG.shape[1]

    def frames(self, start: int, stop: int) -> CameraMatrices:
        """The matrices of the frames start..stop-1; shares memory."""
        return self._each(lambda matrix: matrix[:, start:stop])

    def rows(self, index_I: Tensor) -> CameraMatrices:
        """The matrices of the samples `index`; samples may repeat."""
        return self._each(lambda matrix: matrix[index_I])

    def twice(self) -> CameraMatrices:
        """The matrices of two halves of equal frames."""
        return self._each(lambda matrix: torch.cat([matrix, matrix], dim=1))

    def _each(self, change: Callable[[Tensor], Tensor]) -> CameraMatrices:
        return CameraMatrices(
            query_BFGG=change(self.query_BFGG),
            key_BFGG=change(self.key_BFGG),
            out_BFGG=change(self.out_BFGG),
        )


def camera_matrices(
    viewmats_BF44: Tensor | None, intrinsics_B33: Tensor | None
) -> CameraMatrices | None:
    """The matrices of a camera track, or None when neither part is given.

    `intrinsics` holds focal lengths divided by width and height; the principal point plays no part.
    Also accepts one intrinsic matrix a frame [B,F,3,3]. fp32 in, fp32 inside. Raises `ValueError`
    when only one of the two is given.
    """
    if viewmats_BF44 is None and intrinsics_B33 is None:
        return None
    if viewmats_BF44 is None or intrinsics_B33 is None:
        missing = "viewmats" if viewmats_BF44 is None else "intrinsics"
        raise ValueError(
            f"camera attention needs viewmats and intrinsics or neither; {missing} missing"
        )
    view = viewmats_BF44.float()
    intrinsics = intrinsics_B33.float()
    if intrinsics.dim() == 3:
        intrinsics = intrinsics[:, None]
    focal = torch.stack([intrinsics[..., 0, 0], intrinsics[..., 1, 1]], dim=-1)
    lens = torch.cat([focal, torch.ones_like(focal)], dim=-1)
    projection = lens[..., :, None] * view
    inverse = invert_se3(view) / lens[..., None, :]
    return CameraMatrices(
        query_BFGG=_repeated(projection),
        key_BFGG=_repeated(inverse.transpose(-1, -2)),
        out_BFGG=_repeated(projection.transpose(-1, -2)),
    )


def rebased(viewmats_BF44: Tensor, base_B44: Tensor) -> Tensor:
    """V_i V_base^-1 in float64, back as fp32: the same relative cameras, near the origin.

    Exact for every translation transform, since it is applied after it: P_i P_j^-1 stays.
    """
    base = invert_se3(base_B44.double())
    return (viewmats_BF44.double() @ base[:, None]).float()


def _repeated(matrix_BF44: Tensor) -> Tensor:
    """Block-diagonal [B,F,4 GROUPS,4 GROUPS] of one 4x4."""
    eye = torch.eye(GROUPS, device=matrix_BF44.device)
    blocks = torch.einsum("gh,bfij->bfgihj", eye, matrix_BF44)
    return blocks.flatten(4, 5).flatten(2, 3).contiguous()


def transform(x_BLHD: Tensor, matrix_BFGG: Tensor) -> Tensor:
    """`x` with every channel group multiplied by the matrix of its frame, dtype of `x`."""
    shape = x_BLHD.shape
    frames = matrix_BFGG.shape[1]
    size = matrix_BFGG.shape[-1]
    width = shape[2] * shape[3]
    matrix = matrix_BFGG.to(x_BLHD.dtype)
    if width % size:
        size = 4
        matrix = matrix[..., :4, :4]
    rows = x_BLHD.reshape(shape[0], frames, -1, size)
    return torch.matmul(rows, matrix).view(shape)
