"""Real runs in which somebody cannot be told: nobody is accused, nobody is acquitted, and everything says so."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import fedpca
from fedpca.api.result import Result
from fedpca.data.datasets import digits
from fedpca.results.page.verdict import verdict

ESTIMATE = ("suspicion", "suspicion_low", "suspicion_high", "answer")


def hospitals(*sizes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """One after the other of these many digits; the last of four has two wrong labels among its ten."""
    train, ends = digits().train, np.cumsum([0, *sizes])
    data = {
        f"h{i}": (train.images[start:end], train.labels[start:end].copy())
        for i, (start, end) in enumerate(pairwise(ends))
    }
    if sizes[-1] == 10:
        labels = data[f"h{len(sizes) - 1}"][1]
        labels[::5] = (labels[::5] + 3) % 10
    return data


def trained(*sizes: int) -> Result:
    settings = {"warmup": 8}
    return fedpca.train(hospitals(*sizes), "mlp", "fedpca-hs-auto", rounds=12, settings=settings, progress=False)


@pytest.fixture(scope="module")
def four() -> Result:
    return trained(300, 300, 300, 10)


@pytest.fixture(scope="module")
def two() -> Result:
    return trained(200, 200)


def test_a_client_of_ten_images_cannot_be_told(four: Result):
    *others, small = four.clients.to_pylist()
    assert {row["answer"] for row in others} == {"not mislabeled"}
    assert (small["client"], small["answer"]) == ("h3", "cannot tell")
    assert small["suspicion_high"] - small["suspicion_low"] > 2 * max(row["suspicion_high"] for row in others)
    found = verdict(four.run)
    assert found.who == "None of the 4 clients is judged mislabeled; client h3 cannot be told."
    assert f"client h3 (too few images: {small['images']}; " in found.how_sure


def test_two_clients_cannot_be_compared(two: Result):
    assert two.mislabeled == []
    for row in two.clients.to_pylist():
        assert row["answer"] == "cannot tell"
        assert row["suspicion"] is None
    assert two.run.rounds[-1]["reference"] is None
    assert "too few clients" in verdict(two.run).how_sure


def test_the_table_of_clients_has_interval_and_answer(four: Result):
    names = four.clients.column_names
    assert names[names.index("suspicion") :][:4] == list(ESTIMATE)
    for row in four.clients.to_pylist():
        assert 0 <= row["suspicion_low"] <= row["suspicion"] <= row["suspicion_high"] <= 1


def test_pages_of_both_are_written(four: Result, two: Result, tmp_path: Path):
    for name, result in (("four", four), ("two", two)):
        page = result.page(tmp_path / f"{name}.html").read_text("utf-8")
        assert "Cannot be told: client" in page
