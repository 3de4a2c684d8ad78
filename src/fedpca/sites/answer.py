"""A site's answers, each from its own data: every engine calls these, with a message in plain types."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import torch

from fedpca.core import Net, Order, Params
from fedpca.errors import SettingsError, WireError
from fedpca.models.flat import layout_of
from fedpca.screening import claims_of
from fedpca.simulate.answer import answer_report, answer_train, site_for
from fedpca.simulate.workers import Workers
from fedpca.sites import messages
from fedpca.sites.audit_messages import LIST, SUMMARY, read_findings
from fedpca.sites.data import ReadData, SiteData
from fedpca.sites.memory import identity, recall, remember
from fedpca.sites.messages import EVALUATE, HELLO, REPORT, Content, RunHead, SiteHead
from fedpca.sites.privacy import Guard
from fedpca.sites.rules import PolicyError, Rules, log_refusal, rules_of
from fedpca.sites.settings import SiteSettings


@dataclass(frozen=True)
class Visit:
    """What every answer to one message is made from."""

    settings: SiteSettings
    run: RunHead
    data: SiteData
    rules: Rules
    guard: Guard


def answer(kind: str, content: Content, settings: SiteSettings, read_data: ReadData, context: object) -> Content:
    """What a site says to one message; `context` is the engine's own, for a user's `load_data`.

    What the site's policy does not allow is refused by name, before anything is read or leaves.
    """
    try:
        return _allowed_answer(kind, content, settings, read_data, context)
    except PolicyError as error:
        log_refusal(settings.site, kind, error)
        return messages.write_refusal(settings.site, error.told)


def _allowed_answer(
    kind: str, content: Content, settings: SiteSettings, read_data: ReadData, context: object
) -> Content:
    rules = rules_of(settings)
    torch.set_num_threads(settings.threads)
    run = messages.read_run(content)
    rules.require_run(run)
    guard = Guard(settings, run, rules)
    if kind == HELLO or rules.policy.max_epsilon is not None:
        guard.require_run(run.task.build(run.exchange))
    rules.require_message(kind, content)
    visit = Visit(settings, run, read_data(context, settings, run), rules, guard)
    if kind == HELLO:
        return messages.write_site(introduce(visit))
    if kind == LIST:
        from fedpca.sites.audit_answer import write_list

        return write_list(visit, read_findings(content))
    net = visit.data.build()
    params, order = messages.read_order(content, layout_of(net.module))
    if kind == EVALUATE:
        return messages.write_evaluation(evaluate(visit, net, params))
    if kind == SUMMARY:
        from fedpca.sites.audit_answer import tell_summary  # here: few messages are about audits

        return tell_summary(visit, net, params)
    evaluation = evaluate(visit, net, params) if run.evaluate else None
    return work(visit, kind, net, params, order) | messages.write_evaluation(evaluation)


def explain(error: Exception) -> str:
    """What the server may know of an error: its kind; of those about messages the text too; others may quote data."""
    quoted = f": {error}" if isinstance(error, WireError | SettingsError) else ""
    return f"{type(error).__name__}{quoted}"


def introduce(visit: Visit) -> SiteHead:
    """Who the site is, and what it has."""
    data = visit.data
    told = {
        "name": visit.settings.site,
        "identity": identity(visit.settings.folder),
        "classes": list(data.classes),
        "shape": list(data.shape),
        "train": len(data.train.y),
        "test": len(data.test.y) if data.test else 0,
        "table": json.dumps([head.model_dump() for head in data.table]),
    }
    return SiteHead.model_validate(told)


def work(visit: Visit, kind: str, net: Net, params: Params, order: Order) -> Content:
    """A report or an update, made with the client's memory, which is kept for the next message."""
    settings, run = visit.settings, visit.run
    memory = recall(settings.folder, run.id, order.round, kind)
    seed = run.task.plan.seed
    site = site_for(settings.site, visit.data.train, memory, net, params, order, purpose=kind, seed=seed)
    method = run.task.build(run.exchange)
    recipe, place = method.recipe(order.round), f"{order.round:06d}-{kind}"
    if kind == REPORT:
        report = answer_report(recipe, site)
        visit.rules.require_report(report)
        content = messages.write_report(visit.guard.leave(report, claims_of(recipe.report), place, method))
    else:
        update = answer_train(recipe, site)
        visit.rules.require_report(update.report)
        update = replace(update, report=visit.guard.leave(update.report, claims_of(recipe.train), place, method))
        content = messages.write_update(update, layout_of(net.module))
    remember(settings.folder, run.id, order.round, kind, memory)
    return content


def evaluate(visit: Visit, net: Net, params: Params) -> dict[str, float] | None:
    """Metrics on the site's held-out images; None without any, or with one class only, for which there is no AUC.

    None too where the policy keeps them at the site.
    """
    if not visit.rules.policy.evaluation:
        return None
    from fedpca.runs.evaluate import evaluate  # here: each answer is a new process, and few evaluate

    test = visit.data.test
    if test is None or bool((test.y == test.y[0]).all()):
        return None
    workers = Workers([net])
    torch.set_num_threads(visit.settings.threads)
    return evaluate(workers, params, {"own": test}, visit.run.task.accuracy)["own"]
