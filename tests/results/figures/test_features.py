"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

from pathlib import Path

import numpy as np
import pytest

from fedpca.errors import RunError
from fedpca.results.figures.features import draw_features, embed
from tests.results.figures.made import caption, kind, make, save_features, unknown


def test_features_show_kinds_of_clients_and_class_centroids(tmp_path: Path):
    save_features(tmp_path)
    figure = draw_features([make("fedpca-d", folder=tmp_path), make("fedavg")])
    (axes,) = figure.axes
    assert axes.get_title() == "fedpca-d, seed 0"
    points = [line for line in axes.lines if line.get_markersize() == 2]
    centroids = [line for line in axes.lines if line.get_markersize() == 5.5]
    assert sum(len(line.get_xdata()) for line in points) == 30
    pairs = {(kind(str(i % 12)), i % 3) for i in range(30)}
    assert len(centroids) == len(pairs)
    assert sorted(text.get_text() for text in axes.texts) == ["$2$", "one", "zero"]  # no formula
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["common clients", "rare clients", "mislabeled clients", "centroid"]
    assert "Kind of client by the truth" in caption(figure)


def test_kinds_are_as_judged_where_the_truth_is_not_known(tmp_path: Path):
    save_features(tmp_path)
    judged = draw_features([make("fedpca-d", folder=tmp_path, about=unknown())])
    assert "by the method's last judgement" in caption(judged)
    assert "rare clients" in [text.get_text() for text in judged.legends[0].get_texts()]
    nobody = draw_features([make("fedavg", folder=tmp_path, about=unknown())])
    assert [text.get_text() for text in nobody.legends[0].get_texts()] == ["other clients", "centroid"]


def test_the_map_of_features_repeats_and_keeps_classes_apart():
    features = np.repeat(10 * np.eye(3), 10, axis=0) + np.random.default_rng(0).normal(size=(30, 3))
    places = embed(features)
    assert (places == embed(features)).all()
    centres = places.reshape(3, 10, 2).mean(axis=1)
    within = np.abs(places.reshape(3, 10, 2) - centres[:, None]).max()
    assert min(np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (0, 2), (1, 2))) > within


def test_features_that_cannot_be_used(tmp_path: Path):
    (tmp_path / "features.safetensors").write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"features\.safetensors cannot be read"):
        draw_features([make(folder=tmp_path)])
    save_features(tmp_path, count=3)
    assert draw_features([make(folder=tmp_path)]) is None
    assert draw_features([make()]) is None
