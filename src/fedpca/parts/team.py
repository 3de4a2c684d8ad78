"""Many small clients trained as one: each keeps its own weights, and a step is one batched product for all of them.

For networks of linear layers, where a client's own step is mostly Python; convolutions gain nothing from it on a CPU.
The sums are the same numbers in another order: updates agree with those of one client at a time to about 1e-7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy as losses_of
from torch.optim import SGD

from fedpca.core import Net, Params, Samples, Site, Train, Update
from fedpca.params import load
from fedpca.parts.augment import unblended, unchanged
from fedpca.parts.combine import unsided
from fedpca.parts.loss import LogitAdjusted, cross_entropy, log_prior
from fedpca.parts.step import TINY, GapGuided, descend, grown
from fedpca.parts.train import LocalTraining, nothing

SIZE = 50  # clients at once: enough to spread Python's cost, few enough for the cache and for two workers


def can_team(net: Net, train: Train) -> bool:
    """Whether clients with this model and training can be trained together."""
    return (
        isinstance(train, LocalTraining)
        and train.descent.optimizer == "sgd"
        and train.augment is unchanged
        and train.blend is unblended
        and (train.loss is cross_entropy or isinstance(unsided(train.loss), LogitAdjusted))
        and (train.step is descend or isinstance(unsided(train.step), GapGuided))
        and bool(layers_of(net))
    )


def layers_of(net: Net) -> list[nn.Linear]:
    """The layers of a network that is nothing but linear ones with ReLUs between them; else none."""
    parts = (
        [part for part in net.module if not isinstance(part, nn.Flatten)] if type(net.module) is nn.Sequential else []
    )
    linear, between = parts[::2], parts[1::2]
    fits = len(parts) % 2 == 1 and all(type(part) is nn.ReLU for part in between)
    layers = [part for part in linear if type(part) is nn.Linear and part.bias is not None]
    return layers if fits and len(layers) == len(linear) else []


class Stack:
    """As many copies of a network as there are clients, layer by layer: weights (G, out, in) and biases (G, 1, out)."""

    def __init__(self, net: Net, count: int) -> None:
        self.tensors: list[Tensor] = []
        for layer in layers_of(net):
            self.tensors.append(layer.weight.detach().expand(count, -1, -1).clone().requires_grad_())
            self.tensors.append(layer.bias.detach().expand(count, 1, -1).clone().requires_grad_())

    def __call__(self, x: Tensor) -> Tensor:
        """Logits (G, n, classes) of each client's images (G, n, pixels)."""
        for i in range(0, len(self.tensors), 2):
            x = torch.baddbmm(self.tensors[i + 1], x.relu() if i else x, self.tensors[i].transpose(1, 2))
        return x

    @torch.no_grad()
    def flat(self) -> Tensor:
        """The weights as vectors (G, P), in the model's order."""
        return torch.cat([tensor.flatten(1) for tensor in self.tensors], dim=1)

    def gradients(self, loss: Callable[[], Tensor]) -> list[Tensor]:
        """The gradients, in the tensors' own `grad` too."""
        for tensor in self.tensors:
            tensor.grad = None
        with torch.enable_grad():
            loss().backward()  # type: ignore[no-untyped-call]
        return [tensor.grad for tensor in self.tensors if tensor.grad is not None]


@dataclass(frozen=True)
class Batches:
    """The steps of clients that take the same number of them."""

    images: Tensor  # (all, pixels), ready for the first layer
    labels: Tensor  # (all,)
    rows: list[Tensor]  # per step (G, n): whose images
    shares: list[Tensor]  # per step (G, n): 1 / the client's batch, 0 where a batch is shorter than the longest
    shifts: Tensor | None  # (G, 1, classes): logit adjustment


def train_team(training: LocalTraining, net: Net, sites: Sequence[Site], samples: Sequence[Samples]) -> list[Update]:
    """Each client's update; the model holds the global weights, and is left with somebody's."""
    steps = [list(training.batches(len(own.rows), site.rng)) for site, own in zip(sites, samples, strict=True)]
    alike: dict[int, list[int]] = defaultdict(list)  # clients by number of steps
    for i, picks in enumerate(steps):
        alike[len(picks)].append(i)
    vectors: dict[int, Tensor] = {}
    for count, members in alike.items():
        if count == 0:
            vectors |= dict.fromkeys(members, net.weights.detach().clone())
            continue
        some = [samples[i] for i in members]
        batches = _batches(training, net, [sites[i] for i in members], some, [steps[i] for i in members])
        vectors |= zip(members, _trained(training, net, batches, sites[0]).unbind(), strict=True)
    return [_update(training, net, sites[i], samples[i], vectors[i]) for i in range(len(sites))]


def _update(training: LocalTraining, net: Net, site: Site, samples: Samples, vector: Tensor) -> Update:
    if len(samples.rows) == 0:
        return Update(None, 0)
    params = Params(vector, net.buffers, net.counters, lengths=net.lengths)
    if training.after is nothing:
        return Update(params, len(samples.rows), samples.reliability)
    load(net, params)
    with torch.no_grad():
        return Update(params, len(samples.rows), samples.reliability, training.after(site, params))


def _batches(
    training: LocalTraining, net: Net, sites: Sequence[Site], samples: Sequence[Samples], steps: list[list[Tensor]]
) -> Batches:
    sizes = torch.tensor([len(own.rows) for own in samples])
    starts = (sizes.cumsum(0) - sizes).tolist()
    images = torch.cat([site.x[own.rows] for site, own in zip(sites, samples, strict=True)])
    labels = torch.cat([own.labels for own in samples])
    placed = [[picks + start for picks in own] for own, start in zip(steps, starts, strict=True)]
    rows, shares = [], []
    for step in zip(*placed, strict=True):
        lengths = torch.tensor([len(picks) for picks in step])
        rows.append(nn.utils.rnn.pad_sequence(list(step), batch_first=True))
        there = torch.arange(rows[-1].shape[1]) < lengths[:, None]
        shares.append(there / lengths[:, None])
    shifts, loss = None, unsided(training.loss)
    if isinstance(loss, LogitAdjusted):
        priors = [log_prior(own.labels, net.head.out_features) for own in samples]
        shifts = loss.tau * torch.stack(priors)[:, None]
    return Batches(net.scale(images).flatten(1), labels, rows, shares, shifts)


def _trained(training: LocalTraining, net: Net, batches: Batches, site: Site) -> Tensor:
    """The clients' weights (G, P) after their steps."""
    stack, descent = Stack(net, len(batches.rows[0])), training.descent
    sharp = unsided(training.step)
    optimizer = SGD(stack.tensors, descent.lr, descent.momentum, weight_decay=descent.weight_decay, fused=True)
    for rows, shares in zip(batches.rows, batches.shares, strict=True):

        def loss(rows: Tensor = rows, shares: Tensor = shares) -> Tensor:
            logits = stack(batches.images[rows])
            logits = logits if batches.shifts is None else logits + batches.shifts
            single = losses_of(logits.flatten(0, 1), batches.labels[rows].flatten(), reduction="none")
            return (single * shares.flatten()).sum()

        if isinstance(sharp, GapGuided):
            _rise(stack, loss, sharp, site)
        else:
            stack.gradients(loss)
        optimizer.step()
    return stack.flat()


@torch.no_grad()
def _rise(stack: Stack, loss: Callable[[], Tensor], step: GapGuided, site: Site) -> None:
    """`GapGuided` for all clients at once: leaves each one's direction in the tensors' `grad`."""
    radius = grown(step.radius, step.growth, site.order)
    here, plain = [tensor.clone() for tensor in stack.tensors], stack.gradients(loss)
    by = radius / (_dots(plain, plain).sqrt() + TINY)
    for tensor, slope in zip(stack.tensors, plain, strict=True):
        tensor.add_(slope * by)
    risen = stack.gradients(loss)
    for tensor, start in zip(stack.tensors, here, strict=True):
        tensor.copy_(start)
    length = _dots(risen, risen).sqrt()
    along = _dots(plain, risen) / (length * (length + TINY)).clamp_min(TINY**2)
    for up, slope in zip(risen, plain, strict=True):
        up.mul_(1 + step.alpha * along).sub_(slope, alpha=step.alpha)


def _dots(one: list[Tensor], two: list[Tensor]) -> Tensor:
    """Each client's inner product over all tensors (G, 1, 1)."""
    return torch.stack([(a * b).sum(dim=(1, 2)) for a, b in zip(one, two, strict=True)]).sum(dim=0)[:, None, None]
