"""pfl: its SimulatedBackend and FederatedAveraging, in one process or in several that share out the clients.

Several processes are what its guide "Fast distributed simulations" recommends; `PFL_WORKER_ADDRESSES` and
`PFL_WORKER_RANK` are all they need. The users' tensors stay in memory, and pfl keeps their batches.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.processes import free_port, start_again
from benchmarks.racer import Racer
from benchmarks.workloads import DECAY, LR, MOMENTUM, WORKLOADS, Workload, crop_flip, data_of, model_of


class Trainee(nn.Module):
    """The model under the two methods that pfl calls."""

    def __init__(self, model: nn.Module, pad: int) -> None:
        super().__init__()
        self.model, self.pad = model, pad

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.model.train()
        return cross_entropy(self.model(crop_flip(x, self.pad) if self.pad else x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        from pfl.metrics import Weighted

        return {"loss": Weighted(0.0, len(y))}


def spread(processes: int) -> bool:
    """Starts the other processes, and says whether this one is the first."""
    if processes > 1 and "PFL_WORKER_RANK" not in os.environ:
        os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"localhost:{free_port()}" for _ in range(processes))
        for rank in range(1, processes):
            start_again(PFL_WORKER_RANK=str(rank))
        os.environ["PFL_WORKER_RANK"] = "0"
    return os.environ.get("PFL_WORKER_RANK", "0") == "0"


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

    trainee = Trainee(model_of(workload), workload.pad)
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


def main(name: str, processes: str) -> None:
    run(WORKLOADS[name], spread(int(processes)))


if __name__ == "__main__":
    main(*sys.argv[1:])
