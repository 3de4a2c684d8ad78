"""The paper's published numbers, and what makes a run the paper's setting."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from fedpca.errors import SettingsError, nearest
from fedpca.settings.base import Count, Settings, Share

if TYPE_CHECKING:
    from fedpca.settings.experiment import Experiment

FACTS = Path(__file__).with_name("paper.toml")

Study = Literal["iid", "non-iid label", "non-iid input", "uniform noise"]
Percent = Annotated[float, Field(ge=0, le=100)]


class Scores(Settings):
    """What the paper prints for one method in one setting; named as in our tables."""

    worst_acc: Percent | None = None
    average_acc: Percent | None = None
    std_acc: Percent | None = None
    worst_auc: Percent | None = None
    average_auc: Percent | None = None
    std_auc: Percent | None = None
    w_r_times_not_w_m: Share | None = None

    def printed(self, accuracy: str = "acc") -> dict[str, float]:
        """The numbers that are at hand, the paper's ACC under the name of the metric that it is."""
        found = self.model_dump(exclude_none=True)
        return {name.replace("acc", accuracy): value for name, value in found.items()}


class PaperCell(Settings):
    """One setting of one of the paper's tables."""

    dataset: str
    rho: Share
    eta: Share
    methods: dict[str, Scores] = Field(default_factory=dict)
    spreads: dict[str, Scores] = Field(default_factory=dict)  # the deviations (±) of these numbers

    @model_validator(mode="after")
    def _spreads_have_their_numbers(self) -> PaperCell:
        for method, spreads in self.spreads.items():
            numbers = self.methods.get(method, Scores()).printed()
            if lone := spreads.printed().keys() - numbers.keys():
                raise ValueError(f"{method} has a deviation of {min(lone)}, but no such number")
        return self


class PaperTable(Settings):
    """One table of the paper."""

    title: str
    study: Study
    cells: tuple[PaperCell, ...]
    complete: bool = True  # every number that the paper prints in it is here


class PaperDataset(Settings):
    """What makes a run the paper's setting, and which of our metrics the paper's ACC is."""

    title: str
    names: tuple[str, ...]
    stand_ins: tuple[str, ...] = ()  # smaller datasets of the shipped experiments, compared with this one
    clients: Count
    rare: Share
    rounds: Count
    accuracy: Literal["acc", "bacc"]

    def scores(self) -> list[str]:
        """The names of all scores that the paper prints."""
        return [name.replace("acc", self.accuracy) for name in Scores.model_fields]

    def remark(self) -> str:
        """What a reader of its ACC must know."""
        return "The paper's ACC is taken for balanced accuracy." if self.accuracy == "bacc" else ""


class Place(NamedTuple):
    """Where a published number stands."""

    study: Study
    dataset: str
    rho: float
    eta: float
    method: str
    score: str


class Facts(Settings):
    """The facts file."""

    source: str
    methods: dict[str, str]  # our name: the paper's
    datasets: dict[str, PaperDataset]
    tables: dict[str, PaperTable]

    def numbers(self) -> Iterator[tuple[Place, float]]:
        """Every published number with its place; one that two tables print comes twice."""
        return self._listed(lambda cell: cell.methods)

    def spreads(self) -> Iterator[tuple[Place, float]]:
        """Every published deviation with its place."""
        return self._listed(lambda cell: cell.spreads)

    def _listed(self, of: Callable[[PaperCell], Mapping[str, Scores]]) -> Iterator[tuple[Place, float]]:
        for table in self.tables.values():
            for cell in table.cells:
                for method, scores in of(cell).items():
                    for score, value in scores.printed().items():
                        yield Place(table.study, cell.dataset, cell.rho, cell.eta, method, score), value

    @model_validator(mode="after")
    def _names_are_known(self) -> Facts:
        for cell in (cell for table in self.tables.values() for cell in table.cells):
            if cell.dataset not in self.datasets:
                raise ValueError(f"{cell.dataset!r} is not in [datasets]{nearest(cell.dataset, self.datasets)}")
            if strangers := cell.methods.keys() - self.methods.keys():
                name = min(strangers)
                raise ValueError(f"{name!r} is not in [methods]{nearest(name, self.methods)}")
        return self

    @model_validator(mode="after")
    def _tables_agree(self) -> Facts:
        said: dict[Place, float] = {}
        for place, value in self.numbers():
            if said.setdefault(place, value) != value:
                listed = ", ".join(map(str, place))
                raise ValueError(f"two tables contradict each other: {listed} is {said[place]} and {value}")
        return self


def read_facts(path: Path = FACTS) -> Facts:
    """The facts file, checked."""
    try:
        return Facts.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"the facts file {path} cannot be used: {error}") from None


def study_of(settings: Experiment) -> Study | None:
    """Which of the paper's studies the settings belong to; None if it has none like them."""
    if (
        settings.noise.kind != "symmetric"
        or settings.noise.others_labels > 0
        or settings.data.split not in ("iid", "dirichlet")
    ):
        return None
    departures: dict[Study, bool] = {
        "non-iid label": settings.data.split == "dirichlet",
        "non-iid input": any(settings.rare.clean_share),
        "uniform noise": settings.noise.where != "common",
    }
    found = [study for study, is_so in departures.items() if is_so] or ["iid"]
    return found[0] if len(found) == 1 else None
