"""How far one client can move the global model, whatever it sends and claims."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedpca.core import Params, Server, Update, Verdict
from fedpca.methods.bounded import bounded
from fedpca.methods.registry import method_names
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.bounded import BoundedInfluence, cap_weights
from fedpca.parts.server.robust import coordinate_median, middle
from fedpca.parts.server.robust_mean import trimmed_mean, weighted_median
from fedpca.parts.server.weigh import by_size
from fedpca.runs.check import method_of
from fedpca.settings.experiment import AggregationSettings
from fedpca.sites.settings import BOUNDS
from tests.liars import LIAR, played, world

MEAN = WeightedMean(by_size, smoothing=1.0)


def state(*values: float) -> Params:
    return Params(torch.tensor(values), torch.zeros(1), torch.zeros(1, dtype=torch.int64))


def aggregate(updates: dict[str, Update], inner=MEAN, **settings: object):
    own = AggregationSettings(**settings)
    fold = bounded_rule(inner, own)(Server(state(0.0, 0.0)))
    for client, update in updates.items():
        fold.add(client, update)
    return fold.finish()


def bounded_rule(inner, settings: AggregationSettings):
    from fedpca.methods.base import base, one_stage
    from fedpca.methods.define import Plan

    method = one_stage(replace(base(Plan(rounds=1)), aggregate=inner))
    return bounded(method, settings).recipe(1).aggregate


CROWD = {name: Update(state(1.0, 1.0), 10) for name in "abcd"}


def test_without_settings_nothing_is_wrapped():
    assert bounded_rule(MEAN, AggregationSettings()) is MEAN


def test_weights_are_capped_and_the_others_keep_their_proportions():
    capped = cap_weights({"a": 0.7, "b": 0.2, "c": 0.1}, 0.4)
    assert capped == pytest.approx({"a": 0.4, "b": 0.4, "c": 0.2})
    assert cap_weights({"a": 0.7, "b": 0.2, "c": 0.1}, 0.5) == pytest.approx({"a": 0.5, "b": 1 / 3, "c": 1 / 6})
    assert cap_weights({"a": 0.5, "b": 0.5}, 0.6) == {"a": 0.5, "b": 0.5}
    assert sum(cap_weights({"a": 1.0, "b": 0.0, "c": 0.0}, 0.4).values()) == 1.0  # nobody else counts


def test_one_client_weighs_no_more_than_its_multiple_of_an_equal_share():
    outcome = aggregate({**CROWD, "z": Update(state(9.0, 9.0), 10**6)}, max_weight=2.0)
    assert outcome.weights["z"] == pytest.approx(0.4)
    assert outcome.params.weights.tolist() == pytest.approx([0.6 + 3.6] * 2)


def test_sizes_are_capped_against_the_median_client_where_the_rule_shows_no_weights():
    plain = aggregate({**CROWD, "z": Update(state(9.0, 9.0), 10**6)})
    capped = aggregate({**CROWD, "z": Update(state(9.0, 9.0), 10**6)}, max_size=2.0)
    assert plain.weights["z"] > 0.99
    assert capped.weights["z"] == pytest.approx(20 / 60)


def test_updates_are_clipped_to_a_multiple_of_the_median_length():
    outcome = aggregate({**CROWD, "z": Update(state(300.0, 400.0), 10)}, clip=2.0)
    length = 2 * 2**0.5
    expected = torch.tensor([0.8, 0.8]) + torch.tensor([0.6, 0.8]) * length / 5
    torch.testing.assert_close(outcome.params.weights, expected)


def test_one_clients_share_of_the_step_bounds_weight_and_length_together():
    far = {**CROWD, "z": Update(state(300.0, 400.0), 10)}
    outcome = aggregate(far, max_share=0.25)  # at a fifth of the weight: 0.25 / 0.75 times the others' 0.8, over 0.2
    expected = torch.tensor([0.8, 0.8]) + 0.2 * torch.tensor([0.6, 0.8]) * 2**0.5 * 4 / 3
    torch.testing.assert_close(outcome.params.weights, expected)
    heavy = aggregate({**CROWD, "z": Update(state(300.0, 400.0), 10**6)}, max_share=0.25)
    assert heavy.weights["z"] == pytest.approx(0.25)  # and there no longer than the median one
    expected = torch.tensor([0.75, 0.75]) + 0.25 * torch.tensor([0.6, 0.8]) * 2**0.5
    torch.testing.assert_close(heavy.params.weights, expected)
    assert heavy.bounded["z"] == (
        "weights shortened to 0.0038 of the step, weight 1 lowered to 0.25, weights shortened to 0.75 of the step"
    )


@pytest.mark.parametrize("clients", [2, 3])
def test_a_share_that_nobody_can_keep_is_an_equal_one(clients: int):
    crowd = {name: Update(state(1.0, 1.0), 10) for name in "abc"[:clients]}
    outcome = aggregate({**crowd, "a": Update(state(30.0, 30.0), 1000)}, max_share=0.2)
    assert outcome.weights == pytest.approx(dict.fromkeys(crowd, 1 / clients))
    torch.testing.assert_close(outcome.params.weights, torch.ones(2))  # all of the median length


def test_a_liar_turns_no_step_around_under_a_deployments_bounds():
    honest = {name: Update(state(1.0, 1.0), 10) for name in "abc"}
    for size in (10, 10**6):
        outcome = aggregate({**honest, "z": Update(state(-20.0, -20.0), size)}, **BOUNDS)
        assert min(outcome.params.weights.tolist()) >= 0.39  # against three that agree, of steps of length 1
    free = aggregate({**honest, "z": Update(state(-20.0, -20.0), 10)}, max_weight=3.0, max_size=10.0, clip=3.0)
    assert max(free.params.weights.tolist()) <= 0.01


def test_the_sizes_of_a_rule_without_weights_are_bounded_as_weights_are():
    def rule(server: Server):
        fold = MEAN(server)
        finish = fold.finish
        fold.finish = lambda: replace(finish(), weights=None)
        return fold

    outcome = aggregate({**CROWD, "z": Update(state(9.0, 9.0), 10**6)}, rule, max_share=0.3)
    longest = 0.3 / 0.7 * 4  # of one that weighs a fifth, as far as is known before
    torch.testing.assert_close(outcome.params.weights, torch.full((2,), 0.7 + 0.3 * longest))


def test_who_is_judged_mislabeled_shares_equally_though_its_update_is_left_out():
    def fold_of(judged: str):
        verdicts = {name: Verdict(group="mislabeled") for name in judged}
        return bounded_rule(MEAN, AggregationSettings(max_weight=2.0))(Server(state(0.0, 0.0), diagnosis=verdicts))

    weights = []
    for judged in ("", "vwxy"):
        fold = fold_of(judged)
        for client, update in {**CROWD, "z": Update(state(9.0, 9.0), 10**6)}.items():
            fold.add(client, update)
        weights.append(fold.finish().weights["z"])
    assert weights == pytest.approx([2 / 5, 2 / 9])


def test_what_nobody_exceeds_changes_no_bit():
    spread = {name: Update(state(0.1 * n + 0.3, 1 / (n + 3)), 10 + n) for n, name in enumerate("abcdef")}
    plain = aggregate(spread)
    assert torch.equal(
        aggregate(spread, max_weight=3, max_size=10, clip=5, max_share=0.6).params.weights, plain.params.weights
    )


def test_who_trained_on_nothing_is_no_part_of_the_medians():
    idle = {f"idle {n}": Update(None, 0) for n in range(9)}
    outcome = aggregate({**CROWD, **idle}, clip=1.0, max_size=1.0, max_weight=3.0)
    torch.testing.assert_close(outcome.params.weights, torch.ones(2))


def test_equal_weights_give_the_plain_median():
    rows = torch.randn(6, 40)
    torch.testing.assert_close(
        weighted_median(rows, torch.full((6,), 1 / 6, dtype=torch.float64)).float(), middle(rows)
    )
    odd = torch.randn(7, 40)
    torch.testing.assert_close(weighted_median(odd, torch.full((7,), 1 / 7, dtype=torch.float64)).float(), middle(odd))


def test_a_weighted_median_is_that_of_copies():
    rows, copies = torch.randn(3, 20), torch.tensor([1, 3, 5])
    weights = copies.double() / copies.sum()
    torch.testing.assert_close(weighted_median(rows, weights).float(), middle(rows.repeat_interleave(copies, dim=0)))


def test_a_trimmed_mean_without_trimming_is_the_mean_and_with_all_trimmed_the_median():
    rows, weights = torch.randn(5, 30).double(), torch.tensor([0.1, 0.3, 0.2, 0.15, 0.25], dtype=torch.float64)
    torch.testing.assert_close(trimmed_mean(rows, weights, 0.0), weights @ rows)
    torch.testing.assert_close(trimmed_mean(rows, weights, 0.5 - 1e-9), weighted_median(rows, weights))


def test_a_trimmed_mean_leaves_out_whole_clients_of_equal_weight():
    rows = torch.randn(10, 30).double()
    expected = rows.sort(dim=0).values[2:8].mean(dim=0)
    torch.testing.assert_close(trimmed_mean(rows, torch.full((10,), 0.1, dtype=torch.float64), 0.2), expected)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "geometric-median"])
def test_robust_rules_withstand_one_of_five_under_the_methods_weights(rule: str):
    outcome = aggregate({**CROWD, "z": Update(state(1e4, -1e4), 10)}, rule=rule, trim=0.2)
    torch.testing.assert_close(outcome.params.weights, torch.ones(2), rtol=1e-3, atol=1e-3)
    clipped = aggregate({**CROWD, "z": Update(state(1e17, -1e17), 10)}, rule=rule, trim=0.2, clip=3.0)
    torch.testing.assert_close(clipped.params.weights, torch.ones(2), rtol=1e-3, atol=1e-3)
    assert outcome.weights == pytest.approx(dict.fromkeys([*CROWD, "z"], 0.2))


def test_a_trimmed_mean_trims_one_whole_client_however_few_there_are():
    crowd = {name: Update(state(1.0, 1.0), 10) for name in "abc"}
    outcome = aggregate({**crowd, "z": Update(state(9.0, 9.0), 10)}, rule="trimmed-mean", trim=0.2)
    torch.testing.assert_close(outcome.params.weights, torch.ones(2))


def test_a_rule_without_weights_stays_the_methods_own():
    outcome = aggregate({**CROWD, "z": Update(state(9.0, 9.0), 10)}, coordinate_median, rule="trimmed-mean")
    assert outcome.weights is None
    assert outcome.params.weights.tolist() == [1.0, 1.0]


def test_nobody_there_leaves_the_model_as_it_was():
    for rule in ("mean", "median"):
        assert aggregate({}, rule=rule, clip=2.0, max_weight=2.0).params.weights.tolist() == [0.0, 0.0]


def test_what_the_rule_shows_is_the_bounded_mean():
    def shows(server: Server):
        fold = MEAN(server)
        finish = fold.finish

        def shown():
            outcome = finish()
            return replace(outcome, shown={"mean": outcome.params.weights})

        fold.finish = shown
        return fold

    outcome = aggregate({**CROWD, "z": Update(state(9.0, 9.0), 10**6)}, shows, max_weight=2.0)
    assert outcome.shown["mean"] is outcome.params.weights


def test_a_rule_can_be_compared_and_printed():
    settings = AggregationSettings(clip=2.0)
    assert bounded_rule(MEAN, settings) == bounded_rule(MEAN, settings)
    assert isinstance(bounded_rule(MEAN, settings), BoundedInfluence)


# Whole runs with a liar

ON = {"max_weight": 3.0, "clip": 3.0, "max_share": 0.3}


@pytest.mark.parametrize("name", [*method_names()])
def test_every_method_plays_under_bounds(name: str):
    table = {"warmup": 1}
    tables = {own: table for own in (name, "fednoro") if own == "fednoro" or name.startswith("fedpca") or "+d" in name}
    servers = played(name, method={**tables, "fedcorr": {"stages": [2, 1]}}, aggregation={**ON, "max_size": 10.0})
    assert servers[-1].round == 4
    assert not servers[-1].left_out


@pytest.mark.parametrize("name", ["fedpca-d", "fedpca-wo-robustness", "fedpca"])
def test_a_low_dispersion_buys_at_most_the_multiple_of_an_equal_share(name: str):
    lies = {"dispersion": -27.0}
    tables = {name: {"warmup": 1, **({} if name == "fedpca" else {"q": 3.0})}}
    for clients in (4, 20):
        servers = played(name, lies, clients=clients, method=tables, aggregation={"max_weight": 2.0})
        for server in servers:
            counting = sum(weight > 0 for weight in server.weights.values())
            assert server.weights.get(LIAR, 0) <= max(2.0 / clients, 1 / counting) + 1e-9


def test_bounds_are_for_each_side_of_a_combination():
    recipe = method_of(
        world()[0].model_copy(update={"aggregation": AggregationSettings(clip=2.0)}), "fedce+rfa"
    ).recipe(1)
    assert "BoundedInfluence" in repr(recipe.aggregate.first)
    assert "BoundedInfluence" in repr(recipe.aggregate.second)


def test_smoothing_goes_on_from_the_capped_weights():
    servers = played(
        "fedpca-d", {"dispersion": -27.0}, method={"fedpca-d": {"warmup": 1, "q": 3.0}}, aggregation={"max_weight": 1.5}
    )
    kept = servers[-1].diagnosis[LIAR]
    assert isinstance(kept, Verdict)
    assert kept.weight <= 1.5 / 4 + 1e-9
