"""A client's samples judged by its own last model and those of other clients like it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Net, Params, Report, Samples, Site
from fedpca.models.flat import load, params_of
from fedpca.parts.client.contribution import keep_state
from fedpca.parts.client.report import all_logits
from fedpca.parts.client.train import Descent
from fedpca.parts.mixture import STARTS, fit
from fedpca.parts.noise_filter import scaled_losses
from fedpca.rng import branch, stream
from fedpca.screening import Bound, Claims

OWN_SCORE, SCORE = (
    "own score",
    "score {}",
)  # notes of the server for a client: of its own model, and of each neighbour's
MAX_LOGIT = 1e6
STEPS, TOLERANCE, RIDGE = 100, 1e-2, 5e-4  # of the mixture, as published


@dataclass(frozen=True)
class AbilityAndAnswer:
    """`accuracy` of the own new model on the labels in use, and its logits for one random image, `answer`.

    The image is the same for all clients: normal numbers in the place of a scaled image. The client keeps its model.
    """

    seed: int

    @property
    def claims(self) -> Claims:
        """A share, and logits."""
        return Claims({"accuracy": Bound(0, 1), "answer": Bound(-MAX_LOGIT, MAX_LOGIT, many=True)})

    def __call__(self, site: Site, params: Params) -> Report:
        """Both."""
        keep_state(site, params)
        net = site.net
        image = torch.randn(
            net.scale(site.x[torch.zeros(1, dtype=torch.int64)]).shape, generator=stream(self.seed, "image")
        )
        answer = net.module(image.to(net.device))[0].double().clamp(-MAX_LOGIT, MAX_LOGIT)
        accuracy = (all_logits(site).argmax(dim=1) == site.y).double().mean().item()
        return {"accuracy": accuracy, "answer": answer.tolist()}


@dataclass(frozen=True)
class ReliableNeighbours:
    """The samples that are likely clean by the client's own last model and by the models that it is shown.

    Each model's word is the chance that a sample's loss is of the lower of two groups; it counts by the model's score.
    The last layer of a model that was shown is first trained for an epoch on what the own model thinks clean.
    """

    neighbours: int
    threshold: float  # chance of being clean from which on a sample is taken
    descent: Descent
    batch: int

    def __call__(self, site: Site) -> Samples:
        """The samples, all of them if none is likely clean; the update counts as all. The model is left as it was."""
        here = params_of(site.net)
        chances = list(self._chances(site, here))
        load(site.net, here)
        scores = sum(score for score, _ in chances)
        even = scores <= 0
        total = sum((1.0 if even else score) * own for score, own in chances)
        rows = likely_rows(torch.as_tensor(total) / (len(chances) if even else scores), self.threshold)
        return Samples(rows, site.y[rows], counts_as=len(site.y))

    def _chances(self, site: Site, here: Params) -> Iterator[tuple[float, Tensor]]:
        """The score of each model and its word for every sample, the client's own first."""
        memory, notes, shown = site.memory, site.order.verdict.notes, site.order.shown
        if "weights" in memory:
            load(site.net, replace(here, weights=memory["weights"], buffers=memory["buffers"]))
        own = clean_chances(all_logits(site), site.y)
        yield notes.get(OWN_SCORE, 1.0), own
        likely = likely_rows(own, self.threshold)
        for place in range(1, self.neighbours + 1):
            if f"{place}/weights" not in shown:
                return
            load(site.net, replace(here, weights=shown[f"{place}/weights"], buffers=shown[f"{place}/buffers"]))
            logits = self._with_tuned_head(site, likely, place)
            yield notes.get(SCORE.format(place), 0.0), clean_chances(logits, site.y)

    def _with_tuned_head(self, site: Site, rows: Tensor, place: int) -> Tensor:
        """Logits (N, C) of the model at hand, its last layer trained on these rows; as it is if it has none."""
        seen = before_head(site)
        if seen is None:
            return all_logits(site)
        head = site.net.head
        assert head is not None
        own = [each.detach().to("cpu", copy=True).requires_grad_() for each in head.parameters()]
        optimizer, rng = self.descent.over(own), branch(site.rng, "neighbour", place)
        with torch.enable_grad():
            for picks in torch.split(rows[torch.randperm(len(rows), generator=rng)], self.batch):
                optimizer.zero_grad()
                F.cross_entropy(F.linear(seen[picks], *own), site.y[picks]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return F.linear(seen, *own).detach()


def before_head(site: Site) -> Tensor | None:
    """What goes into the model's last layer (N, d), on the CPU; None if it has none."""
    net: Net = site.net
    if net.head is None:
        return None
    seen: list[Tensor] = []
    hook = net.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().cpu()))
    try:
        all_logits(site)
    finally:
        hook.remove()
    return torch.cat(seen)


def clean_chances(logits: Tensor, labels: Tensor) -> Tensor:
    """How likely each sample's loss is of the lower of two groups (N,); 1 where all losses are alike."""
    values = scaled_losses(F.cross_entropy(logits.double(), labels, reduction="none"))
    if values is None:
        return torch.ones(len(labels), dtype=torch.float64)
    fits = fit(values.numpy()[:, None], 2, STARTS, "full", RIDGE, STEPS, TOLERANCE)
    sound = np.where(np.isfinite(fits.likelihood), fits.likelihood, -np.inf)
    best = int(sound.argmax())
    chances = fits.responsibilities[best, :, int(fits.means[best, :, 0].argmin())]
    return torch.from_numpy(np.where(np.isfinite(chances), chances, 1.0))


def likely_rows(chances: Tensor, threshold: float) -> Tensor:
    """Rows of a chance above the threshold; all if there are none."""
    rows = (chances > threshold).nonzero().flatten()
    return rows if len(rows) else torch.arange(len(chances))
