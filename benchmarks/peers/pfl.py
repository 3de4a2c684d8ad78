"""pfl: its SimulatedBackend and FederatedAveraging, in one process or in several that share out the clients.

Several processes are what its guide "Fast distributed simulations" recommends; `PFL_WORKER_ADDRESSES` and
`PFL_WORKER_RANK` are all they need. The users' tensors stay in memory, and pfl keeps their batches.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.racer import Racer
from benchmarks.workloads import DECAY, LR, MOMENTUM, WORKLOADS, Workload, cores, data_of, model_of


class Trainee(nn.Module):
    """The model under the two methods that pfl calls."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.model.train()
        return cross_entropy(self.model(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        from pfl.metrics import Weighted

        return {"loss": Weighted(0.0, len(y))}


def spread(processes: int) -> bool:
    """Starts the other processes, and says whether this one is the first of them."""
    torch.set_num_threads(max(1, cores() // processes))
    if processes == 1 or "PFL_WORKER_RANK" in os.environ:
        return os.environ.get("PFL_WORKER_RANK", "0") == "0"
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"localhost:{_free_port()}" for _ in range(processes))
    for rank in range(1, processes):
        command = [sys.executable, "-m", "benchmarks.peers.pfl", *sys.argv[1:]]
        subprocess.Popen(
            command, env=os.environ | {"PFL_WORKER_RANK": str(rank)}, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
    os.environ["PFL_WORKER_RANK"] = "0"
    return True


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def run(workload: Workload, first: bool) -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    trainee = Trainee(model_of(workload))
    racer = Racer(trainee.parameters()) if first else None

    class Pauses(TrainingProcessCallback):
        """The first process waits for the word, the others for the first."""

        def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
            go = torch.tensor(int(racer.pause(lambda: list(trainee.parameters())) if racer else 0))
            if torch.distributed.is_initialized():
                torch.distributed.broadcast(go, 0)
            return not go, Metrics()

    users = [PyTorchTensorDataset(client) for client in data_of(workload)]
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", range(len(users))))
    sgd = partial(torch.optim.SGD, momentum=MOMENTUM, weight_decay=DECAY)
    model = PyTorchModel(trainee, sgd, central_optimizer=torch.optim.SGD(trainee.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(10**9, evaluation_frequency=10**9, train_cohort_size=len(users), val_cohort_size=0),
        SimulatedBackend(data, data, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=workload.batch),
        callbacks=[Pauses()],
        send_metrics_to_platform=False,
    )


def main(name: str, processes: str = "1") -> None:
    run(WORKLOADS[name], spread(int(processes)))


if __name__ == "__main__":
    main(*sys.argv[1:])
