"""The one place where data, method, clients, evaluation and record meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from fedpca.core import Clients, Method, Net, Server
from fedpca.data.corrected import fingerprint
from fedpca.data.datasets import Dataset, load
from fedpca.data.federation import Federation, federate
from fedpca.data.known import truth_source
from fedpca.errors import RunError
from fedpca.loop import play
from fedpca.models.build import build_model
from fedpca.models.device import require_device
from fedpca.models.flat import layout_of, params_of
from fedpca.models.pretrained import weights_of
from fedpca.models.registry import is_shipped
from fedpca.models.user_code import is_users_error, trying
from fedpca.runs.attacked import Attackers, attack_facts, attackers_in
from fedpca.runs.backbone import look_through, with_features
from fedpca.runs.cell import Cell, Watch, is_done, is_tested
from fedpca.runs.check import facts_of, method_of
from fedpca.runs.evaluate import evaluate, evaluate_own, identification, weight_shares
from fedpca.runs.features import features_of
from fedpca.runs.folder import About, RoundLine, is_run, locked_run, read_about
from fedpca.runs.private import Privacy, privacy_of
from fedpca.runs.versions import versions
from fedpca.runs.writer import RunWriter, client_columns, with_bounds, with_choices, with_estimates
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess, Simulated
from fedpca.simulate.workers import Workers

# settings that say nothing of the data; where in doubt one is not among them, and the data are made once more
NOT_DATA = {"methods", "method", "seeds", "rounds", "participation", "checkpoint_every", "keep_large_checkpoint"}
NOT_DATA |= {"aggregation", "attack", "privacy"}


def prepare(
    experiment: Experiment, data_dir: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> tuple[Dataset, Federation]:
    """The experiment's data, the same for every cell."""
    require_device(experiment.device)
    weights_of(experiment.model, progress)  # now: the wrong file is better refused before an hour of decoding
    dataset = load(experiment.data, data_dir, progress=progress)
    look = look_through(experiment.model, experiment.device, progress)
    federation = federate(experiment, dataset, data_dir, look)
    return dataset, with_features(federation, experiment.model, experiment.device, progress)


@dataclass
class Prepared:
    """The data of the cell that asked last, kept as long as the next one needs the same."""

    data_dir: Path | None = None
    kept: dict[str, tuple[Dataset, Federation]] = field(default_factory=dict)  # one at most

    def of(self, cell: Cell, progress: Callable[[int, int], None] | None = None) -> tuple[Dataset, Federation]:
        """The cell's dataset and federation."""
        key = cell.settings.model_dump_json(exclude=NOT_DATA)
        if key not in self.kept:
            self.kept.clear()  # first: two might not fit into memory
            self.kept[key] = prepare(cell.settings, self.data_dir, progress)
        return self.kept[key]


Place = Callable[[Cell, Federation, Workers], Simulated]


def in_process(cell: Cell, federation: Federation, pool: Workers) -> Simulated:
    """The run's clients in this process."""
    return InProcess(method_of(cell.settings), federation.shards, pool, cell.seed)


def run_cell(
    cell: Cell,
    dataset: Dataset,
    federation: Federation,
    workers: int,
    watch: Watch,
    make: Callable[[], Net] | None = None,
    place: Place = in_process,
) -> None:
    """Plays a cell to its end, from its checkpoint if it has one, and leaves a complete run folder.

    `make` gives the model where it is not one that the settings can name. `place` is where the clients are.
    """
    with locked_run(cell.folder), _workers(cell, federation, workers, make) as pool:
        if is_done(cell):  # by another process, between the look and the lock
            return
        attackers = attackers_in(cell.settings, federation)
        writer, clients, privacy, start = _begin(cell, dataset, attackers, pool, place)
        crowd = privacy.clients(attackers.join(clients), clients.method, cell.seed, attackers.clients)
        method = privacy.method(clients.method, str(cell.seed).encode())
        server, before = start, time.perf_counter()
        for server in _rounds(cell, method, crowd, start):
            with trying_in(cell, f"the test after round {server.round}"):
                line = _line(cell, server, federation, pool, clients)
                line = with_choices(line, server, clients.method.recipe(server.round))
                line = privacy.line(line)
                line = attackers.line(line, server, pool, tested=line["groups"] is not None)
            line["seconds"] = round(time.perf_counter() - before, 4)
            writer.add(line)
            if server.round % cell.settings.checkpoint_every == 0:
                writer.save(server, clients.memory)
            watch(cell, line)
            before = time.perf_counter()
        per_client = cell.settings.evaluation.features
        with trying_in(cell, "evaluation.features"):
            own = pool, server.params, federation.shards, per_client, cell.seed
            features = features_of(*own) if per_client else None
        writer.finish(server, clients.memory, features)


@contextmanager
def _workers(
    cell: Cell, federation: Federation, count: int, make: Callable[[], Net] | None = None
) -> Iterator[Workers]:
    model, classes = cell.settings.model, len(federation.classes)
    place = (federation.shape, classes, cell.seed, weights_of(model), cell.settings.device)
    pool = Workers([make() if make else build_model(model, *place) for _ in range(count)])
    try:
        yield pool
    finally:
        pool.close()


def _begin(
    cell: Cell, dataset: Dataset, attackers: Attackers, pool: Workers, place: Place
) -> tuple[RunWriter, Simulated, Privacy, Server]:
    """What plays and records the run, and where it stands: at its checkpoint, else before its first round."""
    if cell.settings.evaluation.features:
        pool.nets[0].require_features("evaluation.features")
    writer = RunWriter(cell, layout_of(pool.nets[0].module))
    federation = attackers.federation
    clients, first = place(cell, federation, pool), Server(params_of(pool.nets[0]))
    privacy = privacy_of(cell.settings.privacy, clients.method, cell.settings.rounds, clients.ids)
    privacy.require_weights_alone(first, cell.settings.model.name)
    _require_same_corrections(cell)
    if checkpoint := writer.resume():
        clients.memory.update(checkpoint.memory)
        return writer, clients, privacy, checkpoint.server
    facts = {**privacy.facts(), **attack_facts(attackers)}
    writer.begin({**about(cell, dataset, federation), **facts})  # type: ignore[typeddict-item]
    return writer, clients, privacy, first


def _require_same_corrections(cell: Cell) -> None:
    """Refuses to go on with a run that was begun with other corrected labels."""
    if not is_run(cell.folder):
        return
    if read_about(cell.folder).get("corrected_labels") != fingerprint(cell.settings.data.corrected_labels):
        raise RunError(
            f"{cell.folder} was begun with other corrected labels than {cell.settings.data.corrected_labels} has now: "
            "choose another --out"
        )


def about(cell: Cell, dataset: Dataset, federation: Federation) -> About:
    """What the run works on and with: the clients and the truth about them, test groups, skipped images, versions."""
    described: About = {
        "method": facts_of(cell.settings),
        "dataset": dataset.name,
        "classes": list(federation.classes),
        "shape": list(federation.shape),
        "clients": {
            "id": list(federation.shards),
            "size": [len(shard.y) for shard in federation.shards.values()],
        },
        "truth": truth_source(cell.settings.data, cell.settings.noise),
        "test_images": {group: len(test.y) for group, test in federation.tests.items()},
        "test_classes": {
            group: test.y.bincount(minlength=len(federation.classes)).tolist()
            for group, test in federation.tests.items()
        },
        "uncounted_groups": dict(federation.uncounted),
        "skipped_images": list(dataset.skipped),
        "versions": versions(),
    }
    if federation.table:
        described["table"] = [asdict(column) for column in federation.table]
    if corrected := fingerprint(cell.settings.data.corrected_labels):
        described["corrected_labels"] = corrected
    if cell.setting:
        described = {"setting": cell.setting, **described}
    return _with_truth(described, federation)


def _with_truth(described: About, federation: Federation) -> About:
    """Adds what is known of the clients: nothing of whose labels are wrong where nobody knows it."""
    truth = federation.truth
    if truth.rare or truth.mislabeled is not None:
        described["rare"] = list(truth.rare)
    if truth.mislabeled is not None:
        described["mislabeled"] = list(truth.mislabeled)
        wrong = [int((shard.y != truth.labels[client]).sum()) for client, shard in federation.shards.items()]
        described["clients"]["wrong_labels"] = wrong  # how many differ from the true ones
    return described


def _rounds(cell: Cell, method: Method, clients: Clients, start: Server) -> Iterator[Server]:
    """The server after each round; what fails in a user's own model or part is told in one message."""
    server, played = start, play(method, clients, start, cell.settings.rounds)
    while server.round < cell.settings.rounds:
        with trying_in(cell, f"round {server.round + 1}"):
            server = next(played)
        yield server


def trying_in(cell: Cell, what: str) -> AbstractContextManager[None]:
    """What fails inside in a user's own model or part is told in one message."""
    own_model = not is_shipped(cell.settings.model.name)
    return trying(f"{cell.name}: {what}", partial(is_users_error, own_model=own_model))


def _line(cell: Cell, server: Server, federation: Federation, pool: Workers, clients: Simulated) -> RoundLine:
    """One round as it is recorded, but for the time it took."""
    due = is_tested(cell.settings, server.round)
    line: RoundLine = {
        "round": server.round,
        "groups": _tested(cell, server, federation, pool, clients) if due else None,
        "clients": client_columns(server, list(federation.shards)),
        "identification": identification(server.diagnosis, federation.truth),
        "weights": weight_shares(server.weights, federation.truth),
        "left_out": dict(server.left_out),
    }
    return with_bounds(with_estimates(line, server), server)


def _tested(
    cell: Cell, server: Server, federation: Federation, pool: Workers, clients: Simulated
) -> dict[str, dict[str, float]]:
    """The metrics by test group: of the global model, or of the clients' own where the method has those."""
    accuracy, own_model = cell.settings.evaluation.accuracy, clients.method.own_model
    if own_model is None:
        return evaluate(pool, server.params, federation.tests, accuracy)
    models = {client: own_model(memory, server.params) for client, memory in clients.memory.items()}
    return evaluate_own(pool, models, federation.tests, federation.truth, accuracy)
