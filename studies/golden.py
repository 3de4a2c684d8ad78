"""Bits of short runs, kept across a refactoring: `python -m studies.golden record|compare [FILE]`.

Twenty runs on digits, each with one and with two workers, that between them use every kind of part. `record` writes a
digest of every tensor of the final weights and of every round's line (without the time it took); `compare` plays them
again and names what differs. Digests are of one machine: convolutions round differently on others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import product
from pathlib import Path

from safetensors.numpy import load_file

METHODS = (
    "fedavg",
    "fedpca-d",
    "fedpca-hs-auto",
    "fedcorr",
    "fednoro",
    "fedce+rfa",
    "fedism+fednoro",
    "fedga+d",
    "qffl",
    "median",
)
MODELS, WORKERS = ("mlp", "cnn-small"), (1, 2)
CHANGES = (
    "rounds=12",
    "data.clients=10",
    "data.train_images=400",
    "data.test_images=150",
    "rare.share=0.2",
    "rare.sigma=0.5",
    "noise.clients=0.2",
    "noise.labels=0.8",
    "training.batch=16",
    "training.lr=0.1",
    *(f"method.{name}.warmup=3" for name in ("fedpca-d", "fedpca-hs-auto", "fednoro", '"fedga+d"')),
    "method.fednoro.begin=3",
    "method.fednoro.end=9",
)
Digests = dict[str, str]  # by run and by what was digested


def play(model: str, workers: int, out: Path) -> None:
    """Every method's run with this model, through the command line: what must not change is what users get."""
    command = [sys.executable, "-m", "fedpca", "run", "digits", "--seed", "0", "--out", str(out)]
    command += ["--workers", str(workers), "--set", f"model.name={model}"]
    command += [word for method in METHODS for word in ("--method", method)]
    command += [word for change in CHANGES for word in ("--set", change)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")


def digests(folder: Path) -> Iterator[tuple[str, str]]:
    """What a run folder holds: each round's line, and each tensor of the final weights."""
    for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines():
        values = {key: value for key, value in json.loads(line).items() if key != "seconds"}
        yield f"round {values['round']}", _digest(json.dumps(values, sort_keys=True).encode())
    for name, tensor in sorted(load_file(folder / "final.safetensors").items()):
        yield f"tensor {name}", _digest(str((tensor.dtype, tensor.shape)).encode() + tensor.tobytes())


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def all_runs() -> Digests:
    """The digests of every run, played afresh."""
    found: Digests = {}
    for model, workers in product(MODELS, WORKERS):
        print(f"{model}, {workers} worker{'s' * (workers > 1)}: {len(METHODS)} methods", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            out = Path(temporary) / "runs"
            play(model, workers, out)
            for method in METHODS:
                for what, digest in digests(out / method / "seed-0"):
                    found[f"{method}, {model}, {workers} workers: {what}"] = digest
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The first thing that differs in each run: all that follows from it differs too."""
    first: dict[str, str] = {}
    for key in {**before, **now}:
        run, _, what = key.partition(": ")
        if before.get(key) != now.get(key):
            first.setdefault(run, what)
    return [f"{run} differs from {what} on" for run, what in first.items()]


def main() -> None:
    """Records or compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("runs/golden.json"))
    options = parser.parse_args()
    if options.what == "compare" and not options.file.exists():
        parser.error(f"there is no {options.file}: record first, at the commit to compare with")
    found = all_runs()
    if options.what == "record":
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
        print(f"{len(found)} digests written to {options.file}")
        return
    lines = differences(json.loads(options.file.read_text(encoding="utf-8")), found)
    print("\n".join(lines) or f"equal: {len(found)} digests of {len(METHODS) * len(MODELS) * len(WORKERS)} runs")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
