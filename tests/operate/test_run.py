"""An app that is run with settings that it does not have: Flower itself changes only those that it has."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedpca.cli.main import app
from fedpca.errors import RunError
from fedpca.flower.config import read_run_config
from fedpca.operate import run
from fedpca.operate.run import submit_with
from fedpca.settings.toml import flatten

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-hospitals"


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The files of every app that was submitted, and its config."""
    found: list[dict] = []

    def submit(folder: Path, changes: object, state: Path, log: object) -> int:
        table = tomllib.loads((folder / "pyproject.toml").read_text())
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        found.append({"files": names, "config": flatten(table["tool"]["flwr"]["app"]["config"]), "changes": changes})
        return 0

    monkeypatch.setattr(run, "submit", submit)
    return found


def test_an_audit_adds_its_options_to_a_copy_of_the_app(submitted: list[dict]):
    before = (EXAMPLE / "pyproject.toml").read_bytes()
    command = ["deploy", "audit", str(EXAMPLE), "--rounds", "7", "--fdr", "0.2", "--set", "training.lr=0.1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    (own,) = submitted
    assert (EXAMPLE / "pyproject.toml").read_bytes() == before
    assert own["changes"] == {}
    _, deployment = read_run_config(own["config"])
    assert deployment.audit is not None
    assert (deployment.audit.rounds, deployment.audit.fdr, deployment.audit.method) == (7, 0.2, "fedavg+d")
    assert own["config"]["training.lr"] == 0.1


def test_an_audit_without_options_is_an_audit(submitted: list[dict]):
    assert CliRunner().invoke(app, ["deploy", "audit", str(EXAMPLE)]).exit_code == 0
    assert read_run_config(submitted[0]["config"])[1].audit is not None
    own = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    _, plain = read_run_config(flatten(own))
    assert plain.audit is None


def test_data_and_runs_beside_an_app_are_not_copied(submitted: list[dict], tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text((EXAMPLE / "pyproject.toml").read_text())
    (tmp_path / "own.py").write_text("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "images.npz").write_bytes(b"0" * 100)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "x.py").write_text("")
    submit_with(tmp_path, {"deploy.audit.rounds": 3}, {}, tmp_path / "state", print)
    assert submitted[0]["files"] == {"pyproject.toml", "own.py"}


def test_what_is_no_app_is_named(tmp_path: Path):
    with pytest.raises(
        RunError, match=r"absent describes no Flower app: it has no pyproject.toml; name a folder such as"
    ):
        submit_with(tmp_path / "absent", {}, {}, tmp_path, print)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(RunError, match=r"pyproject.toml describes no Flower app \('tool'\)"):
        submit_with(tmp_path, {}, {}, tmp_path, print)
