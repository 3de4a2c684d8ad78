"""A run whose test groups are hospitals, from its data to its tables."""

import json

import numpy as np

from fedpca.data.cache import Dataset, Part
from fedpca.data.federation import federate
from fedpca.results.read.runs import find_runs
from fedpca.results.tables import as_markdown, for_pages, tabulate
from fedpca.runs.cell import cells
from fedpca.runs.check import check_experiment
from fedpca.runs.jobs import _uncounted
from fedpca.runs.run import run_cell


def a_part(seed: int, sizes: dict[str, int]) -> Part:
    rng, count = np.random.default_rng(seed), sum(sizes.values())
    labels = np.arange(count) % 2
    images = (rng.integers(0, 100, (count, 1, 8, 8)) + 100 * labels[:, None, None, None]).astype(np.uint8)
    return Part(images, labels, {"hospital": np.repeat(list(sizes), list(sizes.values()))})


def test_every_hospital_is_tested_on_its_own_images_and_small_ones_are_named(tmp_path):
    table = {
        "name": "silos",
        "rounds": 2,
        "seeds": [0],
        "data": {"dataset": "silos", "split": "column", "column": "hospital"},
        "model": {"name": "mlp"},
    }
    experiment = check_experiment(table, "silos")
    train, test = a_part(0, {"Bonn": 40, "Köln": 40, "Ulm": 20}), a_part(1, {"Bonn": 30, "Köln": 12, "Ulm": 5})
    dataset = Dataset("silos", train, test, ("no", "yes"), ())
    federation = federate(experiment, dataset)
    assert "too small to count: Ulm (5 images, fewer than 10)" in _uncounted(federation)
    (cell,) = cells(experiment, tmp_path)
    run_cell(cell, dataset, federation, 1, lambda cell, line: None)
    about = json.loads((cell.folder / "about.json").read_text())
    assert about["test_images"] == {"Bonn": 30, "Köln": 12}
    assert about["test_classes"] == {"Bonn": [15, 15], "Köln": [6, 6]}
    assert about["uncounted_groups"] == {"Ulm": "5 images, fewer than 10"}
    lines = [json.loads(line) for line in (cell.folder / "rounds.jsonl").read_text().splitlines()]
    assert all(set(line["groups"]) == {"Bonn", "Köln"} for line in lines)
    text = as_markdown(for_pages(tabulate(find_runs([tmp_path]))))
    assert "test groups: Bonn and Köln" in text
    assert "Ulm (5 images, fewer than 10)" in text
