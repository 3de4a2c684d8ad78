"""Shares of wrong labels from made probabilities of which the truth is known."""

import numpy as np
import pytest
import torch

from fedpca.auditing.calibration import Calibration, p_values, pooled_scores
from fedpca.auditing.estimate import estimate
from fedpca.auditing.folds import folds_of, method_tables
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.summary import BINS, bin_of, confident_joint, from_tables, summarise, to_tables
from fedpca.auditing.suspects import benjamini_hochberg, find_suspects, random_sample
from fedpca.errors import SettingsError, WireError
from fedpca.settings.toml import validate

CLASSES = 5


def a_client(seed: int, wrong: float = 0.0, images: int = 300, sure: float = 3.0):
    """Probabilities of a fairly good model, given labels, and which of them are wrong."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, CLASSES, images)
    logits = rng.normal(0, 1, (images, CLASSES))
    logits[np.arange(images), true] += sure
    flipped = rng.random(images) < wrong
    given = np.where(flipped, (true + rng.integers(1, CLASSES, images)) % CLASSES, true)
    return torch.tensor(logits).softmax(dim=1), torch.tensor(given), torch.tensor(flipped)


def summaries(shares: list[float], **more):
    return {str(i): summarise(*a_client(i, share, **more)[:2]) for i, share in enumerate(shares)}


def test_the_share_of_each_client_is_near_the_truth_and_in_its_interval():
    shares = [0.0] * 9 + [0.2, 0.4, 0.6]
    found = estimate(summaries(shares)).clients
    for i, own in enumerate(found.values()):
        truth = float(a_client(i, shares[i])[2].double().mean())
        assert own.low <= truth <= own.high
        assert abs(own.share - truth) < 0.07
    assert [own.verdict for own in found.values()] == ["not mislabeled"] * 9 + ["mislabeled"] * 3


def test_summaries_travel_as_lists_of_floats_and_give_the_same_estimates():
    sent = summaries([0.0] * 6 + [0.5])
    got = {client: from_tables(to_tables(own), CLASSES) for client, own in sent.items()}
    assert got == sent
    assert estimate(got) == estimate(sent)


def test_a_client_that_tells_its_rate_alone_is_judged_the_same_without_its_classes():
    shares = [0.0] * 6 + [0.5]
    rate = {str(i): summarise(*a_client(i, share)[:2], tell="rate") for i, share in enumerate(shares)}
    assert all(own.joint is None and len(own.scores) == 1 for own in rate.values())
    told, all_told = estimate(rate).clients["6"], estimate(summaries(shares)).clients["6"]
    assert (told.share, told.low, told.high, told.verdict) == (
        all_told.share,
        all_told.low,
        all_told.high,
        all_told.verdict,
    )
    assert told.confused is None
    assert told.told == "rate"


@pytest.mark.parametrize("count", [2, 3])
def test_nobody_is_judged_by_comparison_with_one_or_two_others(count: int):
    found = estimate(summaries([0.0] * (count - 1) + [0.6]))
    assert {own.verdict for own in found.clients.values()} == {"cannot tell"}
    assert all(own.low is None and own.why_no_interval for own in found.clients.values())


def test_one_liar_among_many_gets_nobody_accused_and_moves_the_reference_little():
    honest = summaries([0.0] * 7)
    perfect = summarise(torch.eye(CLASSES).repeat(60, 1) * 0.999 + 0.0002, torch.arange(CLASSES).repeat(60))
    found = estimate({**honest, "liar": perfect})
    assert {own.verdict for client, own in found.clients.items() if client != "liar"} <= {
        "not mislabeled",
        "cannot tell",
    }
    levels = [own.numbers["off_diagonal"] for own in honest.values()]
    assert min(levels) <= found.reference.base <= max(levels)


def test_a_model_that_learned_nothing_judges_nobody():
    found = estimate(summaries([0.0] * 6 + [0.8], sure=0.0))
    assert found.reference is None
    assert {own.verdict for own in found.clients.values()} == {"cannot tell"}


def test_the_joint_counts_every_label_once():
    probs, given, _ = a_client(0, 0.3)
    joint = confident_joint(probs, given)
    assert torch.allclose(joint.sum(dim=1), torch.bincount(given, minlength=CLASSES).double())


def test_classes_that_are_confused_are_named():
    probs, given, _ = a_client(7)
    swapped = torch.where((given == 1) & (torch.arange(len(given)) % 2 == 0), torch.tensor(2), given)
    found = estimate({**summaries([0.0] * 6), "pair": summarise(probs, swapped)}).clients["pair"]
    assert (found.confused[0].given, found.confused[0].likely) == (2, 1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scores", [1.0], "bins"),
        ("images", [float("nan")], "finite"),
        ("images", [7.0], "score of each image"),
        ("number/off_diagonal", [2.0], "off_diagonal"),
        ("secret", [1.0], "no other tables"),
        ("joint", [-1.0] * CLASSES**2, "counts from 0"),
    ],
)
def test_what_no_client_can_have_counted_is_refused(key, value, message):
    tables = to_tables(summarise(*a_client(0)[:2]))
    with pytest.raises(WireError, match=message):
        from_tables({**tables, key: value}, CLASSES)


def test_p_values_of_right_labels_are_not_too_small_and_lists_are_mostly_right():
    reference = [summarise(*a_client(i)[:2]) for i in range(10)]
    calibration = pooled_scores(reference)
    assert Calibration.from_tables(calibration.to_tables(), CLASSES) == calibration
    probs, given, wrong = a_client(50, 0.4, images=1000)
    found = find_suspects(probs, given, calibration, list("abcde"), fdr=0.1, sample=20, seed=0, client="x")
    listed = [own.row for own in found if own.is_issue]
    assert len(listed) > 100
    assert float(wrong[listed].double().mean()) >= 0.87
    scores = probs.gather(1, given.unsqueeze(1)).squeeze(1)
    right = p_values(scores, given, calibration)[~wrong]
    assert float((right <= 0.1).double().mean()) < 0.14
    assert sum(own.in_sample for own in found) == 20
    assert found[0].is_issue
    assert [own.score for own in found if own.is_issue] == sorted(own.score for own in found if own.is_issue)


def test_benjamini_hochberg_lists_what_its_definition_says():
    values = torch.tensor([0.001, 0.03, 0.02, 0.5, 0.9])
    assert benjamini_hochberg(values, 0.1).tolist() == [True, True, True, False, False]
    assert benjamini_hochberg(torch.full((4,), 0.9), 0.1).sum() == 0


def test_scores_have_bins_in_their_order():
    bins = bin_of(torch.tensor([0.0, 1e-6, 0.01, 0.5, 0.99, 1.0]))
    assert bins.tolist() == sorted(bins.tolist())
    assert bins[-1] < BINS


def test_the_random_sample_is_the_same_for_the_same_client_alone():
    assert random_sample(100, 10, 0, "a") == random_sample(100, 10, 0, "a") != random_sample(100, 10, 0, "b")


def test_folds_part_the_clients():
    clients = [str(i) for i in range(11)]
    folds = folds_of(clients, None, 3)
    assert len(folds) == 4
    assert sorted(client for fold in folds for client in fold) == sorted(clients)
    assert len(folds_of(clients[:3], None, 0)) == 3
    with pytest.raises(SettingsError, match="two clients"):
        folds_of(["a"], None, 0)
    with pytest.raises(SettingsError, match="only 3 clients"):
        folds_of(clients[:3], 5, 0)


def test_a_short_training_has_a_short_warm_up():
    assert method_tables(AuditOptions(rounds=6))["fedavg+d"]["warmup"] == 3
    with pytest.raises(SettingsError, match=r"here: fdr: .*less than or equal to 0.5 .got: 0.9"):
        validate(AuditOptions, {"fdr": 0.9}, "here")
