"""What parts offer beyond being called, and that a side of A+B passes it on."""

from dataclasses import dataclass

import pytest
import torch

from fedpca.core import Order, Verdict
from fedpca.parts.abilities import ability
from fedpca.parts.client.augment import CropFlip
from fedpca.parts.client.loss import LogitAdjustment, cross_entropy
from fedpca.parts.client.report import PerformanceAndCapacity, mean_loss
from fedpca.parts.client.select import ConfidentOfTheMislabeled, NothingOfTheMislabeled, everything
from fedpca.parts.client.step import GSAM, descend
from fedpca.parts.sides import SidedPart


@dataclass(frozen=True)
class Other(NothingOfTheMislabeled):
    """A selection of one's own, made of a known one."""

    def __call__(self, site):
        return everything(site)


def test_an_inherited_ability_does_not_outlive_a_change_of_what_the_part_does():
    assert ability(NothingOfTheMislabeled(), "idle") is not None
    assert ability(Other(), "idle") is None
    assert ability(everything, "idle") is None
    assert ability(None, "idle") is None


@pytest.mark.parametrize(("group", "idle"), [("mislabeled", True), ("common", False), (None, False)])
def test_who_is_dropped_is_idle_also_inside_another_selection_and_on_one_side(group, idle: bool):
    order = Order(1, 2, Verdict(group))
    for part in (NothingOfTheMislabeled(), NothingOfTheMislabeled(NothingOfTheMislabeled())):
        assert ability(part, "idle")(order) == idle
    sided = Order(1, 2, Verdict("mislabeled", sides={"one": Verdict(group)}))
    assert ability(SidedPart("one", NothingOfTheMislabeled()), "idle")(sided) == idle
    assert ability(SidedPart("one", everything), "idle") is None


def test_reports_of_many_are_offered_where_images_are_as_they_are():
    assert (
        ability(
            PerformanceAndCapacity(per_sample=True, denominator="all", confidence=None, labels=None, augment=None),
            "of_many",
        )
        is not None
    )
    assert (
        ability(
            PerformanceAndCapacity(
                augment=CropFlip(pad=4), per_sample=True, denominator="all", confidence=None, labels=None
            ),
            "of_many",
        )
        is None
    )
    assert ability(mean_loss, "of_many") is None
    assert ability(SidedPart("one", ConfidentOfTheMislabeled(min_samples=2)), "of_many") is not None
    assert ability(SidedPart("one", everything), "of_many") is None


def test_a_side_passes_on_what_looks_at_no_opinion():
    labels = torch.tensor([0, 0, 1])
    assert ability(SidedPart("one", cross_entropy), "logit_shift")(labels, 3) is None
    shift = ability(SidedPart("one", LogitAdjustment(2.0)), "logit_shift")(labels, 3)
    assert torch.equal(shift, LogitAdjustment(2.0).logit_shift(labels, 3))
    weights, when = torch.ones(2, 3), Order(1, 2, Verdict())
    for step in (descend, GSAM(0.1, 0.5, growth=0.0)):
        direction = ability(SidedPart("one", step), "direction")(weights, torch.square, when)
        assert torch.equal(direction, step.direction(weights, torch.square, when))
