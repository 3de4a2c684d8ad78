"""`fedpca.train`: a model from clients' data, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from fedpca.api.clients import CLIENT, dataset_of, inputs_of
from fedpca.api.engine import require_training
from fedpca.api.models import MakeNet, Model, name_of, net_maker
from fedpca.api.progress import say, watching
from fedpca.api.result import Result
from fedpca.data.datasets import Dataset
from fedpca.data.federation import Federation, federate
from fedpca.data.given import UserData
from fedpca.data.origin import GIVEN
from fedpca.errors import RunError, UserError
from fedpca.methods.registry import METHODS, parse
from fedpca.models.device import require_device
from fedpca.runs.cell import Cell, cells, check_folder
from fedpca.runs.check import check_experiment
from fedpca.runs.folder import is_run, read_about
from fedpca.runs.jobs import default_workers
from fedpca.runs.replan import going_on
from fedpca.runs.run import run_cell
from fedpca.settings.base import Table
from fedpca.settings.toml import change


def train(
    clients: Mapping[str, UserData],
    model: Model = "cnn-small",
    method: str = "fedpca",
    rounds: int = 50,
    seed: int = 0,
    *,
    training: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
    changes: Sequence[str] = (),
    classes: Sequence[str] = (),
    test_share: float | None = None,
    name: str = "own",
    workers: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Result:
    """A model that is trained on all clients' data, and who is judged mislabeled.

    Args:
        clients: the data of each client by its name: `(x, y)`, `(x, y, x_test, y_test)`, a PyTorch dataset of
            (image, label), or two datasets. Images are bytes (uint8) or floats, (N, C, H, W), (N, H, W) or (N, F).
            Labels are numbers or names.
        model: a name of `fedpca list models`, an `nn.Module` (it is copied; training starts from its weights), or a
            function of the shape of an image and the number of classes that returns one.
        method: a name of `fedpca list methods`, or any other that a settings file may name.
        rounds: how many to play.
        seed: of the first weights and of the training.
        training: the table `[training]` of a settings file, such as `{"lr": 0.01, "batch": 32}`.
        settings: the method's own, such as `{"warmup": 5}`; by method for those that are made of several.
        changes: any other settings, as the command line's `--set` takes them: `["evaluation.accuracy=bacc"]`.
        classes: their names in order, where the labels do not show all of them.
        test_share: of each class, held out for testing where clients give no test parts.
        name: of the experiment, in titles.
        workers: clients trained at the same time; by default one per core.
        out: folder that keeps the run, as `fedpca run --out` does; without one it is temporary (see `Result.save`).
        resume: go on with the run that is in `out`, also with more rounds than it was finished with.
        progress: show a bar, in a terminal or a notebook.

    >>> import fedpca
    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> images = x.reshape(-1, 1, 8, 8).astype("float32") / 16
    >>> clients = {f"site {i}": (images[i::4], y[i::4]) for i in range(4)}
    >>> result = fedpca.train(clients, "mlp", "fedavg", rounds=2, progress=False)
    >>> result.clients["client"].to_pylist()
    ['site 0', 'site 1', 'site 2', 'site 3']
    >>> result.mislabeled
    []
    """
    table = _table(name_of(model), method, rounds, seed, training or {}, settings or {}, test_share, name)
    for text in changes:
        table = change(table, text)
    experiment = check_experiment(table, "fedpca.train")
    _require_one_model(method)
    temporary = None if out else TemporaryDirectory(prefix="fedpca-")
    (cell,) = cells(experiment, Path(out or temporary.name))  # type: ignore[union-attr] # one of both
    check_folder(cell, resume)
    require_device(experiment.device)
    dataset = dataset_of(clients, experiment.data, classes)
    federation = federate(experiment, dataset)
    _require_same_data(cell, federation)
    make = net_maker(model, experiment, federation)
    _play(cell, dataset, federation, make, workers, progress)
    prepare = partial(inputs_of, dataset.table, federation.table)
    return Result.read(cell.folder, make("cpu"), prepare, temporary)


def _require_one_model(method: str) -> None:
    """Refuses methods of which nothing comes out that a result could hold."""
    for name in parse(method).simple:
        if METHODS[name].own_models:
            raise UserError(
                f"fedpca.train: {name} {METHODS[name].alone}, and a result holds one model: choose another method, or "
                "compare with it by fedpca.run"
            )


def _table(
    model: str,
    method: str,
    rounds: int,
    seed: int,
    training: Mapping[str, object],
    settings: Mapping[str, object],
    test_share: float | None,
    name: str,
) -> Table:
    """The call as a settings file would have it."""
    data = {"dataset": GIVEN, "split": "column", "column": CLIENT}
    tables = list(parse(method).tables())
    return {
        "name": name,
        "rounds": rounds,
        "methods": [method],
        "seeds": [seed],
        "data": data if test_share is None else {**data, "test_share": test_share},
        "model": {"name": model},
        "training": dict(training),
        "method": dict(settings) if settings.keys() <= set(tables) else {tables[0]: dict(settings)},
    }


def _require_same_data(cell: Cell, federation: Federation) -> None:
    """Refuses to go on with a run that was begun with other clients, sizes, shapes or classes."""
    if not is_run(cell.folder):
        return
    about = read_about(cell.folder)
    sizes = [len(shard.y) for shard in federation.shards.values()]
    given = (list(federation.shards), sizes, list(federation.shape), list(federation.classes))
    if given != (about["clients"]["id"], about["clients"]["size"], about["shape"], about["classes"]):
        raise RunError(f"{cell.folder} was begun with other clients, sizes, shape or classes: choose another out=")


def _play(
    cell: Cell, dataset: Dataset, federation: Federation, make: MakeNet, workers: int | None, progress: bool
) -> None:
    device = cell.settings.device
    count = workers or default_workers(cell.settings, federation, probe=make(device))
    for line in going_on([cell]):
        say(line)
    with watching([cell], progress) as watch:
        run_cell(cell, dataset, federation, count, watch, lambda: make(device))
    require_training([cell])
