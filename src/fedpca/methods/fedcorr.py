"""FedCorr: label correction."""

from dataclasses import replace
from typing import ClassVar

from fedpca.core import Method, Stage
from fedpca.methods.base import base, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Count, NonNegative, Settings, Share


class FedCorrSettings(Settings):
    """What `[method.fedcorr]` takes."""

    RENAMED: ClassVar = {"corrected": "correct_share", "clean": "max_noise"}

    stages: tuple[Count, Count] | None = None  # rounds of the first two; 10, and up to half of all, if not given
    neighbours: Count = 20  # over which the dimension of predictions is estimated
    proximal: NonNegative = 5.0  # pull towards the global model in the first stage, times the estimated noise
    correct_share: Share = 0.5  # of the labels thought wrong, those that a round of the first stage may correct
    confidence: Share = 0.5  # of the global model, above which a label is corrected
    max_noise: Share = 0.1  # share of wrong labels up to which a client takes part in the second stage
    mixup: NonNegative = 1.0  # of the Beta distribution that blends images; 0: no blending


@method("fedcorr", settings=FedCorrSettings, family="robust", year=2022, judges=True)
def fedcorr(plan: Plan, settings: FedCorrSettings) -> Method:
    """Finds noisy clients by the dimension of their predictions and corrects their labels (Xu et al. 2022).

    First find noisy clients and correct labels, then train on clean clients, then on everybody. What follows a round's
    aggregation there opens the next round here: clients correct labels as they are asked to report. So the second and
    third stage each begin with one round that asks.
    """
    from fedpca.parts.client.augment import Mixup
    from fedpca.parts.client.loss import Proximal
    from fedpca.parts.client.relabel import CorrectConfident, CorrectWorst, Scatter, unless_resting
    from fedpca.parts.server.diagnose import InTurn
    from fedpca.parts.server.relabel import FindScattered, RestTheNoisy

    first, second = settings.stages or _halves(plan.rounds)
    plain = replace(training(plan), blend=Mixup(settings.mixup) if settings.mixup else None)
    near = replace(plain, loss=Proximal(settings.proximal, plain.loss), after=Scatter(settings.neighbours))
    correct = CorrectWorst(settings.correct_share, settings.confidence)
    finding = replace(base(plan), report=correct, diagnose=FindScattered(), train=near)
    diagnose = InTurn((FindScattered(), RestTheNoisy(settings.max_noise)))
    choosing = replace(finding, diagnose=diagnose, select=unless_resting, train=plain)
    closing = replace(base(plan), report=CorrectConfident(settings.confidence), train=plain)
    stages = (
        Stage(finding, first),
        Stage(choosing, 1),
        Stage(replace(choosing, report=None), second - 1),
        Stage(closing, 1),
        Stage(replace(closing, report=None)),
    )
    return Method("", stages)


def _halves(rounds: int) -> tuple[int, int]:
    """Ten rounds, but at most a quarter of all, and the rest of the first half: the published 10 + 240 of 500."""
    first = min(10, max(1, rounds // 4))
    return first, max(1, rounds // 2 - first)
