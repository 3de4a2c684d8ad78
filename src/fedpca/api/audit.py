"""`fedpca.audit`: whose labels are wrong, how sure that is, and which, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from fedpca.api.clients import CLIENT, dataset_of
from fedpca.api.models import Model, name_of, net_maker
from fedpca.api.notebook import shown_in_notebooks, table_html
from fedpca.api.progress import counting_bar
from fedpca.atomic import write_whole
from fedpca.auditing.audit import Audited, audit_clients
from fedpca.auditing.data import audit_data
from fedpca.auditing.one_place import audit_source
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.record import Record
from fedpca.auditing.suspects import as_row
from fedpca.core import Net
from fedpca.data.given import UserData
from fedpca.data.origin import GIVEN
from fedpca.errors import UserError, nearest
from fedpca.runs.check import check_experiment
from fedpca.runs.jobs import default_workers
from fedpca.settings.base import Table
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import change, validate

Count = Callable[[int, int], None]
DEFAULTS = AuditOptions()


@dataclass(frozen=True)
class Audit:
    """What an audit found: `clients`, `suspects("bonn")`, `page()`; its files are in `folder`."""

    folder: Path
    found: Audited
    temporary: TemporaryDirectory[str] | None = None  # which holds the folder, and goes with this value

    @property
    def record(self) -> Record:
        """What audit.json holds."""
        return self.found.record

    @property
    def mislabeled(self) -> list[str]:
        """The clients that are judged mislabeled."""
        return [own["client"] for own in self.record["clients"] if own["verdict"] == "mislabeled"]

    @cached_property
    def clients(self) -> pa.Table:
        """A row for each client: images, verdict, share of wrong labels with its interval, confused classes, …"""
        names = ("client", "images", "verdict", "share", "low", "high", "suspects", "confused", "reason")
        rows = [{name: own[name] for name in names} for own in self.record["clients"]]
        return shown_in_notebooks(pa.Table.from_pylist(rows))

    def suspects(self, client: str) -> pa.Table:
        """A row for each of a client's rows, worst first, with cleanlab's names of columns."""
        if client not in self.found.suspects:
            raise UserError(f"there is no client {client!r}{nearest(client, self.found.suspects)}")
        rows = [
            {**as_row(own), "label_score": own.score, "p_value": own.p_value} for own in self.found.suspects[client]
        ]
        return shown_in_notebooks(pa.Table.from_pylist(rows))

    def page(self, path: str | Path | None = None) -> Path:
        """The page for the coordinator: where it is, or written to an HTML file."""
        if path is None:
            return self.folder / "page.html"
        write_whole(Path(path), (self.folder / "page.html").read_bytes())
        return Path(path)

    def __repr__(self) -> str:
        judged = ", ".join(self.mislabeled) or "nobody"
        return f"<audit of {len(self.record['clients'])} clients; judged mislabeled: {judged}>"

    def _repr_html_(self) -> str:
        return table_html(self.clients)


def audit(
    clients: Mapping[str, UserData] | str | Path | Sequence[str],
    model: Model = "cnn-small",
    *,
    method: str = DEFAULTS.method,
    rounds: int = DEFAULTS.rounds,
    folds: int | None = None,
    seed: int = 0,
    fdr: float = DEFAULTS.fdr,
    sample: int = DEFAULTS.sample,
    training: Mapping[str, object] | None = None,
    changes: Sequence[str] = (),
    classes: Sequence[str] = (),
    column: str | None = None,
    name: str = "own",
    workers: int | None = None,
    out: str | Path | None = None,
    progress: bool = True,
) -> Audit:
    """Whose labels are wrong, how sure that is, and which; each client is judged by models that never saw its labels.

    Args:
        clients: the data of each client by its name, as `fedpca.train` takes them; or what `fedpca audit` takes on the
            command line: a settings file, an experiment's name, a file with a column of sites, or several folders.
        model: as for `fedpca.train`; settings files and folders bring their own.
        method: how models are trained.
        rounds: of each model.
        folds: groups of clients, each judged by a model of the others; four by default.
        seed: of the training, the folds and the random sample.
        fdr: share of a list of suspects that may be there by chance.
        sample: rows of each client that are drawn at random, to be read again.
        training: the table `[training]` of a settings file.
        changes: other settings, as `--set` takes them.
        classes: their names in order, where the labels do not show all of them.
        column: of a file, the one that says whose each row is.
        name: of the audit, in titles.
        workers: clients trained at the same time; by default one per core.
        out: folder that keeps the files; the same one goes on where it stopped. Without one it is temporary.
        progress: show a bar in a terminal.

    >>> import fedpca
    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> images = x.reshape(-1, 1, 8, 8).astype("float32") / 16
    >>> clients = {f"site {i}": (images[i::6], y[i::6]) for i in range(6)}
    >>> clients["site 5"] = (images[5::6], (y[5::6] + 1) % 10)
    >>> found = fedpca.audit(clients, "mlp", training={"lr": 0.1, "batch": 16}, progress=False)
    >>> found.mislabeled
    ['site 5']
    >>> found.suspects("site 5").column_names[:3]
    ['row', 'path', 'given_label']
    """
    said = {"method": method, "rounds": rounds, "folds": folds, "seed": seed, "fdr": fdr, "sample": sample}
    options = validate(AuditOptions, {**said, "name": name}, "fedpca.audit")
    temporary = None if out else TemporaryDirectory(prefix="fedpca-")
    folder = Path(out or temporary.name)  # type: ignore[union-attr] # one of both
    with counting_bar("reading images", not progress) as read, counting_bar("training, rounds", not progress) as train:
        if isinstance(clients, Mapping):
            found = _of_arrays(clients, model, training or {}, changes, classes, options, folder, workers, train)
        else:
            named = [str(clients)] if isinstance(clients, str | Path) else [str(own) for own in clients]
            texts = [*(f"training.{key}={value}" for key, value in (training or {}).items()), *changes]
            found = audit_source(named, column, texts, options, folder, workers, None, read, train)
    return Audit(folder, found, temporary)


def _of_arrays(
    clients: Mapping[str, UserData],
    model: Model,
    training: Mapping[str, object],
    changes: Sequence[str],
    classes: Sequence[str],
    options: AuditOptions,
    folder: Path,
    workers: int | None,
    train: Count,
) -> Audited:
    """The audit of data that are given in Python."""
    experiment = _experiment(model, training, changes, options)
    dataset = dataset_of(clients, experiment.data, classes)
    data = audit_data(experiment, options.rows, dataset=dataset)
    assert data.federation is not None
    on_device = net_maker(model, experiment, data.federation)

    def make() -> Net:
        return on_device(experiment.device)

    count = workers or default_workers(experiment, data.federation, probe=make())
    return audit_clients(data, experiment, options, folder, make, count, train)


def _experiment(
    model: Model, training: Mapping[str, object], changes: Sequence[str], options: AuditOptions
) -> Experiment:
    data = {"dataset": GIVEN, "split": "column", "column": CLIENT}
    table: Table = {"name": options.name, "seeds": [options.seed], "data": data, "training": dict(training)}
    table["model"] = {"name": name_of(model)}
    for text in changes:
        table = change(table, text)
    return check_experiment(table, "fedpca.audit")
