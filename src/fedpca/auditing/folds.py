"""Which clients are judged by which model, and how that model is trained: the same in one place and on real sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fedpca.core import ClientId, Method
from fedpca.errors import SettingsError
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.methods.registry import parse
from fedpca.rng import numbers
from fedpca.settings.base import Table
from fedpca.settings.experiment import TrainingSettings

FOLDS, ROUNDS, METHOD = 4, 20, "fedavg+d"  # chosen on CIFAR-10N: docs/audit.md
SETTINGS: dict[str, Table] = {"fedavg+d": {"identify": "auto"}}  # where nobody says otherwise


@dataclass(frozen=True)
class AuditOptions:
    """How clients are audited; the first five decide what is trained, the others what is made of it."""

    method: str = METHOD
    rounds: int = ROUNDS
    folds: int | None = None  # four, or as many as there are clients
    rows: Literal["all", "train"] = "all"
    seed: int = 0
    fdr: float = 0.1  # share of a list of suspects that may be there by chance
    sample: int = 100  # rows of each client that are drawn at random to be read again
    images: int = 300  # of each client that are written as files, at most
    name: str = "audit"
    settings: dict[str, Table] = field(default_factory=dict)  # of the method, as `[method.NAME]`

    @property
    def training(self) -> dict[str, Any]:
        """What decides which models are trained."""
        keys = ("method", "rounds", "folds", "rows", "seed", "settings")
        return {key: value for key, value in asdict(self).items() if key in keys}

    def __post_init__(self) -> None:
        bounds = {"rounds": (1, 10**6), "fdr": (0.001, 0.5), "sample": (0, 10**7), "images": (0, 10**6)}
        for key, (low, high) in bounds.items():
            if not low <= getattr(self, key) <= high:
                raise SettingsError(f"{key} must be from {low} to {high}, got {getattr(self, key)}")
        if self.folds is not None and self.folds < 2:
            raise SettingsError(
                f"folds must be 2 or more, so that nobody is judged by a model of its own: {self.folds}"
            )
        if self.rows not in ("all", "train"):
            raise SettingsError(f"rows must be all or train, got {self.rows!r}")


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


def fold_method(options: AuditOptions, training: TrainingSettings, clients: int, participation: float = 1.0) -> Method:
    """The method that so many clients train one fold's model by."""
    plan = Plan(options.rounds, training, participation, options.seed, clients)
    return compose(options.method, plan, method_tables(options))


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
