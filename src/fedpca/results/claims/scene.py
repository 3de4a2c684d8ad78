"""One scenario as claims see it: its runs by method, and what the paper prints for the same setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpca.results.claims.claims import Claim
from fedpca.results.read.runs import Run, by_scenario
from fedpca.results.tables.facts import Facts, Study, study_of
from fedpca.results.tables.paper import dataset_of, printed_for
from fedpca.results.tables.rows import Results, tabulate


@dataclass(frozen=True)
class Scene:
    """One scenario; of a method with several rows the first counts."""

    results: Results
    runs: Sequence[Run]  # all of them
    methods: Mapping[str, Sequence[Run]]
    dataset: str | None  # of the paper: its own or the one that it stands in for
    study: Study | None
    paper: Mapping[str, Mapping[str, float]]  # by method and score, as the paper names them

    @property
    def title(self) -> str:
        """The scenario in one line."""
        return self.results.title

    def is_asked(self, claim: Claim) -> bool:
        """Whether the claim is about a scenario like this one."""
        noise_free = not self.results.settings.noise.injects and self.results.mislabeled is not None
        return (
            (not claim.studies or self.study in claim.studies)
            and (not claim.datasets or self.dataset in claim.datasets)
            and claim.only_without_noise == noise_free
        )


def scenes(runs: Sequence[Run], facts: Facts) -> list[Scene]:
    """The scenarios of these runs, in the order in which they first occur."""
    return [_scene(results, own, facts) for results, own in zip(tabulate(runs), by_scenario(runs), strict=True)]


def _scene(results: Results, runs: Sequence[Run], facts: Facts) -> Scene:
    first = {row.name: row.method for row in reversed(results.rows)}
    methods = {name: [run for run in runs if run.label() == label] for name, label in first.items()}
    study = study_of(results.settings)
    return Scene(results, runs, methods, dataset_of(results.dataset, facts), study, printed_for(results, facts))
