"""FedELC: noisy clients named once, which then learn their labels with the model."""

from dataclasses import replace

from fedpca.core import Method, Stage
from fedpca.methods.base import base, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Count, NonNegative, Positive, Settings


class FedELCSettings(Settings):
    """What `[method.fedelc]` takes."""

    warmup: Count | None = None  # rounds before the noisy clients are named, once; a sixth of all if not given
    fits: Count = 9  # of the mixture; the most frequent answer counts
    alpha: NonNegative = 0.5  # of the given labels in the noisy clients' loss
    beta: NonNegative = 0.2  # of the entropy of their predictions
    step: NonNegative = 1000.0  # by which learned labels go down their gradient, over the batch
    scale: Positive = 10.0  # of the logits of learned labels
    logit_adjustment: bool = True  # of the clean clients' loss; False: as training.logit_adjustment says


@method(
    "fedelc",
    settings=FedELCSettings,
    combined={"logit_adjustment": False},
    family="robust",
    year=2024,
    judges=True,
)
def fedelc(plan: Plan, settings: FedELCSettings) -> Method:
    """Finds noisy clients by class losses; these learn their labels with the model (Jiang et al. 2024)."""
    from fedpca.parts.client.distance import class_losses
    from fedpca.parts.client.learned import LearnedLabels, MergeLabels
    from fedpca.parts.client.loss import LogitAdjustment, cross_entropy
    from fedpca.parts.server.distance import HighClassLosses, by_distance

    adjusted = settings.logit_adjustment or plan.training.logit_adjustment
    loss = LogitAdjustment(tau=1.0) if adjusted else cross_entropy
    step = settings.step / plan.training.batch
    learned = LearnedLabels(settings.alpha, settings.beta, step, settings.scale, loss)
    plain = replace(base(plan), train=replace(training(plan), loss=loss))
    train = replace(training(plan), loss=learned, after=MergeLabels(settings.scale))
    rest = replace(plain, train=train, aggregate=by_distance)
    naming = replace(rest, report=class_losses, diagnose=HighClassLosses(settings.fits))
    warmup = settings.warmup or max(1, plan.rounds // 6)
    return Method("", (Stage(plain, warmup), Stage(naming, 1), Stage(rest)))
