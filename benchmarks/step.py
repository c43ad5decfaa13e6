"""One training step of our Wan transformer against diffusers' at equal sizes and equal weights.

Both sides run forward, mean squared error, backward and AdamW on the same latents, text and per-frame
times, the first frame clean at time 0 as the route trains it: diffusers takes such times a token, so its
modulation is made a token. The row `shared time` gives diffusers its cheaper form, one time a clip,
which no Stage0.5 sample with an image condition can use; there we only must not be slower.
Outputs and gradients are compared before any timing. AdamW is ours (fused) against torch's default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.ratio import Ratio, measure
from solarwm.backbones.wan22_core.model import WanTransformer, initialise
from solarwm.backbones.wan22_core.names import to_diffusers
from solarwm.backbones.wan22_core.weights import export_state
from solarwm.nn.camera_attention import CameraMatrices, camera_matrices
from solarwm.routes.spec import ModelDims
from solarwm.training.optim import adamw

OUTPUT_TOLERANCE = 2e-5
GRADIENT_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model, a clip and the ratios to reach without and with camera."""

    name: str
    dims: ModelDims
    frames: int
    height: int
    width: int
    plain_target: float
    camera_target: float


def _dims(
    dim: int, layers: int, heads: int, ffn: int, patch: int, text: tuple[int, int]
) -> ModelDims:
    return ModelDims(
        dim=dim,
        num_layers=layers,
        num_heads=heads,
        ffn_dim=ffn,
        in_channels=48,
        out_channels=48,
        patch=(1, patch, patch),
        text_len=text[0],
        text_dim=text[1],
        freq_dim=256,
    )


SIZES = (
    Size(
        name="tiny, 5M",
        dims=_dims(256, 4, 4, 1024, 2, (64, 128)),
        frames=9,
        height=14,
        width=24,
        plain_target=0.87,
        camera_target=1.0,
    ),
    Size(
        name="mid-size, 100M",
        dims=_dims(768, 10, 12, 3072, 2, (64, 512)),
        frames=9,
        height=14,
        width=16,
        plain_target=0.95,
        camera_target=1.05,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """One microbatch, the same numbers for both sides."""

    latents_BFCHW: Tensor
    time_BF: Tensor
    text_BTD: Tensor
    target_BFCHW: Tensor
    camera: CameraMatrices | None


def inputs(size: Size) -> Inputs:
    """Seeded latents, text and times; cameras that pan and move."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, size.frames, 48, size.height, size.width)
    angle = torch.linspace(0, 0.6, size.frames)
    view = torch.eye(4).repeat(1, size.frames, 1, 1)
    view[0, :, 0, 0], view[0, :, 0, 2] = angle.cos(), angle.sin()
    view[0, :, 2, 0], view[0, :, 2, 2] = -angle.sin(), angle.cos()
    view[0, :, 0, 3] = angle
    time_BF = torch.full((1, size.frames), 500.0)
    time_BF[:, 0] = 0.0
    lens = torch.tensor([[[0.505, 0, 0.5], [0, 0.898, 0.5], [0, 0, 1]]])
    return Inputs(
        latents_BFCHW=torch.randn(shape, generator=generator),
        time_BF=time_BF,
        text_BTD=torch.randn(1, size.dims.text_len, size.dims.text_dim, generator=generator),
        target_BFCHW=torch.randn(shape, generator=generator),
        camera=camera_matrices(view, lens),
    )


def our_model(size: Size) -> WanTransformer:
    """Ours with a live output projection, so that gradients reach every tensor."""
    model = WanTransformer(size.dims)
    initialise(model, seed=0)
    with torch.no_grad():
        model.head.head.weight.normal_(std=0.02, generator=torch.Generator().manual_seed(1))
    return model


def library_model(size: Size, model: WanTransformer) -> Any:
    """diffusers' transformer of the same size holding the same weights."""
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    dims = size.dims
    twin = WanTransformer3DModel(
        patch_size=dims.patch,
        num_attention_heads=dims.num_heads,
        attention_head_dim=dims.head_dim,
        in_channels=dims.in_channels,
        out_channels=dims.out_channels,
        text_dim=dims.text_dim,
        freq_dim=dims.freq_dim,
        ffn_dim=dims.ffn_dim,
        num_layers=dims.num_layers,
    )
    twin.load_state_dict(export_state(model, naming="diffusers"))
    return twin


def library_forward(size: Size, twin: Any, data: Inputs, *, shared: bool) -> Tensor:
    """Its prediction as [B,F,C,H,W]; times a token, or one for the clip."""
    tokens = size.height * size.width // (size.dims.patch[1] * size.dims.patch[2])
    time = data.time_BF[:, -1] if shared else data.time_BF.repeat_interleave(tokens, dim=1)
    latents = data.latents_BFCHW.transpose(1, 2)
    out = twin(latents, timestep=time, encoder_hidden_states=data.text_BTD, return_dict=False)
    return out[0].transpose(1, 2)


def compare(size: Size, model: WanTransformer, twin: Any, data: Inputs) -> tuple[float, float]:
    """Largest output difference and largest relative gradient difference; raises beyond tolerance."""
    ours = model(data.latents_BFCHW, data.time_BF, data.text_BTD)
    theirs = library_forward(size, twin, data, shared=False)
    output = float((ours - theirs).detach().abs().max())
    (ours - data.target_BFCHW).square().mean().backward()
    (theirs - data.target_BFCHW).square().mean().backward()
    reference = dict(twin.named_parameters())
    gradient = 0.0
    for name, parameter in model.named_parameters():
        expected = reference[str(to_diffusers(name))].grad
        scale = max(float(expected.norm()), 1e-6)
        gradient = max(gradient, float((parameter.grad - expected).norm()) / scale)
    for side in (model, twin):
        side.zero_grad()
    if output > OUTPUT_TOLERANCE or gradient > GRADIENT_TOLERANCE:
        raise RuntimeError(f"{size.name}: outputs differ by {output}, gradients by {gradient}")
    return output, gradient


def stepper(
    forward: Callable[[], Tensor], target: Tensor, optimizer: torch.optim.Optimizer
) -> Callable[[], None]:
    """One whole optimizer step."""

    def step() -> None:
        (forward() - target).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def rows_of(size: Size, rounds: int) -> Iterator[Ratio]:
    """Without camera, against one shared time, and with camera."""
    model, data = our_model(size), inputs(size)
    twin = library_model(size, model)
    output, gradient = compare(size, model, twin, data)
    print(f"{size.name}: outputs differ by {output:.1e}, gradients by {gradient:.1e} (relative)")
    ours = adamw(model.parameters(), lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.01)

    def ours_with(camera: CameraMatrices | None, time_BF: Tensor) -> Callable[[], None]:
        return stepper(
            lambda: model(data.latents_BFCHW, time_BF, data.text_BTD, camera),
            data.target_BFCHW,
            ours,
        )

    def library(shared: bool) -> Callable[[], None]:
        return stepper(
            lambda: library_forward(size, twin, data, shared=shared), data.target_BFCHW, theirs
        )

    shared_time = data.time_BF[:, -1:].expand_as(data.time_BF)
    cases = (
        ("no camera", ours_with(None, data.time_BF), library(False), size.plain_target),
        ("no camera, shared time", ours_with(None, shared_time), library(True), 1.0),
        ("camera", ours_with(data.camera, data.time_BF), library(False), size.camera_target),
    )
    for name, our_step, library_step, target in cases:
        yield measure(
            f"step {size.name}, {name}",
            our_step,
            library_step,
            anchor_name="diffusers WanTransformer3DModel",
            target=target,
            rounds=rounds,
        )


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """All rows; `quick` leaves out the mid-size model. Threads as OMP_NUM_THREADS says, else all."""
    threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    if threads:
        torch.set_num_threads(threads)
    print(f"training step on {torch.get_num_threads()} threads")
    sizes = SIZES[:1] if quick else SIZES
    return [row for size in sizes for row in rows_of(size, rounds)]
