"""The ServerApp and the ClientApp that a Flower app's pyproject.toml names."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpca.flower.config import read_node_config, read_run_config
from fedpca.flower.wire import from_records, to_records
from fedpca.sites.answer import answer, explain
from fedpca.sites.audit_messages import LIST, SUMMARY
from fedpca.sites.data import BuildModel, LoadData, ReadData, own_folder, own_functions
from fedpca.sites.messages import EVALUATE, HELLO, REPORT, TRAIN

APP_RAISED = 2  # Flower's code for an exception in a client's code

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Plays the run or the audit that the run config describes, from where it stood if it was begun."""
    # here: a client is a new process for each message, and should not wait for what only the server needs
    from fedpca.flower.engine import FlowerEngine
    from fedpca.sites.server import serve_deployment

    serve_deployment(FlowerEngine(grid), *read_run_config(context.run_config))


def fedpca_client(load_data: LoadData, build_model: BuildModel) -> ClientApp:
    """A ClientApp of the user's own data and model, for any fedpca method.

    `load_data(context)` gives images and labels `(x, y)`, or `(x, y, x_test, y_test)` to have the global model tested
    here too: arrays or tensors, labels from 0. Or a PyTorch dataset of (image, label), or two of them. `build_model()`
    gives the network, whose last linear layer has an output per class.
    """
    return site_app(own_functions(load_data, build_model), strict=False)


def site_app(read_data: ReadData, strict: bool = True) -> ClientApp:
    """A ClientApp of what `read_data` gives; `strict` refuses keys of the node config that are not known here."""
    app = ClientApp()

    def answering(kind: str) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            try:
                settings = read_node_config(context.node_config, strict)
                reply = answer(kind, from_records(message.content), settings, read_data, context)
                return Message(to_records(reply), reply_to=message)
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                return Message(Error(APP_RAISED, explain(error)), reply_to=message)

        return handle

    for kind in (HELLO, REPORT, SUMMARY, LIST):
        app.query(kind)(answering(kind))
    app.train()(answering(TRAIN))
    app.evaluate()(answering(EVALUATE))
    return app


client_app = site_app(own_folder)
