"""Samples taken by a noise filter that all clients fit together, and each client's part in fitting it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Order, Params, Report, Samples, Site
from fedpca.parts.client.report import all_logits
from fedpca.parts.client.select import everything
from fedpca.parts.noise_filter import FIRST, Filter, clean_chances, filter_of, refitted, scaled_losses
from fedpca.screening import Bound, Claims

FILTER = "filter"  # its name among what the server shows, and in reports
PREDICTED, PRIOR, TIMES = "predicted", "prior", "times"  # in a client's memory
TINY = 1e-12  # the least share of a class in a logarithm


def shown_filter(order: Order) -> Filter:
    """The filter of all clients; in the first round the one before there is any."""
    return filter_of(order.shown.get(FILTER, FIRST))


def sample_losses(logits: Tensor, labels: Tensor, published: bool) -> Tensor:
    """Cross-entropy of each sample (N,); `published`: of probabilities taken for logits."""
    return F.cross_entropy(logits.softmax(dim=1) if published else logits, labels, reduction="none")


@dataclass(frozen=True)
class ByFilter:
    """Samples that the filter thinks clean, and noisy ones under a label on which two predictions agree.

    A client with few noisy samples takes all. In its first `settling` rounds it takes the clean ones, later only those
    of them for which the global model predicts what its own model predicted last, classes it knows well set back; of
    the noisy ones those for which this holds too, if the model is sure enough and there are many.
    """

    max_noise: float  # share of noisy samples up to which all are taken
    relabel_from: float  # share of noisy samples above which they are used under other labels
    settling: int
    confidence: float  # of a prediction that becomes a label
    min_samples: int  # a client trains on more than these
    published: bool

    def __call__(self, site: Site) -> Samples:
        """The samples; the update counts as all of the client's, whether or not it trains."""
        count = len(site.y)
        logits = all_logits(site).double()
        clean = self._clean(site, logits)
        noise = 1 - clean.double().mean().item()
        if noise <= self.max_noise:
            return everything(site)
        rows, labels = self._usable(site, logits, clean, noise)
        if len(rows) <= self.min_samples:
            rows, labels = rows[:0], labels[:0]
        return Samples(rows, labels, counts_as=count)

    def _clean(self, site: Site, logits: Tensor) -> Tensor:
        values = scaled_losses(sample_losses(logits, site.y, self.published))
        return clean_chances(shown_filter(site.order), values) > 0.5 if values is not None else site.y >= 0

    def _usable(self, site: Site, logits: Tensor, clean: Tensor, noise: float) -> tuple[Tensor, Tensor]:
        sure, now = logits.softmax(dim=1).max(dim=1)
        if int(site.memory.get(TIMES, torch.zeros(()))) < self.settling:
            rows = clean.nonzero().flatten()
            return rows, site.y[rows]
        agreed = now == site.memory.get(PREDICTED, now)
        taken = clean & agreed
        if noise > self.relabel_from:
            taken = taken | (~clean & agreed & (sure > self.confidence))
        rows = taken.nonzero().flatten()
        return rows, torch.where(clean, site.y, now)[rows]


@dataclass(frozen=True)
class FitFilter:
    """`filter`: six numbers, the shared filter after some steps towards the losses of the client's own new model.

    The client keeps what its model predicts for each sample, classes that it often predicts set back, and how often
    that is.
    """

    steps: int
    debias: float  # how far classes are set back: 0: not at all
    momentum: float  # of the classes' shares among what is predicted
    sure: float  # confidence above which a prediction counts among these
    published: bool

    @property
    def claims(self) -> Claims:
        """Means and variances of numbers from 0 to 1, and shares."""
        return Claims({FILTER: Bound(0, 1, many=True)})

    def __call__(self, site: Site, params: Params) -> Report:
        """The numbers; where all losses are alike they are the shared ones."""
        logits = all_logits(site).double()
        prior = site.memory.get(PRIOR, torch.full((logits.shape[1],), 1 / logits.shape[1], dtype=torch.float64))
        debiased = set_back(logits, prior, self.debias)
        certain = debiased.amax(dim=1) > self.sure
        if certain.any():
            seen = logits.softmax(dim=1)[certain].mean(dim=0)
            prior = self.momentum * prior + (1 - self.momentum) * seen
        site.memory[PRIOR], site.memory[PREDICTED] = prior, debiased.argmax(dim=1)
        site.memory[TIMES] = site.memory.get(TIMES, torch.zeros((), dtype=torch.int64)) + 1
        own = shown_filter(site.order)
        values = scaled_losses(sample_losses(logits, site.y, self.published))
        return {FILTER: (own if values is None else refitted(own, values, self.steps)).numbers}


def set_back(logits: Tensor, prior: Tensor, strength: float) -> Tensor:
    """Probabilities (N, C) under which classes that are often predicted (their shares: prior, (C,)) are less likely."""
    return (logits - strength * prior.clamp_min(TINY).log()).softmax(dim=1)
