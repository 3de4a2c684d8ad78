import itertools
from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Order, Site, Verdict
from fedpca.models.build import build
from fedpca.parts.client.labels import label_slope, label_slopes
from fedpca.parts.client.report import (
    FLOOR,
    PerformanceAndCapacity,
    Sharpness,
    confident_share,
    dispersion,
)

SQUARE = torch.tensor([[0.0, 0], [2, 0], [0, 4], [2, 4]])
PAIRS = torch.tensor([0, 0, 1, 1])


def site_of(count: int = 40, seed: int = 0, round: int = 5, rounds: int = 10) -> Site:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 4, (count,), generator=rng)
    return Site(build("cnn-small", (1, 8, 8), 4, seed=1), x, y, {}, Order(round, rounds, Verdict()), rng)


def report(site: Site, **options: object):
    with torch.no_grad():
        return PerformanceAndCapacity(
            **{
                "per_sample": True,
                "denominator": "all",
                "confidence": None,
                "labels": None,
                "augment": None,
                **options,
            }
        )(site)


def test_the_specifications_dispersions():
    assert dispersion(SQUARE, PAIRS, 2, per_sample=False, denominator="all") == pytest.approx(2.772589, abs=1e-6)
    assert dispersion(SQUARE, PAIRS, 10, per_sample=False, denominator="all") == pytest.approx(0.575364, abs=1e-6)
    assert dispersion(SQUARE, PAIRS, 10, per_sample=False, denominator="predicted") == pytest.approx(2.772589, abs=1e-6)
    assert dispersion(SQUARE, PAIRS, 2, per_sample=True, denominator="all") == pytest.approx(1.386294, abs=1e-6)
    uneven = torch.tensor([[0.0, 0], [0, 0], [0, 0], [3, 4]])
    assert dispersion(uneven, torch.tensor([0, 0, 0, 1]), 2, per_sample=False, denominator="all") == pytest.approx(
        2.931194, abs=1e-6
    )


@given(st.integers(0, 10**6))
def test_dispersion_ignores_order_place_rotation_and_the_names_of_classes(seed: int):
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(30, 3, generator=rng, dtype=torch.float64)
    predicted = torch.randint(0, 4, (30,), generator=rng)
    value = dispersion(features, predicted, 4, per_sample=True, denominator="all")
    order = torch.randperm(30, generator=rng)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=rng, dtype=torch.float64))[0]
    renamed = torch.randperm(4, generator=rng)[predicted]
    for changed in (
        dispersion(features[order], predicted[order], 4, per_sample=True, denominator="all"),
        dispersion(features @ rotation + 5, predicted, 4, per_sample=True, denominator="all"),
        dispersion(features, renamed, 4, per_sample=True, denominator="all"),
        dispersion(
            torch.cat([features, features]), torch.cat([predicted, predicted]), 4, per_sample=True, denominator="all"
        ),
        dispersion(3 * features, predicted, 4, per_sample=True, denominator="all") - 2 * log(3),
    ):
        assert changed == pytest.approx(value, abs=1e-9)


def test_doubling_the_data_adds_ln_2_unless_divided_by_size():
    twice = (torch.cat([SQUARE, SQUARE]), torch.cat([PAIRS, PAIRS]), 2)
    assert dispersion(*twice, per_sample=False, denominator="all") - dispersion(
        SQUARE, PAIRS, 2, per_sample=False, denominator="all"
    ) == pytest.approx(log(2))


def test_one_predicted_class_gives_the_floor():
    assert dispersion(SQUARE, torch.zeros(4, dtype=torch.int64), 3, per_sample=True, denominator="all") == log(FLOOR)
    assert dispersion(SQUARE, torch.zeros(4, dtype=torch.int64), 3, denominator="predicted", per_sample=True) == log(
        FLOOR
    )


def test_large_offsets_do_not_swallow_the_spread():
    assert dispersion(SQUARE.double() + 1e6, PAIRS, 2, per_sample=True, denominator="all") == pytest.approx(
        1.386294, abs=1e-6
    )


def test_labels_change_the_loss_and_not_the_dispersion():
    site = site_of()
    before = report(site)
    site.given = (site.y + 1) % 4
    after = report(site)
    assert after["dispersion"] == before["dispersion"]
    assert after["loss"] != before["loss"]


def test_the_model_is_not_touched():
    site = site_of()
    state = {name: tensor.clone() for name, tensor in site.net.module.state_dict().items()}
    report(site, confidence="quantile", labels=label_slopes)
    assert all(torch.equal(tensor, site.net.module.state_dict()[name]) for name, tensor in state.items())


def test_only_what_is_asked_for_leaves_the_client():
    assert set(report(site_of())) == {"loss", "dispersion"}
    assert set(report(site_of(), confidence="quantile")) == {"loss", "dispersion", "confidence"}
    assert set(report(site_of(), labels=label_slopes)) == {"loss", "dispersion", "slope", "slope_error"}


def test_no_sample_predicted_as_labelled_means_no_quantile():
    site = site_of()
    with torch.no_grad():
        site.given = (site.net(site.x).argmax(dim=1) + 1) % 4
    assert "confidence" not in report(site, confidence="quantile")


@pytest.mark.parametrize(
    ("share", "first", "second"), [(0.05, 0.983, 0.9765), (0.5, 0.85, 0.85), (0.9, 0.57, 0.52), (1.0, 0.5, 0.4)]
)
def test_the_specifications_quantiles(share: float, first: float, second: float):
    one = torch.tensor([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99], dtype=torch.float64)
    two = torch.tensor([0.4, 0.8, 0.9, 0.99], dtype=torch.float64)
    assert confident_share(one, share, "quantile") == pytest.approx(first, abs=1e-9)
    assert confident_share(two, share, "quantile") == pytest.approx(second, abs=1e-9)
    assert confident_share(one, share, "top-mean") >= first


def test_the_threshold_falls_as_rounds_go_by():
    agreeing = torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for reading in ("quantile", "top-mean"):
        levels = [confident_share(agreeing, t / 40, reading) for t in range(1, 41)]
        assert all(later <= earlier for earlier, later in itertools.pairwise(levels))


def test_augmented_reports_draw_from_the_clients_own_generator():
    from fedpca.parts.client.augment import CropFlip

    plain, one, same = (
        report(site_of(), augment=augment)["loss"] for augment in (None, CropFlip(pad=2), CropFlip(pad=2))
    )
    assert one == same != plain


def calibrated(seed: int, sharpness: float, count: int = 4000, classes: int = 5):
    """Probabilities, and labels drawn from them."""
    rng = torch.Generator().manual_seed(seed)
    probs = (sharpness * torch.randn(count, classes, generator=rng, dtype=torch.float64)).softmax(dim=1)
    return probs, torch.multinomial(probs, 1, generator=rng).flatten(), rng


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 8.0])
def test_the_slope_of_labels_drawn_as_the_model_says_is_one(sharpness: float):
    probs, labels, _ = calibrated(1, sharpness)
    slope, error = label_slope(probs, labels).values()
    assert abs(slope - 1) < 4 * error


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_random_labels_take_their_share_of_the_slope_however_sure_the_model_is(sharpness: float, share: float):
    probs, labels, rng = calibrated(2, sharpness, count=20000)
    clean, _ = label_slope(probs, labels).values()
    spoiled = torch.rand(len(labels), generator=rng) < share
    labels = torch.where(spoiled, torch.randint(0, 5, (len(labels),), generator=rng), labels)
    slope, error = label_slope(probs, labels).values()
    assert slope / clean == pytest.approx(1 - share, abs=5 * error)


def test_less_sure_than_it_could_be_is_a_slope_above_one():
    probs, labels, _ = calibrated(3, 2.0)
    flat = probs.log().div(4).softmax(dim=1)
    assert label_slope(flat, labels)["slope"] > 1.5


def test_equal_probabilities_for_all_tell_nothing():
    assert label_slope(torch.full((10, 5), 0.2, dtype=torch.float64), torch.arange(10) % 5) == {}


def test_sharpness_is_the_rise_along_the_gradient():
    site = site_of()
    weights = site.net.weights.detach().clone()
    with torch.no_grad():
        rise = Sharpness(0.05, growth=0.0)(site)["sharpness"]
    assert torch.equal(site.net.weights, weights), "the model is as it was"
    plain = site_of().net
    loss = torch.nn.functional.cross_entropy(plain(site.x), site.y)
    loss.backward()
    with torch.no_grad():
        plain.weights.add_(plain.weights.grad, alpha=0.05 / plain.weights.grad.norm().item())
        risen = torch.nn.functional.cross_entropy(plain(site.x), site.y)
    assert rise == pytest.approx((risen - loss).item(), rel=1e-3)
