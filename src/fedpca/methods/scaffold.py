"""SCAFFOLD: local steps without the client's own drift."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.errors import UserError
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Positive, Settings


class ScaffoldSettings(Settings):
    """What `[method.scaffold]` takes."""

    lr: Positive = 1.0  # of the server's step


@method("scaffold", settings=ScaffoldSettings, family="optimisation", year=2020)
def scaffold(plan: Plan, settings: ScaffoldSettings) -> Method:
    """FedAvg whose clients leave out their own known drift (Karimireddy et al. 2020)."""
    from fedpca.parts.client.controls import Controlled, KeepControl
    from fedpca.parts.pace import Pace
    from fedpca.parts.server.controls import ControlVariates
    from fedpca.parts.server.optimise import ServerMomentum, ServerStep

    own = plan.training
    if own.optimizer != "sgd":
        raise UserError(
            f"scaffold: training.optimizer must be sgd, got {own.optimizer}: it tells gradients from models, which "
            "cannot be done where steps are rescaled"
        )
    recipe, pace = base(plan), Pace(own.lr, own.momentum, own.batch, own.epochs)
    rule = ServerStep(recipe.aggregate, ServerMomentum(settings.lr, 0.0)) if settings.lr != 1 else recipe.aggregate
    train = replace(training(plan), step=Controlled(), after=KeepControl(pace))
    aggregate = ControlVariates(rule, pace, plan.clients, plan.participation)
    return one_stage(replace(recipe, train=train, aggregate=aggregate))
