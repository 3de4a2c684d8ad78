"""Data in one place: all clients' as one client's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpca.core import ClientId, Images, Method, Shard

ALL = "all"  # the one client's name


def shards_for(method: Method, shards: Mapping[ClientId, Shard]) -> Mapping[ClientId, Shard]:
    """The data as the method has them: the clients', or all of them as those of one client."""
    return {ALL: pooled(list(shards.values()))} if method.pools_data else shards


def pooled(shards: Sequence[Shard]) -> Shard:
    """One client's data, made of several's, one after the other; images stay where they are."""
    ends = torch.tensor([len(shard.y) for shard in shards]).cumsum(0)
    return Shard(Joined(tuple(shard.x for shard in shards), ends), torch.cat([shard.y for shard in shards]))


@dataclass(frozen=True)
class Joined:
    """Several sets of images as one, of which a batch takes what it needs."""

    parts: tuple[Images, ...]
    ends: Tensor  # where each part ends, among all

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, picks: Tensor) -> Tensor:
        whose = torch.bucketize(picks, self.ends, right=True)
        order = whose.argsort(stable=True)
        parts, counts = torch.unique_consecutive(whose[order], return_counts=True)
        begins = torch.cat([self.ends.new_zeros(1), self.ends])[whose]
        places = torch.split((picks - begins)[order], counts.tolist())
        found = [self.parts[part][own] for part, own in zip(parts.tolist(), places, strict=True)]
        return torch.cat(found)[order.argsort()]
