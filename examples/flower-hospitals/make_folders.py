"""Digits for made-up hospitals, a folder each, to try the app with: `python make_folders.py data --sites 4`."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from fedpca import federate, load
from fedpca.runs.check import check_experiment

NAMES = ("berlin", "bonn", "dresden", "essen", "hamburg", "jena", "kiel", "mainz")


def make(out: Path, sites: int) -> None:
    """Writes `out`/NAME/images.npz for so many hospitals: the last one's images are noisy, another's labels wrong."""
    table = {"clients": sites}, {"share": 1 / sites, "sigma": 0.5}, {"clients": 1 / sites, "labels": 0.8}
    experiment = check_experiment(dict(zip(("data", "rare", "noise"), table, strict=True)), "digits")
    federation = federate(experiment, load(experiment.data))
    for number, (name, client) in enumerate(zip(NAMES, federation.shards, strict=False)):
        shard = federation.shards[client]
        test = federation.tests["rare" if client in federation.truth.rare else "common"]
        own = torch.arange(number, len(test.y), sites)
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(
            folder / "images.npz",
            x_train=shard.x[torch.arange(len(shard.y))].numpy(),
            y_train=shard.y.numpy(),
            x_test=test.x[own].numpy(),
            y_test=test.y[own].numpy(),
        )
        print(f"{folder}: {len(shard.y)} images to train on, {len(own)} held out")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sites", type=int, default=4, choices=range(2, len(NAMES) + 1))
    arguments = parser.parse_args()
    make(arguments.out, arguments.sites)
