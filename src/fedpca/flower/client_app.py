"""The ClientApp: a site that answers from its own data. Each message comes to a new process."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedpca.core import Net, Params
from fedpca.errors import SettingsError, WireError
from fedpca.flower.wire import (
    EVALUATION,
    RunHead,
    SiteHead,
    evaluation_to_record,
    order_from_records,
    report_to_records,
    run_from_records,
    site_to_records,
    update_to_records,
)
from fedpca.methods.build import compose
from fedpca.models.flat import layout_of
from fedpca.simulate.answer import answer_report, answer_train, site_for
from fedpca.simulate.workers import Workers
from fedpca.sites.data import Bring, BuildModel, LoadData, Local, own_folder, own_functions
from fedpca.sites.memory import identity, recall, remember
from fedpca.sites.one_exchange import in_one_exchange
from fedpca.sites.privacy import veiled
from fedpca.sites.settings import Node, Veil, checked, read_node_config

Records = dict[str, ArrayRecord | MetricRecord | ConfigRecord]
RAISED = 2  # Flower's code for an exception in a client's code


def fedpca_client(load_data: LoadData, build_model: BuildModel) -> ClientApp:
    """A ClientApp of the user's own data and model, for any fedpca method.

    `load_data(context)` gives images and labels `(x, y)`, or `(x, y, x_test, y_test)` to have the global model tested
    here too: arrays or tensors, labels from 0. Or a PyTorch dataset of (image, label), or two of them. `build_model()`
    gives the network, whose last linear layer has an output per class.
    """
    return client_app(own_functions(load_data, build_model), strict=False)


@dataclass(frozen=True)
class Desk:
    """All that an answer is made from."""

    node: Node
    run: RunHead
    local: Local
    records: RecordDict


def client_app(bring: Bring, strict: bool = True) -> ClientApp:
    """A ClientApp of what `bring` gives; `strict` refuses keys of the node config that are not known here."""
    app = ClientApp()

    def answering(answer: Callable[[Desk], RecordDict]) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            try:
                node = read_node_config(context.node_config, strict)
                torch.set_num_threads(node.threads)
                run = run_from_records(message.content)
                return Message(answer(Desk(node, run, bring(context, node, run), message.content)), reply_to=message)
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                return Message(Error(RAISED, told(error)), reply_to=message)

        return handle

    app.query("hello")(answering(hello))
    app.query("report")(answering(lambda desk: worked(desk, "report")))
    app.train()(answering(lambda desk: worked(desk, "train")))
    app.evaluate()(answering(evaluated))
    return app


def told(error: Exception) -> str:
    """What the server is told of an error: its kind; of those about messages the text too; others may quote data."""
    quoted = f": {error}" if isinstance(error, WireError | SettingsError) else ""
    return f"{type(error).__name__}{quoted}"


def hello(desk: Desk) -> RecordDict:
    """Who the site is, and what it has."""
    local = desk.local
    head = SiteHead(
        name=desk.node.site,
        identity=identity(desk.node.folder),
        classes=list(local.classes),
        shape=list(local.shape),
        train=len(local.train.y),
        test=len(local.test.y) if local.test else 0,
    )
    return site_to_records(head)


def worked(desk: Desk, half: str) -> RecordDict:
    """A report or an update, made with the client's memory, which is kept for the next message."""
    node, run, local = desk.node, desk.run, desk.local
    net = local.build()
    layout = layout_of(net.module)
    params, order = order_from_records(desk.records, layout)
    evaluation = _evaluation(desk, net, params) if run.evaluate else Records()
    memory = recall(node.folder, run.id, order.round, half)
    site = site_for(node.site, local.train, memory, net, params, order, purpose=half, seed=run.settings.seeds[0])
    method = compose(run.settings.methods[0], run.settings)
    recipe = (in_one_exchange(method) if run.exchange == "one" else method).recipe(order.round)
    veil = node.veil or checked(Veil, run.veil, "the server's veil")
    if half == "report":
        records = report_to_records(veiled(answer_report(recipe, site), veil))
    else:
        update = answer_train(recipe, site)
        records = update_to_records(replace(update, report=veiled(update.report, veil)), layout)
    remember(node.folder, run.id, order.round, half, memory)
    return RecordDict({**records, **evaluation})


def evaluated(desk: Desk) -> RecordDict:
    """How the global model does here, if the site has held-out images."""
    net = desk.local.build()
    params, _ = order_from_records(desk.records, layout_of(net.module))
    return RecordDict(_evaluation(desk, net, params))


def _evaluation(desk: Desk, net: Net, params: Params) -> Records:
    """Metrics on the site's held-out images; nothing without any, or with one class only, for which there is no AUC."""
    from fedpca.runs.evaluate import evaluate

    test = desk.local.test
    if test is None or bool((test.y == test.y[0]).all()):
        return {}
    workers = Workers([net])
    torch.set_num_threads(desk.node.threads)
    metrics = evaluate(workers, params, {"own": test}, desk.run.settings.evaluation.accuracy)["own"]
    return {EVALUATION: evaluation_to_record(metrics)}


app = client_app(own_folder)
