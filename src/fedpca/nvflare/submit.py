"""The operator's command: a run as NVFlare jobs, one after another, until it is finished.

A job of NVFlare has the sites that were there when it began: who comes later, or comes back after a crash, is not in
it. So this command asks the job to end after its round and submits it again, now with everybody; the run goes on from
its checkpoint. The command may be stopped and started again at any time.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w
from nvflare.fuel.flare_api.api_spec import InternalError, JobNotRunning, NoReply
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedpca.atomic import write_json, write_whole
from fedpca.errors import FailedError, RunError, UserError
from fedpca.nvflare.config import RUN_FILE
from fedpca.settings.toml import change, read_table
from fedpca.sites.deployment import read_deployment
from fedpca.sites.roster import Log
from fedpca.sites.settings import Deployment

COMMAND = "fedpca"  # topic of what a running job of fedpca answers
LOOK = 1.0  # seconds between two looks at the job
ROLL = 5.0  # seconds between two looks at who is connected
AWAY = 60.0  # seconds without an answer of the server until it is given up
LOGIN = 30.0  # seconds to reach it at first
STARTS = 3  # jobs in a row that may fail before the run has begun: a site that had just gone makes one fail
CONFIG = Path("app", "config")
DONE, FINISHED = "FINISHED:COMPLETED", "finished: "
OVER = ("FINISHED", "FAILED", "ABANDONED")  # how NVFlare's words for a job that has ended begin


def submit(job: Path, changes: Sequence[str], kit: Path, log: Log) -> int:
    """Plays the run that a job's folder describes, and shows its log to the end; the exit code."""
    with TemporaryDirectory() as name, opened(kit) as flare:
        folder, deployment = write_job(job, changes, Path(name) / "job")
        failed = 0
        while failed < STARTS:
            _wait_for_sites(flare, deployment, log)
            follower = Follower(flare, flare.submit_job(str(folder)), log)
            log(f"job {follower.number}")
            try:
                status = follower.follow()
            except KeyboardInterrupt:
                log("stopping the job")
                flare.abort_job(follower.number)
                return 130
            if follower.lines and follower.lines[-1].startswith(FINISHED):
                return 0
            if not follower.ending and follower.lines:
                raise FailedError(f"the job ended ({status}): {follower.lines[-1]}")
            failed = 0 if follower.lines else failed + 1
            log("going on in a new job" if follower.lines else f"the job did not begin ({status}); trying again")
    raise FailedError("the job does not begin; `nvflare job logs JOB_ID --site server` may tell why")


def write_job(job: Path, changes: Sequence[str], folder: Path) -> tuple[Path, Deployment]:
    """A copy of the job with changed settings, which starts as soon as the quorum is connected."""
    if not (job / CONFIG / RUN_FILE).is_file():
        raise UserError(f"{job} is no job of fedpca: it has no {CONFIG / RUN_FILE}; see examples/nvflare-hospitals")
    shutil.copytree(job, folder)
    table = read_table(folder / CONFIG / RUN_FILE)
    for line in changes:
        table = change(table, line)
    _, deployment = read_deployment({"name": "hospitals", **table}, str(job / CONFIG / RUN_FILE))
    write_whole(folder / CONFIG / RUN_FILE, tomli_w.dumps(table))
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    write_json(folder / "meta.json", {**meta, "min_clients": deployment.min_answers})
    return folder, deployment


@contextmanager
def opened(kit: Path) -> Iterator[Session]:
    """A session of the operator whose startup kit this is."""
    logging.getLogger().addHandler(logging.NullHandler())  # else NVFlare's own words for each attempt are shown
    if not (kit / "startup" / "fed_admin.json").is_file():
        raise UserError(f"{kit} is not an operator's startup kit: it has no startup/fed_admin.json")
    try:
        flare = new_secure_session(username=kit.resolve().name, startup_kit_location=str(kit.resolve()), timeout=LOGIN)
    except Exception as error:
        raise RunError(f"NVFlare's server does not let {kit.resolve().name} in: {error!s:.300}; is it up?") from None
    try:
        yield flare
    finally:
        with suppress(Exception):  # a server that went away is not told good-bye
            flare.close()


def _wait_for_sites(flare: Session, deployment: Deployment, log: Log) -> None:
    """Waits for as many sites as are to come; later the job begins with the quorum."""
    end, said = time.monotonic() + deployment.wait, -1
    while (count := len(flare.get_connected_client_list() or ())) < deployment.sites and time.monotonic() < end:
        if count != said:
            log(f"{count} of {deployment.sites} sites are connected; waiting")
            said = count
        time.sleep(LOOK)


@dataclass
class Follower:
    """One job, from its submission to its end."""

    flare: Session
    number: str
    log: Log

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.ending = False  # whether the job was asked to end after its round
        self.missing: set[str] = set()  # sites that were connected at the last look, and not in the job
        self.looked = time.monotonic()

    def follow(self) -> str:
        """Shows the job's log; its last status. A server that does not answer for long is an error."""
        heard = time.monotonic()
        while True:
            try:
                status = str(self.flare.get_job_meta(self.number)["status"])
                self._read_lines()
                self._look_for_sites()
                heard = time.monotonic()
            except Exception as error:
                if time.monotonic() - heard > AWAY:
                    remedy = "start it again, then the same command: the run goes on from its last finished round"
                    raise RunError(f"the server went away ({type(error).__name__}): {remedy}") from None
                status = ""
            if status.startswith(OVER):
                return status
            time.sleep(LOOK)

    def _read_lines(self) -> None:
        """The lines that are new; none while the job starts or has ended."""
        try:
            told = self.flare.do_app_command(self.number, COMMAND, {"after": len(self.lines), "end": int(self.ending)})
        except (InternalError, JobNotRunning, NoReply):
            return
        for line in told.get("lines", []) if isinstance(told, Mapping) else []:
            self.lines.append(str(line))
            self.log(str(line))

    def _look_for_sites(self) -> None:
        """Has the job end after its round if a site is connected, twice in a row, that is not in it."""
        if self.ending or not self.lines or time.monotonic() - self.looked < ROLL:
            return
        self.looked = time.monotonic()
        outside = outside_of(self.number, self.flare.get_client_job_status() or [])
        if back := sorted(outside & self.missing):
            self.log(f"{', '.join(back)} can take part again: the job ends after this round")
            self.ending = True
        self.missing = outside


def outside_of(job: str, statuses: Sequence[Mapping[str, Any]]) -> set[str]:
    """The sites that are connected and do not work for a job."""
    inside = {own.get("client_name") for own in statuses if own.get("job_id") == job}
    answered = {str(own["client_name"]) for own in statuses if own.get("status") and own.get("client_name")}
    return answered - inside
