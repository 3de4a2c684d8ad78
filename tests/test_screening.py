"""Which states can be used; `test_loop` has the rest: whole answers, and who is left out."""

import torch

from fedpca.core import Params, Update
from fedpca.screening import Claims, Limits, are_usable, state_error, usable_updates

GOOD = Params(torch.ones(3), torch.ones(2), torch.ones(1, dtype=torch.int64))
BAD = {
    "its weights are not finite": Params(torch.tensor([1.0, float("nan"), 0]), GOOD.buffers, GOOD.counters),
    "its buffers are not finite": Params(GOOD.weights, torch.tensor([1.0, float("inf")]), GOOD.counters),
    "(4,)": Params(torch.ones(4), GOOD.buffers, GOOD.counters),
    "float64": Params(torch.ones(3).double(), GOOD.buffers, GOOD.counters),
}


def test_what_makes_a_state_unusable_is_named():
    assert state_error(GOOD, GOOD) is None
    for words, state in BAD.items():
        assert words in (state_error(state, GOOD) or "")


def test_several_states_are_usable_if_each_is():
    assert are_usable([GOOD, GOOD], GOOD)
    for state in BAD.values():
        assert not are_usable([GOOD, state], GOOD)


def test_a_state_that_no_model_computes_with_is_named_with_the_bound():
    huge = Params(torch.tensor([1.0, -3e38, 0.0]), GOOD.buffers, GOOD.counters)
    assert state_error(huge, GOOD) == "its weights reach 3e+38, which must be 1e+18 at most"
    assert not are_usable([GOOD, huge], GOOD)


def test_a_size_or_a_reliability_that_cannot_be_is_named():
    nan = float("nan")
    answers = (Update(GOOD, -1), Update(GOOD, 0), Update(None, 3), Update(GOOD, 3, -0.5), Update(GOOD, 3, 2.0))
    for answer in (*answers, Update(GOOD, 3, nan), Update(GOOD, -(10**30))):
        left_out: dict[str, str] = {}
        limits = Limits(GOOD, Claims(), {"b": 10})
        good = dict(usable_updates(iter([("a", answer), ("b", Update(GOOD, 3))]), limits, left_out))
        assert [*good] == ["b"]
        assert left_out["a"].startswith("it sent ")
        assert f"size {answer.size}, reliability {answer.reliability}" in left_out["a"]
