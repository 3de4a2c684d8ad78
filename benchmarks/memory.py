"""Peak memory: FedAvg with 10, 100 and 1,000 clients, and every kind of rule with 50 clients of ResNet-18."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import torch
from fedpca.core import Server, Shard
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import check_experiment, method_of
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

name, model, clients, images, side, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
rng = torch.Generator().manual_seed(0)
shards = {
    str(i): Shard(
        torch.randint(0, 256, (images, 1, side, side), dtype=torch.uint8, generator=rng),
        torch.randint(0, 10, (images,), generator=rng),
    )
    for i in range(clients)
}
workers = Workers([build(model, (1, side, side), 10, 0) for _ in range(2)])
method = method_of(check_experiment({"rounds": 3, "method": {"fednoro": {"warmup": 1}}}, "memory"), name)
*_, server = play(method, InProcess(method, shards, workers, 0), Server(params_of(workers.nets[0])), rounds)
workers.close()
# of this process image alone: getrusage would still count the parent that it was forked from
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024)
"""

COUNTS = (10, 100, 1000)  # clients
RULES = ("fedavg", "median", "rfa", "fednoro", "fedce", "qfedavg+median", "fedce+rfa")
MODEL_OF_RULES, CLIENTS_OF_RULES = "resnet18", 50


def measure_rules() -> dict[str, float]:
    """Peak resident memory in MB of two rounds with 50 clients of ResNet-18, 44.7 MB each, by method.

    The clients have two images: what is measured is what the server and the clients' memories hold.
    """
    return {f"{name}, MB": round(_peak(name, MODEL_OF_RULES, CLIENTS_OF_RULES, 2, 32, 2), 1) for name in RULES}


def measure() -> dict[str, float]:
    """Peak resident memory in MB, PyTorch itself included, and the growth from 10 to 1,000 clients as a ratio."""
    peaks = {count: _peak("fedavg", "cnn-small", count, 18, 8, 3) for count in COUNTS}
    return {
        **{f"{count} clients, MB": round(peak, 1) for count, peak in peaks.items()},
        f"{COUNTS[-1]} over {COUNTS[0]}": round(peaks[COUNTS[-1]] / peaks[COUNTS[0]], 3),
    }


def _peak(*given: object) -> float:
    command = [sys.executable, "-c", CODE, *map(str, given)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
