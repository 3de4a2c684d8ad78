"""A Flower app in which Flower's own FedAvg and fedpca take turns with the same sites, model and training."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn.functional import cross_entropy

BATCH, LR, MOMENTUM = 16, 0.05, 0.9
client = ClientApp()  # a line each: Flower looks for them without running this
server = ServerApp()


def network() -> nn.Module:
    """cnn-small for 8x8 images, written as a user would."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@client.train()
def train(message: Message, context: Context) -> Message:
    """fedpca's answer to its orders, else what Flower's tutorials do; neither waits for the other's imports."""
    if "order" in message.content:
        from fedpca.flower.apps import client_app

        return client_app(message, context)
    return plain(message, context)


@client.query("hello")
@client.query("report")
def query(message: Message, context: Context) -> Message:
    from fedpca.flower.apps import client_app

    return client_app(message, context)


def plain(message: Message, context: Context) -> Message:
    """One epoch of SGD on the site's own images."""
    torch.set_num_threads(1)
    model = network()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    with np.load(Path(str(context.node_config["data"])) / "images.npz") as file:
        x = (torch.from_numpy(file["x_train"]).float() / 255 - 0.5) / 0.25
        y = torch.from_numpy(file["y_train"])
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for rows in torch.randperm(len(y)).split(BATCH):
        optimizer.zero_grad()
        cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Turns of one exchange each, the order changing; the figures go to the file that the run config names.

    Without `turns` in the run config, an exchange whenever the benchmark of engines asks for one.
    """
    from benchmarks.turns import answer_turns, exchange, meet_sites
    from fedpca.atomic import write_whole
    from fedpca.flower.config import read_run_config
    from fedpca.flower.engine import FlowerEngine

    config = dict(context.run_config)
    turns, out = int(config.pop("turns", 0)), Path(str(config.pop("figures", "")))
    experiment, deployment = read_run_config(config)
    if not turns:
        answer_turns(deployment.out, FlowerEngine(grid), experiment, deployment)
        return
    clients, layout, params = meet_sites(FlowerEngine(grid), experiment, deployment)
    sites = deployment.sites
    fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=sites, min_available_nodes=sites)
    arrays = ArrayRecord(layout.named(params))

    def flowers(turn: int) -> float:
        began = time.perf_counter()
        messages = fedavg.configure_train(turn, arrays, ConfigRecord(), grid)
        replies = list(grid.send_and_receive(messages, timeout=600))
        assert len(replies) == sites
        assert all(reply.has_content() for reply in replies)
        fedavg.aggregate_train(turn, replies)
        return time.perf_counter() - began

    kinds: dict[str, Callable[[int], float]] = {"flower_fedavg": flowers}
    kinds |= {kind: partial(exchange, clients, params, kind) for kind in ("train", "report")}
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(1, turns + 1):
        names = list(kinds)
        for kind in names[turn % 3 :] + names[: turn % 3]:
            taken[kind].append(kinds[kind](turn))
            print(f"{kind}: {taken[kind][-1]:.2f} s", flush=True)
    model = sum(len(array.data) for array in arrays.values())
    sent = {kind: [e for e in clients.exchanges if e.kind == kind][-1] for kind in ("train", "report")}
    figures = {
        "seconds_per_exchange": {kind: round(statistics.median(values), 2) for kind, values in taken.items()},
        "seconds": {kind: [round(value, 2) for value in values] for kind, values in taken.items()},
        "bytes_per_site_and_round": {
            "flower_fedavg, training and evaluation": 3 * model,
            "fedpca, report and training": sum(e.sent + e.received for e in sent.values()) // sites,
        },
    }
    write_whole(out, json.dumps(figures))
