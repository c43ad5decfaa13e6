"""Train the VAE of the local world: render clips, fit, validate on whole 81-frame clips.

    python tools/train_tiny_vae.py --out DIR [--steps 9000] [--minutes 80]

DIR receives `tiny_vae.safetensors` (fp16), `tiny_vae.json` (constructor arguments, latent
statistics, provenance, figures) and `course.jsonl` (one line a validation). Only the weights with
the best validation so far are kept. About 5 ms of one core for each training frame.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders.autoencoder_kl_wan import patchify, unpatchify
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from solarwm.synthetic.paths import MOTION_SCALE, draw_path, generator
from solarwm.synthetic.renderer import render
from solarwm.synthetic.scene import the_room
from solarwm.synthetic.video import encode_mp4

# Legend: B batch, C channels, T frames, H height, W width.

HEIGHT, WIDTH, FRAMES = 64, 96, 81
FIRST_FRAME_WEIGHT = 3.0
KL_WEIGHT = 1e-5
EMA_DECAY = 0.998
FAR_SCALE = 1.4
FOCUS = 2.0
ARGUMENTS: dict[str, Any] = {
    "base_dim": 16,
    "decoder_base_dim": 16,
    "z_dim": 48,
    "dim_mult": [1, 1, 2, 2],
    "num_res_blocks": 1,
    "attn_scales": [],
    "temperal_downsample": [False, True, True],
    "dropout": 0.0,
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "scale_factor_temporal": 4,
    "latents_mean": [0.0] * 48,
    "latents_std": [1.0] * 48,
}

# (share of the run at which the stage ends, ((frames, batch), ...)); a step draws one pair.
# The causal stack is in its steady state only after several latents, so a VAE that has seen
# short clips alone falls apart on long ones: the run ends on whole clips.
STAGES: tuple[tuple[float, tuple[tuple[int, int], ...]], ...] = (
    (0.10, ((9, 8),)),
    (0.60, ((17, 4), (33, 2), (33, 2), (49, 2))),
    (1.00, ((33, 2), (49, 2), (81, 1), (81, 1))),
)


def render_clip(purpose: str, seed: int, index: int) -> np.ndarray:
    """One clip of the default world as a reader sees it, after H.264: u8 [T,H,W,3]."""
    scene = the_room()
    # Every fourth training clip moves further: views far from the spawn are the rare ones.
    far = purpose == "vae-train" and index % 4 == 3
    scale = MOTION_SCALE * (FAR_SCALE if far else 1.0)
    path = draw_path(scene, generator(seed, purpose, index), frames=FRAMES, scale=scale)
    pixels = render(scene, path.c2w, height=HEIGHT, width=WIDTH)
    with av.open(io.BytesIO(encode_mp4(pixels, fps=16.0))) as container:
        return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])


def render_clips(purpose: str, seed: int, num_clips: int, workers: int) -> Tensor:
    """Clips u8 [N,T,H,W,3]."""
    with ProcessPoolExecutor(workers) as pool:
        clips = list(pool.map(partial(render_clip, purpose, seed), range(num_clips), chunksize=8))
    return torch.from_numpy(np.stack(clips))


def to_model(clips: Tensor) -> Tensor:
    """[B,T,H,W,3] u8 to [B,3,T,H,W] float in -1..1."""
    return clips.permute(0, 4, 1, 2, 3).float() / 127.5 - 1.0


# The class runs its causal stack four frames at a time with caches. Over a whole clip the same
# numbers come from plain causal convolutions, at half the cost; the functions below are that form.


def _norm(layer: nn.Module, x_BCTHW: Tensor) -> Tensor:
    x = x_BCTHW.float()
    scale = torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-12)
    return (x * (scale * layer.gamma)).to(x_BCTHW.dtype)


def _residual(block: nn.Module, x: Tensor) -> Tensor:
    shortcut = block.conv_shortcut(x)
    x = block.conv1(F.silu(_norm(block.norm1, x)))
    x = block.conv2(F.silu(_norm(block.norm2, x)))
    return x + shortcut


def _middle(block: nn.Module, x: Tensor) -> Tensor:
    x = _residual(block.resnets[0], x)
    return _residual(block.resnets[1], block.attentions[0](x))


def _spatial(layer: nn.Module, x: Tensor) -> Tensor:
    b, c, t, h, w = x.shape
    x = layer.resample(x.transpose(1, 2).reshape(b * t, c, h, w))
    return x.view(b, t, *x.shape[1:]).transpose(1, 2)


def _down(layer: nn.Module, x: Tensor) -> Tensor:
    x = _spatial(layer, x)
    if layer.mode == "downsample3d":
        x = torch.cat([x[:, :, :1], layer.time_conv(x)], dim=2) if x.shape[2] > 1 else x
    return x


def _up(layer: nn.Module, x: Tensor) -> Tensor:
    b, c, t, h, w = x.shape
    if layer.mode == "upsample3d" and t > 1:
        later = layer.time_conv(x[:, :, 1:]).view(b, 2, c, t - 1, h, w)
        later = later.permute(0, 2, 3, 1, 4, 5).reshape(b, c, 2 * (t - 1), h, w)
        x = torch.cat([x[:, :, :1], later], dim=2)
    return _spatial(layer, x)


def encode(vae: AutoencoderKLWan, clips_BCTHW: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior mean and log variance, each [B,48,(T-1)/4+1,H/16,W/16]."""
    net = vae.encoder
    x = net.conv_in(patchify(clips_BCTHW, ARGUMENTS["patch_size"]))
    for block in net.down_blocks:
        shortcut = block.avg_shortcut(x)
        for resnet in block.resnets:
            x = _residual(resnet, x)
        if block.downsampler is not None:
            x = _down(block.downsampler, x)
        x = x + shortcut
    x = net.conv_out(F.silu(_norm(net.norm_out, _middle(net.mid_block, x))))
    mean, log_variance = vae.quant_conv(x).float().chunk(2, dim=1)
    return mean, log_variance.clamp(-30.0, 20.0)


def decode(vae: AutoencoderKLWan, latents_BCTHW: Tensor) -> Tensor:
    """Clips [B,3,T,H,W], not clamped."""
    net = vae.decoder
    x = _middle(net.mid_block, net.conv_in(vae.post_quant_conv(latents_BCTHW)))
    for block in net.up_blocks:
        before = x
        for resnet in block.resnets:
            x = _residual(resnet, x)
        if block.upsampler is not None:
            x = _up(block.upsampler, x) + block.avg_shortcut(before, first_chunk=True)
    x = net.conv_out(F.silu(_norm(net.norm_out, x)))
    return unpatchify(x, ARGUMENTS["patch_size"]).float()


def draw_batch(clips: Tensor, share: float, rng: np.random.Generator) -> Tensor:
    """Random windows of the lengths that belong to this share of the run, [B,3,T,H,W]."""
    sizes = next(sizes for end, sizes in STAGES if share <= end)
    frames, batch = sizes[int(rng.integers(len(sizes)))]
    windows = []
    for _ in range(batch):
        clip = clips[int(rng.integers(len(clips)))]
        # Clips set out from much the same view, so late frames are the varied ones: prefer them,
        # and play half of the windows backwards so that they come first, too.
        start = int((FRAMES - frames + 1) * math.sqrt(rng.random()))
        window = clip[start : start + frames]
        windows.append(window.flip(0) if rng.random() < 0.5 else window)
    return to_model(torch.stack(windows))


def loss_of(vae: AutoencoderKLWan, clips_BCTHW: Tensor, noise: torch.Generator) -> Tensor:
    """L1 + MSE with a heavier first frame and heavier hard frames, plus a small KL term."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean, log_variance = encode(vae, clips_BCTHW)
        epsilon = torch.randn(mean.shape, generator=noise)
        decoded = decode(vae, mean + (0.5 * log_variance).exp() * epsilon)
    error = decoded - clips_BCTHW
    error_BT = (error.abs() + error.square()).mean(dim=(1, 3, 4))
    weight_BT = (error_BT.detach() / error_BT.detach().mean()).pow(FOCUS).clamp(max=5.0)
    weight_BT[:, 0] *= FIRST_FRAME_WEIGHT
    kl = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).mean()
    return (error_BT * weight_BT).sum() / weight_BT.sum() + KL_WEIGHT * kl


def psnr(a_BCTHW: Tensor, b_BCTHW: Tensor) -> Tensor:
    """PSNR in dB of each frame, [B,T], for values in -1..1."""
    error = (a_BCTHW.clamp(-1, 1) - b_BCTHW).square().mean(dim=(1, 3, 4)) / 4.0
    return -10.0 * error.clamp_min(1e-10).log10()


@torch.no_grad()
def validate(vae: AutoencoderKLWan, clips: Tensor) -> dict[str, Any]:
    """Figures over whole held-out clips, dB; frames 1.. unless said, mean of the clips' means."""
    rows, still = [], []
    for clip in clips.split(4):
        truth = to_model(clip)
        decoded = decode(vae, encode(vae, truth)[0])
        rows.append(psnr(decoded, truth))
        still.append(psnr(truth[:, :, :1].expand_as(truth), truth)[:, 1:].mean(dim=1))
    course = torch.cat(rows).mean(dim=0)
    quarters = [float(q.mean()) for q in course[1:].chunk(4)]
    static = float(torch.cat(still).mean())
    return {
        "clips": len(clips),
        "psnr": round(float(course[1:].mean()), 3),
        "frame_0": round(float(course[0]), 3),
        "quarters": [round(q, 3) for q in quarters],
        "static": round(static, 3),
    }


@torch.no_grad()
def latent_statistics(vae: AutoencoderKLWan, clips: Tensor) -> tuple[list[float], list[float]]:
    """Mean and deviation of each latent channel over the posterior means of these clips."""
    latents = torch.cat([encode(vae, to_model(clip))[0] for clip in clips.split(4)])
    by_channel = latents.transpose(0, 1).flatten(1).double()
    mean, deviation = by_channel.mean(dim=1), by_channel.std(dim=1)
    return [round(float(v), 6) for v in mean], [round(float(v), 6) for v in deviation]


def save(vae: AutoencoderKLWan, out: Path, train: Tensor, record: dict[str, Any]) -> None:
    """Write the weights in fp16 and the JSON beside them."""
    half = {k: v.detach().half().contiguous() for k, v in vae.state_dict().items()}
    mean, deviation = latent_statistics(vae, train)
    arguments = {**ARGUMENTS, "latents_mean": mean, "latents_std": deviation}
    document = {"schema": "solarwm.tiny-vae.v1", "class": "AutoencoderKLWan"}
    document |= {"arguments": arguments, **record}
    save_file(half, out / "tiny_vae.safetensors")
    (out / "tiny_vae.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def learning_rate(share: float, step: int, peak: float) -> float:
    """Linear warm-up over 50 steps, then a cosine down to 3 % of the peak."""
    cosine = 0.03 + 0.97 * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))
    return peak * cosine * min(1.0, (step + 1) / 50)


def train(options: argparse.Namespace) -> None:
    """Run the schedule; it ends at `--steps`, or sooner when `--minutes` have gone by."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    clips = render_clips("vae-train", options.seed, options.clips, options.workers)
    held_out = render_clips("vae-test", options.seed, options.held_out, options.workers)
    print(f"rendered {len(clips)} + {len(held_out)} clips", flush=True)

    vae = AutoencoderKLWan(**ARGUMENTS)
    if options.weights:
        vae.load_state_dict({k: v.float() for k, v in load_file(options.weights).items()})
    average = copy.deepcopy(vae).eval()
    optimizer = torch.optim.AdamW(vae.parameters(), betas=(0.9, 0.99), weight_decay=1e-4)
    rng = np.random.default_rng(options.seed)
    noise = torch.Generator().manual_seed(options.seed)
    best, began, recent = -math.inf, time.monotonic(), 0.0

    step, share, first = options.first_step, 0.0, options.first_step / options.steps
    while share < 1.0:
        minutes = (time.monotonic() - began) / 60
        share = max(step / options.steps, first + (1.0 - first) * minutes / options.minutes)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(share, step - options.first_step, options.rate)
        loss = loss_of(vae, draw_batch(clips, min(share, 1.0), rng), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimizer.step()
        step += 1
        with torch.no_grad():
            taken = step - options.first_step
            keep = min(EMA_DECAY, taken / (taken + 10))
            for slow, fast in zip(average.parameters(), vae.parameters(), strict=True):
                slow.lerp_(fast, 1.0 - keep)
        recent = 0.98 * recent + 0.02 * float(loss.detach()) if recent else float(loss.detach())
        if step % 50 == 0:
            print(
                f"step {step} share {share:.3f} minutes {minutes:.1f} loss {recent:.4f}", flush=True
            )
        if step % options.validate_every == 0 or share >= 1.0:
            figures = validate(average, held_out)
            line = {"step": step, "minutes": round(minutes, 1), "loss": round(recent, 4), **figures}
            with (out / "course.jsonl").open("a", encoding="utf-8") as course:
                course.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
            if figures["psnr"] > best:
                best = figures["psnr"]
                provenance = {
                    "script": "tools/train_tiny_vae.py",
                    "world": "room",
                    "height": HEIGHT,
                    "width": WIDTH,
                    "seed": options.seed,
                    "clips": options.clips,
                    "steps": step,
                    "planned_steps": options.steps,
                    "peak_learning_rate": options.rate,
                    "kl_weight": KL_WEIGHT,
                    "ema": EMA_DECAY,
                }
                record = {"provenance": provenance, "figures": figures}
                save(average, out, clips[:: max(1, len(clips) // 48)], record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder for the weights, JSON and course")
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end sooner, same schedule")
    parser.add_argument("--weights", help="go on from these weights, at --first-step")
    parser.add_argument("--first-step", type=int, default=0)
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--clips", type=int, default=600)
    parser.add_argument("--held-out", type=int, default=16)
    parser.add_argument("--validate-every", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="processes that render")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
