"""How many labels are wrong, client by client: one rate each, and a rate for all others."""

import numpy as np
import pytest

from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment
from fedpca.settings.base import rounded
from fedpca.settings.experiment import Experiment


def made(noise: dict[str, object], **more: object) -> Federation:
    experiment = Experiment(data={"clients": 10}, noise=noise, **more)
    return federate(experiment, load(experiment.data))


def wrong(federation: Federation) -> dict[str, int]:
    return {
        client: int((shard.y != federation.truth.labels[client]).sum()) for client, shard in federation.shards.items()
    }


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_each_mislabeled_client_has_its_own_rate_in_the_clients_order(kind: str):
    rates = (0.1, 0.9, 0.5)
    federation = made({"clients": 0.3, "labels": rates, "kind": kind})
    expected = dict.fromkeys(federation.shards, 0.0) | dict(zip(federation.truth.mislabeled, rates, strict=True))
    sizes = {client: len(shard.y) for client, shard in federation.shards.items()}
    assert wrong(federation) == {client: rounded(rate * sizes[client]) for client, rate in expected.items()}


def test_equal_rates_are_the_same_as_one():
    one, each = made({"clients": 0.3, "labels": 0.6}), made({"clients": 0.3, "labels": [0.6, 0.6, 0.6]})
    assert all(np.array_equal(one.shards[client].y, each.shards[client].y) for client in one.shards)


def test_everybody_has_some_and_the_mislabeled_have_more():
    federation = made({"clients": 0.2, "labels": 0.5, "others_labels": 0.1})
    assert len(federation.truth.mislabeled) == 2
    for client, count in wrong(federation).items():
        rate, size = 0.5 if client in federation.truth.mislabeled else 0.1, len(federation.shards[client].y)
        assert count == rounded(rate * size)
        assert federation.truth.wrong_share[client] == count / size


def test_a_rate_of_the_others_changes_nothing_at_the_mislabeled():
    few, many = (made({"clients": 0.2, "labels": 0.5, "others_labels": rate}) for rate in (0.0, 0.3))
    assert few.truth.mislabeled == many.truth.mislabeled
    assert all(np.array_equal(few.shards[own].y, many.shards[own].y) for own in few.truth.mislabeled)


def test_everybody_alike_is_nobody_mislabeled():
    federation = made({"others_labels": 0.2})
    assert federation.truth.mislabeled == ()
    assert all(0.19 < share < 0.21 for share in federation.truth.wrong_share.values())


def test_nobody_knows_shares_where_nobody_knows_the_truth():
    noise = {"clients": 0.2, "labels": 0.5}
    experiment = Experiment(data={"clients": 10, "truth": "unknown"}, noise=noise)
    assert federate(experiment, load(experiment.data)).truth.wrong_share == {}


def test_the_list_must_be_as_long_as_there_are_mislabeled_clients():
    with pytest.raises(DataError, match=r"noise\.labels must give one share for all 3 mislabeled .*, got 2"):
        made({"clients": 0.3, "labels": [0.1, 0.2]})


@pytest.mark.parametrize("labels", [1.5, -0.1, [0.5, 1.5], "many", [[0.5]]])
def test_what_is_no_rate_is_refused_in_one_line(labels: object):
    with pytest.raises(SettingsError) as caught:
        check_experiment({"noise": {"clients": 0.3, "labels": labels}}, "own.toml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("own.toml: noise.labels: input should be a share from 0 to 1, or a list of them")
    assert f"(got: {labels!r})" in line


def test_a_list_of_nothing_is_refused():
    with pytest.raises(SettingsError, match="give both, or neither"):
        check_experiment({"noise": {"clients": 0.3, "labels": [0.0, 0.0]}}, "own.toml")
    with pytest.raises(SettingsError, match="give both, or neither"):
        check_experiment({"noise": {"clients": 0.3, "labels": []}}, "own.toml")
