"""CPU seconds until the first round of a digits run begins, beside those of importing PyTorch alone."""

from __future__ import annotations

import statistics
import subprocess
import sys

REPEAT = 5
TORCH = "import time, torch; print(time.process_time())"
ROUND = """
import tempfile, time
from pathlib import Path
from fedpca.runs import run as experiment
from fedpca.cli.run import run_all
from fedpca.runs.check import read_settings

def begun(*_):
    print(time.process_time(), flush=True)
    raise SystemExit

experiment.play = begun
settings = read_settings(Path("experiments/digits.toml"), ['methods=["fedavg"]', "seeds=[0]"])
run_all(settings, Path(tempfile.mkdtemp()), 1, None, False, None, "")
"""


def measure() -> dict[str, float]:
    """Medians; the two in turns."""
    turns = [(_seconds(TORCH), _seconds(ROUND)) for _ in range(REPEAT)]
    torch, first = (statistics.median(values) for values in zip(*turns, strict=True))
    return {"import_torch_s": round(torch, 2), "first_round_s": round(first, 2), "ratio": round(first / torch, 2)}


def _seconds(code: str) -> float:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])
