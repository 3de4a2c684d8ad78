"""What runs in an NVFlare job: the server's half and a site's half, as its configuration names them."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.exceptions import RunAborted

from fedpca.core import Failure
from fedpca.errors import WireError
from fedpca.nvflare.config import read_run, read_site
from fedpca.nvflare.desk import Desk
from fedpca.nvflare.engine import LegEndedError, NVFlareEngine, calls_of
from fedpca.nvflare.wire import STATES, TABLES, Packed, pack, unpack
from fedpca.settings.experiment import Experiment
from fedpca.settings.registry import import_object
from fedpca.sites.answer import answer, explain
from fedpca.sites.data import ReadData, keep_last, own_folder, own_functions
from fedpca.sites.settings import Deployment

SERVER = "server"  # NVFlare's name of it
COMMAND = "fedpca"  # topic of what the operator's command asks a running job
LAST_LINES = 15.0  # seconds that a job waits for the operator's command to fetch its last lines
LOG = logging.getLogger("fedpca")


@dataclass(frozen=True)
class Place:
    """Where a site is, for a `load_data` of somebody's own."""

    site: str
    root: Path  # the site's startup kit, or the workspace of a simulation


class FedPCASite:
    """A site: answers the server alone, from the data that its own `local/fedpca.toml` names.

    `load_data` and `build_model`, as `module:name`, stand for that file's `data` and the run's model; see
    `flower.apps.fedpca_client` for what they give.
    """

    def __init__(self, load_data: str = "", build_model: str = "") -> None:
        read_data: ReadData = own_folder
        if load_data or build_model:
            own: list[Any] = [import_object(place, "function") for place in (load_data, build_model)]
            read_data = own_functions(*own)
        self.read_data = keep_last(read_data)
        self.desk: Desk | None = None

    @collab.init
    def open(self) -> None:
        self.place = Place(collab.site_name, Path(collab.workspace.get_root_dir()))
        self.local = Path(collab.workspace.get_site_config_dir())
        self.desk = Desk()

    @collab.final
    def close(self) -> None:
        if self.desk:
            self.desk.close()

    @collab.publish
    def put(self, number: str, kind: str, tables: str, states: dict, seconds: float) -> None:  # type: ignore[type-arg]
        """Takes a message, to be answered within so many seconds."""
        desk = self._desk()
        end = time.monotonic() + float(seconds)
        desk.put(str(number), partial(self.answer, str(kind), {TABLES: tables, STATES: states}, end))

    @collab.publish
    def is_ready(self, number: str, seconds: float) -> bool:
        """Whether its answer is ready; also a sign of life."""
        return self._desk().is_ready(str(number), min(float(seconds), 60.0))

    @collab.publish
    def take(self, number: str) -> Packed | None:
        """Its answer."""
        return self._desk().take(str(number))

    def answer(self, kind: str, packed: Mapping[str, Any], end: float) -> Packed:
        """What the site says to a message, or why it says nothing; never an exception: NVFlare would send its text."""
        if time.monotonic() > end:
            return pack(Failure("it came too late to it"))
        try:
            settings = read_site(self.place.site, self.local, self.place.root)
            return pack(answer(kind, unpack(dict(packed)), settings, self.read_data, self.place))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return pack(Failure(explain(error)))

    def _desk(self) -> Desk:
        """The desk, for the server: NVFlare would also let other sites of the job call."""
        if collab.caller != SERVER or self.desk is None:
            raise WireError("only the server may ask")
        return self.desk


class FedPCAServer:
    """The server: plays the run or the audit that the job's `fedpca.toml` describes, from where it stood."""

    def __init__(self) -> None:
        self.ending, self.lock, self.lines, self.shown = Event(), Lock(), list[str](), -1

    @collab.main
    def play(self) -> None:
        """Plays to the end, or to the end of a round where the operator's command asked for that."""
        workspace, fl_ctx, context = collab.workspace, collab.fl_ctx, collab.context
        fl_ctx.get_engine().register_app_command(COMMAND, self.tell)

        def check() -> None:
            if context.is_aborted():
                raise RunAborted("the job was aborted")

        config = Path(workspace.get_app_config_dir(fl_ctx.get_job_id()))
        engine = NVFlareEngine(calls_of(collab.clients), check, self.ending)
        try:
            self.serve(engine, *read_run(config, Path(workspace.get_root_dir())))
        except LegEndedError:
            self.log("sites came or came back: this job ends, the run goes on in the next one")
        except Exception as error:
            self.log(f"the run ended: {error}")
            raise
        finally:
            engine.close()
            self._wait_for_reader()

    def serve(self, engine: NVFlareEngine, experiment: Experiment, deployment: Deployment) -> None:
        """What the job's settings ask for."""
        from fedpca.sites.server import serve_deployment  # here: a site has no use for it

        serve_deployment(engine, experiment, deployment, self.log)

    def log(self, line: str) -> None:
        LOG.info(line)
        with self.lock:
            self.lines.append(line)

    def tell(self, topic: str, data: object, fl_ctx: object, *args: object, **more: object) -> dict[str, object]:
        """What the operator's command gets: the log from some line on. It may ask the job to end after this round."""
        asked = data if isinstance(data, dict) else {}
        if asked.get("end"):
            self.ending.set()
        with self.lock:
            first = int(asked.get("after", 0))
            self.shown = max(self.shown, first)
            return {"lines": self.lines[first:]}

    def _wait_for_reader(self) -> None:
        """Waits until the operator's command, if there is one, has fetched the last line."""
        end = time.monotonic() + LAST_LINES
        while 0 <= self.shown < len(self.lines) and time.monotonic() < end:
            time.sleep(0.2)
