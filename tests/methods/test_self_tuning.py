"""`fedpca` with nothing to tune: what it does where nothing is wrong, what it records, what can be set by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import fedpca
from fedpca.core import Server
from fedpca.data.datasets import load
from fedpca.data.federation import federate
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import check_experiment, method_of
from fedpca.settings.base import Table
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers


def played(rare: float = 0.2, wrong: float = 0.2, rounds: int = 14, **settings: object) -> list[Server]:
    table: Table = {
        "rounds": rounds,
        "seeds": [0],
        "methods": ["fedpca"],
        "data": {"clients": 15},
        "rare": {"share": rare, "corruption": "pixelate", "severity": 4} if rare else {},
        "noise": {"clients": wrong, "labels": 0.5} if wrong else {},
        "model": {"name": "mlp"},
        "training": {"batch": 16, "lr": 0.1},
        "method": {"fedpca": settings},
    }
    experiment = check_experiment(table, "test")
    federation = federate(experiment, load(experiment.data))
    crew = Workers([build("mlp", federation.shape, 10, 0)])
    method = method_of(experiment)
    clients = InProcess(method, federation.shards, crew, seed=0)
    return list(play(method, clients, Server(params_of(crew.nets[0])), rounds))


def choices(server: Server, **settings: object) -> dict[str, float]:
    experiment = check_experiment({"methods": ["fedpca"], "method": {"fedpca": settings}}, "test")
    explain = method_of(experiment).recipe(server.round).explain
    assert explain is not None
    return {choice.what: choice.value for choice in explain(server)}


def test_where_nobody_is_rare_or_mislabeled_everybody_weighs_by_size():
    last = played(rare=0.0, wrong=0.0)[-1]
    assert last.weights is not None
    assert max(last.weights.values()) / min(last.weights.values()) < 1.02
    assert choices(last) == {
        "judging": 1.0,
        "lift": 1.0,
        "corrected": 0,
        "dropped": 0,
        "sharpness": pytest.approx(0.5, abs=0.5),
        "adjusted": 0,
    }


def test_rare_clients_are_lifted_as_far_as_trials_say_and_never_further():
    servers = played()
    lifts = [choices(server)["lift"] for server in servers]
    assert 1.2 < max(lifts) <= 5.0
    assert lifts[0] == 1.0
    assert all(after / before < 1.2 + 1e-9 for before, after in pairwise(lifts) if before > 1)


def test_half_wrong_labels_are_corrected_and_weigh_half():
    last = played()[-1]
    judged = [client for client, verdict in last.diagnosis.items() if verdict.group == "mislabeled"]
    assert len(judged) == 3
    assert choices(last)["corrected"] == 3
    common = [c for c, verdict in last.diagnosis.items() if verdict.group == "common"]
    assert last.weights is not None
    assert max(last.weights[c] for c in judged) < min(last.weights[c] for c in common)


@pytest.mark.parametrize(
    ("by_hand", "what", "value"), [({"lift": 3.0}, "lift", 3.0), ({"mislabeled": "drop"}, "dropped", 3)]
)
def test_a_choice_can_be_made_by_hand(by_hand: dict[str, object], what: str, value: float):
    assert choices(played(**by_hand)[-1], **by_hand)[what] == value


def test_the_record_says_what_was_chosen(tmp_path: Path):
    results = fedpca.run(
        "digits", methods=["fedpca"], seeds=[0], changes=["rounds=4", "model.name=mlp"], out=tmp_path, progress=False
    )
    assert results is not None
    lines = (tmp_path / "fedpca" / "seed-0" / "rounds.jsonl").read_text().splitlines()
    made = json.loads(lines[-1])["choices"]
    assert [own["what"] for own in made] == ["judging", "lift", "corrected", "dropped", "sharpness", "adjusted"]
    assert all(own["text"].endswith(".") for own in made)
