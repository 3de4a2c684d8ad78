"""What a client tries, on which rows, and that trying leaves its model as it was."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy as loss_of

from fedpca.core import Order, Site, Verdict
from fedpca.models.build import build
from fedpca.parts.client.loss import AdjustmentWhereSkewed, LogitAdjustment, cross_entropy, is_skewed
from fedpca.parts.client.probe import GAIN, MORE_RARE, HeldOut, ReportSkew, TryMoreRare
from fedpca.parts.client.select import ConfidentOfTheMislabeled, CorrectOrDrop, WithoutHeldOut, everything

HELD_OUT = HeldOut(0.05, 40)


def site(
    count: int, shown: dict[str, torch.Tensor] | None = None, verdict: Verdict | None = None, seed: int = 0
) -> Site:
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, 8, 8, generator=rng)
    y = torch.randint(10, (count,), generator=rng)
    order = Order(3, 10, verdict or Verdict(), shown or {})
    return Site(NET, x, y, {}, order, torch.Generator())


NET = build("mlp", (1, 8, 8), 10, seed=0)
STEP = 0.01 * torch.randn(len(NET.weights), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_the_gain_is_the_fall_of_the_loss_on_held_out_rows():
    own, before = site(60, {MORE_RARE: STEP}), NET.weights.detach().clone()
    gain = TryMoreRare(HELD_OUT, 100, cross_entropy)(own)[GAIN]
    rows = torch.arange(0, 60, 20)
    here = loss_of(NET(own.x[rows]), own.y[rows]).item()
    NET.weights.data.copy_(before + STEP)
    there = loss_of(NET(own.x[rows]), own.y[rows]).item()
    NET.weights.data.copy_(before)
    assert gain == pytest.approx(here - there, abs=1e-6)


@torch.no_grad()
def test_trying_leaves_the_weights_to_the_bit():
    before = NET.weights.detach().clone()
    TryMoreRare(HELD_OUT, 100, cross_entropy)(site(60, {MORE_RARE: STEP}))
    assert torch.equal(before, NET.weights)


@torch.no_grad()
def test_many_clients_at_once_say_what_each_says_alone():
    sites = [site(count, {MORE_RARE: STEP}, seed=count) for count in (7, 60, 120)]
    tried = TryMoreRare(HELD_OUT, 50, LogitAdjustment(1.0))
    alone = [tried(own)[GAIN] for own in sites]
    assert [report[GAIN] for report in tried.of_many(sites)] == pytest.approx(alone, abs=1e-6)


def test_nothing_is_said_where_nothing_is_shown():
    assert TryMoreRare(HELD_OUT, 100, cross_entropy)(site(60)) == {}


def test_held_out_rows_are_never_trained_on_and_small_clients_hold_none_out():
    select = WithoutHeldOut(everything, HELD_OUT)
    assert not set(range(0, 60, 20)) & set(select(site(60)).rows.tolist())
    assert len(select(site(60)).rows) == 57
    assert len(select(site(39)).rows) == 39
    assert HeldOut(0.0, 1).every(1000) is None


def test_a_client_is_kept_corrected_or_dropped_by_its_share():
    select = CorrectOrDrop(ConfidentOfTheMislabeled(2), 0.8)

    def taken(group: str, share: float) -> int:
        return len(select(site(50, verdict=Verdict(group, suspicion=share, threshold=0.0))).rows)

    assert taken("common", 0.9) == 50
    assert taken("mislabeled", 0.5) == 50, "every prediction exceeds a threshold of zero"
    assert taken("mislabeled", 0.8) == 0
    assert select.idle(Order(1, 2, Verdict("mislabeled", suspicion=0.9)))


def test_choosing_for_many_is_choosing_for_each():
    shares = (("common", 0.0), ("mislabeled", 0.9), ("mislabeled", 0.3))
    sites = [site(30, verdict=Verdict(group, suspicion=share, threshold=0.11)) for group, share in shares]
    select = WithoutHeldOut(CorrectOrDrop(ConfidentOfTheMislabeled(2), 0.8), HELD_OUT)
    for own, many in zip(map(select, sites), select.of_many(sites), strict=True):
        assert torch.equal(own.rows, many.rows)
        assert torch.equal(own.labels, many.labels)


def test_even_classes_are_not_skewed_and_one_class_is():
    even, skewed = torch.arange(100) % 10, torch.cat([torch.zeros(80), torch.arange(20) % 10]).long()
    assert not is_skewed(even, 10, 3.0)
    assert is_skewed(skewed, 10, 3.0)
    loss = AdjustmentWhereSkewed(1.0, 3.0)
    assert not loss.logit_shift(even, 10).any()
    assert torch.equal(loss.logit_shift(skewed, 10), LogitAdjustment(1.0).logit_shift(skewed, 10))


def test_chance_is_seldom_taken_for_skew():
    rng = torch.Generator().manual_seed(0)
    draws = [torch.randint(10, (70,), generator=rng) for _ in range(400)]
    assert sum(is_skewed(labels, 10, 3.0) for labels in draws) < 8


def test_a_client_says_whether_it_is_adjusted():
    assert ReportSkew(3.0)(site(100)) == {"skewed": 0.0}
