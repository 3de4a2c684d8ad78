"""What many tests start from: a federation small enough to train in a blink."""

from __future__ import annotations

import hypothesis
import pytest

from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.runs.check import check_experiment
from fedpca.settings.experiment import Experiment

# no test may depend on how busy the machine is, nor fail by a draw that nobody can repeat
hypothesis.settings.register_profile("fedpca", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("fedpca")


@pytest.fixture
def small() -> Experiment:
    """Six clients with 40 digits each, one rare, one mislabeled; three rounds of an MLP."""
    table = {
        "name": "small",
        "rounds": 3,
        "seeds": [0],
        "data": {"clients": 6, "train_images": 240, "test_images": 100},
        "rare": {"share": 0.17, "sigma": 0.5},
        "noise": {"clients": 0.17, "labels": 0.8},
        "model": {"name": "mlp"},
        "training": {"batch": 16},
    }
    return check_experiment(table, "small")


@pytest.fixture
def federation(small: Experiment) -> Federation:
    return federate(small, load(small.data))
