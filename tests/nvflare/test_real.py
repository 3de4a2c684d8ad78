"""Server, sites and runs as real processes: certificates of NVFlare's own, TLS, and no network but loopback.

The engine's bits, and faults that hold nobody up. Every wait has a limit, and whatever was started is ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from fedpca.results.page import write_page
from fedpca.results.read.runs import find_runs
from tests.nvflare.faulty import SECRET
from tests.nvflare.federation import NAMES, SERVER, Federation, started
from tests.real import LIMIT, assert_engines_bits, digits

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("FEDPCA_SLOW" not in os.environ, reason="takes minutes: set FEDPCA_SLOW=1"),
]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory, prefix: list[str]) -> Iterator[Federation]:
    yield from started(Federation(tmp_path_factory.mktemp("four"), prefix, digits(NAMES)))


@pytest.mark.parametrize("method", ["fedpca-hs-auto", "fedcorr"])
def test_four_sites_give_the_engines_bits_with_a_server_killed_in_between(four: Federation, method: str):
    out = four.folder / "equal"
    folder = out / method / "seed-0"
    config = {"methods": method, "rounds": 8, "deploy.deadline": 300.0, "deploy.sites": 4, "deploy.quorum": 4}
    config |= {"deploy.out": str(out)} | ({f"method.{method}.warmup": 3} if method != "fedcorr" else {})
    run = four.run(**config)
    four.wait_for(lambda: len(four.lines("equal", method)) >= 3, run)
    four.kill(SERVER)
    assert run.wait(LIMIT) == 1, four.tails()
    assert "the server went away" in four.log("run")
    assert not (folder / "summary.json").exists()
    four.start_party(SERVER)
    run = four.run(**config)
    assert run.wait(LIMIT) == 0, four.tails()
    lines = four.lines("equal", method)
    assert [line["round"] for line in lines] == [*range(1, 9)]
    assert all(not line["left_out"] for line in lines)
    assert set(lines[-1]["groups"]) == set(four.shards)
    assert_engines_bits(four.shards, folder)
    page = write_page(find_runs([out / method]))
    assert all(name in page for name in four.shards)


def test_faults_hold_nobody_up_and_are_named(four: Federation):
    """A site that raises, one that sends NaN and is slow, and one whose plug is pulled in the middle of a round."""
    out = four.folder / "faults"
    deploy = {"deploy.sites": 4, "deploy.quorum": 2, "deploy.deadline": 20.0, "deploy.out": str(out)}
    run = four.run("tests.nvflare.faulty.FaultySite", methods="fedavg", rounds=12, **deploy)
    four.wait_for((four.kit("celle") / "waiting").exists, run)
    four.kill("celle")
    four.start_party("celle")
    assert run.wait(LIMIT) == 0, four.tails()
    lines = four.lines("faults", "fedavg")
    assert lines[0]["left_out"] == {"bonn": "it failed: RuntimeError", "dessau": "its weights are not finite"}
    assert set(lines[1]["left_out"]) == {"bonn", "dessau"}
    assert "did not answer" in lines[1]["left_out"]["dessau"]
    assert set(lines[2]["left_out"]) >= {"celle"}
    assert lines[-1]["left_out"] == {}, "everybody came back"
    assert lines[-1]["clients"]["weight"] == pytest.approx([0.25] * 4)
    assert SECRET not in json.dumps(lines) + four.log("run")


def test_a_site_of_another_project_is_not_let_in(four: Federation):
    """It has a certificate and a name, but of another authority."""
    four.provision("others", ["gotha"])
    (four.folder / "data" / "gotha").mkdir(exist_ok=True)
    four.start_party("gotha", "others")
    deploy = {"deploy.sites": 5, "deploy.quorum": 4, "deploy.wait": 20.0, "deploy.deadline": 60.0}
    run = four.run(methods="fedavg", rounds=1, **deploy, **{"deploy.out": str(four.folder / "strange")})
    assert run.wait(LIMIT) == 0, four.tails()
    assert "gotha" not in json.dumps(four.lines("strange", "fedavg"))
    assert "4 of 5 sites" in four.log("run")


def test_an_audit_of_four_sites_gives_rates_to_the_operator_and_lists_to_the_sites(four: Federation):
    out = four.folder / "audited"
    audit = {"deploy.audit.rounds": 3, "deploy.audit.folds": 2, "deploy.audit.sample": 7}
    run = four.run(methods="fedavg", rounds=5, **audit, **{"deploy.sites": 4, "deploy.out": str(out)})
    assert run.wait(LIMIT) == 0, four.tails()
    record = json.loads((out / "audit" / "audit.json").read_text())
    assert {own["client"] for own in record["clients"]} == set(NAMES)
    assert record["engine"].startswith("real sites, nvflare ")
    for name, shard in four.shards.items():
        folder = four.folder / "store" / name / "audit"
        rows = len(shard.y) + len(shard.y[::5])
        assert len((folder / "suspects.csv").read_text().splitlines()) == 1 + rows
        assert folder.stat().st_mode & 0o077 == 0
