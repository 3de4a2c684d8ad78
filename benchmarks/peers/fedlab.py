"""FedLab: its serial trainer, standalone in one process, or in several beside a server (its cross-process mode).

Its server averages without weights; in these workloads all clients are of one size.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator

import benchmarks.peers.vision  # noqa: F401  before what imports torchvision

# isort: split
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.client.manager import PassiveClientManager
from fedlab.core.network import DistNetwork
from fedlab.core.server.manager import SynchronousServerManager
from fedlab.core.standalone import StandalonePipeline
from torch import Tensor, nn

from benchmarks.peers.processes import free_port, start_again
from benchmarks.racer import Racer
from benchmarks.workloads import LR, WORKLOADS, Workload, batches, data_of, model_of, optimizer_of


class Clients(FedDataset):
    """Batches straight from the tensors: faster than the DataLoader that FedLab's examples use."""

    def __init__(self, data: list[tuple[Tensor, Tensor]], pad: int) -> None:
        super().__init__()
        self.data, self.num, self.pad = data, len(data), pad

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Iterator[tuple[Tensor, Tensor]]:
        return batches(*self.data[id], batch_size, self.pad)


class Trainer(FedAvgSerialClientTrainer):
    """FedLab's SGD has no momentum, and the clients share its optimiser: here they have momentum that begins anew."""

    def setup_optim(self, epochs: int, batch_size: int, lr: float) -> None:
        super().setup_optim(epochs, batch_size, lr)
        self.optimizer = optimizer_of(self._model)

    def train(self, model_parameters: Tensor, train_loader: Iterator[tuple[Tensor, Tensor]]) -> list[Tensor]:
        self.optimizer.state = defaultdict(dict)
        return super().train(model_parameters, train_loader)


class Handler(SyncServerHandler):
    """Pauses where a round begins: when the server chooses its clients."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, global_round=10**9, sample_ratio=1.0)
        self.racer = Racer(self.model.parameters())

    def sample_clients(self) -> list[int]:
        if self.round and not self.racer.pause(lambda: list(self.model.parameters())):
            os._exit(0)
        return super().sample_clients()


class Pipeline(StandalonePipeline):
    def evaluate(self) -> None:
        """Nothing: FedLab's own says that it is to be replaced."""


def trainer_of(workload: Workload, data: list[tuple[Tensor, Tensor]]) -> Trainer:
    trainer = Trainer(model_of(workload), len(data), cuda=False)
    trainer.setup_dataset(Clients(data, workload.pad))
    trainer.setup_optim(1, workload.batch, LR)
    return trainer


def main(name: str, processes: str) -> None:
    workload, count, rank = WORKLOADS[name], int(processes), int(os.environ.get("FEDLAB_RANK", "0"))
    if count == 1:
        Pipeline(Handler(model_of(workload)), trainer_of(workload, data_of(workload))).main()
        return
    port = os.environ.setdefault("FEDLAB_PORT", str(free_port()))
    network = DistNetwork(("127.0.0.1", port), count + 1, rank)
    if rank:
        PassiveClientManager(network, trainer_of(workload, data_of(workload)[rank - 1 :: count])).run()
        return
    for other in range(1, count + 1):
        start_again(FEDLAB_RANK=str(other))
    SynchronousServerManager(network, Handler(model_of(workload))).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
