"""FedLab: its standalone pipeline with the serial trainer, which trains one client after the other in one process."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator

from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from torch import Tensor

from benchmarks.racer import Racer
from benchmarks.workloads import LR, WORKLOADS, Workload, batches, data_of, model_of, optimizer_of


class Clients(FedDataset):
    """Batches straight from the tensors: faster than the DataLoader that FedLab's examples use."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.data, self.num = data_of(workload), workload.clients

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Iterator[tuple[Tensor, Tensor]]:
        return batches(*self.data[id], batch_size)


class Trainer(FedAvgSerialClientTrainer):
    """FedLab's SGD has no momentum, and its optimiser is shared by the clients: momentum is given, and begins anew."""

    def setup_optim(self, epochs: int, batch_size: int, lr: float) -> None:
        super().setup_optim(epochs, batch_size, lr)
        self.optimizer = optimizer_of(self._model)

    def train(self, model_parameters: Tensor, train_loader: Iterator[tuple[Tensor, Tensor]]) -> list[Tensor]:
        self.optimizer.state = defaultdict(dict)
        return super().train(model_parameters, train_loader)


class Pipeline(StandalonePipeline):
    """Pauses where FedLab evaluates: after each round."""

    racer: Racer

    def evaluate(self) -> None:
        if not self.racer.pause(lambda: list(self.handler.model.parameters())):
            os._exit(0)


def main(name: str) -> None:
    workload = WORKLOADS[name]
    model = model_of(workload)
    trainer = Trainer(model, workload.clients, cuda=False)
    trainer.setup_dataset(Clients(workload))
    trainer.setup_optim(1, workload.batch, LR)
    pipeline = Pipeline(SyncServerHandler(model, global_round=10**9, sample_ratio=1.0), trainer)
    pipeline.racer = Racer(model.parameters())
    pipeline.main()


if __name__ == "__main__":
    main(sys.argv[1])
