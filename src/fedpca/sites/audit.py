"""An audit over any engine: models of folds of sites, each site judged by one that never saw its labels.

OUT/audit/           audit.json, clients.csv, page.html: what the coordinator gets; rows of sites stay at the sites
OUT/audit/work/      plan.json: sites, folds, what was agreed on; fold-N: a checkpoint, then what its sites told
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from fedpca.atomic import locked, write_json
from fedpca.auditing.estimate import Estimates, estimate
from fedpca.auditing.files import AUDIT, write_audit
from fedpca.auditing.folds import fold_plan, folds_of, method_tables
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.record import NotTested, Record, audit_record
from fedpca.auditing.summary import Summary, from_tables, to_tables
from fedpca.core import NOBODY, ClientId, Failure, Order, Params, Server
from fedpca.errors import RunError
from fedpca.models.flat import Layout
from fedpca.runs.checkpoint import checkpoint_round, load_checkpoint, save_checkpoint
from fedpca.runs.folder import CHECKPOINT
from fedpca.settings.experiment import Experiment
from fedpca.sites import messages
from fedpca.sites.agreement import Agreement, by_value
from fedpca.sites.audit_messages import LIST, SUMMARY, read_listed, read_summary, write_findings
from fedpca.sites.clients import SiteClients
from fedpca.sites.encoding import read_encoding, write_encoding
from fedpca.sites.engine import Engine
from fedpca.sites.roster import Log, Roster
from fedpca.sites.run import QuorumError, first_model, meet, play_with_quorum
from fedpca.sites.session import Session
from fedpca.sites.settings import Deployment
from fedpca.sites.task import Task

FOLDER, WORK, PLAN, SUMMARIES = "audit", "work", "plan.json", "summaries.json"


@dataclass(frozen=True)
class Fold:
    """Sites that are judged by one model, and where that model is trained."""

    run: str  # its id, by which sites find again what they keep
    judged: tuple[ClientId, ...]
    others: tuple[ClientId, ...]
    folder: Path


@dataclass(frozen=True)
class SiteAudit:
    """One audit: what it is made from, its sites, and what they agreed on."""

    experiment: Experiment
    deployment: Deployment
    options: AuditOptions
    out: Path
    roster: Roster
    agreement: Agreement
    start: Params
    layout: Layout

    def clients(self, fold: Fold, only: Collection[ClientId]) -> SiteClients:
        """Some sites, with all that a fold's messages say."""
        sites = len(fold.others)
        self.roster.session = fold_session(self.experiment, self.deployment, self.options, fold.run, sites)
        return SiteClients(self.roster, self.agreement, self.layout, lambda round: False, only=only)


def serve_audit(
    engine: Engine, experiment: Experiment, deployment: Deployment, options: AuditOptions, log: Log = print
) -> Path:
    """Audits the labels of the sites that join, and leaves the coordinator's files, whose folder is returned."""
    torch.set_num_threads(1)
    out = deployment.out / FOLDER
    named = {"name": experiment.name, "settings": {**experiment.method, **options.settings}}
    options = options.model_copy(update=named)
    with locked(out / WORK, f"{out} is being written by another process"):
        plan = _read_plan(out, experiment, options)
        if plan and (out / AUDIT).exists():
            log(f"{out} holds this audit, finished")
            return out
        session = fold_session(experiment, deployment, options, uuid4().hex, deployment.sites)
        roster = Roster(engine, session, log, _agreement(plan) if plan else None)
        agreement = meet(roster)
        model = first_model(experiment, agreement, options.seed)
        audit = SiteAudit(experiment, deployment, options, out, roster, agreement, *model)
        _play(audit, _folds(plan or _make_plan(audit), out))
    log(f"finished: {out}")
    return out


def fold_session(
    experiment: Experiment, deployment: Deployment, options: AuditOptions, run: str, clients: int
) -> Session:
    """A fold as a run of so many sites; more than half of them must answer."""
    task = Task(
        method=options.method,
        tables=method_tables(options),
        plan=fold_plan(options, experiment, clients),
        accuracy=experiment.evaluation.accuracy,
        data=experiment.data,
        model=experiment.model,
        rows=options.rows,
    )
    quorum = min(deployment.min_answers, clients // 2 + 1)
    return Session(run, task, deployment.model_copy(update={"quorum": quorum, "exchange": "two"}))


def _play(audit: SiteAudit, folds: Sequence[Fold]) -> None:
    """Trains and judges fold by fold; then every site writes its list, and the coordinator gets its files."""
    answers: dict[ClientId, Summary | Failure] = {}
    for number, fold in enumerate(folds, start=1):
        answers |= _kept(fold, audit.agreement) or _play_fold(audit, fold, f"fold {number}/{len(folds)}")
    told = {site: own for site in sorted(answers, key=by_value) if isinstance(own := answers[site], Summary)}
    silent = {site: own.reason for site, own in answers.items() if isinstance(own, Failure)}
    if not told:
        reasons = "; ".join(f"{site}: {why}" for site, why in silent.items())
        raise RunError(f"no site told anything of its labels ({reasons}); start the audit again when they are back")
    found = estimate(told)
    missing = [(site, "its labels", f"it could not be asked: {why}") for site, why in silent.items()]
    record = _record(audit, found, missing)
    _write_lists(audit, folds, record, found)
    write_audit(audit.out, record)


def _play_fold(audit: SiteAudit, fold: Fold, name: str) -> dict[ClientId, Summary | Failure]:
    """Trains a fold's model with the other sites, and asks its own sites what they see under it."""
    server = _train(audit, fold, name)
    orders = {site: Order(server.round, server.round, NOBODY) for site in fold.judged}
    written = messages.write_orders(server.params, orders, audit.layout)
    read = partial(read_summary, classes=len(audit.agreement.classes))
    told = audit.clients(fold, fold.judged).ask(SUMMARY, written, read, audit.deployment.wait)
    sizes = {head.name: head.train + head.test for head in audit.roster.heads()}
    answers = {site: _within(answer, sizes.get(site)) for site, answer in told.items()}
    for site, answer in answers.items():
        if isinstance(answer, Failure):
            audit.roster.log(f"{name}: {site} cannot be judged: {answer.reason}")
    _keep(fold, answers)
    return answers


def _within(answer: Summary | Failure, most: int | None) -> Summary | Failure:
    """What a site told, unless that is of more labels than it has, as it said when it joined."""
    if isinstance(answer, Failure) or most is None or answer.images <= most:
        return answer
    return Failure(f"it told of {answer.images} labels, which must be {most} at most: it joined with those")


def _train(audit: SiteAudit, fold: Fold, name: str) -> Server:
    clients, log, rounds = audit.clients(fold, fold.others), audit.roster.log, audit.options.rounds
    server = Server(audit.start)
    if checkpoint_round(fold.folder) is not None:
        server = load_checkpoint(fold.folder).server
        log(f"{name}: going on after round {server.round}")
    began, first = time.monotonic(), server.round
    for played in _rounds(clients, server, fold.others, rounds):
        server = played
        save_checkpoint(fold.folder, server, {})
        left = (rounds - server.round) * (time.monotonic() - began) / (server.round - first)
        text = f"{name}, round {server.round}/{rounds}, about {left / 60:.0f} min left of this fold"
        log(text + "".join(f", without {site} ({why})" for site, why in server.left_out.items()))
    return server


def _rounds(clients: SiteClients, server: Server, sites: Collection[ClientId], rounds: int) -> Iterator[Server]:
    """The server after each round; one with too few answers is played again when its sites are back."""
    roster = clients.roster
    while server.round < rounds:
        try:
            for played in play_with_quorum(clients, server):
                server = played
                yield server
        except QuorumError as error:
            roster.log(f"{error}; waiting for them")
            if not roster.wait_for(sites):
                raise
            clients.renew()


def _record(audit: SiteAudit, found: Estimates, missing: Sequence[NotTested]) -> Record:
    """The audit as audit.json holds it, before the sites told how long their lists are."""
    versions = audit.roster.engine.versions()
    engine = "real sites, " + ", ".join(f"{name} {number}" for name, number in versions.items())
    options = audit.options
    return audit_record(found, options, audit.agreement.classes, {}, engine, options.rows, missing)


def _write_lists(audit: SiteAudit, folds: Sequence[Fold], record: Record, found: Estimates) -> None:
    """Has every site write its own files; the record gets how many labels each has on its list."""
    entries = {entry["client"]: entry for entry in record["clients"]}
    options = audit.options
    for fold in folds:
        written = {
            site: write_findings(entries[site], record, found.calibration, options.seed, options.images)
            for site in fold.judged
            if site in entries
        }
        answers = audit.clients(fold, fold.judged).ask(LIST, written, read_listed, audit.deployment.wait)
        for site, answer in answers.items():
            if isinstance(answer, Failure):
                why = f"it did not write its list: {answer.reason}"
                record["not_tested"].insert(0, {"client": site, "what": "which of its labels are wrong", "why": why})
                audit.roster.log(f"{site}: {why}")
            else:
                entries[site]["suspects"] = answer


# What is kept, to go on after a stop


def _made_from(experiment: Experiment, options: AuditOptions) -> dict[str, Any]:
    keys = {"model", "training", "participation", "aggregation", "data"}
    return {"options": options.training, "experiment": experiment.model_dump(mode="json", include=keys)}


def _read_plan(out: Path, experiment: Experiment, options: AuditOptions) -> dict[str, Any] | None:
    """What an audit in this folder was begun with; None if there is none. Another one's is refused."""
    path = out / WORK / PLAN
    if not path.exists():
        return None
    plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if plan["made_from"] != _made_from(experiment, options):
        raise RunError(f"{out} holds an audit that was begun with other settings: choose another deploy.out")
    return plan


def _make_plan(audit: SiteAudit) -> dict[str, Any]:
    """Which sites are judged by which model, from now on; who joins later takes no part."""
    sites, agreement = list(audit.roster.names), audit.agreement
    folds = folds_of(sites, audit.options.folds, audit.options.seed)
    plan = {
        "made_from": _made_from(audit.experiment, audit.options),
        "sites": sites,
        "folds": [{"run": uuid4().hex, "judged": list(judged)} for judged in folds],
        "classes": list(agreement.classes),
        "shape": list(agreement.shape),
        "table": write_encoding(agreement.table),
    }
    write_json(audit.out / WORK / PLAN, plan)
    return plan


def _agreement(plan: Mapping[str, Any]) -> Agreement:
    return Agreement(tuple(plan["classes"]), tuple(plan["shape"]), read_encoding(plan["table"]))


def _folds(plan: Mapping[str, Any], out: Path) -> list[Fold]:
    folds = []
    for number, own in enumerate(plan["folds"]):
        others = tuple(site for site in plan["sites"] if site not in own["judged"])
        folds.append(Fold(own["run"], tuple(own["judged"]), others, out / WORK / f"fold-{number}"))
    return folds


def _keep(fold: Fold, answers: Mapping[ClientId, Summary | Failure]) -> None:
    """Keeps what a fold's sites told; while somebody has not been asked, its model is kept to ask again."""
    told = {site: to_tables(own) for site, own in answers.items() if isinstance(own, Summary)}
    if len(told) == len(answers):
        write_json(fold.folder / SUMMARIES, told)
        (fold.folder / CHECKPOINT).unlink(missing_ok=True)


def _kept(fold: Fold, agreement: Agreement) -> dict[ClientId, Summary | Failure] | None:
    """What a fold's sites told before; None if they did not."""
    path = fold.folder / SUMMARIES
    if not path.exists():
        return None
    tables = json.loads(path.read_text(encoding="utf-8"))
    return {site: from_tables(own, len(agreement.classes)) for site, own in tables.items()}
