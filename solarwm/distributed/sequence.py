"""The ranks of one sequence-parallel group: their exchanges, and proof that they work on one sample."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import torch

from solarwm.distributed.collectives import Collectives
from solarwm.errors.types import SolarError


class SequenceGroup:
    """This rank among those that share its samples; see `nn.sequence.SequencePeers`."""

    def __init__(self, collectives: Collectives, *, check_every: int = 1) -> None:
        self.collectives = collectives
        self.sp_rank = collectives.members.index(collectives.world_rank)
        self.sp_size = collectives.size
        self.checking = False
        """Whether `require_equal` compares; set a step by `arm`."""
        self._check_every = check_every

    def arm(self, step: int) -> bool:
        """Say whether step `step` (from 0) is compared: every `check_every`-th, the first among
        them; 0 = none."""
        self.checking = self._check_every > 0 and step % self._check_every == 0
        return self.checking

    def exchange(self, parts_P: torch.Tensor, *, label: str) -> torch.Tensor:
        """[peers, ...]: part i goes to peer i; what came, in their order. Collective over the
        peers."""
        return self.collectives.exchange(parts_P, label=label)

    def gather(self, part: torch.Tensor, *, label: str) -> torch.Tensor:
        """`part` of every peer, stacked. Collective over the peers."""
        return self.collectives.gather(part, label=label)

    def require_equal(self, fields: Mapping[str, Any], *, label: str) -> None:
        """Refuse (exit 6) fields that differ between peers, on all of them alike.

        Tensors are compared by their bytes, the rest by what it prints. Collective over the peers
        in steps that are checked, nothing in others.
        """
        if not self.checking:
            return
        own = {name: _digest(value) for name, value in fields.items()}
        found = self.collectives.gather_objects(own, label=f"peers equal: {label}")
        for name in own:
            digests = [theirs.get(name) for theirs in found]
            if len(set(digests)) == 1:
                continue
            ranks = self.collectives.members
            odd = next(i for i, digest in enumerate(digests) if digest != digests[0])
            raise SolarError(
                "distributed.peers-differ",
                f"ranks {ranks[0]} and {ranks[odd]} share a sample but not its {name}",
                where=label,
                why=", ".join(
                    f"rank {rank}: {digest}" for rank, digest in zip(ranks, digests, strict=True)
                ),
                fixes=["give every rank the same code, config and data"],
                context={"field": name, "world_ranks": [ranks[0], ranks[odd]]},
            )


def _digest(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous()
        text = f"{tuple(data.shape)} {data.dtype} "
        raw = data.reshape(-1).view(torch.uint8).numpy().tobytes()
        return text + blake2b(raw, digest_size=8).hexdigest()
    shown = repr(value)
    return shown if len(shown) <= 120 else blake2b(shown.encode(), digest_size=8).hexdigest()
