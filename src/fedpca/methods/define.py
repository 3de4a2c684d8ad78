"""What defines a method: its settings with their defaults, where it stands in the tables, and how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any, Literal

from fedpca.core import Method
from fedpca.settings.base import NoSettings, Settings, rounded
from fedpca.settings.experiment import AggregationSettings, TrainingSettings

Family = Literal[
    "baseline", "optimisation", "fair", "robust", "fair + robust", "ours", "ablation", "drop", "apart", "outside"
]
FAMILIES: Mapping[str, str] = {  # in the order of the tables, with their headings there
    "baseline": "Baseline",
    "optimisation": "Optimisation",
    "fair": "Fair",
    "robust": "Robust",
    "fair + robust": "Fair + Robust",
    "ours": "FedPCA",
    "ablation": "Ablations",
    "drop": "With (D)",
    "apart": "Without federation",
    "outside": "Outside",
}


@dataclass(frozen=True)
class Plan:
    """All that a method may know of the run that it is built for.

    >>> from fedpca import Plan
    >>> Plan(rounds=10).training.lr
    0.03
    """

    rounds: int
    training: TrainingSettings = field(default_factory=TrainingSettings)
    participation: float = 1.0  # share of the clients that take part in a round
    seed: int = 0
    clients: int | None = None  # how many there are, where that is known beforehand
    aggregation: AggregationSettings = field(default_factory=AggregationSettings)  # bounds around the method's rule

    @property
    def cohort_size(self) -> int | None:
        """How many clients take part in a round, where that is known beforehand."""
        return max(1, rounded(self.participation * self.clients)) if self.clients else None


Build = Callable[[Plan, Any], Method]  # Any: each takes the settings that its definition names


@dataclass(frozen=True)
class Definition:
    """A method by name.

    >>> from fedpca.methods.fedavg import fedavg
    >>> fedavg.name, fedavg.family, fedavg.judges
    ('fedavg', 'baseline', False)
    """

    name: str
    summary: str  # one line
    family: Family
    settings: type[Settings]
    build: Build
    judges: bool = False  # whether it judges clients mislabeled itself, so that `+d` has nothing to add
    year: int = 0  # of its first publication: methods of a family are listed by it
    page: str = ""  # of docs/methods; none for methods of other packages
    preset: Mapping[str, object] = field(default_factory=dict)  # defaults that differ from those of the settings class
    fixed: Mapping[str, object] = field(default_factory=dict)  # what cannot be set, since it makes the method
    combined: Mapping[str, object] = field(default_factory=dict)  # defaults that differ inside A+B
    alone: str = ""  # why it is for simulations, and goes with no other method and not with +d
    own_models: bool = False  # whether each client ends with a model of its own, and no model is everybody's
    oracle: str = ""  # the setting that an experiment fills with the number of mislabeled clients in a round


def method(name: str = "", **facts: Any) -> Callable[[Build], Definition]:  # noqa: ANN401 (fields of many types)
    """Makes a method's definition of the function that builds it; the first line of its docstring is the summary.

    `facts` are the other fields of `Definition`, such as `settings` and `family`.

    >>> from fedpca import base, method, one_stage
    >>> @method()
    ... def mine(plan, settings):
    ...     '''Nothing but FedAvg.'''
    ...     return one_stage(base(plan))
    >>> mine.summary, mine.family
    ('Nothing but FedAvg', 'outside')
    """

    def define(build: Build) -> Definition:
        own = name or f"{build.__module__}:{build.__name__}"
        summary = (getdoc(build) or own).partition("\n")[0].rstrip(".")
        defaults = {"family": "outside", "settings": NoSettings, "page": name}
        return Definition(own, summary, build=build, **{**defaults, **facts})

    return define
