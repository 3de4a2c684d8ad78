"""Wrong labels like people's: by a matrix, or by a model's doubts."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from fedpca.data.datasets import Dataset, Part
from fedpca.data.doubts import class_probabilities
from fedpca.data.federation import Federation, federate
from fedpca.data.noise import noisy_labels
from fedpca.data.noise_kind import NoiseData
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment
from fedpca.settings.base import rounded
from fedpca.settings.experiment import Experiment, NoiseSettings

COUNT, CLASSES = 3000, ("ant", "bee", "cat", "dog")
MATRIX = [[9, 3, 1, 0], [1, 0, 0, 1], [0.5, 0.5, 7, 1], [0, 0, 2, 5]]


def scattered(count: int = COUNT, seed: int = 0) -> Part:
    """Images of four overlapping classes: ants are like bees, cats like dogs; the pixels are nearly the place."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), count)
    centers = np.array([[60, 60], [110, 60], [190, 190], [200, 120]])
    places = centers[labels] + rng.normal(0, 25, (count, 2))
    images = np.repeat(np.repeat(places[:, None, :, None], 2, axis=2), 4, axis=3) + rng.normal(0, 10, (count, 1, 4, 4))
    return Part(np.clip(images, 0, 255).astype(np.uint8), labels.astype(np.int64), {})


PART = scattered()


def data_of(noise: dict[str, object], part: Part = PART) -> NoiseData:
    rows = np.arange(len(part.labels), dtype=np.int64)
    return NoiseData(NoiseSettings(**noise), part.images, part.labels, CLASSES, 0, part, rows)


def labels_of(noise: dict[str, object], part: Part = PART) -> np.ndarray:
    """The labels of one client that has all images."""
    rows = np.arange(len(part.labels), dtype=np.int64)
    return noisy_labels(data_of({"clients": 1.0, **noise}, part), {"0": rows}, ["0"])["0"]


def federation_of(noise: dict[str, object]) -> Federation:
    experiment = Experiment(data={"clients": 6, "truth": "assumed"}, noise={"clients": 0.5, **noise})
    return federate(experiment, Dataset("scattered", PART, PART, CLASSES, ()))


KINDS = [{"kind": "confusion", "matrix": MATRIX}, {"kind": "confusion", "matrix": "model"}, {"kind": "instance"}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.45, 1.0])
def test_exactly_the_rate_is_wrong(kind, rate):
    labels = labels_of({**kind, "labels": rate} if rate else {**kind, "clients": 0.0})
    assert (labels != PART.labels).sum() == rounded(rate * COUNT)
    assert set(labels) <= set(range(len(CLASSES)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.1, 0.45, 0.9, 1.0])
def test_on_average_the_rate_is_wrong_where_chance_decides(kind, rate):
    wrong = (labels_of({**kind, "labels": rate, "mode": "inclusive"}) != PART.labels).sum()
    low, high = binom.interval(0.9999, COUNT, rate)  # of independent draws with one chance; unequal ones vary less
    assert low <= wrong <= high


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_has_its_rate(kind):
    federation = federation_of({**kind, "labels": [0.1, 0.3, 0.6], "others_labels": 0.05})
    expected = dict.fromkeys(federation.shards, 0.05) | dict(
        zip(federation.truth.mislabeled, (0.1, 0.3, 0.6), strict=True)
    )
    for client, share in federation.truth.wrong_share.items():
        assert share == rounded(expected[client] * 500) / 500


@pytest.mark.parametrize("mode", ["exclusive", "inclusive"])
def test_wrong_labels_are_as_frequent_as_the_matrix_says(mode):
    labels = labels_of({"kind": "confusion", "matrix": MATRIX, "labels": 0.5, "mode": mode})
    for label, row in enumerate(MATRIX):
        wrong = labels[(labels != PART.labels) & (PART.labels == label)]
        others = np.array([0 if other == label else share for other, share in enumerate(row)])
        for other, share in enumerate(others / others.sum()):
            low, high = binom.interval(0.9999, len(wrong), share) if 0 < share < 1 else (share * len(wrong),) * 2
            assert low <= (wrong == other).sum() <= high


def test_every_class_has_the_same_rate_whatever_the_diagonal():
    labels = labels_of({"kind": "confusion", "matrix": MATRIX, "labels": 0.4})
    for label in range(len(CLASSES)):
        own = PART.labels == label
        low, high = binom.interval(0.9999, own.sum(), 0.4)
        assert low <= (labels != PART.labels)[own].sum() <= high


def test_the_models_matrix_confuses_what_looks_alike():
    labels = labels_of({"kind": "confusion", "matrix": "model", "labels": 0.5})
    for label, twin in ((0, 1), (1, 0), (2, 3), (3, 2)):
        wrong = labels[(labels != PART.labels) & (PART.labels == label)]
        assert np.bincount(wrong, minlength=4).argmax() == twin


@pytest.mark.parametrize("mode", ["exclusive", "inclusive"])
def test_doubtful_images_are_wrong_more_often(mode):
    rng = np.random.default_rng(0)
    centers = np.array([[60, 60], [110, 60], [190, 190], [200, 120]])
    places = PART.images.reshape(COUNT, 2, 8).mean(axis=2)  # rows 0 and 1 of the image, rows 2 and 3
    distances = ((places[:, None] - centers) ** 2).sum(axis=2)
    own = distances[np.arange(COUNT), PART.labels]
    nearest_other = np.where(np.eye(4, dtype=bool)[PART.labels], np.inf, distances).min(axis=1)
    truly_hard = own - nearest_other  # large where another class is as near: by the way they were made, not the model
    wrong = labels_of({"kind": "instance", "labels": 0.2, "mode": mode}) != PART.labels
    assert roc_auc_score(wrong, truly_hard) > 0.6
    assert roc_auc_score(rng.permutation(wrong), truly_hard) < 0.55


def test_a_doubtful_image_gets_the_class_that_it_looks_like():
    labels = labels_of({"kind": "instance", "labels": 0.1})
    likely = class_probabilities(data_of({}))
    wrong = labels != PART.labels
    others = likely[wrong].copy()
    others[np.arange(wrong.sum()), PART.labels[wrong]] = 0
    expected = (others / others.sum(axis=1, keepdims=True)).max(axis=1)  # how often the likeliest is to be drawn
    hits = (others.argmax(axis=1) == labels[wrong]).sum()
    assert abs(hits - expected.sum()) < 4 * np.sqrt((expected * (1 - expected)).sum()) + 1


def test_no_image_judges_itself():
    """With labels by a coin nothing can be learned from others; a model that saw the image would know its label."""
    coin = Part(PART.images, np.random.default_rng(1).integers(0, 4, COUNT), {})
    likely = class_probabilities(data_of({}, coin))
    assert likely[np.arange(COUNT), coin.labels].mean() == pytest.approx(0.25, abs=0.03)


def test_probabilities_are_kept_and_depend_on_what_they_are_of():
    first = class_probabilities(data_of({}))
    assert class_probabilities(data_of({}, Part(PART.images.copy(), PART.labels.copy(), {}))) is first
    other = class_probabilities(data_of({}, scattered(seed=1)))
    assert not np.array_equal(first, other)
    assert np.allclose(first.sum(axis=1), 1)
    assert first.min() > 0


def test_a_class_with_one_image_or_none_does_not_matter():
    labels = np.where(np.arange(60) == 7, 2, np.arange(60) % 2)  # one cat, no dog
    part = Part(PART.images[:60], labels, {})
    for kind in KINDS:
        assert (labels_of({**kind, "labels": 0.5}, part) != labels).sum() == 30
    lonely = Part(PART.images[:10], (np.arange(10) == 3).astype(np.int64), {})
    assert (labels_of({"kind": "instance", "labels": 0.5}, lonely) != lonely.labels).sum() == 5


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ({"kind": "confusion"}, 'needs noise.matrix: a list with a row for each class, or "model"'),
        ({"kind": "confusion", "matrix": [[0, 1], [1]]}, "must be square, but has 2 rows, and row 1 has 1 numbers"),
        ({"kind": "confusion", "matrix": [[1, 0], [1, 0]]}, "row 0 has nothing but its diagonal"),
        ({"kind": "confusion", "matrix": [[0, -1], [1, 0]]}, 'noise.matrix: input should be "model", or a list'),
        ({"kind": "confusion", "matrix": "guess"}, r'input should be "model", or a list.*\(got: .guess.\)'),
        ({"kind": "instance", "matrix": MATRIX}, "noise.matrix means nothing to noise.kind = 'instance'.*'confusion'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(noise, message):
    with pytest.raises(SettingsError, match=message):
        check_experiment({"noise": {"clients": 0.2, "labels": 0.5, **noise}}, "own.toml")


def test_a_matrix_for_other_classes_is_refused():
    with pytest.raises(DataError, match=r"a row for each of the 4 classes, got 2"):
        federation_of({"kind": "confusion", "matrix": [[0, 1], [1, 0]], "labels": 0.5})
