"""FedCE's weights and its models without one client: the specification's numbers, and what must hold for any."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedpca.core import Diagnosis, Order, Outcome, Params, Server, Site, Update, Verdict, When
from fedpca.loop import with_outcome
from fedpca.models.flat import flatten, load, params_of
from fedpca.parts.client.contribution import FULL, accuracy_without_own, balanced_accuracy, keep_state, without
from fedpca.parts.server.aggregate import WithoutTheMislabeled
from fedpca.parts.server.contribution import ByContribution, cosines_to_others
from fedpca.parts.server.diagnose import remember
from fedpca.parts.server.robust import GeometricMedian
from fedpca.parts.sides import MixRules, own_site

THREE = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
SCORES = [0.8, 0.6, 0.4]


def state(weights, buffers=(), counter: int = 0) -> Params:
    floats = (torch.as_tensor(values, dtype=torch.float32).reshape(-1) for values in (weights, buffers))
    return Params(*floats, torch.tensor([counter]))


def folded(rule, states: dict[str, Params], diagnosis: Diagnosis | None = None) -> Outcome:
    first = next(iter(states.values()))
    fold = rule(
        Server(state(torch.zeros_like(first.weights), torch.zeros_like(first.buffers)), diagnosis=diagnosis or {})
    )
    for client, own in states.items():
        fold.add(client, Update(own, 1))
    return fold.finish()


def history(rule: ByContribution, steps_by_round, scores_by_round, order=None) -> list[dict[str, float]]:
    """The shares of each round, what the rule notes fed back as the loop does it; in round 1 nobody has a score."""
    diagnosis, shares = {}, []
    for steps, scores in zip(steps_by_round, scores_by_round, strict=True):
        order = order or range(len(steps))
        told = {str(i): {"others": float(scores[i])} for i in order} if scores else {}
        diagnosis = remember(diagnosis, told, When(1, 1))
        outcome = folded(rule, {str(i): state(steps[i]) for i in order}, diagnosis)
        diagnosis = with_outcome(diagnosis, outcome)
        shares.append({str(i): outcome.weights[str(i)] for i in range(len(steps))})
    return shares


def by_the_formula(steps_by_round, scores_by_round, mode: str, averaged: bool = True) -> list[np.ndarray]:
    """Section 3.3 of the specification, word for word, with all histories kept."""
    count = len(steps_by_round[0])
    shares, cosines, scores, fresh, result = np.full(count, 1 / count), [], [], [], []
    for steps, told in zip(steps_by_round, scores_by_round, strict=True):
        u = np.array(steps, dtype=np.float64)
        total = sum(shares[k] * u[k] for k in range(count))
        rest = [total - shares[k] * u[k] for k in range(count)]
        cosines.append([u[k] @ rest[k] / (np.linalg.norm(u[k]) * np.linalg.norm(rest[k])) for k in range(count)])
        scores.append(told or [0.0] * count)
        d, e = np.maximum(1 - np.mean(cosines, axis=0), 0), 1 - np.mean(scores, axis=0)
        alpha, beta = d / d.sum(), e / e.sum()
        v = alpha * beta if mode == "times" else alpha + beta
        fresh.append(v / v.sum())
        shares = np.mean(fresh, axis=0) if averaged else np.maximum(fresh[-1], 1e-3) / np.maximum(fresh[-1], 1e-3).sum()
        result.append(shares)
    return result


@pytest.mark.parametrize(
    ("mode", "first", "second"),
    [
        ("times", [0.5, 0.5, 0], [0.480769, 0.519231, 0]),
        ("plus", [0.416667, 0.416667, 0.166667], [0.404762, 0.416667, 0.178571]),
    ],
)
def test_the_specifications_two_rounds(mode: str, first: list[float], second: list[float]):
    one, two = history(ByContribution(mode, average_rounds=True), [THREE, THREE], [None, SCORES])
    assert list(one.values()) == pytest.approx(first, abs=1e-6)
    assert list(two.values()) == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize(
    ("mode", "second", "v"),
    [
        ("times", [0, 0, 1], [0.461538, 0.538462, 0]),
        ("plus", [0.274721, 0.274721, 1], [0.392857, 0.416667, 0.190476]),
    ],
)
def test_the_specifications_cosines_and_unaveraged_shares(mode: str, second: list[float], v: list[float]):
    steps = torch.tensor(THREE).double()
    first = cosines_to_others(steps @ steps.T, torch.full((3,), 1 / 3).double())
    assert first.tolist() == pytest.approx([0.447214, 0.447214, 1], abs=1e-6)
    (shares, _) = by_the_formula([THREE, THREE], [None, SCORES], mode)
    then = cosines_to_others(steps @ steps.T, torch.from_numpy(shares))
    assert then.tolist() == pytest.approx(second, abs=1e-6)
    fed_back = [Verdict(weight=share, report={"others": a}) for share, a in zip(shares, SCORES, strict=True)]
    notes = {"rounds": 1, "others": 0.0, "share": 0.0}
    known = {
        str(i): replace(verdict, notes={**notes, "direction": first[i].item()}) for i, verdict in enumerate(fed_back)
    }
    outcome = folded(
        ByContribution(mode, average_rounds=True), {str(i): state(step) for i, step in enumerate(THREE)}, known
    )
    assert [2 * outcome.notes[str(i)]["share"] for i in range(3)] == pytest.approx(v, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(3, 6), st.sampled_from(["times", "plus"]), st.booleans())
def test_three_rounds_are_the_formulas(seed: int, count: int, mode: str, averaged: bool):
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(3, count, 4)).astype(np.float32).tolist()
    scores = [None, *rng.uniform(0, 0.9, size=(2, count)).tolist()]
    shares = history(ByContribution(mode, averaged), steps, scores)
    for came, expected in zip(shares, by_the_formula(steps, scores, mode, averaged), strict=True):
        assert list(came.values()) == pytest.approx(expected, abs=1e-9), "weights are computed in double precision"
        assert sum(came.values()) == pytest.approx(1, abs=1e-12)
        assert min(came.values()) >= 0


def test_this_rounds_shares_alone_are_never_quite_zero():
    (one,) = history(ByContribution("times", average_rounds=False), [THREE], [None])
    assert list(one.values()) == pytest.approx([0.5 / 1.001, 0.5 / 1.001, 0.001 / 1.001])


@given(st.integers(0, 10**6), st.permutations(range(5)))
def test_permuting_clients_permutes_their_shares(seed: int, order: list[int]):
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(2, 5, 3)).astype(np.float32).tolist()
    scores = [None, rng.uniform(0, 0.9, size=5).tolist()]
    plain, permuted = (
        history(ByContribution(mode="times", average_rounds=True), steps, scores, turn) for turn in (range(5), order)
    )
    for one, two in zip(plain, permuted, strict=True):
        assert two == pytest.approx(one, abs=1e-9)


@pytest.mark.parametrize("mode", ["times", "plus"])
@given(step=st.lists(st.floats(-3, 3, width=32), min_size=3, max_size=3), count=st.integers(1, 6))
def test_identical_clients_share_evenly(mode: str, step: list[float], count: int):
    scores = [None, [0.7] * count, [1.0] * count]
    for shares in history(ByContribution(mode, average_rounds=True), [[step] * count] * 3, scores):
        assert list(shares.values()) == pytest.approx([1 / count] * count, abs=1e-9)


def test_who_does_not_move_has_no_direction():
    steps = torch.tensor([(0.0, 0.0), (1, 0), (1, 0)]).double()
    assert cosines_to_others(steps @ steps.T, torch.full((3,), 1 / 3).double()).tolist() == pytest.approx([0, 1, 1])
    alone = torch.tensor([[4.0]]).double()
    assert cosines_to_others(alone, torch.ones(1).double()).tolist() == [0]


def test_buffers_do_not_count_for_the_direction():
    loud = {str(i): state(step, buffers=(1e6 * i,)) for i, step in enumerate(THREE)}
    assert list(folded(ByContribution(mode="times", average_rounds=True), loud).weights.values()) == pytest.approx(
        [0.5, 0.5, 0]
    )


def test_nobody_keeps_the_model():
    start = state([1.0, 2.0], [3.0], 4)
    fold = ByContribution(mode="times", average_rounds=True)(Server(start, diagnosis={"a": Verdict(weight=1.0)}))
    fold.add("a", Update(None, 0))
    assert fold.finish().params is start


def test_who_trained_on_nothing_has_no_notes():
    fold = ByContribution(mode="times", average_rounds=True)(Server(state([0.0, 0.0])))
    for client, step in zip("abc", THREE, strict=True):
        fold.add(client, Update(state(step) if client != "b" else None, 1))
    outcome = fold.finish()
    assert set(outcome.notes) == {"a", "c"}
    assert outcome.weights.get("b", 0) == 0


def test_a_dropped_client_has_no_share_and_its_history_stands_still():
    states = {str(i): state(step) for i, step in enumerate([*THREE, (2.0, -1.0)])}
    before = with_outcome({}, folded(ByContribution(mode="times", average_rounds=True), states))
    accused = {c: replace(v, group="mislabeled" if c == "3" else "common") for c, v in before.items()}
    outcome = folded(WithoutTheMislabeled(ByContribution(mode="times", average_rounds=True)), states, accused)
    after = with_outcome(accused, outcome)
    assert outcome.weights["3"] == 0
    assert sum(outcome.weights.values()) == pytest.approx(1)
    assert after["3"].notes == {**before["3"].notes, "absent": 1.0}
    assert {after[client].notes["rounds"] for client in "012"} == {2}
    rest = folded(
        ByContribution(mode="times", average_rounds=True), {c: own for c, own in states.items() if c != "3"}, accused
    )
    assert {c: outcome.weights[c] for c in "012"} == rest.weights


def test_the_specifications_model_without_one_client():
    assert without(state([10.0]), torch.tensor([4.0]), torch.empty(0), 0.25).weights.item() == 12


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_the_model_without_one_client_is_the_mean_of_the_others(seed: int, count: int):
    rng = torch.Generator().manual_seed(seed)
    states = {
        str(i): state(torch.randn(4, generator=rng), torch.rand(2, generator=rng), counter=7) for i in range(count)
    }
    outcome = folded(ByContribution("plus", average_rounds=True), states)
    for client, own in states.items():
        share = outcome.weights[client]
        others = {c: w / (1 - share) for c, w in outcome.weights.items() if c != client}
        minus = without(outcome.params, own.weights, own.buffers, share)
        for vector in ("weights", "buffers"):
            explicit = sum(w * getattr(states[c], vector).double() for c, w in others.items())
            torch.testing.assert_close(getattr(minus, vector).double(), explicit, atol=1e-5, rtol=1e-5)
        assert minus.buffers.min() >= 0, "variances"
        assert minus.weights.dtype == minus.buffers.dtype == torch.float32
        assert torch.equal(minus.counters, outcome.params.counters)


@pytest.mark.parametrize("share", [FULL, 1.0])
def test_a_client_that_is_everything_leaves_a_finite_model(share: float):
    minus = without(state([2.0], [3.0]), torch.tensor([2.0]), torch.tensor([3.0]), share)
    assert minus.weights.tolist() == pytest.approx([2.0])
    assert minus.buffers.tolist() == pytest.approx([3.0])
    assert FULL == 1 - 1e-6


def test_balanced_accuracy_is_the_mean_over_classes_that_occur():
    labels = torch.tensor([0, 0, 0, 0, 3])
    assert balanced_accuracy(torch.tensor([0, 0, 0, 1, 1]), labels) == pytest.approx((3 / 4 + 0) / 2)
    assert balanced_accuracy(torch.tensor([3, 3, 3, 3, 3]), labels) == pytest.approx((0 + 1) / 2)


class Watched:
    """A client with a batch-normed model of two classes; `seen` are the states under which it made predictions."""

    def __init__(self, round: int, verdict: Verdict, sides: dict[str, Params] | None = None) -> None:
        torch.manual_seed(0)
        module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).eval()
        self.net, self.seen = flatten(module, module[1]), []
        module.register_forward_pre_hook(lambda *_: self.seen.append(params_of(self.net)))
        x = torch.randn(20, 2)
        self.site = Site(
            self.net, x, (x[:, 0] > 0).long(), {}, Order(round, 9, verdict, sides or {}), torch.Generator()
        )

    def report(self, site: Site | None = None):
        with torch.no_grad():
            return accuracy_without_own(site or self.site)


def trained(site: Site, round: int, own: Params) -> None:
    """What the client remembers of an earlier round."""
    keep_state(replace(site, order=site.order._replace(round=round)), own)


def shifted(params: Params, by: float) -> Params:
    return replace(params, weights=params.weights + by, buffers=params.buffers + by)


def test_the_score_is_that_of_the_model_without_the_clients_own():
    client = Watched(5, Verdict(weight=0.25))
    here = params_of(client.net)
    own = shifted(here, 0.3)
    trained(client.site, 4, own)
    report = client.report()
    (seen,) = client.seen
    torch.testing.assert_close(seen.weights, (here.weights - 0.25 * own.weights) / 0.75)
    torch.testing.assert_close(seen.buffers, (here.buffers - 0.25 * own.buffers) / 0.75)
    load(client.net, seen)
    predicted = client.net(client.site.x).argmax(dim=1)
    assert report == {"others": pytest.approx(balanced_accuracy(predicted, client.site.y))}


def test_the_report_leaves_the_model_as_it_was():
    client = Watched(5, Verdict(weight=0.4))
    before = params_of(client.net)
    trained(client.site, 4, shifted(before, 1.0))
    client.report()
    after = params_of(client.net)
    assert all(torch.equal(getattr(before, n), getattr(after, n)) for n in ("weights", "buffers", "counters"))
    assert not client.net.module.training


@pytest.mark.parametrize(("last", "share"), [(None, 0.3), (3, 0.3), (4, None)])
def test_who_did_not_train_last_round_reports_nothing(last: int | None, share: float | None):
    client = Watched(5, Verdict(weight=share))
    if last is not None:
        trained(client.site, last, params_of(client.net))
    assert client.report() == {}
    assert not client.seen


def test_nothing_is_sent_of_what_is_kept():
    client = Watched(4, Verdict())
    assert keep_state(client.site, params_of(client.net)) == {}


def test_in_a_combination_the_own_aggregate_is_used_so_that_no_coefficient_turns_negative():
    """From the mixture of (.5, .3, .2) and (.2, .5, .3), client 0 would see (-.3, .8, .5) of the three states."""
    module = nn.Linear(3, 1, bias=False).eval()
    unit = [state(row) for row in torch.eye(3)]  # so that weights are coefficients
    made, mixed = state([0.5, 0.3, 0.2]), state([0.35, 0.4, 0.25])
    naive = without(mixed, unit[0].weights, unit[0].buffers, 0.5)
    assert naive.weights.tolist() == pytest.approx([-0.3, 0.8, 0.5])
    net, seen = flatten(module, module), []
    load(net, replace(mixed, counters=net.counters))
    module.register_forward_pre_hook(lambda *_: seen.append(net.weights.detach().clone()))
    verdict = Verdict(weight=0.35, sides={"fedce": Verdict(weight=0.5), "rfa": Verdict(weight=0.2)})
    order = Order(2, 9, verdict, {"fedce/weights": made.weights, "fedce/buffers": made.buffers})
    whole = Site(net, torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), {}, order, torch.Generator())
    trained(own_site(whole, "fedce"), 1, unit[0])
    with torch.no_grad():
        accuracy_without_own(own_site(whole, "fedce"))
    assert seen[0].tolist() == pytest.approx([0, 0.6, 0.4])
    assert net.weights.tolist() == pytest.approx([0.35, 0.4, 0.25]), "the mixture is back"


def test_a_combination_shows_clients_the_aggregate_that_needs_it_and_no_other():
    states = {str(i): state(step, buffers=(float(i),)) for i, step in enumerate(THREE)}
    outcome = folded(
        MixRules(
            ("ce", ByContribution(mode="times", average_rounds=True)),
            ("rfa", GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06)),
            share=0.5,
        ),
        states,
    )
    assert set(outcome.shown) == {"ce/weights", "ce/buffers"}
    alone = folded(ByContribution(mode="times", average_rounds=True), states)
    assert torch.equal(outcome.shown["ce/weights"], alone.params.weights)
    assert torch.equal(outcome.shown["ce/buffers"], alone.params.buffers)
