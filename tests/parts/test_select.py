import pytest
import torch
from torch import nn

from fedpca.core import Net, Order, Site, Verdict
from fedpca.parts.client.select import ConfidentOfTheMislabeled, NothingOfTheMislabeled, everything


def site_with(confidences: list[float], group: str | None, threshold: float = 0.9) -> Site:
    """A client whose two-class model gives the second class these probabilities; all labels are 0."""
    logits = torch.logit(torch.tensor(confidences, dtype=torch.float64))
    head = nn.Linear(2, 2, bias=False).double()
    head.weight.data = torch.eye(2, dtype=torch.float64)
    module = nn.Sequential(head)
    net = Net(module, head, nn.Parameter(torch.empty(0)), torch.empty(0), torch.empty(0))
    x = torch.stack([torch.zeros_like(logits), logits], dim=1)
    verdict = Verdict(group=group, threshold=threshold)
    return Site(net, x, torch.zeros(len(logits), dtype=torch.int64), {}, Order(1, 1, verdict), torch.Generator())


@torch.no_grad()
def chosen(part, *args, **kwargs):
    return part(site_with(*args, **kwargs))


@pytest.mark.parametrize("part", [everything, NothingOfTheMislabeled(), ConfidentOfTheMislabeled(min_samples=2)])
@pytest.mark.parametrize("group", [None, "common", "rare"])
def test_whoever_is_not_mislabeled_trains_on_everything_as_given(part, group):
    samples = chosen(part, [0.99, 0.5, 0.2], group)
    assert samples.rows.tolist() == [0, 1, 2]
    assert samples.labels.tolist() == [0, 0, 0]
    assert samples.reliability == 1.0


def test_the_mislabeled_are_dropped_whole():
    assert len(chosen(NothingOfTheMislabeled(), [0.99, 0.5], "mislabeled").rows) == 0


def test_or_train_on_their_confident_predictions():
    samples = chosen(ConfidentOfTheMislabeled(min_samples=2), [0.99, 0.93, 0.90, 0.85, 0.97], "mislabeled")
    assert samples.rows.tolist() == [0, 1, 4]  # more than, not as much as
    assert samples.labels.tolist() == [1, 1, 1]  # predicted, not given
    assert samples.reliability == pytest.approx(0.963333, abs=1e-6)


def test_confidence_counts_whatever_the_class():
    samples = chosen(ConfidentOfTheMislabeled(min_samples=2), [0.01, 0.99], "mislabeled")
    assert samples.labels.tolist() == [0, 1]


def test_too_few_samples_are_none():
    assert len(chosen(ConfidentOfTheMislabeled(min_samples=2), [0.99, 0.5], "mislabeled").rows) == 0
    assert len(chosen(ConfidentOfTheMislabeled(min_samples=3), [0.99, 0.95, 0.5], "mislabeled").rows) == 0
