"""Labels that are learned together with the model, by clients whose given ones are not trusted."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Params, Report, Samples, Site
from fedpca.parts.client.loss import Batch, BatchLoss, Loss
from fedpca.parts.client.report import all_logits
from fedpca.screening import Claims

KEY = "label_logits"  # in a client's memory: (N, classes), whose softmax are the labels that it learns
TINY = 1e-30  # the least share of a class in a logarithm: single precision has no smaller ones


@dataclass(frozen=True)
class LearnedLabels:
    """For clients judged mislabeled KL(p || d) / C + alpha (-ln d_y) + beta H(p) / C, batch means; else another loss.

    d = softmax(z) are the labels that the client learns: with each batch the logits z of its rows go down the gradient
    of this loss, times `step` over the nominal batch. They begin as `scale` times the given labels (Yi and Wu 2019).
    """

    alpha: float
    beta: float
    step: float  # of z, for the loss of one image
    scale: float
    otherwise: Loss

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss of these samples; z is changed in the client's memory, by a copy of what lay there."""
        if site.order.verdict.group != "mislabeled":
            return self.otherwise(site, samples)
        z = label_logits(site, self.scale).clone()
        site.memory[KEY] = z

        def total(batch: Batch) -> Tensor:
            rows = batch.rows
            labels = batch.labels if batch.labels.ndim == 2 else F.one_hot(batch.labels, z.shape[1])
            given = labels.to(batch.logits)
            learned = z[rows].to(batch.logits).softmax(dim=1)
            probs = batch.logits.softmax(dim=1)
            slope = label_slope(probs.detach(), learned, given, self.alpha)
            z[rows] -= self.step * slope.to(z)
            return joint_loss(batch.logits, learned, given, self.alpha, self.beta)

        return total


def label_logits(site: Site, scale: float) -> Tensor:
    """What the client has learned so far, or its labels in use times the scale, (N, classes)."""
    known = site.memory.get(KEY)
    return scale * F.one_hot(site.y, site.net.classes).float() if known is None else known


def joint_loss(logits: Tensor, learned: Tensor, given: Tensor, alpha: float, beta: float) -> Tensor:
    """KL(p || d) / C + alpha (-ln d_y) + beta H(p) / C of logits and shares of classes (n, C), batch means."""
    logs, probs, classes = logits.log_softmax(dim=1), logits.softmax(dim=1), logits.shape[1]
    known = learned.clamp_min(TINY).log()
    apart = (probs * (logs - known)).sum(dim=1) / classes
    unsure = -(probs * logs).sum(dim=1) / classes
    wrong = -(given * known).sum(dim=1)
    return (apart + alpha * wrong + beta * unsure).mean()


def label_slope(probs: Tensor, learned: Tensor, given: Tensor, alpha: float) -> Tensor:
    """The gradient of each image's loss in its label logits (n, C)."""
    return (learned - probs) / probs.shape[1] + alpha * (learned - given)


@dataclass(frozen=True)
class MergeLabels:
    """Nothing to send; a client judged mislabeled takes its new model's opinion into the labels that it learns."""

    scale: float

    @property
    def claims(self) -> Claims:
        """Nothing."""
        return Claims()

    def __call__(self, site: Site, params: Params) -> Report:
        if site.order.verdict.group == "mislabeled":
            learned = label_logits(site, self.scale).softmax(dim=1)
            site.memory[KEY] = merged(learned, all_logits(site).softmax(dim=1), self.scale)
        return {}


def merged(learned: Tensor, probs: Tensor, scale: float) -> Tensor:
    """The label logits of the mean of both."""
    return scale * (learned + probs) / 2
