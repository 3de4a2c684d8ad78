"""Local differential privacy at real sites: one epsilon for a run, counted on the site's own disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fedpca.data.federation import Federation
from fedpca.errors import RunError, SettingsError
from fedpca.models.build import build
from fedpca.operate.doctor import Machine, check_policy
from fedpca.parts.accounting import Released, noise_for, spent
from fedpca.sites import clients, roster
from fedpca.sites.answer import answer
from fedpca.sites.budget import Budget, Told, spent_in_store
from fedpca.sites.data import SiteData
from fedpca.sites.deployment import read_deployment
from fedpca.sites.messages import Content
from fedpca.sites.policy import POLICY
from fedpca.sites.rules import PolicyError
from fedpca.sites.run import SECRET, serve
from fedpca.sites.settings import SiteSettings
from tests.sites.engine import Direct

TABLE = {"methods": "fedpca-hs", "rounds": 3, "model": {"name": "mlp"}, "method": {"fedpca-hs": {"warmup": 1}}}
NUMBERS = 3 * 2  # loss, dispersion and confidence, in two rounds
RUN = "0" * 32


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roster, clients):
        monkeypatch.setattr(module, "POLL", 0.01)


@pytest.fixture
def engine(federation: Federation, tmp_path: Path) -> Direct:
    def read_data(name: str, *_: object) -> SiteData:
        net = partial(build, "mlp", federation.shape, 10, seed=7)
        shard, test = federation.shards[name], federation.tests["common"]
        return SiteData(shard, test, tuple("0123456789"), federation.shape, net)

    def node(name: str, kind: str, content: Content) -> Content:
        engine.asked.append((name, kind))
        settings = SiteSettings(site=name, store=tmp_path / name)
        return answer(kind, content, settings, read_data, name)

    engine = Direct({number: partial(node, name) for number, name in enumerate(federation.shards)})
    engine.asked = []
    return engine


def play(
    engine: Direct, folder: Path, out: str = "runs", exchange: str = "two", **table: object
) -> tuple[list[dict], Path]:
    deploy = {"sites": 6, "quorum": 5, "out": str(folder / out), "wait": 60, "deadline": 5, "exchange": exchange}
    experiment, deployment = read_deployment({**TABLE, "deploy": deploy, **table}, "test")
    run = serve(engine, experiment, deployment, lambda line: None)
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()], run


def ledgers(store: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((store / "privacy").glob("*.json"))]


REPORTS = {"privacy": {"reports": {"epsilon": 8.0}}}


def test_a_run_spends_its_epsilon_and_says_so(engine: Direct, tmp_path: Path):
    lines, run = play(engine, tmp_path, **REPORTS)
    assert all(not line["left_out"] for line in lines)
    noise = noise_for(8.0, 1e-5, NUMBERS)
    assert lines[0]["privacy"] == {"reports": 0.0}
    assert lines[-1]["privacy"]["reports"] == pytest.approx(8.0, abs=2e-4)
    assert 0 < lines[1]["privacy"]["reports"] < 8.0
    about = json.loads((run / "about.json").read_text())["privacy"]["reports"]
    assert about == {"epsilon": 8.0, "delta": 1e-5, "noise": pytest.approx(noise), "releases": NUMBERS}
    (ledger,) = ledgers(tmp_path / "1")
    assert [*ledger] == ["000002-report", "000003-report"]
    assert ledger["000003-report"]["report"]["loss"] == lines[-1]["clients"]["loss"][1]
    assert spent_in_store(tmp_path / "1", 1e-5) == (pytest.approx(8.0), 1)
    assert (tmp_path / "1" / "privacy").stat().st_mode & 0o077 == 0


def test_in_one_exchange_the_same_is_promised(engine: Direct, tmp_path: Path):
    lines, _ = play(engine, tmp_path, exchange="one", **REPORTS)
    assert all(not line["left_out"] for line in lines)
    assert lines[-1]["privacy"]["reports"] == pytest.approx(8.0, abs=2e-4)
    assert [*ledgers(tmp_path / "1")[0]] == ["000002-train", "000003-train"]
    assert spent_in_store(tmp_path / "1", 1e-5) == (pytest.approx(8.0), 1)


def test_a_run_that_goes_on_is_told_the_same_numbers_again(engine: Direct, tmp_path: Path):
    """The server dies after the reports of round 3, which it then asks for again: nothing more is spent."""
    seen = 0

    def train_of_round_3_fails(kind: str, content: Content) -> Content:
        nonlocal seen
        seen += kind == "train"
        if kind == "train" and seen == 3:
            raise KeyboardInterrupt
        return whole(kind, content)

    whole, engine.answers[5] = engine.answers[5], train_of_round_3_fails
    with pytest.raises(KeyboardInterrupt):
        play(engine, tmp_path, **REPORTS)
    before = ledgers(tmp_path / "2")
    engine.answers[5] = whole
    lines, _ = play(engine, tmp_path, **REPORTS)
    assert ledgers(tmp_path / "2") == before
    assert lines[-1]["clients"]["loss"][2] == before[0]["000003-report"]["report"]["loss"]
    assert spent_in_store(tmp_path / "2", 1e-5) == (pytest.approx(8.0), 1)


def test_a_policy_adds_up_all_runs_and_the_record_names_who_has_spent_it(engine: Direct, tmp_path: Path):
    """A second run, as a server would submit it to ask again: that site alone refuses, and nobody waits for it."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / POLICY).write_text("max_epsilon = 10")
    first, _ = play(engine, tmp_path, **REPORTS)
    assert all(not line["left_out"] for line in first)
    again, _ = play(engine, tmp_path, out="again", **REPORTS)
    both = spent([Released(noise_for(8.0, 1e-5, NUMBERS), 2 * NUMBERS)], 1e-5)
    reason = (
        f"its policy allows its reports an epsilon of 10 in all its runs; with this run they would spend {both:.3g}"
    )
    assert [line["left_out"] for line in again] == [{"1": f"{reason}, of which 8 are spent"}] * 3
    assert len(ledgers(tmp_path / "1")) == 1
    (tmp_path / "store").symlink_to(tmp_path / "1")
    found = [finding.what for finding in check_policy(Machine(site="1", state=tmp_path))]
    assert found[1].startswith("reports have spent epsilon 8 of 10, in 1 runs")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({}, "the run has no privacy.epsilon"),
        (REPORTS, "with this run they would spend 8"),
        ({"privacy": {"reports": {"noise": 3.0}}}, "the run has no privacy.epsilon"),
    ],
)
def test_a_policy_demands_an_epsilon(engine: Direct, tmp_path: Path, table: dict, reason: str):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / POLICY).write_text("max_epsilon = 4")
    lines, _ = play(engine, tmp_path, **table)
    said = f"its policy allows its reports an epsilon of 4 in all its runs; {reason}"
    assert [line["left_out"] for line in lines] == [{"1": said}] * 3
    assert not (tmp_path / "1" / "privacy").exists()


def test_a_method_that_reports_nothing_spends_nothing(engine: Direct, tmp_path: Path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / POLICY).write_text("max_epsilon = 0.01")
    lines, _ = play(engine, tmp_path, methods="fedavg", method={})
    assert all(not line["left_out"] and "privacy" not in line for line in lines)


def test_what_cannot_be_private_is_refused_before_anybody_is_asked(engine: Direct, tmp_path: Path):
    with pytest.raises(SettingsError, match="fednoro reports 'class_loss', a list: choose another method"):
        play(engine, tmp_path, methods="fednoro", method={"fednoro": {"warmup": 1}}, **REPORTS)
    with pytest.raises(SettingsError, match=r"set privacy\.reports\.epsilon too"):
        play(engine, tmp_path, privacy={"central": {"epsilon": 8.0, "clip": 1.0}})
    with pytest.raises(SettingsError, match=r"median has BoundedInfluence \(around PerCoordinate\)"):
        play(engine, tmp_path, methods="median", method={}, privacy={"central": {"epsilon": 8.0, "clip": 1.0}})
    assert engine.asked == []


def test_noise_at_the_server_is_of_a_secret_that_no_site_knows(engine: Direct, tmp_path: Path):
    central = {"privacy": {"central": {"epsilon": 8.0, "clip": 1.0}}, "methods": "fedavg", "method": {}}
    lines, run = play(engine, tmp_path, **central)
    assert lines[-1]["privacy"] == {"central": pytest.approx(8.0, abs=2e-4)}
    assert lines[-1]["clients"]["weight"] == pytest.approx([1 / 6] * 6)
    assert (run / SECRET).stat().st_mode & 0o077 == 0
    _, other = play(engine, tmp_path, out="other", **central)
    assert (run / SECRET).read_bytes() != (other / SECRET).read_bytes()
    assert (run / "final.safetensors").read_bytes() != (other / "final.safetensors").read_bytes()


def test_a_ledger_that_cannot_be_read_ends_what_leaves(engine: Direct, tmp_path: Path, capfd):
    (tmp_path / "1" / "privacy").mkdir(parents=True)
    (tmp_path / "1" / POLICY).write_text("max_epsilon = 100")
    (tmp_path / "1" / "privacy" / f"{RUN}.json").write_text('{"000001-report": {"noise": 3')
    lines, _ = play(engine, tmp_path, **REPORTS)
    reason = "its record of what it told under differential privacy cannot be read, so it tells nothing"
    assert [line["left_out"] for line in lines] == [{"1": reason}] * 3
    assert f"{RUN}.json, which says what this site told" in capfd.readouterr().err


def require_at_most(epsilon: float, own: list[Released], every: list[Released]) -> None:
    if spent(own, 1e-5) > epsilon:
        raise PolicyError("its privacy budget is spent")


KILLED = """
import os, signal, sys
from pathlib import Path
from fedpca.sites.budget import Budget, Told
Budget(Path(sys.argv[1])).tell("{run}", "000001-report", Told(noise=1.0, count=2, report={{"loss": 0.25}}), print)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_told_outlives_the_process_and_is_not_told_anew(tmp_path: Path):
    """Killed between writing and sending: whoever asks again gets what was written."""
    done = subprocess.run([sys.executable, "-c", KILLED.format(run=RUN), str(tmp_path)], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    budget, other = Budget(tmp_path), Told(noise=1.0, count=2, report={"loss": 0.75})
    require = partial(require_at_most, spent([Released(1.0, 3)], 1e-5))
    assert budget.tell(RUN, "000001-report", other, require) == {"loss": 0.25}
    assert budget.told(RUN) == [Released(1.0, 2)]
    with pytest.raises(PolicyError, match="spent"):
        budget.tell(RUN, "000002-report", other, require)
    assert budget.told(RUN) == [Released(1.0, 2)]
    assert budget.told_to_others("f" * 32) == [Released(1.0, 2)]


def test_a_run_that_changes_its_rounds_gets_no_more_than_its_epsilon(engine: Direct, tmp_path: Path):
    """The same run goes on with more rounds than its noise was made for: refused by the server itself."""
    play(engine, tmp_path, **REPORTS)
    with pytest.raises(RunError, match=r"whose noise is for the rounds that were planned: keep rounds as it was"):
        play(engine, tmp_path, rounds=5, **REPORTS)


def test_a_server_that_asks_for_more_rounds_all_the_same_is_refused_by_the_sites(engine: Direct, tmp_path: Path):
    """Its run says nothing of an epsilon, `[deploy]` does: what each site has told counts, not what a server says."""
    deploy = {"sites": 6, "quorum": 5, "out": str(tmp_path / "runs"), "wait": 60, "deadline": 5}
    own = {**TABLE, "deploy": {**deploy, "privacy": {"epsilon": 8.0}}}
    experiment, deployment = read_deployment(own, "test")
    serve(engine, experiment, deployment, lambda line: None)
    experiment, deployment = read_deployment({**own, "rounds": 4}, "test")
    with pytest.raises(RunError, match="its privacy budget is spent: the run has epsilon 8, and one more report"):
        serve(engine, experiment, deployment, lambda line: None)
