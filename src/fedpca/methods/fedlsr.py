"""FedLSR: local self-regularisation."""

from dataclasses import replace
from typing import Literal

from fedpca.core import Method
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Positive, Settings, Share


class ViewSettings(Settings):
    """The second view of an image."""

    kind: Literal["auto", "turn", "colour", "noise"] = "auto"  # by what the images are, or as said
    degrees: NonNegative = 30.0  # by which pictures without colours turn, either way, at most
    strength: Share = 0.8  # by which brightness, contrast and saturation of colour images change at most
    hue: Share = 0.2  # by which their hue turns at most, as a share of the circle
    changed: Share = 0.8  # share of them that change in colour
    grey: Share = 0.2  # share of them that become grey
    noise: NonNegative = 0.1  # on what is no picture, in deviations of each number over the batch


class FedLSRSettings(Settings):
    """What `[method.fedlsr]` takes."""

    divergence: NonNegative = 0.4  # weight of the divergence between the two views' predictions, at its most
    sharpening: Positive = 3.0  # factor of the logits before the divergence
    ramp: Share = 0.2  # share of all rounds in which the divergence's weight rises from 0
    entropy: NonNegative = 0.3  # weight of the predictions' entropy
    published: bool = True  # the formulas of its code; False: those that are meant
    view: ViewSettings = ViewSettings()


@method("fedlsr", settings=FedLSRSettings, family="robust", year=2022)
def fedlsr(plan: Plan, settings: FedLSRSettings) -> Method:
    """Clients train on what their model says of two views of an image, pulled together (Jiang et al. 2022)."""
    from fedpca.parts.client.self_regularised import SelfRegularised
    from fedpca.parts.client.view import View

    own = settings.model_dump(exclude={"view"})
    plain = training(plan)
    loss = SelfRegularised(View(**settings.view.model_dump()), **own, otherwise=plain.loss)
    return one_stage(replace(base(plan), train=replace(plain, loss=loss)))
