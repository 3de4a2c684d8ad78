"""fluke: its FedAVG with clients that keep no model between rounds (`persistency=False`), all in memory, no evaluation.

It trains in parallel on two GPUs or more only, so that there is one way to run it on a CPU.
"""

from __future__ import annotations

import os
import sys

import benchmarks.peers.vision  # noqa: F401  before what imports torchvision

# isort: split
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.utils import FederationObserver
from torch import Tensor, nn

from benchmarks.racer import Racer
from benchmarks.workloads import CLASSES, DECAY, LR, MOMENTUM, WORKLOADS, Workload, crop_flip, data_of, model_of


class Changing(nn.Module):
    """The model, which crops and flips what it is trained on: fluke's loader gives images as they are."""

    def __init__(self, model: nn.Module, pad: int) -> None:
        super().__init__()
        self.model, self.pad = model, pad

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(crop_flip(x, self.pad) if self.training else x)
        return logits


class Pauses(FederationObserver):
    def __init__(self, model: nn.Module) -> None:
        self.model, self.racer = model, Racer(model.parameters())

    def end_round(self, round: int) -> None:
        if not self.racer.pause(lambda: list(self.model.parameters())):
            os._exit(0)


def federation(workload: Workload, persistency: bool = False) -> FedAVG:
    loaders = [
        FastDataLoader(x, y, num_labels=CLASSES, batch_size=workload.batch, shuffle=True) for x, y in data_of(workload)
    ]
    container = DummyDataContainer(loaders, [None] * len(loaders), None, CLASSES)
    client = {
        "batch_size": workload.batch,
        "local_epochs": 1,
        "loss": "CrossEntropyLoss",
        "persistency": persistency,
        "optimizer": {"name": "SGD", "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    }
    model = Changing(model_of(workload), workload.pad) if workload.pad else model_of(workload)
    settings = DDict(client=client, server={"weighted": True}, model=model)
    return FedAVG(workload.clients, DataSplitter(container), settings)


def main(name: str) -> None:
    FlukeENV().set_eval_cfg(server=False)
    algorithm = federation(WORKLOADS[name])
    algorithm.set_callbacks(Pauses(algorithm.server.model))
    algorithm.run(n_rounds=10**6, eligible_perc=1.0)


if __name__ == "__main__":
    main(sys.argv[1])
