"""FedPCA (Wu et al. 2025): performance-capacity analysis, its two ways with mislabeled clients, and its ablations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from fedpca.core import Method, Select, Stage
from fedpca.methods.base import base
from fedpca.methods.define import Plan, method
from fedpca.methods.identify import RENAMED, WARMUP, HighConfidenceSettings, IdentifySettings, OpenShare, identification
from fedpca.methods.sharpness import SharpnessSettings, sharp_training
from fedpca.settings.base import NonNegative, Positive, Settings, Table

if TYPE_CHECKING:
    from fedpca.parts.server.weigh import Weigh


class FedPCASettings(Settings):
    """What `[method.fedpca-d]` and its siblings take."""

    RENAMED: ClassVar = {
        **RENAMED,
        "least_confidence": "high_confidence.min_confidence",
        "confidence": "high_confidence.reading",
        "least_samples": "high_confidence.min_samples",
    }

    warmup: Annotated[int, Field(ge=0)] = WARMUP
    identify: IdentifySettings = IdentifySettings()
    high_confidence: HighConfidenceSettings | None = None  # (HS); without it the mislabeled are dropped: (D)
    q: NonNegative = 1.0  # strength of fairness: weights grow with exp(-q dispersion)
    dispersion_depth: Positive = 3.0  # how far below the median a dispersion still lifts a client's weight
    weight_smoothing: OpenShare = 0.5  # share of the new weights
    exclude_after_smoothing: bool = True  # dropped clients have weight zero, not a remainder of earlier rounds
    sharpness: SharpnessSettings = SharpnessSettings()
    sharpness_in_warmup: bool = False


def build(plan: Plan, settings: FedPCASettings) -> Method:
    """FedAvg to warm up, then performance-capacity analysis in every round."""
    from fedpca.parts.client.select import ConfidentOfTheMislabeled, NothingOfTheMislabeled, everything
    from fedpca.parts.server.weigh import ByReliabilityAndCapacity

    weigh = ByReliabilityAndCapacity(settings.q, settings.dispersion_depth)
    if settings.high_confidence:
        return _stages(plan, settings, ConfidentOfTheMislabeled(settings.high_confidence.min_samples), weigh)
    return _stages(plan, settings, NothingOfTheMislabeled(everything), weigh, settings.exclude_after_smoothing)


def _stages(plan: Plan, settings: FedPCASettings, select: Select, weigh: Weigh, exclude: bool = False) -> Method:
    from fedpca.parts.server.aggregate import WeightedMean, WithoutTheMislabeled

    sharp = sharp_training(plan, settings.sharpness)
    warm = replace(base(plan), train=sharp) if settings.sharpness_in_warmup else base(plan)
    mean = WeightedMean(weigh, settings.weight_smoothing)
    report, diagnose = identification(plan, settings.identify, settings.high_confidence)
    recipe = replace(
        base(plan),
        report=report,
        diagnose=diagnose,
        select=select,
        train=sharp,
        aggregate=WithoutTheMislabeled(mean) if exclude else mean,
    )
    return Method("", (Stage(warm, settings.warmup), Stage(recipe)))


DROP: Table = {"high_confidence": None}
CONFIDENT: Table = {"high_confidence": {}}
AUTO: Table = {"identify": {"rule": "auto"}}


@method("fedpca-d", settings=FedPCASettings, fixed=DROP, family="ours", year=2025, judges=True, page="fedpca")
def fedpca_d(plan: Plan, settings: FedPCASettings) -> Method:
    """Performance-capacity analysis; mislabeled clients are dropped (Wu et al. 2025)."""
    return build(plan, settings)


@method("fedpca-hs", settings=FedPCASettings, preset=CONFIDENT, family="ours", year=2025, judges=True, page="fedpca")
def fedpca_hs(plan: Plan, settings: FedPCASettings) -> Method:
    """Performance-capacity analysis; the mislabeled train on confident predictions (Wu et al. 2025)."""
    return build(plan, settings)


@method(
    "fedpca-d-auto",
    settings=FedPCASettings,
    preset=AUTO,
    fixed=DROP,
    family="ours",
    year=2025,
    judges=True,
    page="fedpca",
)
def fedpca_d_auto(plan: Plan, settings: FedPCASettings) -> Method:
    """As fedpca-d, but it first asks whether anybody is mislabeled at all."""
    return build(plan, settings)


@method(
    "fedpca-hs-auto",
    settings=FedPCASettings,
    preset={**CONFIDENT, **AUTO},
    family="ours",
    year=2025,
    judges=True,
    page="fedpca",
)
def fedpca_hs_auto(plan: Plan, settings: FedPCASettings) -> Method:
    """As fedpca-hs, but it first asks whether anybody is mislabeled at all."""
    return build(plan, settings)


@method(
    "fedpca-wo-fairness",
    settings=FedPCASettings,
    fixed={**DROP, "q": 0.0},
    family="ablation",
    year=2025,
    judges=True,
    page="fedpca",
)
def fedpca_without_fairness(plan: Plan, settings: FedPCASettings) -> Method:
    """Ablation: fedpca-d with q = 0, so that rare clients are not lifted."""
    return build(plan, settings)


@method(
    "fedpca-wo-robustness",
    settings=FedPCASettings,
    fixed=DROP,
    family="ablation",
    year=2025,
    judges=True,
    page="fedpca",
)
def fedpca_without_robustness(plan: Plan, settings: FedPCASettings) -> Method:
    """Ablation: weights exp(-q dispersion) alone, nobody is dropped."""
    from fedpca.parts.client.select import everything
    from fedpca.parts.server.weigh import ByCapacity

    return _stages(plan, settings, everything, ByCapacity(settings.q, settings.dispersion_depth))
