"""Sequence parallelism on real gloo ranks: outputs, gradients and counts of one process."""

from __future__ import annotations

import os
import traceback
from types import SimpleNamespace

import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.config.topology import split_latents
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.environment import Launcher
from solarwm.distributed.group import open_group
from solarwm.nn.sequence import FrameSplit

FRAMES, CHUNK = 9, 3


def backbone_of():
    model = SimpleNamespace(num_output_frames=FRAMES, max_prior_clean_chunks=1)
    return create(SPEC.profiles["tiny"], model)


def built(backbone):
    module = backbone.build(device="cpu", seed=0, endpoint_gate=0.25)
    with torch.no_grad():
        module.head.head.weight.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    return module


def inputs(backbone, frames: int = FRAMES):
    generator = torch.Generator().manual_seed(7)
    clean, noisy = torch.randn(2, 2, frames, 48, 4, 6, generator=generator)
    view = torch.eye(4).repeat(2, frames, 1, 1)
    view[..., 0, 3] = torch.tensor([[0.1], [0.2]]) * torch.arange(frames)
    batch = LatentBatch(
        latents_BFCHW=clean,
        text_BTD=torch.randn(2, 8, 64, generator=generator),
        viewmats_BF44=view,
        intrinsics_B33=torch.tensor([[0.5, 0, 0.5], [0, 0.9, 0.5], [0, 0, 1]]).repeat(2, 1, 1),
        sample_ids=("one", "two"),
        start_frames=(0, 0),
        slots=(0, 1),
        occurrences=(0, 1),
    )
    return batch, noisy, torch.rand(2, frames, generator=generator)


def bidirectional(backbone, module, frames: int = FRAMES):
    batch, noisy, sigma = inputs(backbone, frames)
    return backbone.velocity(
        module, noisy, sigma, backbone.conditions(batch), endpoint_BF=0.5 * sigma
    )


def forced(backbone, module):
    """Joint, then the noisy half alone against the kept clean keys."""
    batch, noisy, sigma = inputs(backbone)
    conditions = backbone.conditions(batch)
    context = backbone.clean_context(batch.latents_BFCHW)

    def velocity(latents):
        return backbone.velocity(
            module, latents, sigma, conditions, layout="teacher_forcing", context=context
        )

    first = velocity(noisy)
    with torch.no_grad():
        second = velocity(0.9 * noisy)
    return torch.cat([first, second])


def cached(backbone, module):
    """A history at once, then chunks with commits, windows moving."""
    batch, noisy, sigma = inputs(backbone)
    conditions = backbone.conditions(batch)
    parts = []
    with torch.no_grad():
        for history in (0, 2 * CHUNK):
            cache = backbone.open_cache(noisy)
            if history:
                part = backbone.frames(conditions, 0, history)
                backbone.commit(module, batch.latents_BFCHW[:, :history], part, cache)
            for start in range(history, FRAMES, CHUNK):
                here = slice(start, start + CHUNK)
                part = backbone.frames(conditions, start, start + CHUNK)
                for scale in (1.0, 0.5):
                    parts.append(
                        backbone.velocity(
                            module,
                            noisy[:, here] * scale,
                            sigma[:, here] * scale,
                            part,
                            layout="cached",
                            cache=cache,
                        )
                    )
                backbone.commit(module, batch.latents_BFCHW[:, here], part, cache)
    return torch.cat(parts, dim=1)


WAYS = {"bidirectional": bidirectional, "forced": forced, "cached": cached}


def on_rank(size: int, world_rank: int, work, **options) -> None:
    torch.set_num_threads(1)
    launcher = Launcher(
        world_rank=world_rank,
        world_size=size,
        local_rank=world_rank,
        local_world_size=size,
        under_launcher=True,
        token="t",
    )
    device = torch.device("cpu")
    with open_group(launcher, device=device, sp_size=size, timeout_s=60, **options) as group:
        work(group)


def fork(size: int, work, monkeypatch, **options) -> list[int]:
    """Exit codes of `size` forked ranks that ran `work(group)` in one sequence-parallel group."""
    from tests.processes.warm_parent import _free_port

    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(_free_port()))
    children = []
    for world_rank in range(size):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                on_rank(size, world_rank, work, **options)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_ranks_that_share_a_clip_give_what_one_rank_gives(size, way, monkeypatch):
    """9 frames over 2 and 4 ranks (5 + 4, 3 + 2 + 2 + 2), chunks of 3 over 4 (one rank has none)."""
    torch.set_num_threads(1)
    backbone = backbone_of()
    module = built(backbone)
    out = WAYS[way](backbone, module)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    gradients = {}
    if out.requires_grad:
        (out * weight).sum().backward()
        gradients = {name: p.grad for name, p in module.named_parameters()}
    out = out.detach()

    def work(group) -> None:
        mine = backbone_of()
        mine.sequence = group.sequence
        twin = built(mine)
        found = WAYS[way](mine, twin)
        torch.testing.assert_close(found, out, atol=1e-5, rtol=1e-5)
        for seen in group.collectives.gather(found.detach(), label="outputs"):
            assert torch.equal(seen, found)
        if not gradients:
            return
        (found * weight).sum().backward()
        for name, parameter in twin.named_parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            total = group.collectives.sum_(parameter.grad, label=name)
            error = (total - gradients[name]).norm()
            assert error <= 1e-5 * gradients[name].norm() + 1e-7, name

    assert fork(size, work, monkeypatch) == [0] * size


@pytest.mark.parametrize(("frames", "size"), [(21, 8), (47, 2), (21, 2), (39, 2), (3, 4), (1, 2)])
def test_a_split_is_the_one_that_resolve_shows(frames, size):
    split = FrameSplit(frames=frames, sp_size=size, segments=2)
    assert split.counts == split_latents(frames, size)
    assert sum(split.counts) == frames
    whole = torch.arange(2 * frames)[None]
    seen = [split.take(whole, sp_rank)[0].unflatten(0, (2, -1)) for sp_rank in range(size)]
    assert {part.shape for part in seen} == {(2, max(split.counts))}
    kept = torch.cat([part[:, :n] for part, n in zip(seen, split.counts, strict=True)], dim=1)
    assert torch.equal(kept.flatten(), whole[0])


@pytest.mark.parametrize(("way", "forwards"), [("bidirectional", 1), ("forced", 2)])
def test_a_layer_makes_two_exchanges_forward_two_backward_and_all_ranks_in_one_order(
    way, forwards, monkeypatch
):
    def work(group) -> None:
        backbone = backbone_of()
        backbone.sequence = group.sequence
        module = built(backbone)
        log, layers = group.collectives.log, len(module.blocks)
        before = log.count
        out = WAYS[way](backbone, module)
        # and one gather of the velocity a forward
        assert log.count - before == forwards * (2 * layers + 1)
        sent = [call.shape[1] for call in log.recent if call.kind == "exchange"]
        assert sent == [3, 1] * layers * forwards  # queries, keys and values together; the output
        before = log.count
        out.sum().backward()
        assert log.count - before == 2 * layers
        peers = group.sequence.collectives.name
        digests = group.collectives.gather_objects(log.digest(peers), label="orders")
        assert len(set(digests)) == 1

    assert fork(2, work, monkeypatch) == [0, 0]


def test_a_swap_of_two_exchanges_is_named_on_both_ranks_before_they_deadlock(monkeypatch, tmp_path):
    """Really made on gloo: without the check the two would take each other's parts or hang."""

    def work(group) -> None:
        from solarwm.errors.types import SolarError

        labels = ["attention 0 in", "attention 0 out"]
        if group.world_rank == 1:
            labels.reverse()
        shapes = {"attention 0 in": (2, 3, 8), "attention 0 out": (2, 1, 8)}

        def exchange() -> None:
            for label in labels:
                group.sequence.exchange(torch.zeros(shapes[label]), label=label)

        with pytest.raises(SolarError) as caught:
            exchange()
        assert caught.value.code == "distributed.order-differs"
        assert all(label in caught.value.why for label in labels)
        (tmp_path / f"rank-{group.world_rank}").touch()

    assert fork(2, work, monkeypatch, check_order=True) == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2
