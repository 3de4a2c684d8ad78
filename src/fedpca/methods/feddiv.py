"""FedDiv: a noise filter fitted by all clients together."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method, Stage
from fedpca.methods.base import base, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Count, NonNegative, Settings, Share


class FedDivSettings(Settings):
    """What `[method.feddiv]` takes."""

    warmup: Count | None = None  # rounds of FedAvg before samples are taken by the filter; 5, at most a quarter of all
    max_noise: Share = 0.1  # share of noisy samples up to which a client trains on all of its own
    relabel_from: Share = 0.2  # share of noisy samples above which they are used under other labels
    settling: Annotated[int, Field(ge=0)] = 5  # rounds in which a client trains on clean samples alone
    confidence: Share = 0.0  # of the global model, above which its prediction may become a label
    min_samples: Annotated[int, Field(ge=0)] = 10  # on more of these a client trains, else it sends the model as it is
    steps: Count = 3  # of each client's own filter towards its losses, a round
    debias: NonNegative = 0.2  # how far classes are set back that a client's model often predicts
    momentum: Share = 0.5  # of the classes' shares among what it predicts
    sure: Share = 0.85  # confidence above which a prediction counts among these
    published: bool = False  # True: losses of probabilities taken for logits, and variances that shrink


@method("feddiv", settings=FedDivSettings, family="robust", year=2024)
def feddiv(plan: Plan, settings: FedDivSettings) -> Method:
    """Samples are taken or relabelled by a noise filter that all clients fit together (Li et al. 2024)."""
    from fedpca.parts.client.filter import ByFilter, FitFilter
    from fedpca.parts.server.filter import ShareFilter

    plain, published = base(plan), settings.published
    fit = FitFilter(settings.steps, settings.debias, settings.momentum, settings.sure, published)
    select = ByFilter(
        settings.max_noise,
        settings.relabel_from,
        settings.settling,
        settings.confidence,
        settings.min_samples,
        published,
    )
    filtered = replace(
        plain,
        select=select,
        train=replace(training(plan), after=fit),
        aggregate=ShareFilter(plain.aggregate, published),
    )
    warmup = settings.warmup or max(1, min(5, plan.rounds // 4))
    return Method("", (Stage(plain, warmup), Stage(filtered)))
