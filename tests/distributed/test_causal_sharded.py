"""Causal layouts of a sharded model on two gloo ranks: the values and gradients of one process."""

from __future__ import annotations

import os
import traceback
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.sharding import Sharded, local
from solarwm.training.stage import checkpoint_activations

FRAMES, CHUNK = 9, 3


def inputs(backbone, row: int):
    generator = torch.Generator().manual_seed(row)
    clean, noisy = torch.randn(2, 1, FRAMES, 48, 2, 3, generator=generator)
    view = torch.eye(4).repeat(1, FRAMES, 1, 1)
    view[..., 0, 3] = 0.1 * (row + 1) * torch.arange(FRAMES)
    batch = LatentBatch(
        latents_BFCHW=clean,
        text_BTD=torch.randn(1, 8, 64, generator=generator),
        viewmats_BF44=view,
        intrinsics_B33=torch.tensor([[[0.5, 0, 0.5], [0, 0.9, 0.5], [0, 0, 1]]]),
        sample_ids=("clip",),
        start_frames=(0,),
        slots=(row,),
        occurrences=(row,),
    )
    return batch, noisy, torch.rand(1, FRAMES, generator=generator)


def built(backbone):
    module = backbone.build(device="cpu", seed=0, endpoint_gate=0.25)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        module.head.head.weight.normal_(std=0.1, generator=generator)
    checkpoint_activations(module, block_class=backbone.spec.block_class)
    return module


def run(backbone, module, row: int):
    """One AnyFlow-like step with a shared context, then a cached rollout."""
    batch, noisy, sigma = inputs(backbone, row)
    conditions = backbone.conditions(batch)
    context = backbone.clean_context(batch.latents_BFCHW)

    def forced(latents, end):
        return backbone.velocity(
            module,
            latents,
            sigma,
            conditions,
            layout="teacher_forcing",
            endpoint_BF=end,
            context=context,
        )

    first = forced(noisy, 0.5 * sigma)
    with torch.no_grad():
        target = forced(0.9 * noisy, sigma)
    (first - target).square().mean().backward()
    parts, cache = [], backbone.open_cache(noisy)
    with torch.no_grad():
        for start in range(0, FRAMES, CHUNK):
            here = slice(start, start + CHUNK)
            part = backbone.frames(conditions, start, start + CHUNK)
            parts.append(
                backbone.velocity(
                    module, noisy[:, here], sigma[:, here], part, layout="cached", cache=cache
                )
            )
            backbone.commit(module, batch.latents_BFCHW[:, here], part, cache)
    return first.detach(), torch.cat(parts, dim=1)


def on_rank(backbone, world_rank: int, meeting, expected) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=world_rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    module = built(backbone)
    mesh = init_device_mesh("cpu", (2,))
    for block in module.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    layout = Sharded(group=None, name="FULL_SHARD", num_replicas=1)
    outs = run(backbone, module, world_rank)
    for out, whole in zip(outs, expected["outs"][world_rank], strict=True):
        torch.testing.assert_close(out, whole, atol=1e-5, rtol=1e-4)
    assert any(parameter.grad is None for parameter in module.parameters())
    layout.settle(module)  # forwards without gradient leave the root gathered
    for name, parameter in module.named_parameters():
        whole = expected["gradients"][name]
        mean = parameter.grad.full_tensor()
        assert local(parameter).numel() < parameter.numel() or parameter.shape[0] < 2
        torch.testing.assert_close(mean, whole, atol=1e-6, rtol=1e-3)


@pytest.mark.timeout(180)
def test_two_sharded_ranks_give_what_one_process_gives(tmp_path):
    torch.set_num_threads(1)
    model = SimpleNamespace(num_output_frames=FRAMES, max_prior_clean_chunks=1)
    backbone = create(SPEC.profiles["tiny"], model)
    module = built(backbone)
    outs = [run(backbone, module, row) for row in range(2)]
    gradients = {name: p.grad / 2 for name, p in module.named_parameters()}
    expected = {"outs": outs, "gradients": gradients}
    children = []
    for world_rank in range(2):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                on_rank(backbone, world_rank, tmp_path / "meeting", expected)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
