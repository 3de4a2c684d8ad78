"""How a lift is found: trials, gains, weights; when sharpness is used."""

from __future__ import annotations

from math import log

import pytest
import torch

from fedpca.core import Estimate, Outcome, Params, Reference, Server, Update, Verdict, When
from fedpca.parts.client.probe import GAIN, MORE_RARE
from fedpca.parts.client.step import SETTLED
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.lift import (
    LIFT,
    PACE,
    ByLiftAndTrust,
    FollowGains,
    ShowMoreRare,
    ShowWhetherSettled,
    lift_of,
    rare_clients,
)
from fedpca.parts.server.weigh import by_size

KNOWN = Estimate(0.0, 0.0, 0.1, "not mislabeled", Reference(1.0, 0.9))
FOLLOW, WHEN = FollowGains(1.2, 5.0, 2.0), When(5, 10)


def verdicts(**groups: str) -> dict[str, Verdict]:
    return {client: Verdict(group, estimate=KNOWN) for client, group in groups.items()}


def gains(**values: float) -> dict[str, dict[str, float]]:
    return {client: {GAIN: value} for client, value in values.items()}


def test_the_lift_rises_while_rare_clients_gain_more_than_half_of_what_common_ones_lose():
    known = verdicts(a="common", b="common", c="rare")
    assert lift_of(FOLLOW(known, gains(a=-0.3, b=-0.3, c=0.2), WHEN)) == pytest.approx(1.2)
    assert lift_of(FOLLOW(known, gains(a=-0.5, b=-0.5, c=0.2), WHEN)) == 1.0


def test_the_lift_stays_between_one_and_its_bound():
    known = verdicts(a="common", b="rare")
    for _ in range(20):
        known = FOLLOW(known, gains(a=0.0, b=1.0), WHEN)
    assert lift_of(known) == 5.0
    for _ in range(20):
        known = FOLLOW(known, gains(a=0.0, b=-1.0), WHEN)
    assert lift_of(known) == 1.0


@pytest.mark.parametrize("groups", [{"a": "common", "b": "common"}, {"a": "rare", "b": "mislabeled"}])
def test_nothing_changes_where_a_group_is_silent(groups: dict[str, str]):
    known = verdicts(**groups)
    assert FOLLOW(known, gains(**dict.fromkeys(groups, 1.0)), WHEN) is known


def test_one_liar_does_not_move_the_median():
    known = verdicts(a="common", b="common", c="common", d="rare", e="rare", f="rare")
    honest = gains(a=-0.01, b=-0.01, c=-0.01, d=0.1, e=0.1, f=0.1)
    for liar in ("a", "d"):
        lied = FOLLOW(known, {**honest, liar: {GAIN: -1e9}}, WHEN)
        assert lift_of(lied) == lift_of(FOLLOW(known, honest, WHEN))


def test_nobody_is_rare_before_labels_can_be_compared():
    early = Verdict("rare", estimate=Estimate(None, 0.0, 1.0, "cannot tell"))
    assert rare_clients({"a": early, "b": Verdict("rare", estimate=KNOWN)}) == {"b"}


def test_weights_are_size_reliability_lift_and_trust():
    known = {c: v.having(notes={LIFT: 3.0}) for c, v in verdicts(a="common", b="rare", c="mislabeled").items()}
    known["c"] = known["c"].having(suspicion=0.6)
    count = ByLiftAndTrust(None)(known)
    update = Update(None, size=10, reliability=0.5)
    assert [count(client, update) for client in "abc"] == pytest.approx([5.0, 15.0, 2.0])
    assert ByLiftAndTrust(1.5)(known)("b", update) == pytest.approx(7.5)


def state(value: float) -> Params:
    return Params(torch.full((4,), value), torch.empty(0), torch.empty(0, dtype=torch.int64))


def finished(rule: object, server: Server, states: dict[str, float]) -> Outcome:
    fold = rule(server)
    for client, value in states.items():
        fold.add(client, Update(state(value), size=10))
    return fold.finish()


def test_the_step_shown_leads_to_the_mean_with_more_weight_for_the_rare():
    server = Server(state(0.0), diagnosis=verdicts(a="common", b="common", c="rare"))
    states = {"a": 1.0, "b": 2.0, "c": 6.0}
    outcome = finished(ShowMoreRare(WeightedMean(by_size, 1.0), 1.5), server, states)
    lifted = (1.0 + 2.0 + 1.5 * 6.0) / 3.5
    assert torch.allclose(outcome.params.weights + outcome.shown[MORE_RARE], torch.full((4,), lifted))
    plain = finished(WeightedMean(by_size, 1.0), server, states)
    assert torch.equal(outcome.params.weights, plain.params.weights), "what is tried is not what is used"


def test_nothing_is_tried_where_nobody_is_rare():
    server = Server(state(0.0), diagnosis=verdicts(a="common", b="common"))
    assert not finished(ShowMoreRare(WeightedMean(by_size, 1.0), 1.5), server, {"a": 1.0, "b": 2.0}).shown


def at_loss(loss: float, memory: dict[str, torch.Tensor], shown: dict[str, torch.Tensor]) -> Server:
    known = {c: v.having(report={"loss": loss}) for c, v in verdicts(a="common", b="common", c="rare").items()}
    return Server(state(0.0), diagnosis=known, memory=memory, shown=shown)


def test_sharpness_is_shown_while_losses_fall_slowly_and_ends_when_they_fall_twice_as_fast():
    rule, server = ShowWhetherSettled(WeightedMean(by_size, 1.0), 0.01, 1.0), at_loss(1.0, {}, {})
    told = []
    for fall in (0.0, 0.05, 0.005, 0.015, 0.03):
        outcome = finished(rule, server, {"a": 1.0})
        told.append(SETTLED in outcome.shown)
        loss = outcome.memory[PACE][0].item() * (1 - fall)
        server = at_loss(loss, outcome.memory, outcome.shown)
    told.append(SETTLED in finished(rule, server, {"a": 1.0}).shown)
    assert told == [False, True, False, True, True, False]
    assert outcome.memory[PACE][1].item() == pytest.approx(-log(1 - 0.015))


def test_sharpness_waits_until_labels_can_be_judged():
    unknown = {"a": Verdict("common", report={"loss": 1.0})}
    outcome = finished(
        ShowWhetherSettled(WeightedMean(by_size, 1.0), 0.01, 1.0), Server(state(0.0), 0, unknown), {"a": 1.0}
    )
    assert PACE not in outcome.memory
    assert SETTLED not in outcome.shown
