"""The rivals against label noise: the vectors of the specification, and what each part becomes without its strength."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from fedpca.core import Order, Outcome, Params, Samples, Server, Site, Update, Verdict, When
from fedpca.loop import with_outcome
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client import loss as losses
from fedpca.parts.client.energy import Energies, HighEnergies, energies, spread_quantiles
from fedpca.parts.client.filter import ByFilter, FitFilter, sample_losses, set_back
from fedpca.parts.client.learned import LearnedLabels, MergeLabels, joint_loss, label_slope, merged
from fedpca.parts.client.loss import Batch, LogitAdjustment
from fedpca.parts.client.neighbours import AbilityAndAnswer, ReliableNeighbours, likely_rows
from fedpca.parts.client.neighbours import clean_chances as lower_chances
from fedpca.parts.client.self_regularised import SelfRegularised, entropy_of
from fedpca.parts.client.symmetric import SymmetricCrossEntropy, SymmetricMix, reverse_cross_entropy
from fedpca.parts.client.train import Descent
from fedpca.parts.client.view import View, kind_of, turned_hue
from fedpca.parts.mixture import fit
from fedpca.parts.noise_filter import FIRST, clean_chances, filter_of, joint_filter, refitted
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.energy import ByCleanShare, NoteHighEnergy, energy_level
from fedpca.parts.server.filter import ShareFilter
from fedpca.parts.server.neighbours import ShowNeighbours, neighbour_scores
from fedpca.parts.server.trust import TrustFallingLosses, trust_shares
from fedpca.parts.server.weigh import by_size
from fedpca.rng import stream

LOGITS, LABELS = torch.tensor([[2.0, 1, 0], [0, 3, -1]], dtype=torch.float64), torch.tensor([0, 2])
NOW = When(3, 9)


def a_site(count: int = 12, classes: int = 4, verdict: Verdict | None = None, round: int = 3) -> Site:
    """A client with random images."""
    rng = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, classes, (count,), generator=rng)
    net = build("mlp", (1, 8, 8), classes, seed=0)
    return Site(net, x, y, {}, Order(round, 10, verdict or Verdict()), stream(0, "train"))


def whole(site: Site) -> tuple[Samples, Batch]:
    """All samples, as a selection and as a batch."""
    rows = torch.arange(len(site.y))
    return Samples(rows, site.y), Batch(site.x, site.net(site.x), site.y, rows)


# Symmetric cross-entropy


def test_symmetric_cross_entropy_is_the_specifications():
    logits = LOGITS.clone().requires_grad_()
    loss = SymmetricMix(0.1, 1.0, 1e-4)(logits, LABELS)
    assert cross_entropy(LOGITS, LABELS).item() == pytest.approx(2.236745, abs=1e-6)
    assert reverse_cross_entropy(LOGITS, LABELS, 1e-4).item() == pytest.approx(6.067824, abs=1e-6)
    assert loss.item() == pytest.approx(6.291498, abs=1e-6)
    assert SymmetricMix(0.1, 1.0, 2.718281828459045**-4)(LOGITS, LABELS).item() == pytest.approx(2.858897, abs=1e-6)
    loss.backward()
    assert logits.grad[0].tolist() == pytest.approx([-1.042288, 0.761974, 0.280314], abs=1e-6)


def test_the_slope_of_reverse_cross_entropy_fades_where_the_model_is_sure_of_another_class():
    logits = LOGITS.clone().requires_grad_()
    reverse_cross_entropy(logits, LABELS, 1e-4).backward()
    probs, hot = LOGITS.softmax(dim=1), one_hot(LABELS, 3)
    expected = log(1e-4) * probs.gather(1, LABELS[:, None]) * (hot - probs) / 2
    torch.testing.assert_close(logits.grad, expected)


def test_without_its_reverse_it_is_a_share_of_cross_entropy():
    assert SymmetricMix(0.3, 0.0, 1e-4)(LOGITS, LABELS) == 0.3 * cross_entropy(LOGITS, LABELS)
    only = SymmetricMix(0.0, 1.0, 1e-4)(LOGITS, LABELS)
    assert 0 <= only <= -log(1e-4)


def test_shares_of_classes_are_labels_too():
    """As mixup makes them."""
    hot = one_hot(LABELS, 3).double()
    mix = SymmetricMix(0.1, 1.0, 1e-4)
    torch.testing.assert_close(mix(LOGITS, hot), mix(LOGITS, LABELS))
    assert mix(LOGITS, 0.5 * hot + 0.5 * hot.flip(0)).isfinite()


def test_it_looks_at_the_logits_that_the_other_loss_would_shift():
    site, mix = a_site(), SymmetricMix(0.1, 1.0, 1e-4)
    samples, batch = whole(site)
    adjusted = LogitAdjustment(tau=1.0)
    shift = adjusted.logit_shift(site.y, 4)
    loss = SymmetricCrossEntropy(mix, adjusted)(site, samples)(batch)
    torch.testing.assert_close(loss, mix(batch.logits + shift, batch.labels))
    plain = SymmetricCrossEntropy(mix, losses.cross_entropy)(site, samples)(batch)
    torch.testing.assert_close(plain, mix(batch.logits, batch.labels))


# FedLSR

OTHER = torch.tensor([[1.0, 1, 0], [1, 2, -1]], dtype=torch.float64)
VIEW = View("auto", 30.0, 0.8, 0.2, 0.8, 0.2, 0.1)


def regularised(view=VIEW, divergence=0.4, sharpening=3.0, ramp=0.2, entropy=0.3, published=True) -> SelfRegularised:
    return SelfRegularised(view, divergence, sharpening, ramp, entropy, published, losses.cross_entropy)


def same_image(images: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return images


@pytest.mark.parametrize(
    ("published", "terms", "total"),
    [(True, (1.187093, 0.027496, 0.984128), 1.493330), (False, (3.536387, 0.082489, 0.297741), 3.658704)],
)
def test_self_regularisation_is_the_specifications(published: bool, terms: tuple[float, ...], total: float):
    rule = regularised(published=published)
    found = [term.item() for term in rule.terms(LOGITS, OTHER, LABELS, 0.3)]
    assert found == pytest.approx(terms, abs=1e-6)
    assert found[0] + 0.4 * found[1] + 0.3 * found[2] == pytest.approx(total, abs=1e-6)
    if published:
        assert found[0] + rule.divergence_in(6, 100) * found[1] + 0.3 * found[2] == pytest.approx(1.485081, abs=1e-6)


def test_the_divergence_rises_from_nothing_over_a_share_of_the_rounds():
    weights = [regularised().divergence_in(round, 100) for round in (1, 11, 21, 100)]
    assert weights == pytest.approx([0, 0.2, 0.4, 0.4])
    assert regularised(ramp=0.0).divergence_in(1, 100) == 0.4


def test_probabilities_taken_for_logits_keep_the_published_fit_within_its_bounds():
    """[1.461150, 2.461150] for ten classes, however wrong a prediction is."""
    sure = 100 * torch.eye(10, dtype=torch.float64)[:2]
    for label, bound in ((0, 1.461150), (5, 2.461150)):
        fit, _, _ = regularised().terms(sure[:1], sure[:1], torch.tensor([label]), 0.5)
        assert fit.item() == pytest.approx(bound, abs=1e-6)


def test_of_the_very_image_nothing_diverges_and_the_share_does_not_matter():
    for published in (True, False):
        rule = regularised(published=published)
        one, two = (rule.terms(LOGITS, LOGITS, LABELS, share) for share in (0.2, 0.9))
        assert one[1].item() == pytest.approx(0, abs=1e-12)
        torch.testing.assert_close(one, two)


def test_of_the_very_image_the_intended_fit_is_cross_entropy_of_twice_the_logits():
    """Sharpening squares probabilities, which doubles logits: without it, cross-entropy itself."""
    fit, _, _ = regularised(published=False).terms(LOGITS, LOGITS, LABELS, 0.3)
    torch.testing.assert_close(fit, cross_entropy(2 * LOGITS, LABELS))


@pytest.mark.parametrize("published", [True, False])
def test_training_on_two_views_has_finite_slopes(published: bool):
    site = a_site(round=9)
    samples, batch = whole(site)
    regularised(published=published)(site, samples)(batch).backward()
    assert site.net.weights.grad.isfinite().all()
    assert site.net.weights.grad.abs().sum() > 0


def test_views_keep_type_and_shape_and_come_back_from_the_same_numbers():
    rng = torch.Generator().manual_seed(0)
    grey = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8, generator=rng)
    colour = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8, generator=rng)
    for images, kind in (
        (grey, "turn"),
        (colour, "colour"),
        (torch.randn(6, 5), "noise"),
        (torch.randn(6, 5, 1, 1), "noise"),
    ):
        assert kind_of(images) == kind
        one, two = (VIEW(images, stream(0, "view")) for _ in range(2))
        assert (one.dtype, one.shape) == (images.dtype, images.shape)
        assert torch.equal(one, two)
        assert not torch.equal(one, images)
        assert VIEW(images[:1], stream(0, "view")).float().isfinite().all()


def test_a_view_of_no_strength_is_the_image_or_its_mirror_image():
    rng = torch.Generator().manual_seed(0)
    colour = torch.randint(0, 256, (9, 3, 8, 8), dtype=torch.uint8, generator=rng)
    seen = View("colour", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)(colour, rng)
    assert all(
        torch.equal(own, image) or torch.equal(own, image.flip(2)) for own, image in zip(seen, colour, strict=True)
    )
    assert torch.equal(View("turn", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)(colour[:, :1], rng), colour[:, :1])
    round_trip = turned_hue(colour.float(), torch.full((9,), 6.283185307))
    torch.testing.assert_close(round_trip, colour.float(), atol=0.01, rtol=0)


# NA-FedAvg


def test_energies_are_the_specifications():
    assert energies(LOGITS[:1], 1.0).item() == pytest.approx(2.407606, abs=1e-6)
    assert energies(LOGITS[:1], 2.0).item() == pytest.approx(3.360539, abs=1e-6)


def test_the_specifications_clean_shares():
    before = [[1.0, 2, 3, 4], [2, 2.5, 3, 3.5], [1, 1.5, 2, 2.5, 3]]
    after = [[2, 3, 3, 3.1], [3.2, 3.6, 4, 3], [2, 3.05, 2.4, 2.6, 2]]
    level = energy_level(before, 75)
    assert level == 3
    noisy = [sum(value >= level for value in own) / len(own) for own in after]
    assert noisy == [0.75, 1.0, 0.2]
    count = ByCleanShare(0.15, 0.1)({})
    params = Params(torch.zeros(1), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    counts = [
        count(str(i), Update(params, len(own), report={"noisy": share}))
        for i, (own, share) in enumerate(zip(after, noisy, strict=True))
    ]
    assert counts == pytest.approx([0.4, 0, 0.5], abs=1e-6)
    assert [own / sum(counts) for own in counts] == pytest.approx([0.444444, 0, 0.555556], abs=1e-6)


def test_where_all_are_noisy_or_nobody_is_sizes_decide():
    params = Params(torch.zeros(1), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    for noisy, threshold in ((1.0, 0.15), (0.1, 0.15), (0.9, 1.1)):
        count = ByCleanShare(threshold, 0.1)({c: Verdict(report={"noisy": noisy}) for c in "ab"})
        one, two = (count(c, Update(params, size)) for c, size in (("a", 10), ("b", 30)))
        assert one / (one + two) == pytest.approx(0.25)
        assert one > 0


def test_energies_leave_in_order_or_as_quantiles_and_are_not_kept():
    site = a_site(40)
    every, few = (Energies(1.0, sketch)(site)["energy"] for sketch in (False, True))
    assert (len(every), len(few)) == (40, 101)
    assert every == sorted(every)
    assert (few[0], few[-1]) == (every[0], every[-1])
    assert few[50] == pytest.approx((every[19] + every[20]) / 2)
    assert spread_quantiles(torch.tensor([5.0], dtype=torch.float64), 101).tolist() == [5.0] * 101
    known = NoteHighEnergy(75.0)({}, {"a": {"energy": every}}, NOW)
    assert known["a"].report == {}
    assert known["a"].notes == {"energy_level": energy_level([every], 75)}


def test_a_client_measures_its_noisy_share_once_it_knows_what_is_high():
    measure = HighEnergies(1.0)
    assert measure(a_site(), None) == {}
    level = Energies(1.0, False)(a_site())["energy"][6]
    assert measure(a_site(verdict=Verdict(notes={"energy_level": level})), None) == {"noisy": 0.5}
    assert measure(a_site(verdict=Verdict(notes={"energy_level": level}, report={"noisy": 0.5})), None) == {}


# RHFL


def falls(before: list[float], now: list[float]) -> dict[str, float]:
    return {str(i): old / new - 1 for i, (old, new) in enumerate(zip(before, now, strict=True))}


@pytest.mark.parametrize(
    ("before", "now", "eta", "published", "expected"),
    [
        ((1, 1.2, 0.8, 1.5), (0.5, 0.9, 0.6, 1.5), 0.5, False, (0.296009, 0.242351, 0.242351, 0.219289)),
        ((1, 1.2, 0.8, 1.5), (0.5, 0.9, 0.6, 1.5), 0.5, True, (0.296009, 0.242351, 0.242351, 0.219289)),
        ((1, 1.2, 0.8, 1.5), (0.5, 0.9, 0.6, 1.5), 1.2, False, (0.367064, 0.227133, 0.227133, 0.178669)),
        ((1, 1.2, 0.8, 1.5), (0.5, 0.9, 0.6, 1.5), 0.0, False, (0.25, 0.25, 0.25, 0.25)),
    ],
)
def test_the_specifications_trust(before, now, eta: float, published: bool, expected):
    shares = list(trust_shares(falls(before, now), eta, published).values())
    assert [share / sum(shares) for share in shares] == pytest.approx(expected, abs=1e-6)


def test_rising_losses_turn_the_published_order_round_and_not_ours():
    rising = falls([0.5, 1.2, 0.8, 1.5], [1, 1.3, 0.9, 1.4])
    published, ours = (list(trust_shares(rising, 0.5, which).values()) for which in (True, False))
    weights = [share / sum(published) for share in published]
    assert (weights[0], weights[3]) == (pytest.approx(0.325915, abs=1e-6), pytest.approx(0.205053, abs=1e-6))
    assert max(ours) == ours[3]
    assert min(ours) == ours[0]


def test_trust_begins_even_and_follows_the_losses_that_are_said():
    rule = TrustFallingLosses(0.5, published=False)
    first = rule({}, {c: {"symmetric_loss": value} for c, value in zip("ab", (2.0, 0.0), strict=True)}, NOW)
    assert [first[c].notes["share"] for c in "ab"] == [1, 1]
    second = rule(first, {"a": {"symmetric_loss": 1.0}, "c": {"symmetric_loss": 3.0}}, NOW)
    assert second["a"].notes["share"] == 1
    assert second["c"].notes["share"] < 1, "it is new: its loss has not fallen yet"
    assert second["b"] == first["b"]
    assert all(share >= 0 for share in trust_shares({"a": 0.0, "b": 0.0}, 0.5, published=False).values())


# FedELC


def learning(step: float = 20.0, count: int = 12) -> tuple[LearnedLabels, Site]:
    return LearnedLabels(0.5, 0.2, step, 10.0, losses.cross_entropy), a_site(count, verdict=Verdict("mislabeled"))


def test_learned_labels_are_the_specifications():
    logits, z = LOGITS.clone().requires_grad_(), 10 * one_hot(LABELS, 3).double()
    z.requires_grad_()
    given = one_hot(LABELS, 3).double()
    loss = joint_loss(logits, z.softmax(dim=1), given, 0.5, 0.2)
    probs, learned = LOGITS.softmax(dim=1), z.detach().softmax(dim=1)
    assert (probs * (probs / learned).log()).sum(dim=1).mean().item() == pytest.approx(6.034793, abs=1e-6)
    assert -(given * learned.log()).sum(dim=1).mean().item() == pytest.approx(0.0000907957, abs=1e-10)
    assert entropy_of(probs).item() == pytest.approx(0.553354, abs=1e-6)
    assert loss.item() == pytest.approx(2.048533, abs=1e-6)
    loss.backward()
    slope = label_slope(probs, learned, given, 0.5) / 2
    torch.testing.assert_close(slope, z.grad)
    expected = [[0.055755, -0.040769, -0.014986], [-0.007750, -0.156021, 0.163771]]
    torch.testing.assert_close(slope, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(slope.sum(dim=1), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)
    moved = z.detach() - 20 * slope
    expected = [[8.884893, 0.815383, 0.299724], [0.154997, 3.120420, 6.724583]]
    torch.testing.assert_close(moved, torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=0)
    new = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]], dtype=torch.float64)
    expected = [[0.749750, 0.150156, 0.100093], [0.050682, 0.413227, 0.536092]]
    torch.testing.assert_close(
        merged(moved.softmax(dim=1), new, 1.0), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_each_row_of_a_batch_moves_its_own_label():
    rule, site = learning()
    rows = torch.tensor([7, 2])
    logits, given = site.net(site.x[rows]), one_hot(site.y, 4).float()
    rule(site, Samples(torch.arange(12), site.y))(Batch(site.x[rows], logits, site.y[rows], rows)).backward()
    z, start = site.memory["label_logits"], 10 * given
    slope = label_slope(logits.detach().softmax(dim=1), start[rows].softmax(dim=1), given[rows], 0.5)
    torch.testing.assert_close(z[rows], start[rows] - 20 * slope)
    others = torch.tensor([row for row in range(12) if row not in (2, 7)])
    assert torch.equal(z[others], start[others])
    assert site.net.weights.grad.abs().sum() > 0


def test_labels_stay_without_a_step_and_are_merged_with_the_new_model():
    rule, site = learning(step=0.0)
    samples, batch = whole(site)
    rule(site, samples)(batch)
    start = 10 * one_hot(site.y, 4).float()
    assert torch.equal(site.memory["label_logits"], start)
    assert MergeLabels(10.0)(site, None) == {}
    expected = 10 * (start.softmax(dim=1) + batch.logits.softmax(dim=1)) / 2
    torch.testing.assert_close(site.memory["label_logits"], expected.detach())


def test_others_train_as_before_and_learn_no_labels():
    rule, _ = learning()
    site = a_site(verdict=Verdict("common"))
    samples, batch = whole(site)
    assert rule(site, samples)(batch) == losses.cross_entropy(site, samples)(batch)
    MergeLabels(10.0)(site, None)
    assert not site.memory


def test_learned_labels_that_have_become_certain_give_finite_slopes():
    """As large steps make them at once."""
    rule, site = learning(step=1e6)
    samples, batch = whole(site)
    of_batch = rule(site, samples)
    for _ in range(3):
        loss = of_batch(batch._replace(logits=site.net(site.x)))
        site.net.weights.grad.zero_()
        loss.backward()
        assert site.net.weights.grad.isfinite().all()


# FedDiv

OWN = filter_of([0.1, 0.6, 0.01, 0.02, 0.7, 0.3])
ANOTHER = filter_of([0.2, 0.8, 0.03, 0.04, 0.5, 0.5])
VALUES = torch.tensor([0.1, 0.3, 0.35, 0.4, 0.6], dtype=torch.float64)


def test_the_specifications_filter():
    chances = clean_chances(OWN, VALUES).tolist()
    assert chances == pytest.approx([0.999415, 0.809053, 0.408872, 0.090617, 0.000012], abs=1e-6)
    one, three = refitted(OWN, VALUES, 1).numbers, refitted(OWN, VALUES, 3).numbers
    assert one == pytest.approx([0.226180, 0.456155, 0.012709, 0.012984, 0.461594, 0.538406], abs=1e-6)
    assert three == pytest.approx([0.238591, 0.443005, 0.015570, 0.015698, 0.454984, 0.545016], abs=1e-6)


def test_the_specifications_joint_filter():
    published, ours = (joint_filter([OWN, ANOTHER], [100, 300], which).numbers for which in (True, False))
    assert published == pytest.approx([0.175, 0.75, 0.0175, 0.02375, 0.55, 0.45], abs=1e-9)
    assert ours == pytest.approx([0.168182, 0.766667, 0.025806, 0.042222, 0.55, 0.45], abs=1e-6)
    for which in (True, False):
        assert joint_filter([OWN], [7], which).numbers == pytest.approx(OWN.numbers)
    alike = joint_filter([OWN] * 5, [3, 1, 4, 1, 5], published=False)
    assert alike.numbers == pytest.approx(OWN.numbers)


def test_the_specifications_debiased_prediction():
    logits, prior = torch.tensor([[2.0, 1.9, 0]], dtype=torch.float64), torch.tensor([0.6, 0.3, 0.1])
    assert set_back(logits, prior, 0.2)[0].tolist() == pytest.approx([0.447819, 0.465456, 0.086725], abs=1e-6)
    for even in (set_back(logits, prior, 0.0), set_back(logits, torch.full((3,), 1 / 3), 0.2)):
        torch.testing.assert_close(even, logits.softmax(dim=1))


def test_published_losses_take_probabilities_for_logits():
    logits = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    for label, published, ours in ((0, 0.767950, 0.356675), (2, 1.367950, 2.302585)):
        values = [sample_losses(logits, torch.tensor([label]), which).item() for which in (True, False)]
        assert values == pytest.approx([published, ours], abs=1e-6)


class Answers(torch.nn.Module):
    """A model whose logits are written in the images."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def with_logits(logits: list[list[float]], labels: list[int], **memory: torch.Tensor) -> Site:
    net = build("mlp", (1, 8, 8), 2, seed=0)
    net = replace(net, module=Answers(), head=None, outputs=len(logits[0]), scale=lambda x: x)
    return Site(net, torch.tensor(logits), torch.tensor(labels), dict(memory), Order(3, 9, Verdict()), stream(0, "t"))


TAKING = ByFilter(0.1, 0.2, 5, 0.0, 0, published=False)


def test_a_filter_takes_clean_samples_then_those_that_two_predictions_agree_on():
    """Four clean samples and two of class 1 whose label says 0."""
    site = with_logits([[3.0, 0], [3, 0], [0, 3], [0, 2.5], [0, 4], [0, 4]], [0, 0, 1, 1, 0, 0])
    young = TAKING(site)
    assert (young.rows.tolist(), young.labels.tolist(), young.size) == ([0, 1, 2, 3], [0, 0, 1, 1], 6)
    site.memory |= {"times": torch.tensor(5), "predicted": torch.tensor([0, 1, 1, 1, 1, 0])}
    settled = TAKING(site)
    assert (settled.rows.tolist(), settled.labels.tolist()) == ([0, 2, 3, 4], [0, 1, 1, 1])
    cautious = replace(TAKING, relabel_from=0.5)(site)
    assert cautious.rows.tolist() == [0, 2, 3]
    few = replace(TAKING, min_samples=4)(site)
    assert (len(few.rows), few.size) == (0, 6)


def test_who_has_few_noisy_samples_or_equal_losses_takes_all():
    few = with_logits([[3.0, 0]] * 19 + [[0, 3]], [0] * 20)
    assert len(TAKING(few).rows) == 20
    equal = with_logits([[0.0, 2]] * 4, [0] * 4)
    assert len(TAKING(equal).rows) == 4
    assert FitFilter(3, 0.2, 0.5, 0.85, published=False)(equal, None) == {"filter": pytest.approx(list(FIRST))}


def test_a_client_keeps_what_its_model_predicts_with_classes_it_knows_well_set_back():
    site = with_logits([[3.0, 0], [3, 0], [0.1, 0]], [0, 1, 0])
    fit = FitFilter(3, 0.2, 0.5, 0.85, published=False)
    report = fit(site, None)
    assert len(report["filter"]) == 6
    sure = torch.tensor([3.0, 0], dtype=torch.float64).softmax(dim=0)
    torch.testing.assert_close(site.memory["prior"], 0.25 + 0.5 * sure)
    assert site.memory["predicted"].tolist() == [0, 0, 0]
    assert site.memory["times"].item() == 1
    fit(site, None)
    assert site.memory["predicted"].tolist() == [0, 0, 1], "class 0 is often predicted"
    assert site.memory["times"].item() == 2


def filtered(server: Server, **updates: tuple[int, list[float] | None]) -> Outcome:
    params, fold = server.params, ShareFilter(WeightedMean(by_size, 1.0), published=False)(server)
    for client, (size, numbers) in updates.items():
        fold.add(client, Update(params, size, report={"filter": numbers} if numbers else {}))
    return fold.finish()


def test_the_servers_filter_is_of_all_who_ever_sent_one_that_can_be():
    start = Server(Params(torch.zeros(1), torch.zeros(0), torch.zeros(0, dtype=torch.int64)))
    one = filtered(start, a=(100, OWN.numbers), b=(300, ANOTHER.numbers), c=(50, [0.5]), d=(9, None))
    joint = joint_filter([OWN, ANOTHER], [100, 300], published=False).numbers
    assert one.shown["filter"].tolist() == pytest.approx(joint)
    known = with_outcome({"a": Verdict(report={"filter": OWN.numbers})}, one)
    later = filtered(replace(start, diagnosis=known, shown=one.shown), b=(300, ANOTHER.numbers))
    assert later.shown["filter"].tolist() == pytest.approx(joint)
    assert filtered(replace(start, shown=one.shown)).shown["filter"] is one.shown["filter"], "nobody trained"
    assert filtered(start, d=(9, None)).shown == {}


# FedRN


def test_the_specifications_neighbours():
    own, scores = neighbour_scores(np.array([0.5, 0.8, 0.6]), np.array([1.0, 0.2, 0.7]), 0, 0.6)
    assert own == pytest.approx(0.4)
    assert scores[1:] == pytest.approx([0.6, 0.45])
    chances = torch.tensor([[0.9, 0.55, 0.2], [0.7, 0.3, 0.6]])
    joint = (own * chances[0] + scores[1] * chances[1]) / (own + scores[1])
    assert joint.tolist() == pytest.approx([0.78, 0.40, 0.44])
    assert likely_rows(joint, 0.5).tolist() == [0]
    assert likely_rows(joint, 0.9).tolist() == [0, 1, 2], "if there is none, all"


def test_the_specifications_two_groups_of_losses():
    values = np.array([0.05, 0.1, 0.12, 0.2, 0.15, 2, 2.4, 1.9])
    found = fit(((values - 0.05) / 2.35)[:, None], 2, 1, "full", 5e-4, 100, 1e-2)
    low = int(found.means[0, :, 0].argmin())
    assert found.means[0, [low, 1 - low], 0] == pytest.approx([0.031489, 0.872340], abs=1e-6)
    assert found.covariances[0, [low, 1 - low], 0, 0] == pytest.approx([0.000953, 0.008950], abs=1e-6)
    assert found.weights[0, [low, 1 - low]] == pytest.approx([0.625, 0.375], abs=1e-6)
    logits = torch.from_numpy(np.stack([np.zeros(8), np.log(np.expm1(values))], axis=1))
    assert (lower_chances(logits, torch.zeros(8, dtype=torch.int64)) > 0.5).tolist() == [True] * 5 + [False] * 3
    assert lower_chances(logits[:1].repeat(3, 1), torch.zeros(3, dtype=torch.int64)).tolist() == [1.0] * 3


def selecting(neighbours: int) -> ReliableNeighbours:
    return ReliableNeighbours(neighbours, 0.5, Descent("sgd", 0.1, 0.9, 0.0), batch=4)


@torch.no_grad()
def test_a_neighbour_is_asked_after_a_lesson_and_the_model_is_as_before():
    site = a_site(30)
    here, other = params_of(site.net), params_of(build("mlp", (1, 8, 8), 4, seed=5))
    alone = selecting(1)(site)
    shown = {"1/weights": other.weights, "1/buffers": other.buffers}
    notes = {"own score": 0.0, "score 1": 1.0}
    site.order = site.order._replace(shown=shown, verdict=Verdict(notes=notes))
    asked, again = (selecting(1)(site) for _ in range(2))
    assert torch.equal(asked.rows, again.rows)
    assert not torch.equal(asked.rows, alone.rows)
    assert asked.size == alone.size == 30
    assert torch.equal(params_of(site.net).weights, here.weights)
    assert torch.equal(selecting(0)(site).rows, alone.rows), "with 0 nobody else is asked"
    site.order = site.order._replace(verdict=Verdict(notes={"own score": 1.0, "score 1": 0.0}))
    assert torch.equal(selecting(1)(site).rows, alone.rows)


@torch.no_grad()
def test_a_client_judges_by_its_own_last_model():
    site, last = a_site(30), params_of(build("mlp", (1, 8, 8), 4, seed=5))
    site.memory |= {"weights": last.weights, "buffers": last.buffers}
    taken = selecting(0)(site)
    net = build("mlp", (1, 8, 8), 4, seed=5)
    expected = likely_rows(lower_chances(net(site.x), site.y), 0.5)
    assert torch.equal(taken.rows, expected)


def test_everybody_answers_the_same_image_and_says_how_often_it_agrees_with_its_labels():
    part = AbilityAndAnswer(seed=3)
    one, two = part(a_site(30), params_of(a_site().net)), part(a_site(12), params_of(a_site().net))
    assert one["answer"] == two["answer"]
    assert len(one["answer"]) == 4
    site = a_site(30)
    assert one["accuracy"] == (site.net(site.x).argmax(dim=1) == site.y).double().mean().item()


def shown(neighbours: int, **told: tuple[float, list[float]]) -> Outcome:
    params = {c: Params(torch.full((1,), float(i)), torch.zeros(0), COUNTERS) for i, c in enumerate(told)}
    fold = ShowNeighbours(WeightedMean(by_size, 1.0), neighbours, 0.6)(
        Server(Params(torch.zeros(1), torch.zeros(0), COUNTERS))
    )
    for client, (accuracy, answer) in told.items():
        fold.add(client, Update(params[client], 5, report={"accuracy": accuracy, "answer": answer}))
    return fold.finish()


COUNTERS = torch.zeros(0, dtype=torch.int64)


def test_able_clients_that_answer_alike_are_shown_and_none_is_shown_its_own_model():
    outcome = shown(1, a=(0.5, [1.0, 0.0]), b=(0.8, [1.0, 0.1]), c=(0.6, [-1.0, 0.0]))
    assert outcome.shown_to["a"] == {"1/weights": "weights of b", "1/buffers": "buffers of b"}
    assert outcome.shown_to["c"]["1/weights"] == "weights of b"
    assert outcome.shown_to["b"]["1/weights"] in ("weights of a", "weights of c")
    assert outcome.memory["weights of b"].item() == 1
    assert outcome.notes["b"]["own score"] == 1.0
    every = shown(9, a=(0.5, [1.0, 0.0]), b=(0.5, [1.0, 0.0]))
    assert set(every.shown_to["a"].values()) == {"weights of b", "buffers of b"}
    assert shown(2, a=(0.5, [1.0, 0.0])).shown_to == {"a": {}}
    assert shown(2, a=(0.5, [1.0]), b=(0.5, [1.0, 2.0]), c=(0.5, [0.0, 0.0])).shown_to.keys() == {"b", "c"}
