"""Many small clients trained as one: each keeps its own weights, and a step is one batched product for all of them.

For networks of linear layers, where a client's own step is mostly Python; convolutions gain nothing from it on a CPU.
The sums are the same numbers in another order: updates agree with those of one client at a time to about 1e-7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedpca.core import Net, Params, Recipe, Report, ReportPart, Samples, Site, Train, Update
from fedpca.models.device import to_device
from fedpca.models.flat import load, params_of
from fedpca.parts.client.augment import unblended, unchanged
from fedpca.parts.client.loss import LogitAdjusted, cross_entropy, log_prior
from fedpca.parts.client.report import PerformanceAndCapacity, whole
from fedpca.parts.client.select import ConfidentOfTheMislabeled, all_rows
from fedpca.parts.client.step import TINY, GapGuided, descend, grown
from fedpca.parts.client.train import Descent, LocalTraining, nothing
from fedpca.parts.sides import unsided

SIZE = 25  # clients at once: enough to spread Python's cost, few enough that a step stays in the cache
MANY = 100  # clients at once where they report or select: they share the weights
SMALL = 1 << 16  # weights, up to which a team's work is mostly Python: threads would only pass its lock to and fro


def can_team(net: Net, train: Train) -> bool:
    """Whether clients with this model and training can be trained together."""
    return (
        type(train) is LocalTraining
        and train.descent.optimizer == "sgd"
        and train.augment is unchanged
        and train.blend is unblended
        and (unsided(train.loss) is cross_entropy or type(unsided(train.loss)) is LogitAdjusted)
        and (unsided(train.step) is descend or type(unsided(train.step)) is GapGuided)
        and bool(layers_of(net))
    )


def can_report_together(net: Net, report: ReportPart | None) -> bool:
    """Whether what clients with this model tell can be computed for many of them at once."""
    return type(report) is PerformanceAndCapacity and report.augment is unchanged and bool(layers_of(net))


def layers_of(net: Net) -> list[nn.Linear]:
    """The layers of a network that is nothing but linear ones with ReLUs between them; else none."""
    parts = list(net.module) if type(net.module) is nn.Sequential else []
    parts = parts[1:] if parts and type(parts[0]) is nn.Flatten else parts
    layers = [part for part in parts[::2] if type(part) is nn.Linear and part.bias is not None and not _hooked(part)]
    fits = len(parts) == 2 * len(layers) - 1 and all(type(part) is nn.ReLU for part in parts[1::2])
    return layers if fits and _are_all(net.weights, layers) else []


def _hooked(part: nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks)


def _are_all(weights: Tensor, layers: Sequence[nn.Linear]) -> bool:
    """Whether the layers, in this order, are all that the vector holds: nothing frozen, tied or computed."""
    at = weights.data_ptr()
    for tensor in (tensor for layer in layers for tensor in (layer.weight, layer.bias)):
        if tensor.data_ptr() != at or tensor.dtype != weights.dtype:
            return False
        at += tensor.nbytes
    return at == weights.data_ptr() + weights.nbytes


class Stack:
    """As many copies of a network as there are clients: their weights and gradients (G, P).

    The gradient is written out rather than left to autograd, which would spend more on bookkeeping than on products.
    Until the first step the copies are one, and so are the products with its weights.
    """

    def __init__(self, net: Net, count: int) -> None:
        self.shapes = [layer.weight.shape for layer in layers_of(net)]
        self.grad = torch.empty(count, len(net.weights), device=net.device)
        self.slopes = _views(self.grad, self.shapes)
        self.momentum: Tensor | None = None  # before the first step
        self.weights = net.weights.detach()  # each client's (G, P), or those of all (P,)

    def gradient(self, images: Tensor, labels: Tensor, shares: Tensor, shifts: Tensor | None) -> Tensor:
        """Of each client's loss (G, P): cross-entropy of images (G, n, pixels) and labels (G, n), weighed by shares."""
        layers, seen = _views(self.weights, self.shapes), [images]  # seen: what goes into each layer
        for number, (weight, bias) in enumerate(layers, 1):
            seen.append(
                linear(seen[-1], weight, bias)
                if weight.ndim == 2
                else torch.baddbmm(bias.unsqueeze(1), seen[-1], weight.transpose(1, 2))
            )
            if number < len(layers):
                seen[-1].relu_()
        logits = seen.pop()
        back = _probs(logits if shifts is None else logits + shifts)
        back.scatter_add_(2, labels.unsqueeze(2), torch.full_like(back[:, :, :1], -1.0)).mul_(shares.unsqueeze(2))
        for number in reversed(range(len(layers))):
            weight_slope, bias_slope = self.slopes[number]
            weight_slope.copy_(back.transpose(1, 2) @ seen[number])
            torch.sum(back, dim=1, out=bias_slope)
            if number:
                back = (back @ layers[number][0]).mul_(seen[number].sign())  # of what a ReLU let through: 0 or 1
        return self.grad

    def descend(self, descent: Descent) -> None:
        """A step of SGD down the gradient, as PyTorch's: the momentum begins as the first gradient."""
        if descent.weight_decay:
            self.grad.add_(self.weights, alpha=descent.weight_decay)
        if self.momentum is not None:
            self.momentum.mul_(descent.momentum).add_(self.grad)
        elif descent.momentum:
            self.momentum = self.grad.clone()
        step = self.grad if self.momentum is None else self.momentum
        if self.weights.ndim == 1:
            self.weights = torch.sub(self.weights, step, alpha=descent.lr)
        else:
            self.weights.sub_(step, alpha=descent.lr)


def _probs(logits: Tensor) -> Tensor:
    """The softmax over the last dimension; turned round, since that is short, in a quarter of the time."""
    columns = logits.flatten(0, 1).T.contiguous().softmax(dim=0)
    return columns.T.contiguous().view(logits.shape)


def _views(vectors: Tensor, shapes: Sequence[torch.Size]) -> list[tuple[Tensor, Tensor]]:
    """Each layer's weights (…, out, in) and biases (…, out) in the vectors (…, P), in the model's order."""
    views, at = [], 0
    for out, into in shapes:
        weight = vectors[..., at : at + out * into].view(*vectors.shape[:-1], out, into)
        views.append((weight, vectors[..., at + out * into : at + out * (into + 1)]))
        at += out * (into + 1)
    return views


@dataclass(frozen=True)
class Batches:
    """The steps of clients that take the same number of them."""

    images: Tensor  # (all, pixels), ready for the first layer
    labels: Tensor  # (all,)
    count: int  # G
    rows: list[Tensor | None]  # per step (G, n): whose images; None: all, in their order, as many of each client
    shares: list[Tensor]  # per step (G, n): 1 / the client's batch, 0 where a batch is shorter than the longest
    shifts: Tensor | None  # (G, 1, classes): logit adjustment


def train_team(training: LocalTraining, net: Net, sites: Sequence[Site], samples: Sequence[Samples]) -> list[Update]:
    """Each client's update; the model holds the global weights, and is left with somebody's."""
    steps = [_steps(training, site, own.rows.shape[0]) for site, own in zip(sites, samples, strict=True)]
    alike: dict[int, list[int]] = defaultdict(list)  # clients by number of steps
    for i, picks in enumerate(steps):
        alike[len(picks)].append(i)
    vectors: dict[int, Tensor] = {}
    for count, members in alike.items():
        if count == 0:
            vectors |= {i: net.weights.detach().to("cpu", copy=True) for i in members}
            continue
        for begin in range(0, len(members), SIZE):
            some = members[begin : begin + SIZE]
            own = [sites[i] for i in some], [samples[i] for i in some], [steps[i] for i in some]
            batches = _batches(training, net, *own)
            vectors |= zip(some, _trained(training, net, batches, sites[0]).unbind(), strict=True)
    rest = params_of(net)
    return [_update(training, rest, sites[i], samples[i], vectors[i]) for i in range(len(sites))]


def _steps(training: LocalTraining, site: Site, count: int) -> list[Tensor]:
    """Rows of each step; where a batch holds all of them, their order does not matter, and nothing is shuffled."""
    if 1 < count <= training.batch:
        return [all_rows(count)] * training.epochs
    return list(training.batches(count, site.rng))


def _update(training: LocalTraining, rest: Params, site: Site, samples: Samples, vector: Tensor) -> Update:
    """A client's answer: its own weights, and the rest of the state, which these networks do not change."""
    size = samples.rows.shape[0]
    if size == 0:
        return Update(None, 0)
    if training.after is nothing:
        return Update(Params(vector, rest.buffers, rest.counters, lengths=rest.lengths), size, samples.reliability)
    # a copy: what a client remembers must not keep its whole team's weights alive
    params = replace(rest, weights=vector.clone())
    load(site.net, params)
    with torch.no_grad():
        return Update(params, size, samples.reliability, training.after(site, params))


def _images(site: Site, samples: Samples) -> Tensor:
    """The images that the samples name, not copied where that is all of them."""
    return whole(site) if samples.rows is all_rows(len(site.x)) else site.x[samples.rows]


def _batches(
    training: LocalTraining, net: Net, sites: Sequence[Site], samples: Sequence[Samples], steps: list[list[Tensor]]
) -> Batches:
    starts = list(accumulate((own.rows.shape[0] for own in samples), initial=0))[:-1]
    images = torch.cat([_images(site, own) for site, own in zip(sites, samples, strict=True)])
    labels = torch.cat([own.labels for own in samples])
    rows: list[Tensor | None] = []
    shares = []
    for step in zip(*steps, strict=True):
        if all(picks is all_rows(samples[0].rows.shape[0]) for picks in step):
            rows.append(None)
            shares.append(torch.full((1, 1), 1 / len(step[0]), device=net.device))
            continue
        lengths = torch.tensor([[picks.shape[0]] for picks in step])
        padded = nn.utils.rnn.pad_sequence(list(step), batch_first=True) + torch.tensor(starts)[:, None]
        rows.append(to_device(padded, net.device))
        shares.append(to_device((torch.arange(padded.shape[1]) < lengths) / lengths, net.device))
    shifts, loss = None, unsided(training.loss)
    if isinstance(loss, LogitAdjusted):
        priors = [log_prior(own.labels, net.head.out_features) for own in samples]
        shifts = to_device(loss.tau * torch.stack(priors)[:, None], net.device)
    return Batches(net.scale(images).flatten(1), to_device(labels, net.device), len(sites), rows, shares, shifts)


@torch.no_grad()
def _trained(training: LocalTraining, net: Net, batches: Batches, site: Site) -> Tensor:
    """The clients' weights (G, P) after their steps."""
    stack, sharp = Stack(net, batches.count), unsided(training.step)
    for rows, shares in zip(batches.rows, batches.shares, strict=True):
        images, labels = (
            part.view(batches.count, -1, *part.shape[1:]) if rows is None else part[rows]
            for part in (batches.images, batches.labels)
        )
        slope = partial(stack.gradient, images, labels, shares, batches.shifts)
        if isinstance(sharp, GapGuided):
            _rise(stack, slope, sharp, grown(sharp.radius, sharp.growth, site.order))
        else:
            slope()
        stack.descend(training.descent)
    return stack.weights.cpu()


def _rise(stack: Stack, slope: Callable[[], Tensor], step: GapGuided, radius: float) -> None:
    """`GapGuided` for all clients at once: leaves each one's direction where the gradient is."""
    here, plain = stack.weights, slope().clone()
    stack.weights = torch.addcmul(here, plain, radius / (plain.norm(dim=1, keepdim=True) + TINY))
    risen = slope()
    stack.weights = here
    length = risen.norm(dim=1, keepdim=True)
    along = (plain * risen).sum(dim=1, keepdim=True) / (length * (length + TINY)).clamp_min(TINY**2)
    risen.mul_(1 + step.alpha * along).sub_(plain, alpha=step.alpha)


@torch.no_grad()
def answer_report_together(recipe: Recipe, sites: Sequence[Site]) -> list[Report]:
    """What each of several clients says; they share the model, which holds the global weights."""
    assert isinstance(recipe.report, PerformanceAndCapacity), "see `can_report_together`"
    return recipe.report.of_many(sites)


def answer_train_together(recipe: Recipe, sites: Sequence[Site]) -> list[Update]:
    """What each of several clients sends, trained as one; they share the model, which holds the global weights."""
    assert isinstance(recipe.train, LocalTraining), "see `can_team`"
    with torch.no_grad():
        select = recipe.select
        many = select.of_many(sites) if type(select) is ConfidentOfTheMislabeled else map(select, sites)
        samples = list(many)
    return train_team(recipe.train, sites[0].net, sites, samples)
