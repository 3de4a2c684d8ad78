"""Who is mislabeled: what FedPCA's identification asks clients for and how it judges; FedPCA and `X+d` share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedpca.core import Diagnose, ReportPart
from fedpca.methods.base import training
from fedpca.methods.define import Plan
from fedpca.settings.base import Count, NonNegative, Positive, Settings, Share

if TYPE_CHECKING:
    from fedpca.parts.server.diagnose import Settle
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

    share: OpenShare = 0.1  # of wrong labels above the reference, from which on a client may be judged mislabeled
    certainty: NonNegative = 2.5  # standard errors by which that share must exceed zero
    min_learned: Share = 0.4  # how far above chance labels must be predicted at the best quarter of the clients
    max_unseen: OpenShare = 0.2  # whoever may have so many more than the reference cannot be told to be innocent
    enter: Count = 2  # rounds in a row that say mislabeled, until a client is judged so
    leave: Count = 3  # rounds in a row that do not, until it is no longer
    min_clients: Count = 10  # not judged mislabeled, to call some of them rare


class SlopeSettings(Settings):
    """The rule that was `auto` up to version 0.1: a threshold on what one slope shows."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.25  # of uninformative labels, from which on a client is mislabeled
    certainty: NonNegative = 2.0  # standard errors by which the share must exceed zero


class IdentifySettings(Settings):
    """Who is mislabeled; what the paper leaves open has the default and the reason given in docs/fedpca.md."""

    SHORTHAND: ClassVar = "rule"  # identify = "auto"

    rule: Literal["mixture", "auto", "slope"] = "mixture"
    smoothing: OpenShare = 0.5  # share of the new evidence, for the mixture and the slope
    threshold: OpenShare = 0.5  # of smoothed membership, for the mixture
    dispersion_per_sample: bool = True
    dispersion_denominator: Literal["all", "predicted"] = "all"
    augment_report: bool = False  # measure on images augmented as in training, as the authors' other code does
    mixture: MixtureSettings = MixtureSettings()
    auto: AutoSettings = AutoSettings()
    slope: SlopeSettings = SlopeSettings()

    @property
    def line(self) -> float:
        """The suspicion from which on a client can be judged mislabeled."""
        return {"mixture": self.threshold, "auto": self.auto.share, "slope": self.slope.share}[self.rule]


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
    from fedpca.parts.client.labels import label_evidence, label_slopes
    from fedpca.parts.client.report import PerformanceAndCapacity
    from fedpca.parts.server.diagnose import NameGroups

    report = PerformanceAndCapacity(
        settings.dispersion_per_sample,
        settings.dispersion_denominator,
        confident.reading if confident else None,
        labels={"mixture": None, "auto": label_evidence, "slope": label_slopes}[settings.rule],
        augment=training(plan).augment if settings.augment_report else None,
    )
    min_confidence = confident.min_confidence if confident else 1.0
    return report, NameGroups(_rule(settings), _settle(settings), min_confidence)


def _rule(settings: IdentifySettings) -> Identify:
    from fedpca.parts.server.identify import WrongShares
    from fedpca.parts.server.wrong_labels import ShareOfWrongLabels

    auto, slope = settings.auto, settings.slope
    if settings.rule == "auto":
        return ShareOfWrongLabels(auto.share, auto.certainty, auto.min_learned, auto.max_unseen, auto.min_clients)
    return WrongShares(slope.share, slope.certainty) if settings.rule == "slope" else mixture_rule(settings.mixture)


def _settle(settings: IdentifySettings) -> Settle:
    from fedpca.parts.server.diagnose import InARow, Smoothed

    if settings.rule == "auto":
        return InARow(settings.auto.enter, settings.auto.leave)
    return Smoothed(settings.smoothing, settings.line)


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
