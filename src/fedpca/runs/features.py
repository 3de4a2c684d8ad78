"""What the final model sees in some of every client's images, saved on request for figures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedpca.core import ClientId, Net, Params, Shard
from fedpca.models.flat import load
from fedpca.rng import stream
from fedpca.simulate.workers import Workers

BATCH = 128  # images per pass, as in tests


def features_of(
    workers: Workers, params: Params, shards: Mapping[ClientId, Shard], per_client: int, seed: int
) -> dict[str, Tensor]:
    """`features` (M, d) before the last layer, with `label` (the given one), `predicted` and `client` (M,).

    Up to `per_client` images of each, drawn by its place; `client` counts in the order of the shards.
    """

    @torch.no_grad()
    def work(net: Net, client: ClientId) -> tuple[Tensor, Tensor, Tensor]:
        load(net, params)
        net.module.eval()
        shard = shards[client]
        rows = torch.randperm(len(shard.y), generator=stream(seed, "features", client))[:per_client].sort().values
        seen = [net.features(shard.x[some]) for some in torch.split(rows, BATCH)]
        features, logits = (torch.cat(parts).cpu() for parts in zip(*seen, strict=True))
        return features.flatten(1), shard.y[rows], logits.argmax(dim=1)

    found = list(workers.map(work, shards))
    features, labels, predicted = (torch.cat(parts) for parts in zip(*found, strict=True))
    clients = torch.repeat_interleave(torch.tensor([len(own) for _, own, _ in found]))
    return {"features": features, "label": labels, "predicted": predicted, "client": clients}
