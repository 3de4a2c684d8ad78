"""AFL's shares: the specification's numbers, and what must hold for any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Verdict, When
from fedpca.parts.server.agnostic import Ascend, projected

NOW = When(1, 9)
LOSSES = {"a": 0.5, "b": 1.0, "c": 2.0}


def shares(rule: Ascend, losses=LOSSES, known=None) -> list[float]:
    """lambda, in the order of the clients: shares average 1."""
    after = rule(known or {}, {client: {"loss": loss} for client, loss in losses.items()}, NOW)
    return [verdict.notes.get("share", 1.0) / len(after) for verdict in after.values()]


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0.1, (0.266667, 0.316667, 0.416667)), (0.5, (0, 0.25, 0.75)), (0.6, (0, 0.2, 0.8)), (1.0, (0, 0, 1))],
)
def test_the_specifications_projections(step: float, expected):
    assert shares(Ascend(step, exponentiated=False)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "expected"), [(0.1, (0.311225, 0.327182, 0.361592)), (1, (0.140244, 0.231224, 0.628532))]
)
def test_the_specifications_exponentiated_steps(step: float, expected):
    assert shares(Ascend(step, exponentiated=True)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("exponentiated", [False, True])
def test_no_step_and_equal_losses_change_nothing(exponentiated: bool):
    assert shares(Ascend(0.0, exponentiated)) == pytest.approx([1 / 3] * 3)
    assert shares(Ascend(0.7, exponentiated), dict.fromkeys("abc", 1.7)) == pytest.approx([1 / 3] * 3)


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=7), st.floats(0.1, 5))
def test_a_projection_is_in_the_simplex_and_stays_there(values: list[float], total: float):
    once = projected(values, total)
    assert sum(once) == pytest.approx(total)
    assert min(once) >= 0
    assert projected(once, total) == pytest.approx(once, abs=1e-9)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [once[i] for i in order] == sorted(once), "who had more has more"


@pytest.mark.parametrize("exponentiated", [False, True])
def test_the_absent_and_the_mislabeled_keep_their_shares(exponentiated: bool):
    known = {
        "a": Verdict(notes={"share": 1.5}),
        "b": Verdict(notes={"share": 0.5}),
        "absent": Verdict(notes={"share": 0.25}),
        "judged": Verdict("mislabeled", notes={"share": 1.75}),
    }
    told = {"a": {"loss": 1.0}, "b": {"loss": 9.0}, "judged": {"loss": 99.0}}
    after = Ascend(0.01, exponentiated)(known, told, NOW)
    own = {client: verdict.notes["share"] for client, verdict in after.items()}
    assert (own["absent"], own["judged"]) == (0.25, 1.75)
    assert own["a"] + own["b"] == pytest.approx(2)
    assert own["b"] > 0.5


@pytest.mark.parametrize("exponentiated", [False, True])
def test_who_has_nothing_left_among_them_begins_anew(exponentiated: bool):
    known = {"a": Verdict(notes={"share": 0.0}), "b": Verdict("mislabeled", notes={"share": 2.0})}
    after = Ascend(0.1, exponentiated)(known, {"a": {"loss": 1.0}, "b": {"loss": 1.0}}, NOW)
    assert after["a"].notes["share"] == 1


def test_losses_of_any_size_leave_shares():
    for exponentiated in (False, True):
        assert shares(Ascend(1.0, exponentiated), {"a": 0.0, "b": 1e6, "c": 1e6}) == pytest.approx([0, 0.5, 0.5])
