"""One exchange a round in place of two: sites report as they train, and are judged by what they said last round."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedpca.core import Method, Recipe, ReportPart, Samples, Select, Site, Train, Update
from fedpca.parts.client.select import nothing
from fedpca.screening import Claims, claims_of, joint_claims


def in_one_exchange(method: Method) -> Method:
    """The same method, each report sent with the update of its round."""
    return replace(method, stages=tuple(replace(stage, recipe=_combine(stage.recipe)) for stage in method.stages))


def _combine(recipe: Recipe) -> Recipe:
    if recipe.report is None:
        return recipe
    train = ReportAndTrain(recipe.report, recipe.select, recipe.train)
    return replace(recipe, report=None, select=nothing_yet, train=train)


def nothing_yet(site: Site) -> Samples:
    """Nothing yet: `ReportAndTrain` selects after its report."""
    return nothing()


@dataclass(frozen=True)
class ReportAndTrain:
    """What the client sees under the global weights, then its training; both in one update."""

    report: ReportPart
    select: Select
    train: Train

    @property
    def claims(self) -> Claims:
        """What the report can say, and what training can."""
        return joint_claims((claims_of(self.report), claims_of(self.train)))

    def __call__(self, site: Site, samples: Samples) -> Update:
        """The update with the report in it; a dropped client sends its report alone."""
        with torch.no_grad():
            report = self.report(site)
            selected = self.select(site)
        update = self.train(site, selected)
        return replace(update, report={**report, **update.report})
