"""A site's policy wins over whatever a run asks for, and the run's record says so."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from fedpca.data.federation import Federation
from fedpca.errors import RunError, SettingsError
from fedpca.models.build import build
from fedpca.operate.doctor import Machine, check_policy
from fedpca.sites import clients, roster
from fedpca.sites.answer import answer
from fedpca.sites.data import SiteData
from fedpca.sites.deployment import read_deployment
from fedpca.sites.messages import Content
from fedpca.sites.policy import POLICY, read_policy
from fedpca.sites.run import serve
from fedpca.sites.settings import SiteSettings
from tests.sites.engine import Direct

TABLE = {"methods": "fedpca-hs", "rounds": 2, "model": {"name": "mlp"}, "method": {"fedpca-hs": {"warmup": 1}}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roster, clients):
        monkeypatch.setattr(module, "POLL", 0.01)


@pytest.fixture
def engine(federation: Federation, tmp_path: Path) -> Direct:
    def read_data(name: str, *_: object) -> SiteData:
        net = partial(build, "mlp", federation.shape, 10, seed=7)
        assert not forbids(tmp_path / name), "data are not read before the policy allows it"
        shard, test = federation.shards[name], federation.tests["common"]
        return SiteData(shard, test, tuple("0123456789"), federation.shape, net)

    def node(name: str, kind: str, content: Content) -> Content:
        settings = SiteSettings(site=name, store=tmp_path / name)
        return answer(kind, content, settings, read_data, name)

    return Direct({number: partial(node, name) for number, name in enumerate(federation.shards)})


def forbids(store: Path) -> bool:
    path = store / POLICY
    allows = ("max_parameters", "evaluation")  # which are looked at later
    return path.exists() and not any(word in path.read_text() for word in allows)


def rule(folder: Path, text: str, site: str = "1") -> None:
    (folder / site).mkdir(exist_ok=True)
    (folder / site / POLICY).write_text(text)


def play(engine: Direct, folder: Path, **deploy: object) -> tuple[list[dict], list[str]]:
    said: list[str] = []
    own = {"sites": 6, "quorum": 5, "out": str(folder / "runs"), "wait": 60, "deadline": 5, **deploy}
    experiment, deployment = read_deployment({**TABLE, "deploy": own}, "test")
    out = serve(engine, experiment, deployment, said.append)
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()], said


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ('methods = ["fedavg", "median"]', "its policy allows the methods fedavg, median; the run has fedpca-hs"),
        ("max_rounds = 1", "its policy allows at most 1 rounds; the run has 2"),
        (
            'reports = ["loss", "con*"]',
            "its policy allows the reports loss, con*; the method says dispersion",
        ),
        ("reports = []", "its policy allows no reports; the method says confidence, dispersion, loss"),
        ("max_parameters = 4000", "its policy allows a model of at most 4000 parameters; the run's has 4810"),
        ("rounds = 5", "its policy file cannot be used, so it allows nothing"),
        ("methods = [", "its policy file cannot be used, so it allows nothing"),
    ],
)
def test_what_a_policy_forbids_is_refused_and_named_in_log_and_record(
    engine: Direct, tmp_path: Path, capfd: pytest.CaptureFixture[str], policy: str, reason: str
):
    """The others play on, at once: nobody waits for a site that has said no."""
    rule(tmp_path, policy)
    lines, _ = play(engine, tmp_path)
    assert [line["left_out"] for line in lines] == [{"1": reason}] * 2
    assert "[1] refused to answer" in capfd.readouterr().err
    told = [kind for number, kind in engine.sent if number == 1]
    assert "max_parameters" in policy or told == ["hello"], "who refuses the run is asked nothing more"


def test_if_all_refuse_the_run_ends_with_their_reasons(engine: Direct, tmp_path: Path):
    for site in "012345":
        rule(tmp_path, "max_rounds = 1", site)
    with pytest.raises(RunError, match=r"0 of 6 sites joined .*; 3: its policy allows at most 1 rounds; the run has 2"):
        play(engine, tmp_path)


def test_metrics_stay_where_the_policy_keeps_them(engine: Direct, tmp_path: Path):
    rule(tmp_path, "evaluation = false")
    lines, _ = play(engine, tmp_path)
    assert all(not line["left_out"] for line in lines)
    assert set(lines[-1]["groups"]) == set("02345")


def test_what_is_not_named_is_allowed(engine: Direct, tmp_path: Path):
    rule(
        tmp_path,
        'methods = "fedpca*, median"\nreports = ["*"]\nmax_rounds = 2\nmax_parameters = 4810\nmax_bytes = 19240',
    )
    lines, _ = play(engine, tmp_path)
    assert all(not line["left_out"] for line in lines)


def test_a_policy_that_is_a_folder_or_no_text_is_an_error(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    for name in ("folder", "noise", "nothing"):
        with pytest.raises(SettingsError, match=name):
            read_policy(tmp_path / name)


def test_the_doctor_shows_the_policy(tmp_path: Path):
    (found,) = check_policy(Machine(site="1", state=tmp_path))
    assert "no policy" in found.what
    rule(tmp_path, "max_rounds = 7\naudit = false", "store")
    (found,) = check_policy(Machine(site="1", state=tmp_path))
    assert found.line().endswith(f"policy {tmp_path / 'store' / POLICY}: max_rounds = 7, audit = false")
    rule(tmp_path, "epsilon = 7", "store")
    with pytest.raises(SettingsError, match="unknown key 'epsilon'"):
        next(check_policy(Machine(site="1", state=tmp_path)))
