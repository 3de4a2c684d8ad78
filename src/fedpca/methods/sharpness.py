"""Sharpness-aware local training, which FedISM and FedPCA share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedpca.methods.base import training
from fedpca.methods.define import Plan
from fedpca.settings.base import NonNegative, Settings

if TYPE_CHECKING:
    from fedpca.parts.client.train import LocalTraining


class SharpnessSettings(Settings):
    """GSAM's step."""

    radius: NonNegative = 0.05
    alpha: NonNegative = 0.1
    growth: NonNegative = 0.0  # the radius is multiplied by round / rounds to this power; 0: constant


def sharp_training(plan: Plan, settings: SharpnessSettings) -> LocalTraining:
    """Local training with GSAM's steps."""
    from fedpca.parts.client.step import GSAM

    return replace(training(plan), step=GSAM(settings.radius, settings.alpha, settings.growth))
