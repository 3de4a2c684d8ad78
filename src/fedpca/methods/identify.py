"""Who is mislabeled: what FedPCA's identification asks clients for and how it judges; FedPCA and `X+d` share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedpca.core import Diagnose, ReportPart
from fedpca.methods.base import training
from fedpca.methods.define import Plan
from fedpca.settings.base import Count, NonNegative, Positive, Settings, Share

if TYPE_CHECKING:
    from fedpca.parts.server.identify import Identify, ThreeGroups

WARMUP = 10  # rounds of FedAvg before anybody is judged
OpenShare = Annotated[float, Field(gt=0, le=1)]


class MixtureSettings(Settings):
    """How the paper's rule fits three groups on the loss-dispersion plane."""

    RENAMED: ClassVar = {"gate": "min_margin"}

    starts: Count = 9  # fits; the most frequent set of mislabeled clients wins
    covariance: Literal["full", "tied", "diag", "spherical"] = "full"
    ridge: Positive = 1e-6  # added to the covariances' diagonals
    steps: Count = 100  # of expectation-maximisation at most
    scale: Literal["minmax", "none"] = "minmax"
    membership: Literal["hard", "soft"] = "hard"  # what is smoothed: in or out, or the responsibility
    min_margin: NonNegative | None = None  # deviations that the group must stand out by; none: it always names somebody


class AutoSettings(Settings):
    """How `auto` decides whether anybody has wrong labels at all."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.25  # of uninformative labels, from which on a client is mislabeled
    certainty: NonNegative = 2.0  # standard errors by which the share must exceed zero


class IdentifySettings(Settings):
    """Who is mislabeled; what the paper leaves open has the default and the reason given in docs/fedpca.md."""

    SHORTHAND: ClassVar = "rule"  # identify = "auto"

    rule: Literal["mixture", "auto"] = "mixture"
    smoothing: OpenShare = 0.5  # share of the new evidence
    threshold: OpenShare = 0.5  # of smoothed membership, for the mixture
    dispersion_per_sample: bool = True
    dispersion_denominator: Literal["all", "predicted"] = "all"
    augment_report: bool = False  # measure on images augmented as in training, as the authors' other code does
    mixture: MixtureSettings = MixtureSettings()
    auto: AutoSettings = AutoSettings()


RENAMED = {  # keys that stood beside `identify` in version 0.1
    "identity_smoothing": "identify.smoothing",
    "identity_threshold": "identify.threshold",
    "dispersion_per_sample": "identify.dispersion_per_sample",
    "dispersion_denominator": "identify.dispersion_denominator",
    "report_augmented": "identify.augment_report",
    "mixture": "identify.mixture",
    "auto": "identify.auto",
}


class HighConfidenceSettings(Settings):
    """(HS): which samples a client that is judged mislabeled trains on, under their predictions."""

    min_confidence: Share = 0.9  # tau_min
    reading: Literal["quantile", "top-mean"] = "quantile"  # how "top t/T" of the confidences is read
    min_samples: Annotated[int, Field(ge=2)] = 2  # confident samples below which a client does not train


def identification(
    plan: Plan, settings: IdentifySettings, confident: HighConfidenceSettings | None = None
) -> tuple[ReportPart, Diagnose]:
    """What clients report and how the server judges them by it."""
    from fedpca.parts.client.report import PerformanceAndCapacity
    from fedpca.parts.server.diagnose import NameGroups

    report = PerformanceAndCapacity(
        settings.dispersion_per_sample,
        settings.dispersion_denominator,
        confident.reading if confident else None,
        informativeness=settings.rule == "auto",
        augment=training(plan).augment if settings.augment_report else None,
    )
    threshold = settings.threshold if settings.rule == "mixture" else settings.auto.share
    min_confidence = confident.min_confidence if confident else 1.0
    return report, NameGroups(_rule(settings), settings.smoothing, threshold, min_confidence)


def _rule(settings: IdentifySettings) -> Identify:
    from fedpca.parts.server.identify import WrongShares

    if settings.rule == "auto":
        return WrongShares(settings.auto.share, settings.auto.certainty)
    return mixture_rule(settings.mixture)


def mixture_rule(mixture: MixtureSettings) -> ThreeGroups:
    """The paper's rule: three groups on the loss-dispersion plane."""
    from fedpca.parts.server.identify import ThreeGroups

    return ThreeGroups(
        mixture.starts,
        mixture.covariance,
        mixture.ridge,
        mixture.steps,
        mixture.scale,
        mixture.membership,
        mixture.min_margin,
    )
