"""One client's half of a round: what it sees, and what it answers; simulated clients and real sites share it."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import partial

import torch
from torch import Tensor

from fedpca.core import ClientId, Net, Order, Params, Recipe, Report, Shard, Site, Update
from fedpca.models.flat import load
from fedpca.rng import seed_of, stream


def site_for(
    client: ClientId,
    shard: Shard,
    memory: MutableMapping[str, Tensor],
    net: Net,
    params: Params,
    order: Order,
    *,
    purpose: str,
    seed: int,
) -> Site:
    """What the client sees: its data and memory, the global weights loaded, its own random numbers."""
    load(net, params)
    net.module.eval()
    if net.draws:
        torch.manual_seed(seed_of(seed, "dropout", purpose, order.round, client))
    return Site(net, shard.x, shard.y, memory, order, partial(stream, seed, purpose, order.round, client))


@torch.no_grad()
def answer_report(recipe: Recipe, site: Site) -> Report:
    """What a client says about its data; the site's model holds the global weights, in eval mode."""
    assert recipe.report is not None, "a recipe without a report asks for none"
    return recipe.report(site)


def answer_train(recipe: Recipe, site: Site) -> Update:
    """What a client sends after local training; it changes the site's model."""
    with torch.no_grad():
        samples = recipe.select(site)
    return recipe.train(site, samples)
