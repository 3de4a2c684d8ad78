"""Which states can be used; `test_loop` has the rest: whole answers, and who is left out."""

import torch

from fedpca.core import Params
from fedpca.screening import are_usable, state_error

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
