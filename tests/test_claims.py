"""What clients claim is compared with what it can be; who claims more is left out by name, with the bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from fedpca.core import Update
from fedpca.methods.registry import method_names
from fedpca.parts.client.report import JoinReports, mean_loss
from fedpca.parts.sides import SidedReports
from fedpca.screening import MAX_KEYS, MAX_LENGTH, Bound, Claims, claims_of, report_error, says
from fedpca.sites.one_exchange import in_one_exchange
from tests.liars import LIAR, played, world
from tests.test_loop import Scripted, last, never, recipe, state

WARM = {"warmup": 1}
STAGES = {"stages": [2, 1]}
LIES = [  # method, its settings, key, claim: the first ones once ended a run, or had honest clients judged
    ("fedcorr", STAGES, "lid", 1e155),
    ("fedcorr", STAGES, "lid", 1e308),
    ("fedga", {}, "gap", 1e308),
    ("fedga", {}, "gap", -1e308),
    ("fedpca-d", WARM, "loss", 1e9),
    ("fedpca-d", WARM, "loss", -1e9),
    ("fedpca-d", WARM, "dispersion", -1e6),
    ("fedpca-d-auto", WARM, "slope", 1e9),
    ("fedpca-d-auto", WARM, "agreement", 1.5),
    ("fedpca-hs", WARM, "confidence", 2.0),
    ("fedpca", WARM, "skewed", 3.0),
    ("qfedavg", {}, "loss", -1e9),
    ("qffl", {}, "loss", 1e308),
    ("fedism", {}, "sharpness", 1e30),
    ("fedce", {}, "others", 7.0),
    ("fednoro", WARM, "class_loss", [1e9] * 10),
    ("fednoro", WARM, "class_loss", 0.5),
    ("qfedavg", {}, "loss", [0.5]),
]


@pytest.mark.parametrize(("method", "settings", "key", "claim"), LIES)
def test_a_claim_beyond_its_bound_is_left_out_and_named(method: str, settings: dict, key: str, claim: object):
    servers = played(method, {key: claim}, method={method: settings})
    reasons = [server.left_out[LIAR] for server in servers if LIAR in server.left_out]
    assert reasons
    assert all(f"its report says {key} = " in reason and "must be" in reason for reason in reasons)
    assert all(set(server.left_out) <= {LIAR} for server in servers)  # nobody honest
    assert servers[-1].round == 4


@pytest.mark.parametrize("name", method_names())
def test_nobody_honest_claims_too_much_or_too_little(name: str):
    tables = {own: WARM for own in (name, "fednoro") if own == "fednoro" or name.startswith("fedpca") or "+d" in name}
    assert not any(server.left_out for server in played(name, method={**tables, "fedcorr": STAGES}))


def test_only_what_the_recipe_asks_for_is_kept():
    servers = played("qfedavg", {f"spam {number}": 0.0 for number in range(1000)})
    assert all(verdict.report.keys() == {"loss"} for verdict in servers[-1].diagnosis.values())


def test_a_report_without_its_numbers_is_a_fault_by_name():
    asked = says(loss=Bound(0, 9), gain=Bound(0, 1, needed="never"))(lambda site: {})
    server = last(recipe(report=asked), Scripted(["a", "b"], {"report a": {"gain": 0.5}, "report b": {"loss": 1.0}}))
    assert server.left_out == {"a": "its report lacks loss"}


def test_what_follows_training_is_needed_of_those_who_trained():
    claims = Claims({"lid": Bound(0, 9, needed="trained")})
    assert report_error({}, claims, trained=True) == "its report lacks lid"
    assert report_error({}, claims, trained=False) is None


def test_a_part_that_declares_nothing_may_say_anything_finite_but_not_without_end():
    assert claims_of(lambda site: {}).open
    assert report_error({"mine": 1e300}, Claims(open=True)) is None
    assert "numbers" in report_error({str(i): 0.0 for i in range(MAX_KEYS + 1)}, Claims(open=True))
    assert "numbers" in report_error({"mine": [0.0] * (MAX_LENGTH + 1)}, Claims(open=True))


def test_a_part_made_of_a_known_one_does_not_inherit_its_claims():
    @dataclass(frozen=True)
    class Mine(JoinReports):
        def __call__(self, site):
            return {"mine": 1.0}

    assert not claims_of(JoinReports((mean_loss,))).open
    assert claims_of(Mine((mean_loss,))).open


def test_joint_reports_claim_what_their_parts_do():
    loss = claims_of(mean_loss).bounds["loss"]
    assert claims_of(SidedReports((("a", mean_loss), ("b", mean_loss)))) == Claims({"a/loss": loss, "b/loss": loss})
    assert claims_of(JoinReports((mean_loss, never))) == Claims({"loss": loss}, open=True)
    assert claims_of(None) == Claims()


def test_reports_with_training_claim_both():
    _, federation = world()
    assert federation.shards
    lists = [list(claims_of(r.train).bounds) for r in _recipes("fedcorr")]
    assert ["lid"] in lists
    both = [list(claims_of(in_one_exchange(m).stages[0].recipe.train).bounds) for m in _methods("fedcorr")]
    assert both == [["noise", "lid"]]


def _methods(name: str):
    from fedpca.runs.check import method_of

    return [method_of(world()[0], name)]


def _recipes(name: str):
    return [stage.recipe for method in _methods(name) for stage in method.stages]


def test_a_size_beyond_what_the_client_joined_with_is_left_out_and_named():
    clients = Scripted(["a", "b"], {"b": Update(state(9.0), 10**12)}, sizes={"a": 1, "b": 120})
    server = last(recipe(), clients)
    assert server.weights == {"a": 1.0}
    assert "1000000000000" in server.left_out["b"]
    assert "120" in server.left_out["b"]


def test_whose_size_is_not_known_is_not_bounded_by_it():
    assert last(recipe(), Scripted(["a", "b"], {"b": Update(state(9.0), 3)})).left_out == {}


def test_a_liars_size_is_compared_with_its_data():
    servers = played("fedavg", forge=lambda params, update: replace(update, size=10**12))
    assert all("10000000000" in server.left_out[LIAR] for server in servers)
    assert servers[-1].weights.keys() == {"0", "2", "3"}
