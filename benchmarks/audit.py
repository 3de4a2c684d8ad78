"""What an audit costs: 50 clients on features that are frozen, as a ratio to one FedAvg training of the same rounds."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, tempfile, time
from pathlib import Path
import numpy as np
import torch
from fedpca.auditing.audit import judge_rows
from fedpca.auditing.data import AuditData
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.run import cross_fit
from fedpca.core import Server, Shard
from fedpca.loop import play
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

what, images, clients, width, rounds = sys.argv[1], *map(int, sys.argv[2:])
rng = torch.Generator().manual_seed(0)
centres = torch.randn(10, width, generator=rng)
shards = {}
for client in range(clients):
    y = torch.randint(0, 10, (images // clients,), generator=rng)
    x = centres[y] * 0.2 + torch.randn(len(y), width, generator=rng)
    shards[str(client)] = Shard(x[:, :, None, None], y)
experiment = Experiment(training={"batch": 64, "lr": 0.03})
make = lambda: build("mlp-16", (width, 1, 1), 10, 0)
before = time.process_time()
if what == "audit":
    rows = {client: np.arange(len(shard.y)) for client, shard in shards.items()}
    paths = {client: ("",) * len(shard.y) for client, shard in shards.items()}
    data = AuditData(shards, rows, paths, {}, {}, tuple("0123456789"), (width, 1, 1), "all")
    options = AuditOptions(rounds=rounds)
    with tempfile.TemporaryDirectory() as folder:
        judge_rows(data, options, cross_fit(data, experiment, options, Path(folder), make))
elif what == "train":
    method = one_stage(base(Plan(rounds, experiment.training, clients=clients)))
    workers = Workers([make()])
    for server in play(method, InProcess(method, shards, workers, 0), Server(params_of(workers.nets[0])), rounds):
        pass
memory = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(time.process_time() - before, memory)
"""

IMAGES, CLIENTS, WIDTH, ROUNDS, FOLDS = (50_000, 100_000), 50, 320, 20, 4


def measure() -> dict[str, float]:
    """Processor time and peak memory of the audit over those of one training, at both numbers of images."""
    figures: dict[str, float] = {}
    for images in IMAGES:
        (audit, peak), (train, least), (_, data) = (_run(what, images) for what in ("audit", "train", "data"))
        figures |= {
            f"{images} images, processor time over one training (at most {FOLDS + 1})": round(audit / train, 2),
            f"{images} images, peak memory over one training": round(peak / least, 2),
            f"{images} images, peak MB": round(peak),
            f"{images} images, MB above the data alone": round(peak - data),
        }
    return figures


def _run(what: str, images: int) -> tuple[float, float]:
    command = [sys.executable, "-c", CODE, what, *map(str, (images, CLIENTS, WIDTH, ROUNDS))]
    seconds, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), float(memory)
