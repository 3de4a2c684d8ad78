"""NA-FedAvg: clients with many images of high energy count less."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method, Stage
from fedpca.methods.base import base, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Count, NonNegative, Positive, Settings, Share


class NAFedAvgSettings(Settings):
    """What `[method.na-fedavg]` takes."""

    round: Count | None = None  # in which energies are compared; 25, but at most a quarter of all, if not given
    temperature: Positive = 1.0  # of the energy
    percentile: Annotated[float, Field(ge=0, le=100)] = 75.0  # of all energies under the global model: above is high
    threshold: NonNegative = 0.15  # share of images of high energy from which on a client counts less
    effect: Share = 0.1  # what of such a client's samples counts at most
    sketch: bool = False  # True: 101 quantiles leave a site in place of a number for each image


@method("na-fedavg", settings=NAFedAvgSettings, family="robust", year=2023)
def na_fedavg(plan: Plan, settings: NAFedAvgSettings) -> Method:
    """Clients with many images of high energy count less from one round on (Tsouvalas et al. 2023)."""
    from fedpca.parts.client.energy import Energies, HighEnergies
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.cohort import everyone
    from fedpca.parts.server.energy import ByCleanShare, NoteHighEnergy

    plain, when = base(plan), settings.round or max(1, min(25, plan.rounds // 4))
    after = replace(training(plan), after=HighEnergies(settings.temperature))
    rule = WeightedMean(ByCleanShare(settings.threshold, settings.effect), smoothing=1.0)
    rest = replace(plain, train=after, aggregate=rule)
    asking = replace(
        rest,
        report=Energies(settings.temperature, settings.sketch),
        diagnose=NoteHighEnergy(settings.percentile),
        cohort=everyone,
    )
    before = (Stage(plain, when - 1),) if when > 1 else ()
    return Method("", (*before, Stage(asking, 1), Stage(rest)))
