"""FedCorr's dimensions, corrections and rests: the specification's numbers, and what must hold for any."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn.functional import cross_entropy

from fedpca.core import LABELS, Net, Order, Site, Verdict, When
from fedpca.models.build import build
from fedpca.parts.client import relabel as module
from fedpca.parts.client.distance import class_losses
from fedpca.parts.client.labels import label_slopes
from fedpca.parts.client.relabel import (
    MOST,
    CorrectConfident,
    CorrectWorst,
    Scatter,
    local_dimensions,
    relabel,
    unless_resting,
    worst,
)
from fedpca.parts.client.report import PerformanceAndCapacity, Sharpness, mean_loss
from fedpca.parts.client.select import everything
from fedpca.parts.client.train import Descent, LocalTraining
from fedpca.parts.mixture import in_upper_group
from fedpca.parts.server.relabel import FindScattered, RestTheNoisy

NOW = When(1, 9)
LOSSES = torch.tensor([0.1, 2, 0.3, 1.5, 0.2, 3, 0.4, 2.5, 0.05, 1])
CONFIDENCES = [0.9, 0.8, 0.9, 0.4, 0.9, 0.95, 0.9, 0.3, 0.9, 0.7]


def line(*points: float) -> torch.Tensor:
    return torch.tensor(points, dtype=torch.float64).unsqueeze(1)


def site_with(confidences: list[float], group: str | None = "mislabeled", labels=None) -> Site:
    """A client whose model of four classes gives class 1 these probabilities; all labels are 0 unless given."""
    sure = torch.tensor(confidences, dtype=torch.float64)
    rest = ((1 - sure) / 3).unsqueeze(1).expand(-1, 4)
    logits = torch.where(torch.arange(4) == 1, sure.unsqueeze(1), rest).log()
    head = nn.Linear(4, 4, bias=False).double()
    head.weight.data = torch.eye(4, dtype=torch.float64)
    net = Net(nn.Sequential(head), head, nn.Parameter(torch.empty(0)), torch.empty(0), torch.empty(0))
    given = torch.zeros(len(sure), dtype=torch.int64) if labels is None else torch.tensor(labels)
    return Site(net, logits, given, {}, Order(2, 9, Verdict(group=group)), torch.Generator())


def images(seed: int = 0, count: int = 40) -> Site:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 4, (count,), generator=rng)
    return Site(build("mlp", (1, 8, 8), 4, seed=1), x, y, {}, Order(2, 9, Verdict()), rng)


def test_the_specifications_dimensions():
    found = local_dimensions(line(0, 1, 3, 7, 15), 3).tolist()
    assert found == pytest.approx([1.074034, 1.037929, 3.058637, 4.203059, 4.203060], abs=1e-6)
    assert found[0] == pytest.approx(3 / (log(7) + log(7 / 3)), abs=1e-5)


def test_duplicates_are_no_neighbours_and_ties_are_cut_off():
    """Upstream's 0, 0 and 1,500,001; its last two values are sound and stay."""
    found = local_dimensions(line(0, 0, 1, 2, 4), 3).tolist()
    assert found[3:] == pytest.approx([4.328082, 3.058637], abs=1e-6)
    assert found[:2] == pytest.approx([3 / (log(4) + log(2))] * 2, abs=1e-5)  # neighbours at 1, 2 and 4
    assert found[2] == MOST == 1e3


def by_the_formula(points: torch.Tensor, neighbours: int) -> list[float]:
    """Section 4.3 of the specification, word for word, for points that all differ."""
    found = []
    for i, point in enumerate(points):
        apart = sorted((point - other).norm().item() for j, other in enumerate(points) if j != i)[:neighbours]
        found.append(-len(apart) / (sum(log(d / (apart[-1] + 1e-6)) for d in apart) + 1e-6))
    return found


@given(st.integers(0, 10**6), st.integers(3, 30), st.integers(2, 25), st.floats(0.01, 1000))
def test_dimensions_are_the_formulas_and_ignore_the_scale(seed: int, count: int, neighbours: int, scale: float):
    points = torch.rand(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = local_dimensions(points, neighbours)
    expected = [min(max(value, 0), MOST) for value in by_the_formula(points, neighbours)]
    assert found.tolist() == pytest.approx(expected, rel=1e-9)
    stretched = local_dimensions(scale * points, neighbours)
    assert (1 / stretched).tolist() == pytest.approx(
        (1 / found).tolist(), abs=2e-3
    )  # the formula's 1e-6 does not scale


@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_uniform_data_have_about_the_dimension_of_their_space(dimension: int):
    points = torch.rand(1500, dimension, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([points, torch.zeros(1500, 3)], dim=1)  # whatever space they lie in
    assert 0.75 * dimension < local_dimensions(padded, 20).mean() < 1.35 * dimension


@pytest.mark.parametrize("neighbours", [4, 5, 20])
def test_fewer_samples_than_neighbours_are_all_neighbours(neighbours: int):
    points = line(0, 1, 3, 7, 15)
    assert torch.equal(local_dimensions(points, neighbours), local_dimensions(points, 4))


def test_too_few_or_equal_points_have_no_dimension():
    assert local_dimensions(line(5), 20).tolist() == [0]
    assert local_dimensions(line(5, 5, 5), 20).tolist() == [0, 0, 0]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=12), st.sampled_from([0.001, 1, 1000]))
def test_dimensions_are_finite_however_many_ties(points: list[tuple[int, int]], scale: float):
    found = local_dimensions(scale * torch.tensor(points).double(), 3)
    assert ((found >= 0) & (found <= MOST)).all()


def test_rows_at_a_time_do_not_change_dimensions(monkeypatch):
    points = torch.rand(50, 3, generator=torch.Generator().manual_seed(1))
    whole = local_dimensions(points, 5)
    monkeypatch.setattr(module, "ROWS", 7)
    torch.testing.assert_close(local_dimensions(points, 5), whole)


def test_a_client_sends_its_mean_dimension_and_keeps_its_losses():
    site = images()
    with torch.no_grad():
        report = Scatter(5)(site, None)
        logits = site.net(site.x).double()
    assert report == {"lid": pytest.approx(local_dimensions(logits.softmax(dim=1), 5).mean().item(), rel=1e-6)}
    torch.testing.assert_close(site.memory["losses"], cross_entropy(logits, site.y, reduction="none"))


def test_the_upper_group_is_that_of_larger_mean():
    assert in_upper_group(np.array([0.1, 0.12, 2.1, 0.09, 1.9])).tolist() == [False, False, True, False, True]
    assert in_upper_group(np.array([3.0, 3.0, 3.0])).tolist() == [False] * 3
    assert in_upper_group(np.array([3.0])).tolist() == [False]


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(3, 20), st.integers(3, 20))
def test_the_upper_group_is_scikit_learns(seed: int, low: int, high: int):
    rng = torch.Generator().manual_seed(seed)
    values = torch.cat([torch.randn(low, generator=rng), 12 + 2 * torch.randn(high, generator=rng)]).double()
    mixture = GaussianMixture(2, n_init=5, random_state=0).fit(values.unsqueeze(1).numpy())
    expected = mixture.predict(values.unsqueeze(1).numpy()) == mixture.means_[:, 0].argmax()
    assert in_upper_group(values.double().numpy()).tolist() == expected.tolist()


def test_the_specifications_candidates_and_corrections():
    candidates = worst(LOSSES, 0.6 * 0.5)
    assert set(candidates.tolist()) == {1, 5, 7}
    site = site_with(CONFIDENCES)
    with torch.no_grad():
        relabel(site, candidates, 0.5)
    assert site.y.nonzero().flatten().tolist() == [1, 5]
    assert site.y[[1, 5]].tolist() == [1, 1]
    assert not site.given.any(), "the given labels stay what they were"


def test_candidates_are_rounded_down():
    assert len(worst(LOSSES, 0.29)) == 2
    assert len(worst(LOSSES, 0)) == 0
    assert len(worst(torch.arange(100.0), 0.58 * 0.5)) == 29  # 100 x .58 x .5 is a hair below 29


def bimodal() -> torch.Tensor:
    """The specification's five losses near .1 and five near 2, mixed."""
    return torch.tensor([2.0, 0.1, 2.1, 0.12, 0.09, 1.9, 0.11, 2.05, 0.08, 1.95], dtype=torch.float64)


def test_a_mislabeled_client_estimates_its_noise_and_corrects_the_worst_half_of_it():
    site = site_with([0.9] * 10)
    site.memory["losses"] = bimodal()
    with torch.no_grad():
        assert CorrectWorst(share=0.5, confidence=0.5)(site) == {"noise": 0.5}
    assert site.y.nonzero().flatten().tolist() == [2, 7]  # int(10 x .5 x .5) = 2 candidates


def test_losses_serve_once():
    site = site_with([0.9] * 10)
    site.memory["losses"] = bimodal()
    with torch.no_grad():
        CorrectWorst(share=0.5, confidence=0.5)(site)
        once = site.y.clone()
        assert CorrectWorst(share=0.5, confidence=0.5)(site) == {}
    assert torch.equal(site.y, once)
    assert "losses" not in site.memory


def test_only_confidence_above_the_bar_corrects():
    site = site_with([0.5, 0.51, 0.99, 0.3])
    with torch.no_grad():
        assert CorrectConfident(0.5)(site) == {}
    assert site.y.tolist()[1:] == [1, 1, 0]
    sceptic = site_with([0.5, 0.51, 0.99, 0.3])
    with torch.no_grad():
        CorrectConfident(1.0)(sceptic)
    assert sceptic.y.tolist() == [0] * 4


def test_corrections_add_up_over_rounds():
    site = site_with([0.9] * 4, labels=[0, 2, 3, 0])
    with torch.no_grad():
        relabel(site, torch.tensor([1]), 0.5)
        relabel(site, torch.tensor([3]), 0.5)
    assert site.y.tolist() == [0, 1, 3, 1]


@given(
    st.sampled_from([None, "common", "rare"]),
    st.lists(st.floats(0.26, 0.999), min_size=2, max_size=8),
    st.integers(0, 1000),
)
def test_no_client_judged_clean_ever_has_labels_changed(group: str | None, confidences: list[float], seed: int):
    site = site_with(confidences, group)
    site.memory["losses"] = 5 * torch.rand(len(confidences), generator=torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():
        assert CorrectWorst(share=0.5, confidence=0.5)(site) == {"noise": 0.0}
        assert CorrectConfident(confidence=0.5)(site) == {}
    assert LABELS not in site.memory
    assert torch.equal(site.y, site.given)


def corrected_site() -> tuple[Site, Site]:
    """A client with corrected labels in memory, and one that was given those labels."""
    kept, given = images(), images()
    kept.memory[LABELS] = given.given = (kept.given + 1) % 4
    return kept, given


@pytest.mark.parametrize(
    "part",
    [
        mean_loss,
        PerformanceAndCapacity(labels=label_slopes, per_sample=True, denominator="all", confidence=None, augment=None),
        Sharpness(radius=0.05, growth=0.0),
        class_losses,
    ],
)
def test_every_report_is_of_the_labels_in_use(part):
    with torch.no_grad():
        kept, given = (part(site) for site in corrected_site())
        assert kept == given != part(images())


def test_selection_training_and_scatter_use_the_labels_in_use():
    training = LocalTraining(Descent("sgd", 0.1, 0.9, 0.0), batch=8, epochs=1, after=Scatter(5))
    updates, losses = [], []
    for site in (*corrected_site(), images()):
        site.rng.manual_seed(5)
        samples = everything(site)
        assert torch.equal(samples.labels, site.y)
        updates.append(training(site, samples))
        losses.append(site.memory["losses"])
    assert torch.equal(updates[0].params.weights, updates[1].params.weights)
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(updates[0].params.weights, updates[2].params.weights)


def found(rounds: list[list[float]]) -> list[dict[str, Verdict]]:
    diagnosis, after = {}, []
    for lids in rounds:
        diagnosis = FindScattered()(diagnosis, {str(i): {"lid": lid} for i, lid in enumerate(lids)}, NOW)
        after.append(diagnosis)
    return after


def accused(diagnosis) -> set[str]:
    return {client for client, verdict in diagnosis.items() if verdict.group == "mislabeled"}


def test_the_scattered_are_found_by_their_summed_dimensions():
    first, second = found([[1.0, 1.1, 5.0, 1.05, 5.2], [9.0, 1.1, 5.0, 1.05, 4.8]])
    assert accused(first) == {"2", "4"}
    assert {first[c].group for c in "013"} == {"common"}
    assert accused(second) == {"0", "2", "4"}
    assert second["0"].notes["lid"] == pytest.approx(10)


def test_noise_is_the_suspicion_and_names_nobody():
    (before,) = found([[1.0, 1.1, 5.0]])
    after = FindScattered()(before, {"0": {"noise": 0.0}, "1": {"noise": 0.0}, "2": {"noise": 0.7}}, NOW)
    assert [after[c].suspicion for c in "012"] == [0.0, 0.0, 0.7]
    assert accused(after) == accused(before) == {"2"}
    assert all(after[c].notes == before[c].notes for c in "012")


def test_alike_clients_are_all_common():
    assert accused(found([[2.0, 2.0, 2.0]])[0]) == set()


def rests(shares: list[float | None], most: float = 0.1) -> list[bool]:
    known = {str(i): Verdict(suspicion=share) for i, share in enumerate(shares)}
    after = RestTheNoisy(most)(known, {client: {"noise": 0.0} for client in known}, NOW)
    return [bool(verdict.notes["rests"]) for verdict in after.values()]


def test_the_noisy_rest():
    assert rests([0.0, 0.1, 0.11, 0.9, None]) == [False, False, True, True, False]


def test_where_everybody_is_noisy_the_noisier_half_rests():
    assert rests([0.9, 0.2, 0.5, 0.3]) == [True, False, True, False]
    odd = rests([0.9, 0.2, 0.5])
    assert odd[0] is True
    assert odd[1] is False


def test_rests_are_decided_when_noise_is_reported_and_kept_otherwise():
    known = {"a": Verdict(suspicion=0.9, notes={"lid": 3.0, "rests": 1.0})}
    assert RestTheNoisy(max_noise=0.1)(known, {"a": {"lid": 2.0}}, NOW) == known
    mended = {"a": replace(known["a"], suspicion=0.05)}
    assert RestTheNoisy(max_noise=0.1)(mended, {"a": {"noise": 0.05}}, NOW)["a"].notes == {"lid": 3.0, "rests": 0.0}


@pytest.mark.parametrize(("notes", "count"), [({}, 40), ({"rests": 0.0}, 40), ({"rests": 1.0}, 0)])
def test_who_rests_trains_on_nothing(notes: dict[str, float], count: int):
    site = images()
    site.order = Order(3, 9, Verdict(notes=notes))
    assert len(unless_resting(site).rows) == count


def test_the_resting_are_told_by_noise_and_not_by_group():
    """A client judged mislabeled with few wrong labels trains; the specification's trap (h)."""
    known = {"a": Verdict("mislabeled", 0.05), "b": Verdict("common", 0.0), "c": Verdict("mislabeled", 0.6)}
    after = RestTheNoisy(max_noise=0.1)(known, {"a": {"noise": 0.05}}, NOW)
    assert [after[c].notes["rests"] for c in "abc"] == [0, 0, 1]
