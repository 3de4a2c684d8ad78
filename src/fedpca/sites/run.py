"""A run over any engine: the round loop with the sites that join, written to a run folder and resumed from it."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from uuid import uuid4

import torch

from fedpca.core import ClientId, Params, Server
from fedpca.data.standardise import require_table_settings
from fedpca.errors import RunError
from fedpca.loop import play
from fedpca.models.build import build_model
from fedpca.models.flat import Layout, layout_of, params_of
from fedpca.models.pretrained import weights_of
from fedpca.runs.cell import Cell, cells, check_folder, is_done, is_tested
from fedpca.runs.check import facts_of
from fedpca.runs.folder import ABOUT, CHECKPOINT, About, RoundLine, locked_run, read_about
from fedpca.runs.private import Privacy, privacy_of
from fedpca.runs.replan import going_on
from fedpca.runs.versions import versions
from fedpca.runs.writer import RunWriter, client_columns, with_bounds, with_choices, with_estimates
from fedpca.settings.experiment import Experiment
from fedpca.settings.privacy import PrivacySettings
from fedpca.sites.agreement import Agreement, agree
from fedpca.sites.clients import SiteClients, costs
from fedpca.sites.deployment import task_of
from fedpca.sites.encoding import read_encoding
from fedpca.sites.engine import Engine
from fedpca.sites.roster import Log, Roster
from fedpca.sites.session import Session
from fedpca.sites.settings import Deployment

SECRET = "noise.secret"  # in the folder of a run with `privacy.central`


class QuorumError(RunError):
    """Too few sites answered in a round."""


def serve(engine: Engine, experiment: Experiment, deployment: Deployment, log: Log = print) -> Path:
    """Plays a run with the sites that join, and leaves a complete run folder, whose path is returned."""
    torch.set_num_threads(1)
    (cell,) = cells(experiment, deployment.out)
    with locked_run(cell.folder):
        check_folder(cell, resume=True)
        if is_done(cell):
            log(f"{cell.folder} holds this run, finished")
            return cell.folder
        for line in going_on([cell]):
            log(line)
        run, agreement = _identity(cell)
        session = Session(run, task_of(cell.settings), deployment)
        privacy = _privacy(cell, session)
        roster = Roster(engine, session, log, agreement)
        agreement = meet(roster)
        params, layout = first_model(experiment, agreement, experiment.seeds[0])
        privacy.require_weights_alone(Server(params), experiment.model.name)
        writer = RunWriter(cell, layout)
        server = _first_server(writer, roster, agreement, Server(params), privacy)
        clients = SiteClients(roster, agreement, layout, partial(is_tested, cell.settings))
        clients.method = privacy.method(clients.method, secret_of(cell.folder) if privacy.central else b"")
        server = _play(writer, clients, server, privacy, log)
        _finish(writer, clients, server, log)
    return cell.folder


def meet(roster: Roster) -> Agreement:
    """Waits for the sites and agrees with them on classes and shape, unless that was done before."""
    roster.gather()
    agreement = roster.agreement or agree(roster.heads(), roster.session.deployment.classes)
    roster.require(agreement)
    return agreement


def play_with_quorum(clients: SiteClients, start: Server) -> Iterator[Server]:
    """The server after each round; a round with too few usable answers is an error, and the run stands before it."""
    session = clients.roster.session
    for server in play(clients.method, clients, start, session.task.plan.rounds):
        _require_quorum(server, clients.cohort, session.deployment.min_answers)
        yield server
        clients.renew()


def _require_quorum(server: Server, asked: Sequence[ClientId], quorum: int) -> None:
    missing = [f"{site}: {server.left_out[site]}" for site in asked if site in server.left_out]
    if len(asked) - len(missing) < quorum:
        raise QuorumError(
            f"round {server.round}: {len(asked) - len(missing)} of {len(asked)} sites answered, the quorum is {quorum} "
            f"({'; '.join(missing)}). The run stands at round {server.round - 1}: start it again when they are back"
        )


def _play(writer: RunWriter, clients: SiteClients, start: Server, privacy: Privacy, log: Log) -> Server:
    """Plays and records the rounds that are left; each round also tells how the model before it did."""
    server, before, rounds = start, time.perf_counter(), writer.cell.settings.rounds
    for server in play_with_quorum(clients, start):
        writer.add_test(clients.evaluations)
        line = privacy.line(with_choices(_line(server, clients), server, clients.method.recipe(server.round)))
        line["seconds"] = round(time.perf_counter() - before, 4)
        writer.add_untested(line)
        writer.save(server, {})
        log(_round_text(line, rounds))
        before = time.perf_counter()
    return server


def _finish(writer: RunWriter, clients: SiteClients, server: Server, log: Log) -> None:
    """The last model's test, then the files that mark a finished run."""
    clients.evaluate(server.params, server.round)
    writer.add_test(clients.evaluations)
    writer.finish(server, {})
    log(f"finished: {writer.cell.folder}")


# The run folder


def _identity(cell: Cell) -> tuple[str, Agreement | None]:
    """The run's id and what was agreed on, as the folder of a run that was begun says; else a new id."""
    if not (cell.folder / CHECKPOINT).exists() or not (cell.folder / ABOUT).exists():
        return uuid4().hex, None
    known = read_about(cell.folder)
    table = read_encoding(json.dumps(known.get("table", [])))
    return known["run"], Agreement(tuple(known["classes"]), tuple(known["shape"]), table)


def _privacy(cell: Cell, session: Session) -> Privacy:
    """What the run promises to every site, whoever takes part in how many rounds."""
    settings = PrivacySettings(reports=session.deployment.privacy, central=cell.settings.privacy.central)
    return privacy_of(settings, session.task.build(session.deployment.exchange), cell.settings.rounds)


def secret_of(folder: Path) -> bytes:
    """What the noise of `privacy.central` is made of: drawn once, and readable by the operator alone."""
    path = folder / SECRET
    if not path.exists():
        partial_file = path.with_name(path.name + ".partial")
        partial_file.unlink(missing_ok=True)
        partial_file.touch(mode=0o600)
        partial_file.write_text(secrets.token_hex(32), encoding="ascii")
        os.replace(partial_file, path)
    secret = path.read_bytes()
    if len(secret) != 64:
        raise RunError(f"{path} must have 64 hexadecimal digits, got {len(secret)} bytes: choose another deploy.out")
    return secret


def _first_server(writer: RunWriter, roster: Roster, agreement: Agreement, fresh: Server, privacy: Privacy) -> Server:
    """The server to go on from: that of the checkpoint, else a fresh one with the folder's first files written."""
    if checkpoint := writer.resume():
        server = checkpoint.server
        roster.names = [*server.diagnosis]
        roster.log(f"going on after round {server.round}")
        return server
    writer.begin({**about(writer.cell, roster, agreement), **privacy.facts()})  # type: ignore[typeddict-item]
    return fresh


def about(cell: Cell, roster: Roster, agreement: Agreement) -> About:
    """What the run works on and with; the truth about sites is not known to anybody."""
    sites = roster.heads()
    described: About = {
        "run": roster.session.run,
        "method": facts_of(cell.settings),
        "dataset": cell.settings.data.dataset,
        "classes": list(agreement.classes),
        "shape": list(agreement.shape),
        "clients": {"id": [site.name for site in sites], "size": [site.train for site in sites]},
        "test_images": {site.name: site.test for site in sites},
        "skipped_images": [],
        "deployment": roster.session.deployment.model_dump(mode="json"),
        "versions": {**versions(), **roster.engine.versions()},
    }
    if agreement.table:
        described["table"] = [asdict(column) for column in agreement.table]
    return described


def _line(server: Server, clients: SiteClients) -> RoundLine:
    """One round as it is recorded, but for its test, which comes with the next, and the time it took."""
    line: RoundLine = {
        "round": server.round,
        "groups": None,
        "clients": client_columns(server, list(clients.ids)),
        "identification": None,
        "weights": None,
        "left_out": {**server.left_out, **clients.roster.refusals},
        "exchanges": costs(clients.exchanges),
    }
    return with_bounds(with_estimates(line, server), server)


def first_model(experiment: Experiment, agreement: Agreement, seed: int) -> tuple[Params, Layout]:
    """The state that a fresh run begins with, and its names."""
    if not agreement.classes:
        raise RunError("the sites name no classes: set deploy.classes, or start the run from FedPCA(...).start")
    if agreement.table:
        require_table_settings(experiment, "what the sites have")
    channels, height, width = agreement.shape
    place = (channels, height, width), len(agreement.classes), seed
    net = build_model(experiment.model, *place, weights_of(experiment.model))
    return params_of(net), layout_of(net.module)


def _round_text(line: RoundLine, rounds: int) -> str:
    """A round in one line."""
    groups = line["clients"]["group"] or []
    named = [site for site, group in zip(line["clients"]["id"], groups, strict=False) if group == "mislabeled"]
    text = f"round {line['round']}/{rounds}"
    text += f", mislabeled: {', '.join(named)}" if named else ""
    return text + "".join(f", without {site} ({why})" for site, why in line["left_out"].items())
