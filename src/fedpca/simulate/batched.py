"""Many small clients as one: each keeps its own weights, and a step is one batched product for all of them.

For networks of linear layers, where a client's own step is mostly Python; convolutions gain nothing from it on a CPU.
The sums are the same numbers in another order: updates agree with those of one client at a time to about 1e-7. Parts
say whether they can do this (`parts.abilities`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedpca.core import Net, Params, Recipe, Report, Samples, Site, Update
from fedpca.models.device import to_device
from fedpca.models.flat import load, params_of
from fedpca.parts.abilities import BatchTraining, OfMany, ability
from fedpca.parts.client.report import whole
from fedpca.parts.client.select import all_rows

TRAINED = 25  # clients trained at once: enough to spread Python's cost, few enough that a step stays in the cache
ANSWERED = 100  # clients at once where they report or select: they share the weights
SMALL = 1 << 16  # weights, up to which the work is mostly Python: threads would only pass its lock to and fro

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Batching(Generic[Answer]):
    """How clients answer for a round, so many at a time; the sites of a batch share a model."""

    answer: Callable[[Sequence[Site]], list[Answer]]
    size: int
    threads: bool = True  # whether the batches are shared among the workers


def report_batching(net: Net, recipe: Recipe) -> Batching[Report] | None:
    """How many clients with this model report at once; None if report or model rule it out."""
    of_many: OfMany[Report] | None = ability(recipe.report, "of_many")
    if of_many is None or not layers_of(net):
        return None
    return Batching(torch.no_grad()(of_many), ANSWERED, len(net.weights) > SMALL)


def training_batching(net: Net, recipe: Recipe) -> Batching[Update] | None:
    """How many clients with this model select and train at once; None if training or model rule it out."""
    training: BatchTraining | None = ability(recipe.train, "as_batch")
    if training is None or not layers_of(net):
        return None
    small = len(net.weights) <= SMALL  # then as many updates fit into memory as clients can select at once
    return Batching(partial(_select_and_train, recipe, training), ANSWERED if small else TRAINED, not small)


def _select_and_train(recipe: Recipe, training: BatchTraining, sites: Sequence[Site]) -> list[Update]:
    with torch.no_grad():
        of_many = ability(recipe.select, "of_many")
        samples = of_many(sites) if of_many else [recipe.select(site) for site in sites]
    return train_clients(training, sites, samples)


def layers_of(net: Net) -> list[nn.Linear]:
    """The layers of a network that is nothing but linear ones with ReLUs between them; else none."""
    parts = list(net.module) if type(net.module) is nn.Sequential else []
    parts = parts[1:] if parts and type(parts[0]) is nn.Flatten else parts
    layers = [part for part in parts[::2] if type(part) is nn.Linear and part.bias is not None and not _has_hooks(part)]
    fits = len(parts) == 2 * len(layers) - 1 and all(type(part) is nn.ReLU for part in parts[1::2])
    return layers if fits and _are_all(net.weights, layers) else []


def _has_hooks(part: nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks)


def _are_all(weights: Tensor, layers: Sequence[nn.Linear]) -> bool:
    """Whether the layers, in this order, are all that the vector holds: nothing frozen, tied or computed."""
    at = weights.data_ptr()
    for tensor in (tensor for layer in layers for tensor in (layer.weight, layer.bias)):
        if tensor.data_ptr() != at or tensor.dtype != weights.dtype:
            return False
        at += tensor.nbytes
    return at == weights.data_ptr() + weights.nbytes


class ModelBatch:
    """As many copies of a network as there are clients: their weights and gradients (G, P).

    The gradient is written out rather than left to autograd, which would spend more on bookkeeping than on products.
    Until the first step the copies are one, and so are the products with its weights.
    """

    def __init__(self, net: Net, count: int, pull: float) -> None:
        self.shapes = [layer.weight.shape for layer in layers_of(net)]
        self.grad = torch.empty(count, len(net.weights), device=net.device)
        self.slopes = _views(self.grad, self.shapes)
        self.momentum: Tensor | None = None  # before the first step
        self.weights = self.start = net.weights.detach()  # each client's (G, P), or those of all (P,)
        self.pull = pull  # of the start, on each client's weights

    def gradient(self, step: Step, weights: Tensor) -> Tensor:
        """Of each client's loss (G, P) at these weights (G, P) or (P,); always in the same place."""
        layers, inputs = _views(weights, self.shapes), [step.images]
        for number, (weight, bias) in enumerate(layers, 1):
            inputs.append(
                linear(inputs[-1], weight, bias)
                if weight.ndim == 2
                else torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight.transpose(1, 2))
            )
            if number < len(layers):
                inputs[-1].relu_()
        self._backward(layers, inputs, _logit_gradient(inputs.pop(), step))
        if self.pull and weights is not self.start:
            self.grad.add_(weights, alpha=self.pull).sub_(self.start, alpha=self.pull)
        return self.grad

    def _backward(self, layers: Sequence[tuple[Tensor, Tensor]], inputs: Sequence[Tensor], back: Tensor) -> None:
        """Writes the gradient of each layer, given that of the logits (G, n, classes)."""
        for number in reversed(range(len(layers))):
            weight_slope, bias_slope = self.slopes[number]
            weight_slope.copy_(back.transpose(1, 2) @ inputs[number])
            torch.sum(back, dim=1, out=bias_slope)
            if number:
                back = (back @ layers[number][0]).mul_(inputs[number].sign())  # of what a ReLU let through: 0 or 1

    def descend(self, direction: Tensor, training: BatchTraining) -> None:
        """A step of SGD, as PyTorch's: the momentum begins as the first direction, which may be written over."""
        if training.weight_decay:
            direction.add_(self.weights, alpha=training.weight_decay)
        if self.momentum is not None:
            self.momentum.mul_(training.momentum).add_(direction)
        elif training.momentum:
            self.momentum = direction.clone()
        step = direction if self.momentum is None else self.momentum
        if self.weights.ndim == 1:
            self.weights = torch.sub(self.weights, step, alpha=training.lr)
        else:
            self.weights.sub_(step, alpha=training.lr)


def _logit_gradient(logits: Tensor, step: Step) -> Tensor:
    """Of the cross-entropy of shifted logits (G, n, classes), weighed by the samples' shares."""
    back = _probs(logits if step.shifts is None else logits + step.shifts)
    back.scatter_add_(2, step.labels.unsqueeze(2), torch.full_like(back[:, :, :1], -1.0))
    return back.mul_(step.shares.unsqueeze(2))


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
class Step:
    """What one step of G clients needs."""

    images: Tensor  # (G, n, pixels), ready for the first layer
    labels: Tensor  # (G, n)
    shares: Tensor  # (G, n): 1 / the client's batch, 0 where a batch is shorter than the longest
    shifts: Tensor | None  # (G, 1, classes): of the logits


def train_clients(training: BatchTraining, sites: Sequence[Site], samples: Sequence[Samples]) -> list[Update]:
    """Each client's update; the model that they share holds the global weights, and is left with somebody's."""
    net = sites[0].net
    rows = [_rows(training, site, own.rows.shape[0]) for site, own in zip(sites, samples, strict=True)]
    alike: dict[int, list[int]] = defaultdict(list)  # clients by number of steps
    for i, steps in enumerate(rows):
        alike[len(steps)].append(i)
    vectors: dict[int, Tensor] = {}
    for count, members in alike.items():
        if count == 0:
            vectors |= {i: net.weights.detach().to("cpu", copy=True) for i in members}
            continue
        for begin in range(0, len(members), TRAINED):
            some = members[begin : begin + TRAINED]
            own = [sites[i] for i in some], [samples[i] for i in some], [rows[i] for i in some]
            vectors |= zip(some, _trained_weights(training, *own).unbind(), strict=True)
    rest = params_of(net)
    return [_update(training, rest, sites[i], samples[i], vectors[i]) for i in range(len(sites))]


def _rows(training: BatchTraining, site: Site, count: int) -> list[Tensor]:
    """Rows of each step; where a batch holds all of them, their order does not matter, and nothing is shuffled."""
    if 1 < count <= training.batch:
        return [all_rows(count)] * training.epochs
    return list(training.batches(count, site.rng))


def _update(training: BatchTraining, rest: Params, site: Site, samples: Samples, vector: Tensor) -> Update:
    """A client's answer: its own weights, and the rest of the state, which these networks do not change."""
    size = samples.size
    if size == 0:
        return Update(None, 0)
    if training.after is None:
        return Update(Params(vector, rest.buffers, rest.counters, lengths=rest.lengths), size, samples.reliability)
    # a copy: what a client remembers must not keep the weights of its whole batch alive
    params = replace(rest, weights=vector.clone())
    load(site.net, params)
    with torch.no_grad():
        return Update(params, size, samples.reliability, training.after(site, params))


@torch.no_grad()
def _trained_weights(
    training: BatchTraining, sites: Sequence[Site], samples: Sequence[Samples], rows: list[list[Tensor]]
) -> Tensor:
    """The clients' weights (G, P) after their steps, of which all have as many."""
    net, order = sites[0].net, sites[0].order
    models, direction_of = ModelBatch(net, len(sites), training.pull), training.direction_for(sites)
    images = net.scale(torch.cat([_images(site, own) for site, own in zip(sites, samples, strict=True)])).flatten(1)
    labels = to_device(torch.cat([own.labels for own in samples]), net.device)
    shifts = _shifts(training, net, samples)
    starts = list(accumulate((own.rows.shape[0] for own in samples), initial=0))[:-1]
    for picks in zip(*rows, strict=True):
        step = _step(images, labels, shifts, picks, starts)
        direction = direction_of(models.weights, partial(models.gradient, step), order)
        models.descend(direction, training)
    return models.weights.cpu()


def _step(
    images: Tensor, labels: Tensor, shifts: Tensor | None, picks: Sequence[Tensor], starts: Sequence[int]
) -> Step:
    """One step: which rows of its own samples each client takes, and where these begin among those of all."""
    count, size = len(picks), picks[0].shape[0]
    if all(rows is all_rows(size) for rows in picks):  # all, in their order: no copy
        shares = torch.full((1, 1), 1 / size, device=images.device)
        return Step(images.view(count, size, -1), labels.view(count, size), shares, shifts)
    lengths = torch.tensor([[rows.shape[0]] for rows in picks])
    padded = nn.utils.rnn.pad_sequence(list(picks), batch_first=True) + torch.tensor(starts)[:, None]
    where = to_device(padded, images.device)
    shares = to_device((torch.arange(padded.shape[1]) < lengths) / lengths, images.device)
    return Step(images[where], labels[where], shares, shifts)


def _images(site: Site, samples: Samples) -> Tensor:
    """The images that the samples name, not copied where that is all of them."""
    return whole(site) if samples.rows is all_rows(len(site.x)) else site.x[samples.rows]


def _shifts(training: BatchTraining, net: Net, samples: Sequence[Samples]) -> Tensor | None:
    """What the loss adds to each client's logits (G, 1, classes)."""
    shifts = [training.logit_shift(own.labels, net.classes) for own in samples]
    some = [shift for shift in shifts if shift is not None]
    return to_device(torch.stack(some)[:, None], net.device) if some else None
