"""FedRN: samples judged by the models of reliable neighbours."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method, Stage
from fedpca.methods.base import base, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Count, Settings, Share


class FedRNSettings(Settings):
    """What `[method.fedrn]` takes."""

    neighbours: Annotated[int, Field(ge=0)] = 2  # models of others that a client is shown; 0: nobody's model is shown
    warmup: Count | None = None  # rounds of FedAvg before samples are judged; a fifth of all if not given
    ability: Share = 0.6  # part of accuracy in a neighbour's score, the rest is likeness
    threshold: Share = 0.5  # chance of being clean above which a sample is taken


@method("fedrn", settings=FedRNSettings, family="robust", year=2022)
def fedrn(plan: Plan, settings: FedRNSettings) -> Method:
    """Samples are taken by the models of like clients; every model is shown to other clients (Kim et al. 2022)."""
    from fedpca.parts.client.contribution import keep_state
    from fedpca.parts.client.neighbours import AbilityAndAnswer, ReliableNeighbours
    from fedpca.parts.server.neighbours import ShowNeighbours

    plain, count = base(plan), settings.neighbours
    usual = training(plan)
    train = replace(usual, after=AbilityAndAnswer(plan.seed) if count else keep_state)
    rule = ShowNeighbours(plain.aggregate, count, settings.ability) if count else plain.aggregate
    warming = replace(plain, train=train, aggregate=rule)
    select = ReliableNeighbours(count, settings.threshold, usual.descent, usual.batch)
    warmup = settings.warmup or max(1, plan.rounds // 5)
    return Method("", (Stage(warming, warmup), Stage(replace(warming, select=select))))
