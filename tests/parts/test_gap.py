"""FedGA's weights: the specification's numbers, and what must hold for any."""

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedpca.core import Order, Params, Server, Site, Update, Verdict, When
from fedpca.models.build import build
from fedpca.parts.client.gap import Gap, KeepOwnLevel, badness
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.gap import RaiseByGap, by_share

SECOND = When(2, 100)  # r = 1 of T = 100: a step of .05 x 99 / 100


def known(shares) -> dict[str, Verdict]:
    """Opinions with these shares of the whole; the notes count them so that they are 1 on average."""
    return {str(i): Verdict(notes={"share": share * len(shares)}) for i, share in enumerate(shares)}


def reported(gaps) -> dict[str, dict[str, float]]:
    return {str(i): {"loss": 1.0} | ({} if gap is None else {"gap": float(gap)}) for i, gap in enumerate(gaps)}


def stored(diagnosis) -> list[float]:
    return [verdict.notes["share"] / len(diagnosis) for verdict in diagnosis.values()]


def effective(diagnosis, sizes=None) -> list[float]:
    """The weights that an aggregation under these opinions gives."""
    start = Params(torch.zeros(1), torch.empty(0), torch.empty(0, dtype=torch.int64))
    fold = WeightedMean(by_share, smoothing=1.0)(Server(start, diagnosis=diagnosis))
    for i, client in enumerate(diagnosis):
        own = Params(torch.tensor([float(i)]), torch.empty(0), torch.empty(0, dtype=torch.int64))
        fold.add(client, Update(own, sizes[i] if sizes else 1))
    return list(fold.finish().weights.values())


def test_the_specifications_step():
    after = RaiseByGap(step=0.05, center_gaps=True)({}, reported([0.1, 0.2, 0.3, 0.6]), SECOND)
    assert stored(after) == pytest.approx([0.241750, 0.245875, 0.25, 0.262375], abs=1e-9)
    assert effective(after) == pytest.approx([0.241750, 0.245875, 0.25, 0.262375], abs=1e-9)


def test_the_specifications_clip():
    after = RaiseByGap(step=0.05, center_gaps=True)(
        known([0.004, 0.332, 0.332, 0.332]), reported([-0.9, 0.3, 0.3, 0.3]), SECOND
    )
    assert stored(after) == pytest.approx([0, 0.336125, 0.336125, 0.336125], abs=1e-9)
    assert effective(after) == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=1e-9)


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([0.1, -0.2, 0.4], [0.333333, 0.285714, 0.380952]),  # losses, after less before
        ([0.9 - 0.8, 0.9 - 0.9, 0.9 - 0.5], [0.323077, 0.307692, 0.369231]),  # accuracies, before less after
    ],
)
def test_the_specifications_official_steps(gaps: list[float], expected: list[float]):
    after = RaiseByGap(0.2, center_gaps=False)({}, reported(gaps), When(1, 100))
    assert effective(after) == pytest.approx(expected, abs=1e-6)


def by_the_formula(shares: list[float], gaps: list[float], r: int, rounds: int) -> list[float]:
    """Section 3.5 of the specification, word for word; r counts from 0."""
    count, mean = len(gaps), sum(gaps) / len(gaps)
    centred = [gap - mean for gap in gaps]
    largest = max(map(abs, centred))
    step = 0.05 * (rounds - r) / rounds
    moved = [w + step / count * gap / largest for w, gap in zip(shares, centred, strict=True)]
    return [max(w / sum(moved), 0) for w in moved]


GAPS = st.lists(st.integers(-30, 30).map(lambda n: n / 10), min_size=2, max_size=6)


@given(st.lists(GAPS, min_size=1, max_size=5).filter(lambda rounds: all(len(set(gaps)) > 1 for gaps in rounds)))
def test_rounds_in_a_row_are_the_formulas(rounds: list[list[float]]):
    count = min(map(len, rounds))
    rounds = [gaps[:count] for gaps in rounds if len(set(gaps[:count])) > 1]
    diagnosis, shares = known([1 / count] * count), [1 / count] * count
    for r, gaps in enumerate(rounds, start=1):
        diagnosis = RaiseByGap(step=0.05, center_gaps=True)(diagnosis, reported(gaps), When(r + 1, 10))
        shares = by_the_formula(shares, gaps, r, 10)
        assert stored(diagnosis) == pytest.approx(shares, abs=1e-12)
        assert effective(diagnosis) == pytest.approx([w / sum(shares) for w in shares], abs=1e-12)


@given(GAPS)
def test_centred_gaps_keep_the_sum_before_clipping(gaps: list[float]):
    """Starting even, a step of 5 % clips nobody."""
    after = RaiseByGap(step=0.05, center_gaps=True)(known([1 / len(gaps)] * len(gaps)), reported(gaps), SECOND)
    assert sum(stored(after)) == pytest.approx(1, abs=1e-12)


@example(0.1, 3)  # whose mean is not quite 0.1
@given(st.floats(-5, 5), st.integers(1, 6))
def test_equal_gaps_change_nothing(gap: float, count: int):
    shares = [(i + 1) / (count * (count + 1) / 2) for i in range(count)]
    before = known(shares)
    assert stored(RaiseByGap(step=0.05, center_gaps=True)(before, reported([gap] * count), SECOND)) == pytest.approx(
        shares, abs=1e-12
    )


def test_no_gap_at_all_changes_nothing_uncentred():
    assert stored(RaiseByGap(0.2, center_gaps=False)(known([0.2, 0.8]), reported([0, 0]), SECOND)) == [0.2, 0.8]


@given(st.permutations(range(4)))
def test_permuting_clients_permutes_their_shares(order: list[int]):
    gaps, shares = [0.1, 0.2, -0.3, 0.6], [0.1, 0.2, 0.3, 0.4]
    plain = stored(RaiseByGap(step=0.05, center_gaps=True)(known(shares), reported(gaps), SECOND))
    turned = stored(
        RaiseByGap(step=0.05, center_gaps=True)(
            known([shares[i] for i in order]), reported([gaps[i] for i in order]), SECOND
        )
    )
    assert turned == pytest.approx([plain[i] for i in order])


def test_the_step_shrinks_evenly_over_the_run():
    """d_r = .05 (T - r) / T, r from 0: all of it in the first round, one part in T of it in the last."""
    for round in (1, 2, 51, 100):
        after = stored(RaiseByGap(step=0.05, center_gaps=True)({}, reported([-1, 1]), When(round, 100)))
        assert after[1] - 0.5 == pytest.approx(0.05 * (100 - (round - 1)) / 100 / 2)


def test_sizes_do_not_count():
    assert effective(known([0.25, 0.75]), sizes=[900, 100]) == pytest.approx([0.25, 0.75])


def test_only_those_with_a_gap_move():
    after = RaiseByGap(step=0.05, center_gaps=True)(known([0.2, 0.3, 0.5]), reported([0.1, None, 0.1]), SECOND)
    assert stored(after) == pytest.approx([0.2, 0.3, 0.5])
    moved = RaiseByGap(step=0.05, center_gaps=True)({}, reported([0.1, None, 0.5]), SECOND)
    assert "share" not in moved["1"].notes
    assert moved["0"].notes["share"] < 1 < moved["2"].notes["share"]


def test_shares_of_the_mislabeled_are_frozen_and_their_gaps_not_counted():
    accused = known([0.25] * 4)
    accused["3"] = replace(accused["3"], group="mislabeled")
    loud = RaiseByGap(step=0.05, center_gaps=True)(accused, reported([0.1, 0.2, 0.3, 50]), SECOND)
    quiet = RaiseByGap(step=0.05, center_gaps=True)(accused, reported([0.1, 0.2, 0.3, None]), SECOND)
    assert loud["3"].notes == accused["3"].notes
    assert stored(loud) == stored(quiet)
    assert stored(loud)[:3] == pytest.approx([0.25 * (1 - 0.0495), 0.25, 0.25 * (1 + 0.0495)])


def test_reports_without_gaps_move_nothing():
    before = known([0.3, 0.7])
    assert stored(RaiseByGap(step=0.05, center_gaps=True)(before, {"0": {}, "1": {}}, SECOND)) == [0.3, 0.7]


def site_of(round: int, seed: int = 0) -> Site:
    rng = torch.Generator().manual_seed(7)
    x = torch.randint(0, 256, (30, 1, 8, 8), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 4, (30,), generator=rng)
    return Site(build("mlp", (1, 8, 8), 4, seed), x, y, {}, Order(round, 9, Verdict()), rng)


@torch.no_grad()
def told(measure: str, own_seed: int, global_seed: int, trained: int = 4, asked: int = 5):
    """What a client says under one model after it trained to another."""
    own = site_of(trained, own_seed)
    assert KeepOwnLevel(measure)(own, None) == {}
    return Gap(measure)(replace(site_of(asked, global_seed), memory=own.memory))


@torch.no_grad()
def levels(seed: int) -> tuple[float, float]:
    site = site_of(1, seed)
    logits = site.net(site.x)
    return cross_entropy(logits, site.y).item(), (logits.argmax(dim=1) == site.y).double().mean().item()


def test_the_gap_is_the_loss_of_the_global_model_less_that_of_the_own():
    (own, _), (here, _) = levels(1), levels(2)
    assert told("loss", 1, 2) == {"loss": pytest.approx(here), "gap": pytest.approx(here - own, abs=1e-6)}


def test_or_the_accuracy_of_the_own_model_less_that_of_the_global():
    (_, own), (loss, here) = levels(1), levels(2)
    assert own != here, "otherwise the test shows nothing"
    assert told("accuracy", 1, 2) == {"loss": pytest.approx(loss), "gap": pytest.approx(own - here)}


@pytest.mark.parametrize("measure", ["loss", "accuracy"])
def test_who_loses_from_aggregation_gains_weight(measure: str):
    good, bad = sorted((1, 2, 3), key=lambda seed: levels(seed)[measure == "accuracy"])[
        :: 2 if measure == "loss" else -2
    ]
    reports = {"loser": told(measure, good, bad), "winner": told(measure, bad, good)}
    assert reports["loser"]["gap"] > 0 > reports["winner"]["gap"]
    after = RaiseByGap(step=0.05, center_gaps=True)({}, reports, SECOND)
    assert after["loser"].notes["share"] > 1 > after["winner"].notes["share"]


def test_only_who_trained_last_round_has_a_gap():
    assert "gap" in told("loss", 1, 2, trained=4, asked=5)
    assert set(told("loss", 1, 2, trained=3, asked=5)) == {"loss"}
    with torch.no_grad():
        assert set(Gap(measure="loss")(site_of(1))) == {"loss"}


def test_the_labels_in_use_count():
    site = site_of(1)
    corrected = (site.given + 1) % 4
    with torch.no_grad():
        before = badness(site)
        site.memory["labels"] = corrected
        after = badness(site)
        assert after["loss"] == pytest.approx(cross_entropy(site.net(site.x), corrected).item())
    assert after != before
