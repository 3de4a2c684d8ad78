"""FedPCA's weights: the specification's numbers, and what must hold for any."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Params, Server, Update, Verdict, When
from fedpca.parts.server.aggregate import WeightedMean, WithoutTheMislabeled
from fedpca.parts.server.agnostic import Ascend
from fedpca.parts.server.weigh import ByCapacity, ByLoss, ByReliabilityAndCapacity, BySharpness, ByTilt, by_size

TWELVE = [6.50, 6.52, 6.48, 6.51, 6.49, 6.53, 6.00, 5.98, 6.02, 6.42, 6.40, 6.44]


def state(value: float) -> Params:
    return Params(torch.tensor([float(value)]), torch.empty(0), torch.empty(0, dtype=torch.int64))


def shares(rule: WeightedMean, dispersions, sizes, reliabilities=None, groups=None, last=None):
    """The weights; a size of 0 is a client that trained on nothing."""
    count = len(sizes)
    reliabilities, groups, last = reliabilities or [1.0] * count, groups or [None] * count, last or [None] * count
    diagnosis = {
        str(i): Verdict(group=groups[i], weight=last[i], report={"dispersion": float(dispersions[i])})
        for i in range(count)
    }
    fold = rule(Server(state(-1), diagnosis=diagnosis))
    for i in range(count):
        fold.add(str(i), Update(state(i) if sizes[i] else None, sizes[i], reliabilities[i]))
    outcome = fold.finish()
    return [outcome.weights[str(i)] for i in range(count)], outcome.params.weights.item()


def full(q: float, max_lift: float = 5.0, **options: object) -> WeightedMean:
    return WeightedMean(ByReliabilityAndCapacity(q, max_lift), **{"smoothing": 1.0, **options})


def test_the_specifications_three_clients():
    assert shares(full(1), [2, 1, 2], [100, 100, 0])[0] == pytest.approx([0.268941, 0.731059, 0], abs=1e-6)
    assert shares(full(1), [2, 1, 2], [100, 100, 40], [1, 1, 0.95])[0] == pytest.approx(
        [0.244005, 0.663274, 0.092722], abs=1e-6
    )
    assert shares(full(1), [9, 8, 9], [100, 100, 0])[0] == pytest.approx([0.268941, 0.731059, 0], abs=1e-6)
    bare = WeightedMean(ByCapacity(1, max_lift=5.0), smoothing=1.0)
    assert shares(bare, [2, 1, 2], [100, 100, 100])[0] == pytest.approx([0.211942, 0.576117, 0.211942], abs=1e-6)
    assert shares(full(0), [2, 1, 2], [100, 300, 0])[0] == pytest.approx([0.25, 0.75, 0], abs=1e-6)


def test_the_specifications_twelve_clients():
    dropped, _ = shares(full(3), TWELVE, [100] * 9 + [0] * 3)
    expected = [0.051601, 0.048596, 0.054791, 0.050076, 0.053172, 0.047159, 0.231258, 0.245558, 0.217790, 0, 0, 0]
    assert dropped == pytest.approx(expected, abs=1e-6)
    assert sum(dropped[6:9]) == pytest.approx(0.694606, abs=1e-6)
    confident, _ = shares(full(3), TWELVE, [100] * 9 + [40, 50, 60], [1] * 9 + [0.95, 0.96, 0.97])
    assert sum(confident[6:9]) == pytest.approx(0.634740, abs=1e-6)
    assert confident[9:] == pytest.approx([0.022779, 0.030552, 0.032855], abs=1e-6)


def test_at_the_papers_scale():
    weights, _ = shares(full(3), [6.515] * 35 + [6.0] * 5, [1000] * 40)
    assert sum(weights[35:]) == pytest.approx(0.401, abs=5e-4)


def test_the_specifications_smoothing():
    rule = WeightedMean(by_size, smoothing=0.5)
    weights, value = shares(rule, [1] * 4, [10, 10, 0, 0], last=[0.25] * 4)
    assert weights == pytest.approx([0.375, 0.375, 0.125, 0.125])
    assert value == pytest.approx(0.375 * 0 + 0.375 * 1 + 0.25 * -1)  # who trained on nothing stands for the old model
    masked = WithoutTheMislabeled(WeightedMean(by_size, smoothing=0.5))
    groups = ["common", "common", "mislabeled", "mislabeled"]
    weights, value = shares(masked, [1] * 4, [10, 10, 0, 0], groups=groups, last=[0.25] * 4)
    assert weights == [0.5, 0.5, 0, 0]
    assert value == 0.5


def test_the_first_round_of_a_stage_is_not_smoothed():
    assert shares(full(1, smoothing=0.5), [2, 1], [5, 5])[0] == pytest.approx(shares(full(1), [2, 1], [5, 5])[0])


def test_who_is_newly_dropped_leaves_after_the_smoothing():
    diagnosis = {
        str(i): Verdict(weight=last, group="mislabeled" if i == 2 else None) for i, last in enumerate((0.1, 0.4, 0.5))
    }
    fold = WithoutTheMislabeled(WeightedMean(by_size, smoothing=0.5))(Server(state(0), diagnosis=diagnosis))
    for i in range(3):
        fold.add(str(i), Update(state(1), 10 if i < 2 else 0))
    smoothed = [(0.5 + 0.1) / 2, (0.5 + 0.4) / 2]  # and .25, which goes
    assert fold.finish().weights == pytest.approx({"0": smoothed[0] / 0.75, "1": smoothed[1] / 0.75, "2": 0.0})


def test_a_client_without_a_last_weight_takes_its_new_one_for_it():
    rule = WeightedMean(by_size, smoothing=0.5)
    weights, _ = shares(rule, [1] * 10, [5] * 10, last=[0.3] + [None] * 9)
    assert weights == pytest.approx([0.1] * 10)
    weights, value = shares(rule, [1] * 3, [10, 10, 20], last=[0.75, 0.25, None])
    assert weights == pytest.approx([0.125 + 0.25 * 0.75, 0.125 + 0.25 * 0.25, 0.5])
    assert value == pytest.approx(weights[1] + 2 * weights[2])


def test_a_dispersion_that_is_not_finite_counts_as_none_and_large_q_does_not_overflow():
    weights, _ = shares(full(1), [float("nan"), 1.0, 1.0], [10, 10, 10])
    assert weights == pytest.approx([1 / 3] * 3)
    weights, _ = shares(full(500), [0.0, 3.0, 6.0], [10, 10, 10])
    assert weights == pytest.approx([5 / 6, 1 / 6, 0])
    weights, _ = shares(full(1), [float("nan"), 0.0, 1.0, 2.0], [10] * 4)
    assert weights[0] == weights[2], "who reported no dispersion counts as the median client"


def test_equal_weights_are_approached_geometrically():
    rule, last = WeightedMean(by_size, smoothing=0.25), [0.9, 0.1]
    for step in range(1, 6):
        last = shares(rule, [1, 1], [7, 7], last=last)[0]
        assert last[0] - 0.5 == pytest.approx(0.4 * 0.75**step)


def test_nobody_with_samples_keeps_the_model():
    assert shares(full(1), [1, 2], [0, 0]) == ([0, 0], -1)
    weights, value = shares(full(1, smoothing=0.5), [1, 2], [0, 0], last=[0.5, 0.5])
    assert value == -1
    assert sum(weights) == pytest.approx(1)


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.integers(1, 500), st.floats(0.5, 1)), min_size=2, max_size=8),
    st.floats(0, 4),
    st.floats(-50, 50),
)
def test_weights_are_shares_that_ignore_a_common_shift(clients, q: float, shift: float):
    dispersions, sizes, trust = zip(*clients, strict=True)
    weights, _ = shares(full(q), dispersions, sizes, trust)
    assert sum(weights) == pytest.approx(1, abs=1e-12)
    assert min(weights) >= 0
    moved, _ = shares(full(q), [s + shift for s in dispersions], sizes, trust)
    assert moved == pytest.approx(weights, rel=1e-6)
    backwards, _ = shares(full(q), dispersions[::-1], sizes[::-1], trust[::-1])
    assert backwards[::-1] == pytest.approx(weights, abs=1e-12)


def test_less_dispersion_weighs_more():
    weights, _ = shares(full(2), [1.0, 0.5, 0.0], [10, 10, 10])
    assert weights[0] < weights[1] < weights[2]


COLLAPSED = log(1e-12)  # all predictions in one class


@pytest.mark.parametrize("rule", [ByReliabilityAndCapacity, ByCapacity])
@pytest.mark.parametrize("q", [0.4, 1, 3, 50])
def test_a_collapsed_client_weighs_as_much_as_five_others_whatever_q_is(rule, q: float):
    weights, _ = shares(WeightedMean(rule(q, max_lift=5.0), smoothing=1.0), [6.0] * 49 + [COLLAPSED], [10] * 50)
    assert weights[-1] == pytest.approx(5 / (49 + 5))


@pytest.mark.parametrize("count", [1, 5, 24, 25])
def test_up_to_half_of_the_clients_cannot_draw_the_bound_after_them(count: int):
    weights, _ = shares(full(3), [COLLAPSED] * count + [6.0] * (50 - count), [10] * 50)
    assert weights[0] == pytest.approx(5 * weights[-1])


def test_of_two_clients_neither_takes_all():
    assert shares(full(3), [COLLAPSED, 6.0], [10, 10])[0] == pytest.approx([5 / 6, 1 / 6])


def test_those_judged_mislabeled_do_not_say_what_is_usual():
    groups = ["common"] * 3 + ["mislabeled"] * 7
    weights, _ = shares(full(3), [6.0, 6.0, COLLAPSED] + [-20.0] * 7, [10] * 3 + [0] * 7, groups=groups)
    assert weights[:3] == pytest.approx([1 / 7, 1 / 7, 5 / 7]), "as without the seven, who are dropped"
    everybody = WeightedMean(ByCapacity(3, max_lift=5.0), smoothing=1.0)
    weights, _ = shares(everybody, [6.0, 6.0, COLLAPSED] + [-20.0] * 7, [10] * 10, groups=groups)
    assert weights[3] == pytest.approx(weights[2] / 5), "where nobody is dropped, they are as usual as the others"


def median_of(values) -> float:
    """The lower median: at least half of the values are as large."""
    return sorted(values)[(len(values) - 1) // 2]


anybody = st.tuples(
    st.floats(COLLAPSED, 30), st.integers(1, 500), st.floats(0.5, 1), st.sampled_from(["common", "rare", "mislabeled"])
)


@given(st.lists(anybody, min_size=1, max_size=9), st.floats(0, 10), st.floats(1, 20))
def test_no_weight_per_image_exceeds_the_bound_on_the_median_clients(clients, q: float, max_lift: float):
    dispersions, sizes, trust, groups = zip(*clients, strict=True)
    weights, _ = shares(full(q, max_lift), dispersions, sizes, trust, groups)
    each = [weight / size / r for weight, size, r in zip(weights, sizes, trust, strict=True)]
    usual = [value for value, group in zip(each, groups, strict=True) if group != "mislabeled"] or each
    assert max(each) <= max_lift * median_of(usual) * (1 + 1e-9)


@given(
    st.lists(st.tuples(st.floats(COLLAPSED, 30), st.floats(COLLAPSED, 30)), min_size=1, max_size=9), st.floats(0, 10)
)
def test_smoothed_weights_keep_to_the_bound_on_the_smoothed_median(clients, q: float):
    first, second = zip(*clients, strict=True)
    sizes = [10 + i for i in range(len(clients))]
    before, fresh = (shares(full(q), dispersions, sizes)[0] for dispersions in (first, second))
    smoothed, _ = shares(full(q, smoothing=0.5), second, sizes, last=before)
    medians = [median_of([w / n for w, n in zip(weights, sizes, strict=True)]) for weights in (before, fresh)]
    each = [weight / size for weight, size in zip(smoothed, sizes, strict=True)]
    assert max(each) <= 5 * (0.5 * medians[0] + 0.5 * medians[1]) * (1 + 1e-9)


def test_a_client_that_stays_collapsed_gains_nothing_by_the_smoothing():
    last = None
    for _ in range(20):
        last, _ = shares(full(3, smoothing=0.5), [6.0] * 49 + [COLLAPSED], [10] * 50, last=last)
        assert last[-1] == pytest.approx(5 / (49 + 5))


@given(st.lists(st.tuples(st.floats(-3, 30), st.integers(1, 500)), min_size=1, max_size=9))
def test_without_fairness_every_image_weighs_the_same(clients):
    dispersions, sizes = zip(*clients, strict=True)
    assert shares(full(0), dispersions, sizes)[0] == pytest.approx([size / sum(sizes) for size in sizes])


def test_a_very_large_dispersion_is_left_to_the_paper():
    weights, _ = shares(full(1), [6.0] * 9 + [12.0], [10] * 10)
    assert weights[-1] / weights[0] == pytest.approx(0.0024788, abs=1e-7)  # e^-6


def test_ablations():
    assert shares(full(0), [1, 5], [30, 10])[0] == [0.75, 0.25]  # without fairness, dispersion does not count
    bare = WeightedMean(ByCapacity(1, max_lift=5.0), smoothing=1.0)
    assert shares(bare, [1, 1], [30, 10])[0] == [0.5, 0.5]  # without robustness, size does not


def test_without_dispersions_size_decides():
    fold = full(3)(Server(state(0)))
    for client, size in (("a", 10), ("b", 30)):
        fold.add(client, Update(state(1), size))
    assert fold.finish().weights == {"a": 0.25, "b": 0.75}


def by_report(rule: WeightedMean, key: str, values, sizes=None, last=None) -> list[float]:
    """The weights when clients report these values of one number."""
    sizes, last = sizes or [1] * len(values), last or [None] * len(values)
    diagnosis = {str(i): Verdict(report={key: float(v)}, weight=last[i]) for i, v in enumerate(values)}
    fold = rule(Server(state(-1), diagnosis=diagnosis))
    for i, size in enumerate(sizes):
        fold.add(str(i), Update(state(i), size))
    return list(fold.finish().weights.values())


def test_the_specifications_loss_weights():
    def weights(q: float, sizes=None, by_size: bool = True) -> list[float]:
        return by_report(WeightedMean(ByLoss(q, by_size), smoothing=1.0), "loss", [0.5, 1, 2], sizes)

    assert weights(1) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert weights(2) == pytest.approx([0.047619, 0.190476, 0.761905], abs=1e-6)
    assert weights(0, [2, 1, 1]) == pytest.approx([0.5, 0.25, 0.25])
    assert weights(1, [2, 1, 1]) == pytest.approx([0.25, 0.25, 0.5])
    assert weights(2, [2, 1, 1]) == pytest.approx([0.090909, 0.181818, 0.727273], abs=1e-6)
    assert weights(1, [2, 1, 1], by_size=False) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert weights(500) == pytest.approx([0, 0, 1])


def test_loss_weights_ignore_the_scale_of_losses():
    one, ten = (
        by_report(WeightedMean(ByLoss(1.7, by_size=True), smoothing=1.0), "loss", [c * 0.3, c * 1.1, c * 0.7])
        for c in (1, 10)
    )
    assert one == pytest.approx(ten)


def test_the_specifications_sharpness_weights():
    def weights(q: float, values, **options: object) -> list[float]:
        return by_report(WeightedMean(BySharpness(q), **{"smoothing": 1.0, **options}), "sharpness", values)

    assert weights(2, [0.01, 0.02, 0.07]) == pytest.approx([0.018519, 0.074074, 0.907407], abs=1e-6)
    smoothed = by_report(WeightedMean(BySharpness(2), 0.5), "sharpness", [0.01, 0.02, 0.07], last=[1 / 3] * 3)
    assert smoothed == pytest.approx([0.175926, 0.203704, 0.620370], abs=1e-6)
    assert weights(1, [0.01, -0.02, 0.03]) == pytest.approx([0.25, 0, 0.75], abs=1e-6)
    assert weights(0, [0.01, 0.02, 0.07]) == pytest.approx([1 / 3] * 3)
    assert by_report(WeightedMean(BySharpness(1), smoothing=1.0), "sharpness", [0.2, 0.2], [1, 9]) == pytest.approx(
        [0.5, 0.5]
    )


def tilted(tilt: float, by_size: bool, sizes=(2, 1, 1), losses=(0.5, 1.0, 2.0)) -> list[float]:
    known = {str(i): Verdict(report={"loss": loss}) for i, loss in enumerate(losses)}
    count = ByTilt(tilt, by_size)(known)
    counts = [count(str(i), Update(None, size)) for i, size in enumerate(sizes)]
    return [own / sum(counts) for own in counts]


@pytest.mark.parametrize(
    ("tilt", "expected"),
    [(0.1, (0.474709, 0.249524, 0.275767)), (1, (0.245990, 0.202785, 0.551225)), (-1, (0.706798, 0.214347, 0.078854))],
)
def test_the_specifications_tilted_weights(tilt: float, expected):
    assert tilted(tilt, by_size=True) == pytest.approx(expected, abs=1e-6)
    if tilt == 1:
        assert tilted(1, by_size=False) == pytest.approx((0.140244, 0.231224, 0.628532), abs=1e-6)


def test_a_tilt_of_nothing_is_size_and_a_large_one_the_largest_loss_whatever_is_added_to_all():
    assert tilted(0, by_size=True) == [0.5, 0.25, 0.25]
    assert tilted(1e4, by_size=True) == [0, 0, 1]
    assert tilted(-1e4, by_size=True) == [1, 0, 0]
    assert tilted(1, True, losses=(7.5, 8.0, 9.0)) == pytest.approx(tilted(1, True))
    assert tilted(1, True, losses=(1e6, 0.0, 0.0)) == [1, 0, 0], "no power overflows"


def test_without_sizes_a_tilt_is_one_exponentiated_step_of_afl_from_uniform():
    losses = (0.5, 1.0, 2.0)
    moved = Ascend(0.7, exponentiated=True)({}, {str(i): {"loss": loss} for i, loss in enumerate(losses)}, When(1, 9))
    assert tilted(0.7, False) == pytest.approx([verdict.notes["share"] / 3 for verdict in moved.values()])
