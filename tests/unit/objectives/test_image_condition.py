from __future__ import annotations

import torch

from solarwm.objectives.image_condition import keyed_drops, published_drops


def test_a_slot_is_dropped_alike_in_any_company():
    whole = keyed_drops(0.3, seed=1, step=2, slots=range(64))
    assert torch.equal(keyed_drops(0.3, seed=1, step=2, slots=[40, 3]), whole[[40, 3]])
    assert not torch.equal(keyed_drops(0.3, seed=1, step=3, slots=range(64)), whole)


def test_the_share_of_drops_is_the_probability():
    drops = torch.cat([keyed_drops(0.1, seed=0, step=s, slots=range(50)) for s in range(80)])
    assert abs(drops.float().mean().item() - 0.1) < 4 * (0.09 / 4000) ** 0.5


def test_the_bounds_are_never_and_always():
    assert not keyed_drops(0.0, seed=0, step=0, slots=range(32)).any()
    assert keyed_drops(1.0, seed=0, step=0, slots=range(32)).all()


def test_the_published_rule_depends_on_rank_and_microbatch():
    def drops(dp_rank, micro):
        return published_drops(
            0.5, batch=64, seed=7, step=1, dp_rank=dp_rank, micro_index=micro
        ).tolist()

    assert drops(0, 0) == drops(0, 0)
    assert len({tuple(drops(r, m)) for r in range(2) for m in range(2)}) == 4
    assert 16 < sum(drops(0, 0)) < 48
