"""What a method's name stands for, and which settings belong to it."""

from __future__ import annotations

import tomllib

import pytest

from fedpca.errors import SettingsError
from fedpca.methods.registry import facts, parse
from fedpca.runs.check import check_experiment, method_of, one_run
from fedpca.settings.toml import write_table
from tests.methods.test_methods import servers
from tests.methods.test_rivals import tiny


@pytest.mark.parametrize(
    ("name", "simple", "drops"),
    [
        ("fedism+", ("fedism+",), False),
        ("fedism+d", ("fedism",), True),
        ("fedism++d", ("fedism+",), True),
        ("fedism+fednoro", ("fedism", "fednoro"), False),
        ("fedism++fednoro", ("fedism+", "fednoro"), False),
        ("fedce+rfa+d", ("fedce", "rfa"), True),
        ("fedism++median+d", ("fedism+", "median"), True),
        ("median+fedism++d", ("median", "fedism+"), True),
        ("fedavg+fedavg", ("fedavg", "fedavg"), False),
    ],
)
def test_names_are_taken_apart_and_play(name: str, simple: tuple[str, ...], drops: bool):
    assert parse(name) == (simple, drops)
    experiment, federation = tiny()
    method = method_of(experiment, name)
    assert method.name == name
    assert servers(method, federation, rounds=1)[-1].params.weights.isfinite().all()
    assert facts(name).summary


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fedavg+nobody", "there is no method 'nobody' to combine in 'fedavg+nobody'"),
        ("fedavg+medain", "there is no method 'medain' to combine in 'fedavg+medain' (did you mean 'median'?)"),
        ("nobody+d", "there is no method 'nobody+d'"),
        ("fedavg+median+rfa", "there is no method 'fedavg+median+rfa'"),
        ("fedavg+d+median", "there is no method 'fedavg+d+median'"),
        ("fedavg+", "there is no method"),
        ("+d", "there is no method"),
        ("", "there is no method"),
        ("fedcorr+d", "'fedcorr+d': fedcorr judges clients mislabeled itself, so +d has nothing to add"),
        ("fednoro+d", "fednoro judges clients mislabeled itself"),
        ("fedpca-d+d", "fedpca-d judges clients mislabeled itself"),
        ("fedga+fedcorr+d", "fedcorr judges clients mislabeled itself"),
    ],
)
def test_names_that_mean_nothing_are_refused_with_the_reason(name: str, reason: str):
    with pytest.raises(SettingsError) as caught:
        facts(name)
    assert reason in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        check_experiment({"methods": [name]}, "mine.toml")
    assert str(caught.value).startswith("mine.toml: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("fedism+d", {"fedism", "fedism+d"}),
        ("fedism++d", {"fedism+", "fedism++d"}),
        ("fedism+fednoro", {"fedism", "fednoro", "fedism+fednoro"}),
        ("fedce+rfa+d", {"fedce", "rfa", "fedce+rfa", "fedce+rfa+d"}),
    ],
)
def test_a_run_keeps_the_settings_of_every_component(name: str, tables: set[str]):
    table = {
        "rounds": 20,
        "methods": [name],
        "method": {
            "fedism": {"q": 3.0},
            "fedism+": {"q": 4.0},
            "fednoro": {"temperature": 0.5},
            "rfa": {"steps": 9},
            "fedism+fednoro": {"share": 0.3},
            "fedce+rfa": {"share": 0.4},
            "fedism+d": {"warmup": 5},
        },
    }
    experiment = check_experiment(table, "test")
    cell = one_run(experiment, name, 0)
    assert set(cell.method) == tables
    for part in tables & set(table["method"]):
        assert table["method"][part].items() <= cell.method[part].items()
    assert check_experiment(tomllib.loads(write_table(cell)), "test") == cell
    assert method_of(cell, name) == method_of(experiment, name)
    assert method_of(experiment, name) != method_of(check_experiment({"rounds": 20, "methods": [name]}, "test"), name)


def test_fednoro_adjusts_logits_alone_and_as_the_experiment_says_in_a_combination():
    experiment, _ = tiny()
    adjusts = [method_of(experiment, name).stages[-1].recipe.train.loss for name in ("fednoro", "fedism+fednoro")]
    assert (adjusts[0].adjusted, adjusts[1].part.adjusted) == (True, False)
    told = experiment.model_copy(update={"training": experiment.training.model_copy(update={"logit_adjustment": True})})
    assert method_of(told, "fedism+fednoro").stages[-1].recipe.train.loss.part.adjusted
