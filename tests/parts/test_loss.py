import pytest
import torch
from torch.nn.functional import cross_entropy as reference

from fedpca.core import Order, Samples, Site, Verdict
from fedpca.models import build
from fedpca.parts.loss import LogitAdjusted, cross_entropy, log_prior


def loss_of(rule, counts: list[int], logits: list[float], label: int) -> torch.Tensor:
    classes = len(counts)
    labels = torch.cat([torch.full((count,), c) for c, count in enumerate(counts)]).long()
    net = build("mlp", (1, 8, 8), classes, seed=0)
    site = Site(net, torch.empty(0), labels, {}, Order(1, 1, Verdict()), torch.Generator())
    batch = torch.tensor([logits], requires_grad=True)
    loss = rule(site, Samples(torch.arange(len(labels)), labels))(torch.empty(0), batch, torch.tensor([label]))
    loss.backward()
    return torch.stack([loss.detach(), batch.grad.abs().sum()])


@pytest.mark.parametrize(
    ("counts", "logits", "label", "expected"),
    [
        ([90, 10], [0.0, 0.0], 0, 0.105361),
        ([90, 10], [0.0, 0.0], 1, 2.302585),
        ([90, 10], [1.0, 2.0], 1, 1.461150),
        ([90, 0], [0.0, 0.0], 0, 0.0),
    ],
)
def test_the_specifications_examples(counts, logits, label, expected):
    value, slope = loss_of(LogitAdjusted(), counts, logits, label)
    assert value.item() == pytest.approx(expected, abs=1e-6)
    if counts[1] == 0:
        assert slope.item() == pytest.approx(0, abs=1e-9)


def test_plain_cross_entropy():
    assert loss_of(cross_entropy, [90, 10], [1.0, 2.0], 1)[0].item() == pytest.approx(0.313262, abs=1e-6)


def test_a_uniform_prior_changes_nothing():
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0])
    shift = log_prior(torch.tensor([0, 1, 2, 3]), 4)
    torch.testing.assert_close(reference(logits + shift, labels), reference(logits, labels))
    torch.testing.assert_close(reference(logits + shift + 7, labels), reference(logits + shift, labels))


def test_the_prior_is_that_of_the_labels_in_use():
    """Pseudo-labels, where they replace the given ones."""
    assert log_prior(torch.tensor([1, 1, 1, 0]), 2).exp().tolist() == pytest.approx([0.25, 0.75])
