from math import exp, log

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy as reference

from fedpca.core import Net, Order, Samples, Site, Verdict
from fedpca.models.build import build
from fedpca.models.flat import flatten, params_of
from fedpca.parts.client.augment import Mixup
from fedpca.parts.client.loss import (
    Batch,
    Distillation,
    LogitAdjustment,
    NearStart,
    Proximal,
    cross_entropy,
    distillation,
    log_prior,
)


def batch_of(logits: torch.Tensor, labels: torch.Tensor, images: torch.Tensor | None = None) -> Batch:
    """All of a client's samples, or those of which nobody asks which they are."""
    images = torch.empty(len(logits)) if images is None else images
    return Batch(images, logits, labels, torch.arange(len(labels)))


def loss_of(rule, counts: list[int], logits: list[float], label: int) -> torch.Tensor:
    classes = len(counts)
    labels = torch.cat([torch.full((count,), c) for c, count in enumerate(counts)]).long()
    net = build("mlp", (1, 8, 8), classes, seed=0)
    site = Site(net, torch.empty(0), labels, {}, Order(1, 1, Verdict()), torch.Generator())
    batch = torch.tensor([logits], requires_grad=True)
    loss = rule(site, Samples(torch.arange(len(labels)), labels))(batch_of(batch, torch.tensor([label])))
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
    value, slope = loss_of(LogitAdjustment(tau=1.0), counts, logits, label)
    assert value.item() == pytest.approx(expected, abs=1e-6)
    if counts[1] == 0:
        assert slope.item() == pytest.approx(0, abs=1e-9)


def test_plain_cross_entropy():
    assert loss_of(cross_entropy, [90, 10], [1.0, 2.0], 1)[0].item() == pytest.approx(0.313262, abs=1e-6)


def test_a_uniform_prior_changes_nothing():
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0])
    shift = log_prior(torch.tensor([0, 1, 2, 3]), 4, min_share=0.0)
    torch.testing.assert_close(reference(logits + shift, labels), reference(logits, labels))
    torch.testing.assert_close(reference(logits + shift + 7, labels), reference(logits + shift, labels))


def test_the_prior_is_that_of_the_labels_in_use():
    """Pseudo-labels, where they replace the given ones."""
    assert log_prior(torch.tensor([1, 1, 1, 0]), 2, min_share=0.0).exp().tolist() == pytest.approx([0.25, 0.75])


def two_weights(suspicion: float | None) -> Site:
    """A client whose model is nothing but two weights, suspected this much."""
    vector = nn.Parameter(torch.tensor([1.0, -2.0]))
    vector.grad = torch.zeros_like(vector)
    net = Net(nn.Identity(), nn.Linear(1, 1), vector, torch.empty(0), torch.empty(0, dtype=torch.int64))
    labels = torch.empty(0, dtype=torch.int64)
    return Site(net, torch.empty(0), labels, {}, Order(2, 9, Verdict(suspicion=suspicion)), torch.Generator())


def zero(site: Site, samples: Samples):
    return lambda batch: 0.0 * site.net.weights.sum()


def pulled(strength: float, suspicion: float | None, moved: tuple[float, float]) -> tuple[float, list[float]]:
    """The proximal term and its gradient after the weights have moved this far."""
    site = two_weights(suspicion)
    loss_of = Proximal(strength, zero)(site, Samples(site.given, site.given))
    with torch.no_grad():
        site.net.weights.add_(torch.tensor(moved))
    value = loss_of(batch_of(torch.empty(0), site.given))
    value.backward()
    return value.item(), site.net.weights.grad.tolist()


def test_the_specifications_pull_towards_the_start():
    value, slope = pulled(5, 0.6, (3.0, 4.0))
    assert value == pytest.approx(15)
    assert slope == pytest.approx([1.8, 2.4])


@pytest.mark.parametrize(
    ("suspicion", "moved"), [(0.6, (0.0, 0.0)), (0.0, (3.0, 4.0)), (None, (3.0, 4.0))], ids=["unmoved", "clean", "new"]
)
def test_no_pull_before_the_first_step_nor_on_the_unsuspected(suspicion: float | None, moved: tuple[float, float]):
    assert pulled(5, suspicion, moved) == (0.0, [0.0, 0.0])


def test_the_pull_is_added_to_the_other_loss():
    site = two_weights(0.6)
    loss_of = Proximal(5)(site, Samples(site.given, site.given))
    with torch.no_grad():
        site.net.weights.add_(torch.tensor([3.0, 4.0]))
    logits, labels = torch.tensor([[1.0, 2.0]]), torch.tensor([1])
    assert loss_of(batch_of(logits, labels)).item() == pytest.approx(15.313262, abs=1e-5)


def test_the_specifications_distillation():
    """Logits (1, 0), labels 3 : 1, y = 1, soft (.7, .3), share .4."""
    adjusted = torch.tensor([[1.0, 0.0]]) + log_prior(torch.tensor([0, 0, 0, 1]), 2, min_share=0.0)
    assert adjusted.log_softmax(dim=1)[0].tolist() == pytest.approx([-0.115671, -2.214283], abs=1e-6)
    soft, label = torch.tensor([[0.7, 0.3]]), torch.tensor([1])
    assert distillation(adjusted, soft, label, 1.0).item() == pytest.approx(0.134390, abs=1e-6)
    assert distillation(adjusted, soft, label, 0.4).item() == pytest.approx(1.382326, abs=1e-6)
    by_hand = 0.7 * (log(0.7) + 0.115671) + 0.3 * (log(0.3) + 2.214283)
    assert distillation(adjusted, soft, label, 0.4).item() == pytest.approx(0.4 * by_hand + 0.6 * 2.214283, abs=1e-5)


def test_distillation_is_a_mean_over_the_batch():
    logits, soft = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    labels = torch.tensor([1, 0])
    singly = [distillation(logits[[i]], soft[[i]], labels[[i]], 0.4) for i in range(2)]
    torch.testing.assert_close(distillation(logits, soft, labels, 0.4), sum(singly) / 2)


@pytest.mark.parametrize(
    ("round", "expected"),
    [(0, 0.8 * exp(-5)), (10, 0.005390), (20, 0.050400), (30, 0.244177), (49, 0.8), (99, 0.8)],
)
def test_the_specifications_shares_of_distillation(round: int, expected: float):
    assert Distillation(max_share=0.8, temperature=0.8, begin=10, end=49, adjusted=True).share(round) == pytest.approx(
        expected, abs=1e-6
    )


def judged(group: str | None, round: int, counts: tuple[int, ...] = (6, 2)) -> Site:
    """A client with a batch-normed model of two classes that is already in train mode."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    net = flatten(module.train(), module[1])
    labels = torch.cat([torch.full((count,), c) for c, count in enumerate(counts)])
    x = torch.randn(sum(counts), 3) + 1
    return Site(net, x, labels, {}, Order(round, 100, Verdict(group=group)), torch.Generator())


def of_batch(rule, site: Site) -> float:
    """The loss of all the client's samples, for some logits of the model in training."""
    loss_of = rule(site, Samples(torch.arange(len(site.y)), site.y))
    return loss_of(batch_of(torch.linspace(-1, 1, 2 * len(site.y)).view(-1, 2), site.y, site.x)).item()


def test_the_teacher_is_sharpened():
    """The slope of KL(soft || softmax(f)) in f is softmax(f) - soft."""
    module = nn.Linear(1, 2, bias=False)
    module.weight.data = torch.tensor([[2.0], [0.0]])
    site = judged("mislabeled", 100)
    site.net = flatten(module, module)
    loss_of = Distillation(max_share=1.0, adjusted=False, temperature=0.8, begin=10, end=49)(
        site, Samples(torch.arange(8), site.y)
    )
    logits = torch.zeros(1, 2, requires_grad=True)
    loss_of(batch_of(logits, torch.tensor([1]), torch.ones(1, 1))).backward()
    assert (0.5 - logits.grad[0]).tolist() == pytest.approx([0.924142, 0.075858], abs=1e-6)


@pytest.mark.parametrize("adjusted", [True, False])
@pytest.mark.parametrize("round", [11, 31, 60])
def test_the_mislabeled_distil_from_the_global_model_in_eval_mode(round: int, adjusted: bool):
    site = judged("mislabeled", round)
    with torch.no_grad():
        soft = (site.net.module.eval()(site.x) / 0.8).softmax(dim=1)
    site.net.module.train()
    share = {11: 0.005390, 31: 0.244177, 60: 0.8}[round]  # rounds count from 1 here, from 0 in the specification
    prior = torch.tensor([0.75, 0.25]).log() if adjusted else torch.zeros(2)
    logs = (torch.linspace(-1, 1, 16).view(-1, 2) + prior).log_softmax(dim=1)
    apart = (soft * (soft.log() - logs)).sum(dim=1).mean()
    wrong = -logs[torch.arange(8), site.y].mean()
    expected = (share * apart + (1 - share) * wrong).item()
    assert of_batch(
        Distillation(adjusted=adjusted, max_share=0.8, temperature=0.8, begin=10, end=49), site
    ) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("group", [None, "common", "rare"])
def test_others_keep_their_loss(group: str | None):
    site = judged(group, 60)
    assert of_batch(Distillation(max_share=0.8, temperature=0.8, begin=10, end=49, adjusted=True), site) == of_batch(
        cross_entropy, site
    )
    assert of_batch(
        Distillation(
            otherwise=LogitAdjustment(tau=1.0), max_share=0.8, temperature=0.8, begin=10, end=49, adjusted=True
        ),
        site,
    ) == of_batch(LogitAdjustment(tau=1.0), site)


def test_the_teacher_neither_learns_nor_follows():
    site = judged("mislabeled", 60)
    before = params_of(site.net)
    loss_of = Distillation(max_share=1.0, temperature=0.8, begin=10, end=49, adjusted=True)(
        site, Samples(torch.arange(8), site.y)
    )
    logits = torch.linspace(-1, 1, 16).view(-1, 2).requires_grad_()
    first = loss_of(batch_of(logits, site.y, site.x))
    first.backward()
    assert logits.grad.abs().sum() > 0
    assert not site.net.weights.grad.any(), "no gradient through the teacher"
    assert torch.equal(site.net.buffers, before.buffers), "nor statistics"
    assert site.net.module.training
    with torch.no_grad():
        site.net.weights.add_(5.0)
        site.net.buffers.add_(5.0)
    assert loss_of(batch_of(logits, site.y, site.x)).item() == first.item()


def lacking(rule, labels: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and its slopes in the logits of a client that lacks class 1 of three, whose model is all for that class."""
    module = nn.Linear(2, 3)
    module.weight.data, module.bias.data = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 9.0, 1])
    given = torch.tensor([0, 0, 0, 2])
    order = Order(60, 100, Verdict(group="mislabeled"))
    site = Site(flatten(module, module), torch.eye(2)[[0, 1, 0, 1]], given, {}, order, torch.Generator())
    logits = site.net(site.x).detach().requires_grad_()
    loss = rule(site, Samples(torch.arange(4), given))(batch_of(logits, given if labels is None else labels, site.x))
    loss.backward()
    return loss.detach(), logits.grad


def test_distillation_leaves_the_logit_of_a_class_without_labels_alone():
    """As in FedNoRo's code: over the other classes alone, and their shares in the teacher's opinion as they are."""
    rule = Distillation(max_share=0.8, temperature=0.8, begin=10, end=49, adjusted=True)
    loss, slopes = lacking(rule)
    assert slopes[:, 1].tolist() == [0.0] * 4
    assert slopes[:, [0, 2]].abs().min() > 0
    x, labels = torch.eye(2)[[0, 1, 0, 1]], torch.tensor([0, 0, 0, 1])  # classes 0 and 2 renumbered
    plain = torch.stack([x[:, 0], x[:, 1] + 1], dim=1).requires_grad_()
    soft = (torch.stack([x[:, 0], torch.full((4,), 9.0), x[:, 1] + 1], dim=1) / 0.8).softmax(dim=1)
    logs = (plain + torch.tensor([0.75, 0.25]).log()).log_softmax(dim=1)
    apart = ((soft * soft.log()).sum(dim=1) - (soft[:, [0, 2]] * logs).sum(dim=1)).mean()
    expected = 0.8 * apart - 0.2 * logs[torch.arange(4), labels].mean()
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(slopes[:, [0, 2]], plain.grad)


def test_distillation_pulls_at_every_class_without_logit_adjustment():
    _, slopes = lacking(Distillation(max_share=0.8, temperature=0.8, begin=10, end=49, adjusted=False))
    assert slopes[:, 1].abs().min() > 0


def test_distillation_takes_blended_labels_where_a_class_is_lacking():
    rule = Distillation(max_share=0.8, temperature=0.8, begin=10, end=49, adjusted=True)
    sharp, blended = (lacking(rule, labels) for labels in (None, torch.eye(3)[[0, 0, 0, 2]]))
    torch.testing.assert_close(blended, sharp)


def test_logit_adjustment_leaves_the_logit_of_a_class_without_labels_alone():
    _, slopes = lacking(LogitAdjustment(tau=1.0))
    assert slopes[:, 1].abs().max() < 1e-8  # e^9 / 1e12; with the plain logit it would be 0.9997
    assert slopes[:, [0, 2]].abs().min() > 1e-3


@pytest.mark.parametrize("rule", [cross_entropy, LogitAdjustment(tau=1.0)])
def test_blended_labels_give_the_two_term_loss_of_mixup(rule):
    """a CE(f, y) + (1 - a) CE(f, y'), y' the labels of the other images."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 1, 1, 0, 1, 1])
    logits = torch.randn(6, 2, generator=rng)
    blend, shares = Mixup(alpha=1.0)(
        torch.eye(6).view(6, 6, 1, 1), labels, 2, rng
    )  # images that tell what they are made of
    made_of = blend.view(6, 6)
    own = made_of.diagonal()
    other = torch.where(own > 0.999, torch.arange(6), (made_of - torch.diag(own)).argmax(dim=1))
    a = own.min()
    net = build("mlp", (1, 8, 8), 2, seed=0)
    site = Site(net, torch.empty(0), labels, {}, Order(1, 1, Verdict()), rng)
    loss_of = rule(site, Samples(torch.arange(6), labels))
    two_terms = a * loss_of(batch_of(logits, labels)) + (1 - a) * loss_of(batch_of(logits, labels[other]))
    assert 0.01 < a < 0.99, "otherwise the test shows nothing"
    torch.testing.assert_close(loss_of(batch_of(logits, shares)), two_terms)


def descended(loss, steps: int) -> list[float]:
    """Where (w - 4)^2 / 2, and what another term adds, takes one weight from 1, by steps of 0.1."""
    net = flatten(nn.Linear(1, 1, bias=False), None)
    with torch.no_grad():
        net.weights.fill_(1.0)
    site = Site(net, torch.ones(1, 1), torch.zeros(1), {}, Order(1, 1, Verdict()), torch.Generator())
    minimised, seen = loss(site, Samples(torch.arange(1), site.given)), []
    for _ in range(steps):
        net.weights.grad.zero_()
        minimised(batch_of(net(site.x), site.given, site.x)).backward()
        with torch.no_grad():
            net.weights.sub_(net.weights.grad, alpha=0.1)
        seen.append(net.weights.item())
    return seen


def to_four(site: Site, samples: Samples):
    return lambda batch: (batch.logits - 4).square().sum() / 2


def test_the_specifications_steps_near_the_start():
    assert descended(to_four, 3) == pytest.approx([1.3, 1.57, 1.813])
    assert descended(NearStart(0.5, to_four), 3) == pytest.approx([1.3, 1.555, 1.77175])
    for mu in (0.1, 0.5, 2.0):
        assert descended(NearStart(mu, to_four), 300)[-1] == pytest.approx((4 + mu) / (1 + mu), abs=1e-5)


def test_without_a_pull_it_is_the_other_loss_itself():
    assert NearStart(0.0, to_four)(None, None).__code__ is to_four(None, None).__code__
