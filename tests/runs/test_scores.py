import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpca.runs.scores import fairness_robustness, headline

VALUES = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=15)


def test_the_specifications_example():
    figures = headline({"common": [80, 82], "rare": [70, 84]})
    assert figures.worst.mean == 77.0  # the smaller mean; the mean of each round's smaller would be 76
    assert figures.average.mean == 79.0
    assert figures.std.mean == 3.0
    assert figures.average.std == 4.0


@given(VALUES)
def test_average_exceeds_worst_by_at_most_the_std(values: list[tuple[float, float]]):
    figures = headline({"common": [a for a, _ in values], "rare": [b for _, b in values]})
    gap = figures.average.mean - figures.worst.mean
    assert gap <= figures.std.mean + 1e-9
    if all(a <= b for a, b in values) or all(a >= b for a, b in values):
        assert gap == pytest.approx(figures.std.mean, abs=1e-9)


def test_one_group_is_worst_and_average():
    figures = headline({"common": [50.0, 60.0]})
    assert figures.worst == figures.average
    assert figures.std.mean == 0


def test_fedavg_with_a_tenth_rare_and_a_fifth_mislabeled():
    assert fairness_robustness([{"rare": 0.1, "mislabeled": 0.2}] * 3) == pytest.approx(0.08)
