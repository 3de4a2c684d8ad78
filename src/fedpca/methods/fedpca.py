"""FedPCA (Wu et al. 2025): performance-capacity analysis, its two ways with mislabeled clients, and its ablations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from fedpca.core import Method, Select, Stage
from fedpca.methods.base import base
from fedpca.methods.define import Definition, Plan
from fedpca.methods.identify import RENAMED, WARMUP, HighConfidenceSettings, IdentifySettings, OpenShare, identification
from fedpca.methods.sharpness import SharpnessSettings, sharp_training
from fedpca.settings.base import NonNegative, Settings, Table

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
    REPLACED: ClassVar = {
        "dispersion_depth": (
            "max_lift",
            "which bounds the weight itself, in multiples of the median client's weight per image, where "
            "dispersion_depth bounded the dispersion; e^(q dispersion_depth) is nearly the same bound",
        )
    }

    warmup: Annotated[int, Field(ge=0)] = WARMUP
    identify: IdentifySettings = IdentifySettings()
    high_confidence: HighConfidenceSettings | None = None  # (HS); without it the mislabeled are dropped: (D)
    q: NonNegative = 1.0  # strength of fairness: weights grow with exp(-q dispersion)
    max_lift: Annotated[float, Field(ge=1)] = 5.0  # of a client's weight per image, in multiples of the median client's
    weight_smoothing: OpenShare = 0.5  # share of the new weights
    exclude_after_smoothing: bool = True  # dropped clients have weight zero, not a remainder of earlier rounds
    sharpness: SharpnessSettings = SharpnessSettings()
    sharpness_in_warmup: bool = False


def build(plan: Plan, settings: FedPCASettings) -> Method:
    """FedAvg to warm up, then performance-capacity analysis in every round."""
    from fedpca.parts.client.select import ConfidentOfTheMislabeled, NothingOfTheMislabeled, everything
    from fedpca.parts.server.weigh import ByReliabilityAndCapacity

    weigh = ByReliabilityAndCapacity(settings.q, settings.max_lift)
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


def build_without_robustness(plan: Plan, settings: FedPCASettings) -> Method:
    """Weights by capacity alone, and everybody's labels as they are."""
    from fedpca.parts.client.select import everything
    from fedpca.parts.server.weigh import ByCapacity

    return _stages(plan, settings, everything, ByCapacity(settings.q, settings.max_lift))


FEDPCA = Definition(
    "fedpca-d",
    "Performance-capacity analysis; mislabeled clients are dropped (Wu et al. 2025)",
    "ours",
    FedPCASettings,
    build,
    judges=True,
    year=2025,
    page="fedpca",
    fixed={"high_confidence": None},
)
CONFIDENT = replace(
    FEDPCA,
    name="fedpca-hs",
    summary="Performance-capacity analysis; the mislabeled train on confident predictions (Wu et al. 2025)",
    preset={"high_confidence": {}},
    fixed={},
)
AUTO: Table = {"identify": {"rule": "auto"}}
DROP_AUTO = replace(
    FEDPCA,
    name="fedpca-d-auto",
    summary="As fedpca-d, but it first asks whether anybody is mislabeled at all",
    preset=AUTO,
)
CONFIDENT_AUTO = replace(
    CONFIDENT,
    name="fedpca-hs-auto",
    summary="As fedpca-hs, but it first asks whether anybody is mislabeled at all",
    preset={**CONFIDENT.preset, **AUTO},
)
WITHOUT_FAIRNESS = replace(
    FEDPCA,
    name="fedpca-wo-fairness",
    summary="Ablation: fedpca-d with q = 0, so that rare clients are not lifted",
    family="ablation",
    fixed={**FEDPCA.fixed, "q": 0.0},
)
WITHOUT_ROBUSTNESS = replace(
    FEDPCA,
    name="fedpca-wo-robustness",
    summary="Ablation: weights exp(-q dispersion) alone, nobody is dropped",
    family="ablation",
    build=build_without_robustness,
)
