"""A model of the client's own, which never leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from fedpca.core import Params, Samples, Site, Train, Update
from fedpca.models.flat import load, params_of
from fedpca.screening import Claims

VECTORS = ("weights", "buffers", "counters")  # in the client's memory


@dataclass(frozen=True)
class TrainOwn:
    """Another training that goes on from where the client's own model stood after its last round; nothing is sent."""

    train: Train

    @property
    def claims(self) -> Claims:
        """Nothing."""
        return Claims()

    def __call__(self, site: Site, samples: Samples) -> Update:
        load(site.net, own_model(site.memory, params_of(site.net)))
        if (params := self.train(site, samples).params) is not None:
            site.memory.update(zip(VECTORS, params.vectors, strict=True))
        return Update(None, 0)


def own_model(memory: Mapping[str, Tensor], start: Params) -> Params:
    """The client's own model as its memory has it; before it has trained, the one that all begin with."""
    weights, buffers, counters = (memory.get(name, getattr(start, name)) for name in VECTORS)
    return replace(start, weights=weights, buffers=buffers, counters=counters)
