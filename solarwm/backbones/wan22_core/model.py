"""The Wan 2.2 diffusion transformer: one code for every size, published parameter names.

Shapes: B batch, F latent frames, C channels, H W latent height and width, S tokens of a frame, L =
F S tokens, T text tokens, D width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from solarwm.backbones.wan22_core.blocks import (
    CrossAttention,
    Head,
    SelfAttention,
    WanBlock,
    sinusoid,
)
from solarwm.nn.camera_attention import CameraMatrices
from solarwm.nn.layouts import Layout, full_layout
from solarwm.nn.precision import widened
from solarwm.nn.random import keyed_generator
from solarwm.routes.spec import ModelDims


class WanTransformer(nn.Module):
    """Noisy latents, native times, text and cameras to the predicted velocity.

    Without cameras this is the official forward. Every frame has one time, so modulation is
    computed and broadcast a frame, not a token. With `endpoint_gate` g it is a flow map: its time
    vector is (1 - g) time_embedding(t) + g delta_embedding(r).
    """

    def __init__(self, dims: ModelDims, *, endpoint_gate: float | None = None) -> None:
        super().__init__()
        if dims.patch[0] != 1:
            raise ValueError(f"Wan patches cover one latent frame, not {dims.patch[0]}")
        self.dims = dims
        self.endpoint_gate = endpoint_gate
        dim = dims.dim
        self.patch_embedding = nn.Conv3d(dims.in_channels, dim, dims.patch, stride=dims.patch)
        self.text_embedding = nn.Sequential(
            nn.Linear(dims.text_dim, dim), nn.GELU(approximate="tanh"), nn.Linear(dim, dim)
        )
        self.time_embedding = nn.Sequential(
            nn.Linear(dims.freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim)
        )
        if endpoint_gate is not None:
            self.delta_embedding = nn.Sequential(
                nn.Linear(dims.freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim)
            )
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.blocks = nn.ModuleList(
            WanBlock(
                dim, dims.num_heads, dims.ffn_dim, layer=layer, last=layer == dims.num_layers - 1
            )
            for layer in range(dims.num_layers)
        )
        self.head = Head(dim, dims.out_channels * math.prod(dims.patch))

    def forward(
        self,
        latents_BFCHW: Tensor,
        time_BF: Tensor,
        text_BTD: Tensor,
        camera: CameraMatrices | None = None,
        *,
        endpoint_BF: Tensor | None = None,
        layout: Layout | None = None,
    ) -> Tensor:
        """Predicted velocity [B,F,C,H,W] in fp32 or wider. `time` is the native 0..1000, never rounded.

        `layout` says what sees what and brings its own cameras; without it every token sees every
        token. Only the layout's last frames come back (none: an empty tensor). A flow map takes the
        native `endpoint`, by default the time itself.
        """
        frames, height, width = self.grid(latents_BFCHW)
        x = self.embed_patches(latents_BFCHW)
        time_BFD = self.embed_time(time_BF, endpoint_BF)
        six_BF6D = self.project_time(time_BFD)
        layout = layout or full_layout(
            (frames, height, width), head_dim=self.dims.head_dim, device=x.device, camera=camera
        )
        memory = layout.text_memory
        known = memory is not None and len(memory) == len(self.blocks)
        text = None if known else self.embed_text(text_BTD).to(x.dtype)
        for block in self.blocks:
            x = block(x, six_BF6D, text, layout)
        kept = layout.out_frames
        if not kept:
            return x.new_zeros(0)
        return self.unpatch(self.head(x, time_BFD[:, frames - kept :]), kept, height, width)

    def embed_patches(self, latents_BFCHW: Tensor) -> Tensor:
        """Tokens [B,L,D]: the patch convolution as one matrix product."""
        _, patch_h, patch_w = self.dims.patch
        b, f, c, h, w = latents_BFCHW.shape
        weight = self.patch_embedding.weight.flatten(1)
        x = latents_BFCHW.to(weight.dtype)
        x = x.view(b, f, c, h // patch_h, patch_h, w // patch_w, patch_w)
        x = x.permute(0, 1, 3, 5, 2, 4, 6).reshape(b, -1, c * patch_h * patch_w)
        return F.linear(x, weight, self.patch_embedding.bias)

    def embed_time(self, time_BF: Tensor, endpoint_BF: Tensor | None = None) -> Tensor:
        """Time vectors [B,F,D] in fp32 from native times, and from endpoints in a flow map."""
        vector = self._embedded(self.time_embedding, time_BF)
        gate = self.endpoint_gate
        if gate is None:
            if endpoint_BF is not None:
                raise ValueError("this model embeds no endpoint; it is no flow map")
            return vector
        endpoint = self._embedded(
            self.delta_embedding, time_BF if endpoint_BF is None else endpoint_BF
        )
        return (1 - gate) * vector + gate * endpoint

    def _embedded(self, layers: nn.Sequential, time_BF: Tensor) -> Tensor:
        waves = sinusoid(time_BF, self.dims.freq_dim)
        return widened(layers(waves.to(_dtype(layers))))

    def project_time(self, time_BFD: Tensor) -> Tensor:
        """The six modulation rows [B,F,6,D] every block starts from, fp32."""
        rows = self.time_projection(time_BFD.to(_dtype(self.time_projection)))
        return widened(rows).unflatten(-1, (6, -1))

    def embed_text(self, text_BTD: Tensor) -> Tensor:
        """Text states padded with zero rows to the text length and mapped to the model width."""
        missing = self.dims.text_len - text_BTD.shape[1]
        if missing < 0:
            raise ValueError(
                f"{text_BTD.shape[1]} text rows, but the model takes {self.dims.text_len}"
            )
        text = F.pad(text_BTD.to(_dtype(self.text_embedding)), (0, 0, 0, missing))
        return self.text_embedding(text)

    def unpatch(self, patches_BLP: Tensor, frames: int, height: int, width: int) -> Tensor:
        """Patches (row, column, channel fastest) back to [B,F,C,H,W], fp32."""
        _, patch_h, patch_w = self.dims.patch
        x = widened(patches_BLP).view(
            -1, frames, height, width, patch_h, patch_w, self.dims.out_channels
        )
        return x.permute(0, 1, 6, 2, 4, 3, 5).reshape(
            -1, frames, self.dims.out_channels, height * patch_h, width * patch_w
        )

    def pack(self) -> None:
        """Give every group of attention projections one storage again."""
        for module in self.modules():
            if isinstance(module, SelfAttention | CrossAttention):
                module.pack()

    def _apply(self, fn, recurse: bool = True):  # type: ignore[override]
        """Moves and casts split the shared storage; join it again."""
        result = super()._apply(fn, recurse)
        self.pack()
        return result

    def grid(self, latents_BFCHW: Tensor) -> tuple[int, int, int]:
        """Frames, rows and columns of tokens; raises `ValueError` for latents of another model."""
        _, f, c, h, w = latents_BFCHW.shape
        _, patch_h, patch_w = self.dims.patch
        if c != self.dims.in_channels or h % patch_h or w % patch_w:
            raise ValueError(
                f"latents of {c} channels and {h} x {w}; the model takes {self.dims.in_channels} "
                f"channels and multiples of {patch_h} x {patch_w}"
            )
        return f, h // patch_h, w // patch_w


def _dtype(module: nn.Module) -> torch.dtype:
    return next(module.parameters()).dtype


@torch.no_grad()
def initialise(module: WanTransformer, seed: int) -> None:
    """Fill every parameter by the official rule, each from a generator keyed by seed and its name.

    Matrices Xavier uniform, biases 0, norm weights 1, text and time matrices normal 0.02,
    modulation normal / sqrt(dim), output projection 0. CPU generator, so every device gets the same
    values.
    """
    for name, parameter in module.named_parameters():
        value = torch.empty(parameter.shape, dtype=torch.float32)
        generator = keyed_generator(seed, f"initialise/{name}", 0, 0)
        if name.endswith("modulation"):
            value.normal_(generator=generator).div_(math.sqrt(module.dims.dim))
        elif name.startswith("head.head") or name.endswith("bias"):
            value.zero_()
        elif ".norm" in name:
            value.fill_(1.0)
        elif name.startswith(("text_embedding", "time_embedding")):
            value.normal_(std=0.02, generator=generator)
        else:
            fan_out = value.shape[0]
            fan_in = value.numel() // fan_out
            bound = math.sqrt(6.0 / (fan_in + fan_out))
            value.uniform_(-bound, bound, generator=generator)
        parameter.copy_(value)
    copy_time_embedding(module)


@torch.no_grad()
def copy_time_embedding(module: WanTransformer) -> tuple[str, ...]:
    """Make a flow map's endpoint embedding equal to its time embedding; gives the names filled."""
    if module.endpoint_gate is None:
        return ()
    for name, parameter in module.delta_embedding.named_parameters():
        parameter.copy_(module.time_embedding.get_parameter(name))
    return tuple(f"delta_embedding.{name}" for name, _ in module.delta_embedding.named_parameters())
