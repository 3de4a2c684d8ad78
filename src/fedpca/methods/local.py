"""No federation: every client by itself."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NoSettings


@method("local", family="apart", alone="has no federation: each client trains a model of its own", own_models=True)
def local(plan: Plan, settings: NoSettings) -> Method:
    """Every client trains a model of its own, from the same start: what it could do alone."""
    from fedpca.parts.client.own import TrainOwn, own_model
    from fedpca.parts.server.robust import coordinate_median

    # nobody sends anything: any rule leaves the model as it is, and this one gives nobody a weight
    recipe = replace(base(plan), train=TrainOwn(training(plan)), aggregate=coordinate_median)
    return replace(one_stage(recipe), own_model=own_model)
