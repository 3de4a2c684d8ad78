"""The operator's command: jobs one after another until the run is finished; a server that plays one is made up here."""

from __future__ import annotations

import json
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedpca.errors import FailedError, RunError, SettingsError, UserError
from fedpca.nvflare import submit as submitting
from fedpca.nvflare.submit import Follower, outside_of, submit, write_job
from tests.nvflare.federation import JOB

RUNNING, DONE, FAILED = "RUNNING", "FINISHED:COMPLETED", "FINISHED:EXECUTION_EXCEPTION"


class Flare:
    """A server: each job is a list of steps, one a look: (status, all lines so far, what each site does)."""

    def __init__(self, jobs: list[list]) -> None:
        self.jobs, self.folders, self.asked, self.aborted = jobs, [], [], []

    def get_connected_client_list(self):
        return [SimpleNamespace(name=str(number)) for number in range(4)]

    def submit_job(self, folder: str) -> str:
        self.folders.append(tomllib.loads((Path(folder) / "app/config/fedpca.toml").read_text()))
        self.steps = iter(self.jobs.pop(0))
        return f"job-{len(self.folders)}"

    def get_job_meta(self, number: str):
        self.now = next(self.steps)
        if isinstance(self.now, BaseException):
            raise self.now
        return {"status": self.now[0]}

    def do_app_command(self, number: str, topic: str, data: dict):
        self.asked.append(data)
        return {"lines": self.now[1][data["after"] :]}

    def get_client_job_status(self):
        return self.now[2] if len(self.now) > 2 else []

    def abort_job(self, number: str) -> None:
        self.aborted.append(number)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch):
    """Submits the example's job to a made-up server; the exit code or error, what was shown, and the server."""
    for name in ("LOOK", "ROLL"):
        monkeypatch.setattr(submitting, name, 0.0)

    def play(*jobs: list):
        flare, shown = Flare(list(jobs)), []
        monkeypatch.setattr(submitting, "opened", lambda kit: nullcontext(flare))
        try:
            code: object = submit(JOB, ["rounds=3"], Path("kit"), shown.append)
        except RunError as error:
            code = error
        return code, shown, flare

    return play


def test_a_run_that_finishes_ends_with_0_and_each_line_is_shown_once(play):
    lines = ["round 1/3", "finished: x"]
    code, shown, flare = play([(RUNNING, []), (RUNNING, lines[:1]), (RUNNING, lines), (DONE, lines)])
    assert code == 0
    assert shown == ["job job-1", *lines]
    assert flare.folders[0]["rounds"] == 3


def test_a_site_that_is_back_ends_the_job_after_its_round_and_the_run_goes_on_in_another(play):
    celle = {"client_name": "celle", "job_id": "job-1", "status": "started"}
    back = [{"client_name": "bonn", "status": "no_jobs"}, celle]
    first = [*[(RUNNING, ["round 1/3"], back)] * 4, (DONE, ["round 1/3"], back)]
    code, shown, flare = play(first, [(RUNNING, ["finished: x"]), (DONE, ["finished: x"])])
    assert code == 0
    assert "bonn can take part again: the job ends after this round" in shown
    assert [bool(asked["end"]) for asked in flare.asked] == [False, False, True, True, True, False, False]
    assert len(flare.folders) == 2


def test_a_site_that_is_late_in_one_look_does_not_end_the_job(play):
    once = [{"client_name": "bonn", "status": "no_jobs"}]
    done = ["a", "finished: x"]
    code, _, flare = play([(RUNNING, ["a"], once), (RUNNING, ["a"]), (RUNNING, done), (DONE, done)])
    assert code == 0
    assert not any(asked["end"] for asked in flare.asked)


def test_a_run_that_fails_says_why_in_its_last_line(play):
    lines = ["round 1/3", "the run ended: quorum"]
    code, *_ = play([(RUNNING, lines), (FAILED, lines)])
    assert isinstance(code, FailedError)
    assert "the run ended: quorum" in str(code)


def test_a_job_that_does_not_begin_is_tried_again_and_then_given_up(play):
    code, _, flare = play(*[[(FAILED, [])]] * 3)
    assert isinstance(code, FailedError)
    assert len(flare.folders) == 3


def test_a_server_that_is_away_for_a_moment_is_waited_for_and_then_given_up(play, monkeypatch: pytest.MonkeyPatch):
    done = ["a", "finished: x"]
    code, *_ = play([(RUNNING, ["a"]), ConnectionError("x"), (RUNNING, done), (DONE, done)])
    assert code == 0
    monkeypatch.setattr(submitting, "AWAY", 0.0)
    code, *_ = play([(RUNNING, ["a"]), *[ConnectionError("x")] * 5])
    assert "the server went away (ConnectionError)" in str(code)


def test_ctrl_c_stops_the_job(play):
    code, _, flare = play([(RUNNING, ["a"]), KeyboardInterrupt()])
    assert code == 130
    assert flare.aborted == ["job-1"]


def test_a_job_begins_as_soon_as_its_quorum_is_there(tmp_path: Path):
    folder, deployment = write_job(JOB, ["deploy.quorum=3", "training.lr=0.5"], tmp_path / "job")
    assert json.loads((folder / "meta.json").read_text())["min_clients"] == deployment.min_answers == 3
    assert tomllib.loads((folder / "app/config/fedpca.toml").read_text())["training"]["lr"] == 0.5


def test_a_typo_is_named_before_anything_is_submitted(tmp_path: Path):
    with pytest.raises(SettingsError, match="round"):
        write_job(JOB, ["round=3"], tmp_path / "job")
    with pytest.raises(UserError, match="is no job of fedpca"):
        write_job(tmp_path, [], tmp_path / "other")


def test_who_is_outside_of_a_job():
    statuses = [
        {"client_name": "aachen", "job_id": "1", "status": "started"},
        {"client_name": "bonn", "status": "no_jobs"},
        {"client_name": "celle", "job_id": "2", "status": "started"},
        {"client_name": "celle", "job_id": "1", "status": "started"},
        {"client_name": "dessau"},
    ]
    assert outside_of("1", statuses) == {"bonn"}


def test_a_command_without_an_operators_kit_says_so(tmp_path: Path):
    with pytest.raises(UserError, match="is not an operator's startup kit"), submitting.opened(tmp_path):
        pass


def test_lines_that_are_none_are_ignored():
    follower = Follower(SimpleNamespace(do_app_command=lambda *arguments: "nothing"), "1", print)
    follower._read_lines()
    assert follower.lines == []
