"""Flower: its simulation engine on Ray with its FedAvg, so many workers that share the cores.

`run_simulation` is the Python entry to the engine that `flwr run` uses. Each worker makes data and model once and keeps
them, as Flower's guide recommends for speed; evaluation is off.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
# Ray's workers give way to every other process: here they compete as equals
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112

import ray
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from benchmarks.racer import Racer
from benchmarks.workloads import WORKLOADS, cores, data_of, fit, model_of, optimizer_of

client_app = ClientApp()


@cache
def _data_and_model(name: str) -> tuple[list[tuple[Tensor, Tensor]], nn.Module]:
    return data_of(WORKLOADS[name]), model_of(WORKLOADS[name])


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One client's epoch."""
    name = str(message.content["config"]["workload"])
    data, model = _data_and_model(name)
    x, y = data[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    fit(model, optimizer_of(model), x, y, WORKLOADS[name].batch, WORKLOADS[name].pad)
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


class Strict(FedAvg):
    """FedAvg that ends the run where Flower would go on without the clients that failed: they would save time."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed or len(replies) < self.min_available_nodes:
            count = f"{len(replies)} of {self.min_available_nodes} replied, {len(failed)} failed"
            print(f"round {server_round}: {count}", *failed[:1], flush=True)
            os._exit(1)
        return super().aggregate_train(server_round, replies)


def server_app(name: str) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        model = model_of(WORKLOADS[name])
        names, racer = [name for name, _ in model.named_parameters()], Racer(model.parameters())

        def pause(round: int, arrays: ArrayRecord) -> None:
            """Where Flower would evaluate: before the first round, and after each."""

            def weights() -> list[Tensor]:
                state = arrays.to_torch_state_dict()
                return [state[name] for name in names]

            if round and not racer.pause(weights):
                ray.shutdown()
                os._exit(0)

        Strict(fraction_evaluate=0.0, min_available_nodes=WORKLOADS[name].clients).start(
            grid,
            ArrayRecord(model.state_dict()),
            num_rounds=10**6,
            train_config=ConfigRecord({"workload": name}),
            evaluate_fn=pause,
        )

    return app


def main(name: str, workers: str) -> None:
    share = {"num_cpus": max(1, cores() // int(workers)), "num_gpus": 0.0}
    settings: Any = {"init_args": {"num_cpus": cores()}, "client_resources": share}
    run_simulation(server_app(name), client_app, WORKLOADS[name].clients, backend_config=settings)


if __name__ == "__main__":
    # Ray sends functions of the main module by value, with every message: those of an imported one go by name
    importlib.import_module("benchmarks.peers.flower").main(*sys.argv[1:])
