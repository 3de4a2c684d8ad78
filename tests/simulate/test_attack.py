"""Simulated clients that attack: what they send and say, from which round on, and what the record says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from fedpca.core import Params, Shard, Update
from fedpca.data.datasets import load
from fedpca.data.federation import federate
from fedpca.errors import SettingsError
from fedpca.runs.cell import cells
from fedpca.runs.check import check_experiment, read_settings
from fedpca.runs.folder import read_about, read_rounds
from fedpca.runs.run import run_cell
from fedpca.screening import Bound
from fedpca.settings.attack import AttackSettings
from fedpca.settings.shipped import shipped_experiments
from fedpca.simulate.attack import forging
from fedpca.simulate.attack.clients import attackers_of
from fedpca.simulate.attack.forging import View
from fedpca.simulate.attack.kinds import ATTACKS, attacks_of, check_attack
from fedpca.sites.settings import BOUNDS

SMALL = {
    "rounds": 4,
    "seeds": [0],
    "data": {"clients": 5, "train_images": 300, "test_images": 200},
    "model": {"name": "mlp"},
    "training": {"batch": 16, "lr": 0.1},
}


def state(*values: float) -> Params:
    return Params(torch.tensor(values), torch.zeros(0), torch.zeros(0, dtype=torch.int64))


def view(*others: Params, mine: dict[str, Update] | None = None) -> View:
    return View(state(1.0, 1.0), mine or {}, others, torch.Generator().manual_seed(0))


def play(folder: Path, method: str = "fedavg", workers: int = 1, stop: int | None = None, **changes: object):
    """The run's rounds and what it says of itself."""
    experiment = check_experiment({**SMALL, "methods": [method], **changes}, "attack")
    (cell,) = cells(experiment, folder)
    dataset = load(experiment.data)

    def watch(_: object, line: dict[str, object]) -> None:
        if line["round"] == stop:
            raise KeyboardInterrupt

    run_cell(cell, dataset, federate(experiment, dataset), workers, watch)
    return read_rounds(cell.folder), read_about(cell.folder)


def without_times(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


# What is forged


def test_a_scaled_step_is_so_many_times_the_honest_one():
    assert forging.ScaledStep(3.0)(Update(state(2.0, 0.0), 5), view()).params.weights.tolist() == [4.0, -2.0]
    assert forging.ScaledStep(-2.0)(Update(state(2.0, 0.0), 5), view()).params.weights.tolist() == [-1.0, 3.0]


def test_who_colludes_sends_what_the_others_send():
    mine = {"a": Update(state(2.0, 0.0), 5), "b": Update(state(4.0, 2.0), 7)}
    sent = [forging.SameUpdate()(own, view(mine=mine)) for own in mine.values()]
    assert [own.params.weights.tolist() for own in sent] == [[3.0, 1.0]] * 2
    assert [own.size for own in sent] == [5, 7]


def test_within_the_spread_is_the_honest_mean_less_their_deviations():
    others = state(0.0, 1.0), state(2.0, 1.0)
    sent = forging.WithinTheSpread(1.5)(Update(state(9.0, 9.0), 5), view(*others))
    assert sent.params.weights.tolist() == [1.0 - 1.5, 1.0]


def test_a_free_rider_sends_the_model_back_and_claims_its_size():
    sent = forging.FreeRide(0.0)(Update(state(9.0, 9.0), 5), view())
    assert (sent.params.weights.tolist(), sent.size) == ([1.0, 1.0], 5)


def test_a_backdoor_marks_its_share_of_the_images_and_leaves_the_owners_data_alone():
    shard = Shard(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.full((10,), 7))
    poisoned = forging.Backdoor(target=3, share=0.3)(shard)
    marked = poisoned.y == 3
    assert marked.sum() == 3
    assert (poisoned.x[marked][..., :2, :2] == 255).all()
    assert not poisoned.x[~marked].any()
    assert not shard.x.any()


def test_a_table_of_numbers_has_a_mark_too():
    marked = forging.with_mark(torch.linspace(0, 1, 10).reshape(2, 5, 1, 1))
    assert marked.flatten(1)[:, :2].eq(1.0).all()
    assert marked.flatten(1)[:, 2:].max() <= 1.0


def test_a_lie_is_the_bound_of_the_number_on_either_side_of_a_combination():
    bounds = {"a/loss": Bound(0, 9), "b/loss": Bound(0, 5), "class_loss": Bound(0, 4, many=True)}
    report = {"a/loss": 1.0, "b/loss": 1.0, "class_loss": [1.0, 2.0]}
    assert forging.Extreme("loss", highest=True)(report, bounds) == {**report, "a/loss": 9.0, "b/loss": 5.0}
    assert forging.Extreme("class_loss", highest=True)(report, bounds)["class_loss"] == [4.0, 4.0]
    assert forging.Says({"loss": 3.0, "gone": 1.0})(report, bounds) == {**report, "a/loss": 3.0, "b/loss": 3.0}


# Who attacks


def test_attackers_are_named_or_drawn_from_the_common_clients():
    ids = [str(n) for n in range(10)]
    assert attackers_of(AttackSettings(), ids, ids, 0) == []
    assert attackers_of(AttackSettings(kind="not-finite", clients=("4", "2")), ids, ids, 0) == ["2", "4"]
    drawn = attackers_of(AttackSettings(kind="not-finite", share=0.3), ids, ids[5:], 0)
    assert len(drawn) == 3
    assert set(drawn) <= set(ids[5:])
    assert drawn == attackers_of(AttackSettings(kind="size", share=0.3), ids, ids[5:], 0)  # the same for every kind
    with pytest.raises(SettingsError, match="no client '44'"):
        attackers_of(AttackSettings(kind="not-finite", clients=("44",)), ids, ids, 0)


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "size+size"}, {"kind": "none+size"}, {"clients": ["1"], "share": 0.2}, {"since": 0}, {"poisoned": 0.0}],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]):
    with pytest.raises(ValidationError):
        AttackSettings(**wrong)


def test_a_wrong_name_and_a_strength_without_use_are_errors_with_a_remedy(tmp_path: Path):
    with pytest.raises(SettingsError, match="did you mean 'backdoor'"):
        check_attack(AttackSettings(kind="backdor"))
    with pytest.raises(SettingsError, match=r"attack\.strength"):
        check_attack(AttackSettings(kind="not-finite", strength=3))
    with pytest.raises(SettingsError, match="10 classes"):
        play(tmp_path, attack={"kind": "backdoor", "target": 10})


def test_every_kind_and_every_attack_of_the_experiment_can_be_made():
    played = {experiment.attack.kind for experiment in read_settings(shipped_experiments()["attacks"]).values()}
    assert len(played) > 8
    for kind in (*ATTACKS, *played):
        assert len(attacks_of(AttackSettings(kind=kind), 10)) == len(AttackSettings(kind=kind).kinds)


def test_the_bounds_of_the_experiment_are_those_of_a_deployment():
    own = read_settings(shipped_experiments()["attacks"])
    for name, experiment in own.items():
        on = {key: getattr(experiment.aggregation, key) for key in BOUNDS}
        assert on == (BOUNDS if "bounds" in name else dict.fromkeys(BOUNDS, 0.0)), name


# Whole runs


def test_before_its_first_round_an_attack_changes_no_bit(tmp_path: Path):
    plain, _ = play(tmp_path / "plain")
    late, about = play(tmp_path / "late", attack={"kind": "reversed-step", "since": 3, "clients": ["2"]})
    assert "attack" not in plain[0]
    assert [line["clients"] for line in late[:2]] == [line["clients"] for line in plain[:2]]
    assert late[1]["groups"] == plain[1]["groups"]
    assert late[2]["groups"] != plain[2]["groups"]
    assert about["attack"] == {"clients": ["2"], "words": "reversed-step", "since": 3}
    assert [line["attack"]["clients"] for line in late] == [[], [], ["2"], ["2"]]


def test_the_record_says_what_the_attackers_weigh_and_whether_the_backdoor_works(tmp_path: Path):
    lines, _ = play(tmp_path, attack={"kind": "backdoor+scaled-step", "strength": 5, "clients": ["1"]})
    assert lines[-1]["attack"]["weight"] == pytest.approx(0.2)
    assert 0.5 < lines[-1]["attack"]["success"] <= 1
    assert lines[-1]["attack"]["judged"] is None  # FedAvg judges nobody
    lied, _ = play(tmp_path / "size", attack={"kind": "joining-size", "clients": ["1"]})
    assert lied[-1]["attack"]["weight"] > 0.99
    assert lied[-1]["attack"]["success"] is None
    caught, _ = play(tmp_path / "caught", attack={"kind": "size", "clients": ["1"]})
    assert caught[-1]["attack"]["weight"] == 0
    assert set(caught[-1]["left_out"]) == {"1"}


def test_who_is_clipped_or_capped_is_named_in_the_record(tmp_path: Path):
    bounds = {"max_weight": 3.0, "max_size": 10.0, "clip": 3.0}
    attack = {"kind": "joining-size+scaled-step", "clients": ["1"]}
    lines, _ = play(tmp_path, attack=attack, aggregation=bounds)
    assert set(lines[-1]["bounded"]) == {"1"}
    assert "samples counted as 600" in lines[-1]["bounded"]["1"]
    assert "weights shortened to" in lines[-1]["bounded"]["1"]
    assert "weight 0.714 lowered to 0.6" in lines[-1]["bounded"]["1"]
    honest, _ = play(tmp_path / "honest", aggregation=bounds)
    assert all("bounded" not in line for line in honest)


@pytest.mark.parametrize("kind", ["backdoor+random-weights+collude", "within-spread"])
def test_attacked_runs_have_the_same_bits_after_an_interruption_and_with_workers(tmp_path: Path, kind: str):
    attack = {"kind": kind, "share": 0.4, "since": 2}
    whole, _ = play(tmp_path / "whole", "fedpca", attack=attack)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "cut", "fedpca", stop=2, attack=attack)
    cut, _ = play(tmp_path / "cut", "fedpca", workers=2, attack=attack)
    assert json.dumps(without_times(cut)) == json.dumps(without_times(whole))
