"""Which clients are judged by which model, and how that model is trained: the same in one place and on real sites."""

from __future__ import annotations

from collections.abc import Sequence

from fedpca.auditing.options import AuditOptions
from fedpca.core import ClientId, Method
from fedpca.errors import SettingsError
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.methods.registry import parse
from fedpca.rng import numbers
from fedpca.settings.base import Table
from fedpca.settings.experiment import Experiment

FOLDS = 4  # where nobody says otherwise
SETTINGS: dict[str, Table] = {"fedavg+d": {"identify": "auto"}}  # where nobody says otherwise


def folds_of(clients: Sequence[ClientId], folds: int | None, seed: int) -> list[tuple[ClientId, ...]]:
    """The clients in groups of nearly the same size; each group is judged by a model that the others trained.

    >>> from fedpca.auditing.folds import folds_of
    >>> sorted(client for fold in folds_of(["a", "b", "c"], None, 0) for client in fold)
    ['a', 'b', 'c']
    """
    if len(clients) < 2:
        raise SettingsError(f"an audit needs two clients at least, and four to judge anybody; got {len(clients)}")
    if folds is not None and folds > len(clients):
        raise SettingsError(f"folds = {folds}, but there are only {len(clients)} clients: choose fewer")
    count, order = min(folds or FOLDS, len(clients)), numbers(seed, "folds").permutation(len(clients))
    return [tuple(clients[place] for place in sorted(order[fold::count].tolist())) for fold in range(count)]


def fold_plan(options: AuditOptions, experiment: Experiment, clients: int) -> Plan:
    """How so many clients train one fold's model."""
    how = (experiment.training, experiment.participation, options.seed, clients, experiment.aggregation)
    return Plan(options.rounds, *how)


def fold_method(options: AuditOptions, experiment: Experiment, clients: int) -> Method:
    """The method that so many clients train one fold's model by."""
    return compose(options.method, fold_plan(options, experiment, clients), method_tables(options))


def method_tables(options: AuditOptions) -> dict[str, Table]:
    """The method's settings; a warm-up that would last as long as the training is made half as long as that."""
    tables = {**SETTINGS, **options.settings}
    own = {name: dict(tables.get(name, {})) for name in parse(options.method).tables()}
    from fedpca.methods.registry import settings_of

    for name, table in own.items():
        warmup = getattr(settings_of(name, options.method, table), "warmup", 0)
        if warmup >= options.rounds and "warmup" not in table:
            table["warmup"] = options.rounds // 2
    return own
