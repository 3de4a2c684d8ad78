"""The clients of one run on two processes: the bits of one, also where a worker dies or all of them do."""

from pathlib import Path

import pytest
import torch

from fedpca.cluster.bench import fingerprint
from fedpca.cluster.connect import Link, connected
from fedpca.cluster.options import ClusterOptions
from fedpca.cluster.spread import spread_over
from fedpca.cluster.wire import (
    read_memory,
    read_orders,
    read_state,
    read_updates,
    shown_to_all,
    write_answers,
    write_memory,
    write_orders,
    write_state,
)
from fedpca.core import Order, Params, Update, Verdict
from fedpca.data.federation import Federation
from fedpca.errors import UserError
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.cell import Cell, Watch, cells
from fedpca.runs.check import check_experiment
from fedpca.runs.run import Prepared, in_process, run_cell
from tests.cluster.processes import Dask
from tests.runs.test_jobs import results

TINY = {
    "rounds": 4,
    "data": {"clients": 6, "train_images": 240, "test_images": 100},
    "rare": {"share": 0.17, "sigma": 0.5},
    "noise": {"clients": 0.17, "labels": 0.8},
    "model": {"name": "mlp"},
}


def cell_for(out: Path, **table: object) -> Cell:
    (cell,) = cells(check_experiment({**TINY, "seeds": [0], **table}, "test"), out)
    return cell


def play(cell: Cell, link: Link | None = None, watch: Watch = lambda cell, line: None) -> None:
    place = spread_over(link, None) if link else in_process
    run_cell(cell, *Prepared().of(cell), 1, watch, place=place)


# a report before training; models and counters that clients remember; labels that they correct; 130 clients together
@pytest.mark.parametrize(
    "table",
    [
        {"methods": ["fedpca-hs-auto"], "method": {"fedpca-hs-auto": {"warmup": 1}}, "participation": 0.5},
        {"methods": ["fedce"]},
        {"methods": ["fedcorr"], "method": {"fedcorr": {"stages": [1, 1]}}},
        {"methods": ["fedavg"], "data": {"clients": 130}, "rounds": 2},
        {"methods": ["fedavg"], "model": {"name": "cnn-small"}, "rounds": 2},
        {"methods": ["scaffold"], "rounds": 3},
        {"methods": ["fedavg"], "attack": {"kind": "backdoor", "since": 2}, "rounds": 3},
        {"methods": ["central"], "rounds": 2},
    ],
    ids=["reports", "memory", "labels", "batches", "convolutions", "shown", "attack", "pooled"],
)
def test_two_processes_give_the_bits_of_one(cluster: Dask, tmp_path: Path, table: dict[str, object]):
    cluster.have_workers(2)
    play(cell_for(tmp_path / "one", **table))
    with connected(ClusterOptions(cluster.file, spread=True), tmp_path / "two", print) as link:
        play(cell_for(tmp_path / "two", **table), link)
    assert len(results(tmp_path / "one")) == 1
    assert results(tmp_path / "two") == results(tmp_path / "one")


def test_dead_workers_change_no_bit(cluster: Dask, tmp_path: Path):
    """FedCE's clients remember a model each, which dies with its worker: one after round 1, the other after round 2."""
    cluster.have_workers(2)

    def kill(_: object, line: dict[str, object]) -> None:
        if line["round"] in (1, 2):
            cluster.workers[int(line["round"]) - 1].kill()
            cluster.start_worker()

    with connected(ClusterOptions(cluster.file, spread=True), tmp_path / "two", print) as link:
        play(cell_for(tmp_path / "two", methods=["fedce"]), link, kill)
    play(cell_for(tmp_path / "one", methods=["fedce"]))
    assert results(tmp_path / "two") == results(tmp_path / "one")


def test_other_data_at_a_worker_are_refused(cluster: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cluster.have_workers(1)
    monkeypatch.setattr("fedpca.cluster.spread.fingerprint", lambda federation: "another")
    cell = cell_for(tmp_path / "two", methods=["fedavg"])
    options = ClusterOptions(cluster.file, spread=True)
    refused = pytest.raises(UserError, match="has other data of fedavg seed 0 than this machine")
    with connected(options, tmp_path / "two", print) as link, refused:
        play(cell, link)


def test_the_fingerprint_sees_labels_and_clients(federation: Federation):
    shards = dict(federation.shards)
    assert fingerprint(federation) == fingerprint(federation)
    other = type(federation)(**{**vars(federation), "shards": dict(reversed(shards.items()))})
    assert fingerprint(other) != fingerprint(federation)


def test_what_goes_over_the_wire_keeps_every_bit():
    start = params_of(build("cnn-small", (1, 8, 8), 10, seed=0))
    odd = Params(start.weights * float("nan"), start.buffers, start.counters, lengths=start.lengths)
    params, shown = read_state(write_state(odd, {"mean": start.weights.double() / 3}))
    assert params.lengths == start.lengths
    assert torch.equal(params.weights.view(torch.int32), odd.weights.view(torch.int32))
    assert torch.equal(shown["mean"], start.weights.double() / 3)
    verdict = Verdict(group="rare", suspicion=1 / 3, report={"loss": 0.1}, sides={"a": Verdict(suspicion=0.25)})
    own = {**shown, "own": torch.arange(3.0)}  # which one client alone sees
    orders = {"7": Order(3, 9, verdict, shown), "8": Order(3, 9, Verdict(), own)}
    assert shown_to_all(orders) == shown
    got = read_orders(write_orders(orders, shown), shown)
    assert got["7"] == orders["7"]
    assert got["8"].shown["own"].tolist() == [0, 1, 2]
    assert got["8"].shown["mean"] is shown["mean"]
    updates = [Update(None, 0), Update(start, 4, 0.5, {"loss": 1 / 7, "losses": [1.0, 0.2]}), Update(odd, 1)]
    memory = {"7": {"labels": torch.tensor([3, 1])}, "8": {}}
    answers = write_answers(updates, memory)
    for got, sent in zip(read_updates(answers, start.lengths), updates, strict=True):
        assert (got.size, got.reliability, got.report) == (sent.size, sent.reliability, sent.report)
        assert (got.params is None) == (sent.params is None)
        if got.params and sent.params:
            pairs = zip(got.params.vectors, sent.params.vectors, strict=True)
            assert all(one.numpy().tobytes() == other.numpy().tobytes() for one, other in pairs)
    assert read_memory(write_memory(memory), ["7", "8"])["7"]["labels"].tolist() == [3, 1]
