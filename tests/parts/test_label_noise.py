"""The rivals against label noise: the vectors of the specification, and what each part becomes without its strength."""

from __future__ import annotations

from math import log

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedpca.core import Order, Params, Samples, Site, Update, Verdict, When
from fedpca.models.build import build
from fedpca.parts.client import loss as losses
from fedpca.parts.client.energy import Energies, HighEnergies, energies, spread_quantiles
from fedpca.parts.client.loss import Batch, LogitAdjustment
from fedpca.parts.client.self_regularised import SelfRegularised
from fedpca.parts.client.symmetric import SymmetricCrossEntropy, SymmetricMix, reverse_cross_entropy
from fedpca.parts.client.view import View, kind_of, turned_hue
from fedpca.parts.server.energy import ByCleanShare, NoteHighEnergy, energy_level
from fedpca.parts.server.trust import TrustFallingLosses, trust_shares
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
    probs, hot = LOGITS.softmax(dim=1), torch.nn.functional.one_hot(LABELS, 3)
    expected = log(1e-4) * probs.gather(1, LABELS[:, None]) * (hot - probs) / 2
    torch.testing.assert_close(logits.grad, expected)


def test_without_its_reverse_it_is_a_share_of_cross_entropy():
    assert SymmetricMix(0.3, 0.0, 1e-4)(LOGITS, LABELS) == 0.3 * cross_entropy(LOGITS, LABELS)
    only = SymmetricMix(0.0, 1.0, 1e-4)(LOGITS, LABELS)
    assert 0 <= only <= -log(1e-4)


def test_shares_of_classes_are_labels_too():
    """As mixup makes them."""
    hot = torch.nn.functional.one_hot(LABELS, 3).double()
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


def regularised(view=VIEW, divergence=0.4, sharpening=3.0, warmup=0.2, entropy=0.3, published=True) -> SelfRegularised:
    return SelfRegularised(view, divergence, sharpening, warmup, entropy, published, losses.cross_entropy)


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
    assert regularised(warmup=0.0).divergence_in(1, 100) == 0.4


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
