"""Why flwr's SecAgg+ does not carry fedpca's runs: the facts of docs/privacy.md, in flwr as it is installed."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import flwr.clientapp.mod
import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.app.message_type import MessageType
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.server.workflow import SecAggPlusWorkflow

from fedpca.flower.wire import to_records
from fedpca.sites.messages import Content

mod = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")  # a function has the name in its package


def context() -> Context:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


def test_the_servers_half_takes_only_the_context_of_the_older_api():
    with pytest.raises(TypeError, match="Expect a LegacyContext, but get Context"):
        SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)(None, context())


def test_the_apps_of_today_have_no_such_mod():
    assert not [name for name in flwr.clientapp.mod.__all__ if "sec" in name.lower()]


def test_the_sites_half_refuses_a_training_message_that_is_not_one_of_its_four_stages():
    message = SimpleNamespace(
        content=to_records(Content({"order": {"round": 1}}, {"arrays": {"w": np.zeros(3, np.float32)}})),
        metadata=SimpleNamespace(message_type=MessageType.TRAIN, dst_node_id=1),
    )
    with pytest.raises(KeyError, match=mod.RECORD_KEY_CONFIGS):
        mod.secaggplus_mod(message, context(), lambda *_: None)


def test_a_site_gives_both_secrets_of_another_to_a_server_that_asks_for_both():
    """With the seed of a site's own mask and the key of its pairwise masks, its update is no secret.

    The protocol has a site give one or the other (Bonawitz et al. 2017): a server that says of a site that it answered
    and that it is gone must get neither.
    """
    state = mod.SecAggPlusState()
    state.threshold = 2
    state.rd_seed_share_dict = {7: b"seed of 7", 8: b"seed of 8"}
    state.sk1_share_dict = {7: b"key of 7", 8: b"key of 8"}
    told = mod._unmask(state, {Key.ACTIVE_NODE_ID_LIST: [7, 8], Key.DEAD_NODE_ID_LIST: [7]})
    assert told[Key.SHARE_LIST] == [b"seed of 7", b"seed of 8", b"key of 7"]
