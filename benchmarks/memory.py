"""Peak memory of a run with 10, 100 and 1,000 clients, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import torch
from fedpca.core import Server, Shard
from fedpca.loop import play
from fedpca.methods import compose
from fedpca.models import build
from fedpca.params import params_of
from fedpca.scenario import check_experiment
from fedpca.simulate import InProcess, Workers

clients = int(sys.argv[1])
rng = torch.Generator().manual_seed(0)
shards = {
    str(i): Shard(
        torch.randint(0, 256, (18, 1, 8, 8), dtype=torch.uint8, generator=rng),
        torch.randint(0, 10, (18,), generator=rng),
    )
    for i in range(clients)
}
workers = Workers([build("cnn-small", (1, 8, 8), 10, 0) for _ in range(2)])
method = compose("fedavg", check_experiment({}, "memory"))
*_, server = play(method, InProcess(method, shards, workers, 0), Server(params_of(workers.nets[0])), 3)
workers.close()
# of this process image alone: getrusage would still count the parent that it was forked from
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024)
"""


def measure() -> dict[str, float]:
    """Peak resident memory in MB, PyTorch itself included, and the growth from 10 to 1,000 clients as a ratio."""
    peaks = {count: _peak(count) for count in (10, 100, 1000)}
    return {
        **{f"{count} clients, MB": round(peak, 1) for count, peak in peaks.items()},
        "1000 over 10": round(peaks[1000] / peaks[10], 3),
    }


def _peak(clients: int) -> float:
    command = [sys.executable, "-c", CODE, str(clients)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
