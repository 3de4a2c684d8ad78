"""Exchanges of a process with sites, one whenever another process asks for it; they speak by files in a folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from fedpca.atomic import write_whole
from fedpca.core import NOBODY, Order, Params
from fedpca.errors import RunError
from fedpca.models.build import build
from fedpca.models.flat import Layout, layout_of, params_of
from fedpca.settings.experiment import Experiment
from fedpca.sites.clients import SiteClients
from fedpca.sites.deployment import task_of
from fedpca.sites.engine import Engine
from fedpca.sites.roster import Roster
from fedpca.sites.run import meet
from fedpca.sites.session import Session
from fedpca.sites.settings import Deployment

MODEL, LAST, END = "cnn-small", 99, "end"
LOOK, LIMIT = 0.01, 600  # seconds between looks for the next turn; for a turn
READY, ASKED, TAKEN, FAILED = "ready", "asked-{}", "taken-{}", "failed"  # files


def meet_sites(engine: Engine, experiment: Experiment, deployment: Deployment) -> tuple[SiteClients, Layout, Params]:
    """The sites of an engine as clients, the layout of their model, and its first weights."""
    net = build(MODEL, (1, 8, 8), 10, 0)
    layout = layout_of(net.module)
    roster = Roster(engine, Session("0" * 32, task_of(experiment), deployment), print)
    return SiteClients(roster, meet(roster), layout, lambda round: round > 0), layout, params_of(net)


def exchange(clients: SiteClients, params: Params, kind: str, turn: int) -> float:
    """Seconds until every site has reported, or trained, and its answer is here."""
    began = time.perf_counter()
    orders = {site: Order(turn, LAST, NOBODY) for site in clients.ids}
    replies = list(getattr(clients, kind)(params, orders))
    assert len(replies) == clients.exchanges[-1].answers == len(orders)
    return time.perf_counter() - began


def answer_turns(folder: Path, engine: Engine, experiment: Experiment, deployment: Deployment) -> None:
    """Has an exchange whenever a file asks for one, until one says that it was the last."""
    try:
        _answer(folder, *meet_sites(engine, experiment, deployment))
    except Exception as error:
        write_whole(folder / FAILED, repr(error))  # an engine may say nothing of it for long
        raise


def _answer(folder: Path, clients: SiteClients, _: Layout, params: Params) -> None:
    write_whole(folder / READY, "")
    for turn in count(1):
        while not (folder / ASKED.format(turn)).exists():
            time.sleep(LOOK)
        kind = (folder / ASKED.format(turn)).read_text()
        if kind == END:
            return
        write_whole(folder / TAKEN.format(turn), str(exchange(clients, params, kind, turn)))


def wait_for(file: Path, check: Callable[[], None]) -> None:
    """Returns when the other process has written a file; raises where it failed, or `check` does."""
    limit = time.monotonic() + LIMIT
    while not file.exists():
        check()
        if (failed := file.parent / FAILED).exists():
            raise RunError(f"{file.parent.name}: {failed.read_text()}")
        if time.monotonic() > limit:
            raise RunError(f"{file.parent.name}: no {file.name} after {LIMIT} s")
        time.sleep(0.05)


def ask(folder: Path, turn: int, kind: str, check: Callable[[], None]) -> float:
    """The seconds of an exchange in the process that answers in that folder."""
    write_whole(folder / ASKED.format(turn), kind)
    wait_for(folder / TAKEN.format(turn), check)
    return float((folder / TAKEN.format(turn)).read_text())


def finish(folder: Path, turn: int) -> None:
    """Says that there are no more turns."""
    write_whole(folder / ASKED.format(turn), END)
