import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score

from fedpca.core import Verdict
from fedpca.data.truth import Truth
from fedpca.errors import SettingsError
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.evaluate import evaluate, identification, weight_shares
from fedpca.runs.metrics import METRICS, Metric, Predictions, check_metric, measure, shown_metrics
from fedpca.simulate.workers import Workers

PROBS = np.array([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1], [0.3, 0.4, 0.3], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6], [0.5, 0.1, 0.4]])
HITS = Metric("hits", "hits", "hits", lambda predictions: float(predictions.hits.mean()))
TRUTH = Truth(rare=("8", "9"), mislabeled=("0", "1"), labels={})


def metrics(probs, labels):
    return measure(Predictions(probs, labels), "acc")


def test_the_specifications_examples():
    balanced = metrics(PROBS, np.array([0, 0, 1, 1, 2, 2]))
    assert balanced == pytest.approx(
        {"acc": 0.666667, "bacc": 0.666667, "auc": 0.916667, "auc_ovo": 0.916667}, abs=1e-6
    )
    uneven = metrics(PROBS, np.array([0, 0, 0, 1, 2, 2]))
    assert uneven == pytest.approx({"acc": 0.5, "bacc": 0.611111, "auc": 0.925926, "auc_ovo": 0.944444}, abs=1e-6)
    ones = np.array([0.1, 0.4, 0.35, 0.8])
    assert metrics(np.stack([1 - ones, ones], axis=1), np.array([0, 0, 1, 1]))["auc"] == 0.75


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(20, 80), st.booleans())
def test_agrees_with_scikit_learn(seed: int, classes: int, count: int, ties: bool):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, count)])
    logits = rng.normal(size=(len(labels), classes)) + 2 * np.eye(classes)[labels] * rng.random()
    probs = np.exp(logits.round(0) if ties else logits)
    probs /= probs.sum(axis=1, keepdims=True)
    own = metrics(probs, labels)
    given_probs = probs if classes > 2 else probs[:, 1]
    assert own["acc"] == pytest.approx(accuracy_score(labels, probs.argmax(axis=1)))
    assert own["bacc"] == pytest.approx(balanced_accuracy_score(labels, probs.argmax(axis=1)))
    if classes > 2:
        assert own["auc"] == pytest.approx(roc_auc_score(labels, given_probs, multi_class="ovr"))
        assert own["auc_ovo"] == pytest.approx(roc_auc_score(labels, given_probs, multi_class="ovo"))
    elif not ties:
        assert own["auc"] == pytest.approx(roc_auc_score(labels, given_probs))


def test_classes_that_do_not_occur_do_not_count():
    labels = np.array([0, 0, 1, 1, 1, 0])
    with_absent = np.concatenate([PROBS, np.zeros((6, 1))], axis=1)
    recalls = [2 / 3, 2 / 3]  # of classes 0 and 1; the absent third and fourth have none
    assert metrics(with_absent, labels)["bacc"] == pytest.approx(np.mean(recalls))
    with pytest.raises(ValueError, match="at least two classes"):
        metrics(PROBS, np.zeros(6, dtype=np.int64))


def test_groups_are_tested_whole_and_alike_for_any_workers(federation):
    nets = [build("cnn-small", federation.shape, 10, 0) for _ in range(3)]
    one, three = (evaluate(Workers(nets[:n]), params_of(nets[0]), federation.tests, "acc") for n in (1, 3))
    assert one == three
    assert set(one) == {"common", "rare"}
    assert one["common"] != one["rare"]


def test_shown_are_the_chosen_accuracy_and_what_is_none():
    assert shown_metrics("acc") == ("acc", "auc")
    assert shown_metrics("bacc") == ("bacc", "auc")
    assert [name for name in METRICS if METRICS[name].in_tables] == ["acc", "bacc", "auc"]


def test_a_metric_of_ones_own_is_measured_and_shown():
    name = f"{__name__}:HITS"
    own = measure(Predictions(PROBS, np.array([0, 0, 1, 1, 2, 2])), name)
    assert list(own) == ["acc", "bacc", "auc", "auc_ovo", name]
    assert own[name] == own["acc"]
    assert shown_metrics(name) == (name, "auc")
    assert METRICS[name] is HITS


def test_an_accuracy_that_is_no_metric_is_refused():
    with pytest.raises(SettingsError, match=r"evaluation.accuracy: there is no metric 'f1'; there are acc, bacc, auc"):
        check_metric("f1")


def verdicts(**groups: str):
    return {client.removeprefix("c"): Verdict(group=group) for client, group in groups.items()}


def test_identification_against_the_truth():
    diagnosis = verdicts(c0="mislabeled", c1="common", c2="mislabeled", c8="mislabeled", c9="rare")
    found = identification(diagnosis, TRUTH)
    assert found == {
        "precision": 1 / 3,
        "recall": 0.5,
        "f1": pytest.approx(0.4),
        "accused_common": 1,
        "accused_rare": 1,
    }


def test_nobody_accused_and_nobody_guilty_is_perfect():
    nobody = Truth(rare=(), mislabeled=(), labels={})
    assert identification(verdicts(c0="common"), nobody) == {
        "precision": 1.0, "recall": 1.0, "f1": 1.0, "accused_common": 0, "accused_rare": 0,
    }  # fmt: skip
    assert identification(verdicts(c0="mislabeled"), nobody)["f1"] == 0.0
    assert identification(verdicts(c0="common"), TRUTH)["f1"] == 0.0


def test_methods_without_groups_have_no_identification():
    assert identification({"0": Verdict()}, TRUTH) is None
    assert identification({}, TRUTH) is None


def test_shares_of_the_rare_and_the_mislabeled():
    assert weight_shares({"0": 0.3, "5": 0.3, "8": 0.1, "9": 0.3}, TRUTH) == {"rare": 0.4, "mislabeled": 0.3}
    assert weight_shares(None, TRUTH) is None
