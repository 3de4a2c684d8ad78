"""Two methods in one: what each side sees and keeps, how their results are mixed, and that A + A is A."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import LABELS, Method, Order, Outcome, Params, Samples, Server, Site, Stage, Update, Verdict, When
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.errors import UserError
from fedpca.loop import with_outcome
from fedpca.methods.base import base, one_stage
from fedpca.methods.combine import plus
from fedpca.methods.registry import METHODS
from fedpca.models.build import build
from fedpca.parts.client.loss import Distillation
from fedpca.parts.client.step import GSAM
from fedpca.parts.client.train import LocalTraining
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.diagnose import remember
from fedpca.parts.server.robust import coordinate_median
from fedpca.parts.server.weigh import by_size
from fedpca.parts.sides import (
    MixRules,
    OwnMemory,
    SidedDiagnose,
    SidedEnter,
    SidedPart,
    SidedReports,
    of_side,
    own_site,
)
from fedpca.runs.check import method_of, plan_of
from fedpca.settings.experiment import Experiment
from tests.methods.test_methods import WARMUP, WITHOUT_WEIGHTS, easy, same, servers

NOW = When(3, 9)
WEIGHTED = [name for name in METHODS.own if name not in WITHOUT_WEIGHTS]


@cache
def tiny() -> tuple[Experiment, Federation]:
    """The easy federation with 24 digits per client."""
    experiment = easy(data={"clients": 10, "train_images": 240, "test_images": 50})
    return experiment, federate(experiment, load(experiment.data))


def state(value: float, counter: int = 0) -> Params:
    return Params(torch.tensor([float(value)]), torch.tensor([2 * float(value)]), torch.tensor([counter]))


def site_with(verdict: Verdict | None = None, sides: dict[str, Params] | None = None) -> Site:
    x, y = torch.zeros(3, 1, 8, 8), torch.tensor([0, 1, 2])
    order = Order(3, 9, verdict or Verdict(), sides or {})
    return Site(build("mlp", (1, 8, 8), 4, seed=0), x, y, {}, order, torch.Generator())


def test_each_side_keeps_its_memory_under_its_own_name():
    whole: dict[str, torch.Tensor] = {}
    one, two = OwnMemory(whole, "one"), OwnMemory(whole, "two")
    one["losses"], two["losses"] = torch.tensor(1), torch.tensor(2)
    assert (one["losses"].item(), two["losses"].item()) == (1, 2)
    assert set(whole) == {"one/losses", "two/losses"}
    assert list(one) == ["losses"]
    assert one.pop("losses").item() == 1
    assert "losses" not in one
    assert len(one) == 0
    assert two["losses"].item() == 2
    with pytest.raises(KeyError):
        _ = one["losses"]


def test_corrected_labels_are_both_sides():
    site = site_with()
    own_site(site, "one").memory[LABELS] = torch.tensor([3, 3, 3])
    assert own_site(site, "two").y.tolist() == site.y.tolist() == [3, 3, 3]
    assert set(OwnMemory(site.memory, "two")) == {LABELS}
    assert site.given.tolist() == [0, 1, 2]


def test_a_side_sees_its_own_verdict_and_its_own_aggregate():
    made = torch.tensor([5.0])
    verdict = Verdict("common", weight=0.1, sides={"one": Verdict("mislabeled", weight=0.7)})
    site = site_with(verdict, {"one/mean": made, "other": made})
    one, two = own_site(site, "one"), own_site(site, "two")
    assert one.order.verdict == verdict.sides["one"]
    assert two.order.verdict == Verdict()
    assert one.order.shown == {"mean": made}
    assert two.order.shown == {}
    assert (one.order.round, one.order.rounds) == (3, 9)
    assert one.net is site.net
    assert of_side({"a": verdict}, "one") == {"a": verdict.sides["one"]}
    assert of_side({"a": verdict}, "two") == {"a": Verdict()}


def test_a_sided_part_works_on_its_side():
    def weight_and(site: Site, other: float) -> tuple[float | None, float]:
        return site.order.verdict.weight, other

    site = site_with(Verdict(weight=0.1, sides={"one": Verdict(weight=0.7)}))
    assert SidedPart("one", weight_and)(site, 4.0) == (0.7, 4.0)
    assert SidedPart("two", weight_and)(site, other=4.0) == (None, 4.0)


def test_reports_of_both_sides_come_under_their_names_and_reach_them_again():
    def loss(value: float):
        return lambda site: {"loss": value, "seen": float(len(site.memory))}

    site = site_with()
    site.memory["one/kept"] = torch.zeros(1)
    told = SidedReports((("one", loss(1.0)), ("two", loss(2.0))))(site)
    assert told == {"one/loss": 1.0, "one/seen": 1.0, "two/loss": 2.0, "two/seen": 0.0}
    after = SidedDiagnose((("one", remember), ("two", remember)))({}, {"a": told}, NOW)["a"]
    assert after.sides["one"].report == {"loss": 1.0, "seen": 1.0}
    assert after.sides["two"].report == {"loss": 2.0, "seen": 0.0}


def names(group: str | None, suspicion: float | None):
    """A diagnosis that says this of everybody who reported, and notes how often it was asked."""

    def part(diagnosis, reports, when):
        known = remember(diagnosis, reports, when)
        return {
            c: replace(v, group=group, suspicion=suspicion, notes={"asked": v.notes.get("asked", 0) + 1})
            for c, v in known.items()
        }

    return part


def test_each_side_judges_by_itself_and_the_last_name_is_the_common_one():
    part = SidedDiagnose((("one", names("common", 0.2)), ("two", names("mislabeled", 0.9))))
    known = {"a": Verdict(weight=0.5, notes={"mine": 1.0})}
    for _ in range(2):
        known = part(known, {"a": {}}, NOW)
    verdict = known["a"]
    assert (verdict.group, verdict.suspicion) == ("mislabeled", 0.9)
    assert (verdict.weight, verdict.notes) == (0.5, {"mine": 1.0}), "the rest is not theirs"
    assert {side: (own.group, own.notes) for side, own in verdict.sides.items()} == {
        "one": ("common", {"asked": 2}),
        "two": ("mislabeled", {"asked": 2}),
    }


def test_a_side_that_names_nobody_does_not_hide_the_other():
    part = SidedDiagnose((("one", names("mislabeled", 0.9)), ("two", names(None, None))))
    verdict = part({}, {"a": {}}, NOW)["a"]
    assert (verdict.group, verdict.suspicion) == ("mislabeled", 0.9)


def test_entering_a_stage_renews_the_opinions_of_the_sides_that_enter():
    def forgetful(diagnosis):
        return {client: replace(verdict, weight=None) for client, verdict in diagnosis.items()}

    own = {"one": Verdict(weight=0.3), "two": Verdict(weight=0.6)}
    after = SidedEnter((("two", forgetful),))({"a": Verdict("rare", weight=0.4, sides=own)})["a"]
    assert (after.sides["one"].weight, after.sides["two"].weight) == (0.3, None)
    assert after.group == "rare"


def fixed(*shares: float) -> WeightedMean:
    return WeightedMean(lambda diagnosis: lambda client, update: shares[int(client)], smoothing=1.0)


def mixed(first, second, share: float = 0.5, values=(1.0, 10.0, 100.0)) -> Outcome:
    fold = MixRules(("one", first), ("two", second), share)(Server(state(0)))
    for i, value in enumerate(values):
        fold.add(str(i), Update(state(value, counter=i), 1))
    return fold.finish()


def test_the_specifications_mixture():
    outcome = mixed(fixed(0.5, 0.3, 0.2), fixed(0.4, 0.6, 0.0))
    assert list(outcome.weights.values()) == pytest.approx([0.45, 0.45, 0.1])
    assert outcome.params.weights.item() == pytest.approx(0.45 * 1 + 0.45 * 10 + 0.1 * 100)
    assert outcome.params.buffers.item() == pytest.approx(2 * outcome.params.weights.item())


def test_the_share_is_that_of_the_first():
    outcome = mixed(fixed(1, 0, 0), fixed(0, 0, 1), share=0.25)
    assert list(outcome.weights.values()) == pytest.approx([0.25, 0, 0.75])
    assert outcome.params.weights.item() == pytest.approx(0.25 * 1 + 0.75 * 100)


def test_counters_are_those_of_the_first():
    assert mixed(fixed(0, 0, 1), fixed(1, 0, 0)).params.counters.tolist() == [2]
    assert mixed(fixed(1, 0, 0), fixed(0, 0, 1)).params.counters.tolist() == [0]


def test_a_rule_without_weights_leaves_the_mixture_without():
    outcome = mixed(fixed(1, 1, 1), coordinate_median)
    assert outcome.weights is None
    assert outcome.params.weights.item() == pytest.approx((37 + 10) / 2)
    assert outcome.sides["one"].weights == pytest.approx({"0": 1 / 3, "1": 1 / 3, "2": 1 / 3})


def test_each_side_finds_its_own_weights_and_notes_again():
    one = Outcome(state(1), {"a": 0.3}, {"a": {"share": 2.0}})
    whole = Outcome(state(2), {"a": 0.5}, sides={"one": one, "two": Outcome(state(3), {"a": 0.7})})
    verdict = with_outcome({"a": Verdict(notes={"mine": 1.0})}, whole)["a"]
    assert (verdict.weight, verdict.notes) == (0.5, {"mine": 1.0})
    assert (verdict.sides["one"].weight, verdict.sides["one"].notes) == (0.3, {"share": 2.0})
    assert (verdict.sides["two"].weight, verdict.sides["two"].notes) == (0.7, {})


def staged(name: str, lengths: list[int], plain) -> Method:
    """A method whose stages, all told apart by their rule, last this long; one more follows without an end."""
    stages = [
        Stage(replace(plain, aggregate=WeightedMean(by_size, smoothing=1 / (2 + i))), length)
        for i, length in enumerate([*lengths, None])
    ]
    return Method(name, tuple(stages))


LENGTHS = st.lists(st.integers(0, 4), max_size=3)


@given(LENGTHS, LENGTHS)
def test_in_every_round_each_side_is_in_its_own_stage(ones: list[int], twos: list[int]):
    plain = base(tiny()[0])
    a, b = staged("a", ones, plain), staged("b", twos, plain)
    both = plus(a, b, plain, 0.5)
    for round in range(1, 15):
        stage, begins = both.at(round)
        assert stage.recipe.aggregate == MixRules(
            ("a", a.recipe(round).aggregate), ("b", b.recipe(round).aggregate), share=0.5
        ), f"round {round}"
        entering = [side for side, method in (("a", a), ("b", b)) if method.at(round)[1]]
        assert [side for side, _ in stage.enter.parts if begins] == entering, f"round {round}"


def test_training_takes_what_either_changes():
    """FedISM's step and FedNoRo's loss, each looking at its own side."""
    experiment, _ = tiny()
    recipe = method_of(experiment, "fedism+fednoro").stages[-1].recipe
    assert isinstance(recipe.train, LocalTraining)
    assert isinstance(recipe.train.step.part, GSAM)
    assert isinstance(recipe.train.loss.part, Distillation)
    assert (recipe.train.step.side, recipe.train.loss.side) == ("fedism", "fednoro")
    assert method_of(experiment, "qfedavg+median").stages[-1].recipe.train == base(plan_of(experiment)).train


def test_two_methods_that_replace_training_as_a_whole_are_refused():
    def own(site: Site, samples: Samples) -> Update:
        return Update(None, 0)

    def other(site: Site, samples: Samples) -> Update:
        return Update(None, 0)

    plain = base(tiny()[0])
    one, two = (
        replace(one_stage(replace(plain, train=train)), name=name) for name, train in (("one", own), ("two", other))
    )
    with pytest.raises(UserError, match="one and two both replace local training"):
        plus(one, two, plain, 0.5)
    assert plus(one, one_stage(plain), plain, 0.5).recipe(1).train == SidedPart("one", own)


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_plus_a_is_a_bit_for_bit(name: str):
    experiment, federation = tiny()
    alone = method_of(experiment, name)
    twice = plus(alone, alone, base(plan_of(experiment)), 0.5)
    for one, two in zip(servers(alone, federation, rounds=7), servers(twice, federation, rounds=7), strict=True):
        assert same(one, two), f"round {one.round}"
        assert one.weights == two.weights


@pytest.mark.parametrize("names", [("qfedavg", "median"), ("fedce", "rfa"), ("hnobs", "qffl")])
@pytest.mark.parametrize("share", [0.5, 0.25])
def test_the_first_round_of_a_plus_b_is_the_mean_of_theirs(names: tuple[str, str], share: float):
    """Which train alike, so that both rules get the same updates."""
    experiment, federation = tiny()
    a, b = (method_of(experiment, name) for name in names)
    one, two, both = (
        servers(method, federation, rounds=1)[0].params
        for method in (a, b, plus(a, b, base(plan_of(experiment)), share))
    )
    torch.testing.assert_close(both.weights, share * one.weights + (1 - share) * two.weights)


def test_smoothing_of_one_side_goes_on_across_the_others_stages():
    """FedISM's weights are half new, half last, in every round, that of FedNoRo's detection included."""
    experiment, federation = tiny()
    last = None
    for server in servers(method_of(experiment, "fedism+fednoro"), federation, rounds=WARMUP + 3):
        own = {client: verdict.sides["fedism"] for client, verdict in server.diagnosis.items()}
        total = sum(verdict.report["sharpness"] for verdict in own.values())
        raw = {client: (verdict.report["sharpness"] / total + 1e-10) ** 2 for client, verdict in own.items()}
        fresh = {client: value / sum(raw.values()) for client, value in raw.items()}
        expected = fresh if last is None else {client: (fresh[client] + last[client]) / 2 for client in fresh}
        last = {client: verdict.weight for client, verdict in own.items()}
        assert last == pytest.approx(expected, abs=1e-9), f"round {server.round}"
        mixture = {c: (last[c] + server.diagnosis[c].sides["fednoro"].weight) / 2 for c in last}
        assert server.weights == pytest.approx(mixture, abs=1e-12)
