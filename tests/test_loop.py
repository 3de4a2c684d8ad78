"""The round loop on clients of three numbers: what is asked, in which order, and who is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest
import torch

from fedpca.core import Failure, Method, Order, Params, Recipe, Server, Stage, Update, Verdict
from fedpca.loop import play
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.cohort import everyone
from fedpca.parts.server.diagnose import remember
from fedpca.parts.server.robust import PerCoordinate
from fedpca.parts.server.weigh import by_size


def state(value: float) -> Params:
    return Params(torch.tensor([value]), torch.empty(0), torch.empty(0, dtype=torch.int64))


@dataclass
class Scripted:
    """Clients that add 1, 2, 3, … to the weight they get, unless told otherwise."""

    ids: list[str]
    answers: dict[str, object] = field(default_factory=dict)
    log: list[tuple[str, str, Order]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def report(self, params: Params, orders: Mapping[str, Order]) -> Iterator:
        for client in orders:
            self.log.append(("report", client, orders[client]))
            yield client, self.answers.get(f"report {client}", {"loss": float(len(self.log))})

    def train(self, params: Params, orders: Mapping[str, Order]) -> Iterator:
        for client in orders:
            self.log.append(("train", client, orders[client]))
            moved = Update(state(params.weights.item() + self.ids.index(client) + 1), 1, report={"steps": 1.0})
            yield client, self.answers.get(client, moved)


def never(*_: object):
    raise AssertionError("client code does not run on the server")


def recipe(**parts: object) -> Recipe:
    plain = Recipe(None, remember, never, never, WeightedMean(by_size, smoothing=1.0), everyone)
    return replace(plain, **parts)


def last(method: Recipe | Method, clients: Scripted, rounds: int = 1, start: Server | None = None) -> Server:
    method = method if isinstance(method, Method) else Method("test", (Stage(method),))
    *_, server = play(method, clients, start or Server(state(0.0)), rounds)
    return server


def test_rounds_are_counted_and_weights_move():
    clients = Scripted(["a", "b", "c"])
    servers = list(play(Method("t", (Stage(recipe()),)), clients, Server(state(0.0)), 3))
    assert [server.round for server in servers] == [1, 2, 3]
    assert [server.params.weights.item() for server in servers] == [2.0, 4.0, 6.0]
    assert servers[0].weights == {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}
    assert [(order.round, order.rounds) for _, client, order in clients.log if client == "a"] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]


def test_a_saved_server_goes_on_as_if_never_stopped():
    full = last(recipe(), Scripted(["a", "b"]), rounds=5)
    half = last(recipe(), Scripted(["a", "b"]), rounds=2)
    resumed = last(recipe(), Scripted(["a", "b"]), rounds=5, start=half)
    assert resumed.params.weights.item() == full.params.weights.item() == 7.5
    assert replace(resumed, params=full.params) == full


def test_a_finished_server_plays_no_round():
    assert list(play(Method("t", (Stage(recipe()),)), Scripted(["a"]), Server(state(1.0), round=4), 4)) == []


def test_without_a_report_part_clients_are_asked_once():
    clients = Scripted(["a", "b"])
    last(recipe(), clients)
    assert [kind for kind, *_ in clients.log] == ["train", "train"]


def test_a_diagnosis_made_from_reports_reaches_the_clients_before_they_train():
    def suspect(diagnosis, reports, when):
        found = {c: Verdict(group="rare" if r["loss"] > 1 else "common") for c, r in reports.items() if "loss" in r}
        return {**diagnosis, **found}

    clients = Scripted(["a", "b"])
    server = last(recipe(report=never, diagnose=suspect), clients)
    assert [(kind, client, order.verdict.group) for kind, client, order in clients.log] == [
        ("report", "a", None),
        ("report", "b", None),
        ("train", "a", "common"),
        ("train", "b", "rare"),
    ]
    assert server.diagnosis["b"].group == "rare"


def test_the_latest_report_of_both_exchanges_is_remembered_with_the_weight():
    server = last(recipe(report=never), Scripted(["a", "b"]), rounds=2)
    assert server.diagnosis["b"].report == {"loss": 6.0, "steps": 1.0}
    assert server.diagnosis["b"].weight == 0.5


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Failure("no connection"), "no connection"),
        (Update(state(float("nan")), 1), "its weights are not finite"),
        (Update(state(float("inf")), 1), "its weights are not finite"),
        (Update(Params(torch.ones(2), torch.empty(0), torch.empty(0, dtype=torch.int64)), 1), "(2,)"),
    ],
)
def test_an_unusable_answer_is_left_out_by_name(answer: object, reason: str):
    server = last(recipe(), Scripted(["a", "b", "c"], {"b": answer}))
    assert server.params.weights.item() == 2.0  # the mean of 1 and 3
    assert list(server.left_out) == ["b"]
    assert reason in server.left_out["b"]
    assert "b" not in server.weights


def test_who_gives_no_report_is_not_asked_to_train():
    clients = Scripted(["a", "b"], {"report a": Failure("timed out")})
    server = last(recipe(report=never), clients)
    assert [(kind, client) for kind, client, _ in clients.log] == [("report", "a"), ("report", "b"), ("train", "b")]
    assert server.left_out == {"a": "timed out"}


def test_a_report_that_is_not_finite_is_left_out_by_name():
    clients = Scripted(["a", "b"], {"report a": {"loss": 1.0, "dispersion": float("nan")}})
    server = last(recipe(report=never), clients)
    assert server.left_out == {"a": "its report says dispersion = nan"}
    assert server.weights == {"b": 1.0}
    listed = Scripted(["a", "b"], {"report a": {"losses": [1.0, float("inf")]}})
    assert "losses" in last(recipe(report=never), listed).left_out["a"]


@pytest.mark.parametrize(
    "update",
    [
        Update(state(1.0), 5, float("nan")),
        Update(state(1.0), -5),
        Update(state(1.0), 0),
        Update(None, 5),
        Update(state(1.0), 5, -0.5),
        Update(state(1.0), 5, 1e30),
        Update(state(1.0), 5, report={"x": float("inf")}),
    ],
)
def test_strange_numbers_beside_the_weights_are_left_out_too(update: Update):
    assert list(last(recipe(), Scripted(["a", "b"], {"a": update})).left_out) == ["a"]


def test_left_out_is_of_the_last_round_alone():
    clients = Scripted(["a", "b"], {"b": Failure("late")})
    first = last(recipe(), clients)
    clients.answers.clear()
    assert last(recipe(), clients, rounds=2, start=first).left_out == {}


def test_all_left_out_keeps_the_model():
    server = last(recipe(), Scripted(["a"], {"a": Failure("gone")}))
    assert server.params.weights.item() == 0.0


def test_who_trained_on_nothing_is_counted_with_weight_zero():
    server = last(recipe(), Scripted(["a", "b"], {"a": Update(None, 0)}))
    assert server.weights == {"a": 0.0, "b": 1.0}
    assert server.left_out == {}


def test_only_the_cohort_is_asked():
    clients = Scripted(["a", "b", "c"])
    server = last(recipe(report=never, cohort=lambda ids, round: [ids[round]]), clients, rounds=2)
    assert [(kind, client) for kind, client, _ in clients.log] == [
        ("report", "b"), ("train", "b"), ("report", "c"), ("train", "c"),
    ]  # fmt: skip
    assert server.weights == {"c": 1.0}


def test_stages_follow_each_other_and_the_last_has_no_end():
    def stage(share: float) -> Recipe:
        return recipe(aggregate=WeightedMean(lambda diagnosis: lambda client, update: share, smoothing=1.0))

    first, second = stage(1.0), stage(2.0)
    method = Method("staged", (Stage(first, rounds=2), Stage(second, rounds=1)))
    assert [method.recipe(round) is first for round in (1, 2, 3, 4)] == [True, True, False, False]


def exploding(rows: torch.Tensor) -> torch.Tensor:
    return rows.exp().mean(dim=0)


def test_a_global_model_that_is_not_finite_is_played_without_who_caused_it():
    answers = {"b": Update(state(1000.0), 1)}
    server = last(recipe(aggregate=PerCoordinate(exploding)), Scripted(["a", "b", "c"], answers))
    expected = torch.tensor([1.0, 3.0]).exp().mean().item()
    assert server.params.weights.item() == pytest.approx(expected)
    assert server.left_out == {"b": "with its update the global model would not be finite"}
    assert "b" not in (server.weights or {})


def test_a_rule_that_only_makes_such_models_leaves_the_last_one():
    rule = PerCoordinate(lambda rows: rows.mean(dim=0) * float("inf"))
    server = last(recipe(aggregate=rule), Scripted(["a", "b"]), rounds=2)
    assert server.params.weights.item() == 0.0
    assert list(server.left_out) == ["b", "a"]
