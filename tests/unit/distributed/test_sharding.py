"""Rank maps and gradient sums, on real gloo groups of threads' worth of forked processes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import torch
from torch import nn

from solarwm.distributed.mesh import place_of
from solarwm.distributed.sharding import fingerprint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(5, 1))


def _inputs() -> torch.Tensor:
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(1))


def _rank(world_rank: int, world_size: int, strategy: str, store: str, answers) -> None:
    import torch.distributed as dist

    from solarwm.distributed.collectives import Collectives
    from solarwm.distributed.environment import Launcher
    from solarwm.distributed.group import RankGroup
    from solarwm.distributed.sharding import lay_out

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=world_rank, world_size=world_size
    )
    launcher = Launcher(
        world_rank=world_rank,
        world_size=world_size,
        local_rank=world_rank,
        local_world_size=world_size,
        under_launcher=True,
        token="t",
    )
    group = RankGroup(
        launcher=launcher,
        device=torch.device("cpu"),
        place=place_of(world_rank, world_size=world_size, sp_size=1),
        collectives=Collectives(world_rank=world_rank, world_size=world_size),
    )
    model = _model()
    layout = lay_out(
        model,
        group,
        strategy=strategy,
        block_class="Block",
        param_dtype=None,
        reduce_dtype="float32",
    )
    share = _inputs().chunk(world_size)[world_rank]
    (model(share).square().sum() / 6).backward()
    parameters = list(model.parameters())
    layout.reduce(parameters)
    norm = layout.norm(parameters).item()
    whole = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in parameters]
    answers.put((world_rank, norm, [gradient.tolist() for gradient in whole]))
    dist.destroy_process_group()


def _gradients(tmp_path: Path, strategy: str, world_size: int):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    store = str(tmp_path / f"store-{strategy}")
    ranks = [
        context.Process(target=_rank, args=(r, world_size, strategy, store, answers))
        for r in range(world_size)
    ]
    for rank in ranks:
        rank.start()
    found = sorted(answers.get(timeout=120) for _ in ranks)
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    return found


def test_gradients_are_the_sum_over_ranks_for_every_layout(tmp_path: Path) -> None:
    model = _model()
    (model(_inputs()).square().sum() / 6).backward()
    expected = [p.grad for p in model.parameters()]
    norm = torch.stack([g.norm() for g in expected]).norm().item()
    for strategy, world_size in (("none", 2), ("FULL_SHARD", 2), ("none", 3)):
        for _, seen_norm, gradients in _gradients(tmp_path / ".", f"{strategy}", world_size):
            assert abs(seen_norm - norm) < 1e-6
            for mine, theirs in zip(expected, gradients, strict=True):
                torch.testing.assert_close(torch.tensor(theirs), mine, atol=1e-7, rtol=1e-6)
        for path in tmp_path.glob("store-*"):
            path.unlink()


def test_sequence_parallel_groups_are_contiguous_ranks() -> None:
    place = place_of(11, world_size=16, sp_size=2)
    assert (place.dp_rank, place.dp_world, place.sp_rank, place.sp_size) == (5, 8, 1, 2)


def test_fingerprints_tell_a_swap_of_two_equal_shaped_weights() -> None:
    one, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 2.0))
    assert not torch.equal(fingerprint([one, other]), fingerprint([other, one]))
