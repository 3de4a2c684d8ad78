"""The ServerApp: the round loop over Flower, written to a run folder and resumed from it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import torch
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedpca.core import ClientId, Method, Params, Server
from fedpca.errors import RunError
from fedpca.flower.clients import OverFlower, costs
from fedpca.flower.roster import Agreed, Roster, Tell, agree
from fedpca.flower.wire import SiteHead, run_to_record
from fedpca.loop import play
from fedpca.methods.build import compose
from fedpca.models.build import build
from fedpca.models.flat import Layout, layout_of, params_of
from fedpca.models.pretrained import weights_of
from fedpca.runs.cell import Cell, cells, check_folder, is_done
from fedpca.runs.folder import ABOUT, CHECKPOINT, About, RoundLine, locked_run, read_about
from fedpca.runs.writer import RunWriter, client_columns, versions
from fedpca.settings.experiment import Experiment
from fedpca.sites.one_exchange import in_one_exchange
from fedpca.sites.settings import Deployment, read_run_config

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Plays the run that the run config describes, from its checkpoint if it has one."""
    experiment, deployment = read_run_config(context.run_config)
    serve(grid, experiment, deployment)


def serve(grid: Grid, experiment: Experiment, deployment: Deployment, tell: Tell = print) -> Path:
    """Plays a run with the sites that come, and leaves a complete run folder, whose path is returned."""
    torch.set_num_threads(1)
    (cell,) = cells(experiment, deployment.out)
    with locked_run(cell.folder):
        check_folder(cell, resume=True)
        if is_done(cell):
            tell(f"{cell.folder} holds this run, finished")
            return cell.folder
        begun = _begun(cell)
        roster = meet(grid, experiment, deployment, begun, tell)
        start, layout = _model(experiment, roster)
        writer = RunWriter(cell)
        server = _begin(writer, deployment, roster, begun, Server(start))
        clients = clients_of(grid, experiment, deployment, roster, layout, begun.run)
        server = _play(writer, deployment, clients, server, tell)
        _finish(writer, clients, server, tell)
    return cell.folder


@dataclass(frozen=True)
class Begun:
    """What a run has that was begun: its id, by which sites find their memory again, and what was agreed on."""

    run: str
    agreed: Agreed | None


def meet(grid: Grid, experiment: Experiment, deployment: Deployment, begun: Begun, tell: Tell) -> Roster:
    """The sites that came, agreed on classes and shape."""
    question = run_record(experiment, deployment, begun.run, begun.agreed, evaluate=False)
    roster = Roster(grid, question, deployment.deadline, tell, begun.agreed)
    roster.gather(deployment.sites, deployment.least, deployment.wait)
    roster.settle(begun.agreed or agree(roster.heads(), deployment.classes), deployment.least)
    return roster


def run_record(
    experiment: Experiment, deployment: Deployment, run: str, agreed: Agreed | None, evaluate: bool
) -> ConfigRecord:
    """What messages say about the run."""
    classes, veil = agreed.classes if agreed else (), deployment.veil.model_dump()
    return run_to_record(run, experiment, classes, evaluate=evaluate, exchange=deployment.exchange, veil=veil)


def clients_of(
    grid: Grid, experiment: Experiment, deployment: Deployment, roster: Roster, layout: Layout, run: str
) -> OverFlower:
    """The roster's sites as clients of the round loop."""
    settings, agreed = experiment.evaluation, roster.agreed

    def due(round: int) -> bool:
        return round > 0 and (round % settings.every == 0 or round > experiment.rounds - settings.last_rounds)

    return OverFlower(
        grid,
        roster,
        method_of(experiment, deployment),
        layout,
        lambda evaluate: run_record(experiment, deployment, run, agreed, evaluate),
        due,
        deployment.deadline,
    )


def method_of(experiment: Experiment, deployment: Deployment) -> Method:
    """The experiment's method, in one exchange a round if asked for."""
    method = compose(experiment.methods[0], experiment)
    return in_one_exchange(method) if deployment.exchange == "one" else method


def require_quorum(server: Server, asked: Sequence[ClientId], least: int) -> None:
    """Stops at a round with too few usable answers."""
    missing = [f"{site}: {server.left_out[site]}" for site in asked if site in server.left_out]
    if len(asked) - len(missing) < least:
        raise RunError(
            f"round {server.round}: {len(asked) - len(missing)} of {len(asked)} sites answered, the quorum is {least} "
            f"({'; '.join(missing)}). The run stands at round {server.round - 1}: start it again when they are back"
        )


def _play(writer: RunWriter, deployment: Deployment, clients: OverFlower, start: Server, tell: Tell) -> Server:
    """Plays and records the rounds that are left; each round also tells how the model before it did."""
    server, before, rounds = start, time.perf_counter(), writer.cell.settings.rounds
    for server in play(clients.method, clients, start, rounds):
        require_quorum(server, clients.asked, deployment.least)
        writer.add_test(clients.evaluations)
        line = _line(server, clients)
        line["seconds"] = round(time.perf_counter() - before, 4)
        writer.add_untested(line)
        writer.save(server, {})
        tell(_said(line, rounds))
        clients.renew()
        before = time.perf_counter()
    return server


def _finish(writer: RunWriter, clients: OverFlower, server: Server, tell: Tell) -> None:
    """The last model's test, then the files that mark a finished run."""
    clients.evaluate(server.params, server.round)
    writer.add_test(clients.evaluations)
    writer.finish(clients.layout.named(server.params))
    tell(f"finished: {writer.cell.folder}")


# The run folder


def _begun(cell: Cell) -> Begun:
    """What the folder says of an earlier beginning, else a new id."""
    if not (cell.folder / CHECKPOINT).exists() or not (cell.folder / ABOUT).exists():
        return Begun(uuid4().hex, None)
    known = read_about(cell.folder)
    return Begun(known["run"], Agreed(tuple(known["classes"]), tuple(known["shape"])))


def _begin(writer: RunWriter, deployment: Deployment, roster: Roster, begun: Begun, fresh: Server) -> Server:
    """The server to go on from: that of the checkpoint, else a fresh one with the folder's first files written."""
    if checkpoint := writer.resume():
        server = checkpoint.server
        roster.names = [*server.diagnosis]
        roster.tell(f"going on after round {server.round}")
        return server
    agreed = roster.agreed
    assert agreed, "see `meet`"
    writer.begin(about(writer.cell, deployment, begun.run, agreed, roster.heads()))
    return fresh


def about(cell: Cell, deployment: Deployment, run: str, agreed: Agreed, sites: Sequence[SiteHead]) -> About:
    """What the run works on and with; the truth about sites is not known to anybody."""
    return {
        "run": run,
        "dataset": cell.settings.data.dataset,
        "classes": list(agreed.classes),
        "shape": list(agreed.shape),
        "clients": {"id": [site.name for site in sites], "size": [site.train for site in sites]},
        "test_images": {site.name: site.test for site in sites},
        "skipped_images": [],
        "deployment": deployment.model_dump(mode="json"),
        "versions": {**versions(), "flwr": version("flwr")},
    }


def _line(server: Server, clients: OverFlower) -> RoundLine:
    """One round as it is recorded, but for its test, which comes with the next, and the time it took."""
    return {
        "round": server.round,
        "groups": None,
        "clients": client_columns(server, list(clients.ids)),
        "identification": None,
        "weights": None,
        "left_out": {**server.left_out, **clients.roster.refused},
        "exchanges": costs(clients.exchanges),
    }


def _model(experiment: Experiment, roster: Roster) -> tuple[Params, Layout]:
    """The state that a fresh run begins with, and its names."""
    agreed = roster.agreed
    assert agreed, "see `meet`"
    if not agreed.classes:
        raise RunError("the sites name no classes: set deploy.classes, or start the run from FedPCA(...).start")
    channels, height, width = agreed.shape
    net = build(
        experiment.model.name,
        (channels, height, width),
        len(agreed.classes),
        experiment.seeds[0],
        weights_of(experiment.model),
    )
    return params_of(net), layout_of(net.module)


def _said(line: RoundLine, rounds: int) -> str:
    """A round in one line."""
    groups = line["clients"]["group"] or []
    named = [site for site, group in zip(line["clients"]["id"], groups, strict=False) if group == "mislabeled"]
    text = f"round {line['round']}/{rounds}"
    text += f", mislabeled: {', '.join(named)}" if named else ""
    return text + "".join(f", without {site} ({why})" for site, why in line["left_out"].items())
