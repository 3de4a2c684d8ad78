"""Rules that need all updates at once: they keep them, and work on one stretch of the vectors at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpca.core import ClientId, Outcome, Params, Server, Update
from fedpca.parts.server.aggregate import as_state

BLOCK = 1 << 18  # entries of each client's vector at a time


class UpdateCollection:
    """The updates of those who trained, as they come."""

    def __init__(self, start: Params) -> None:
        self.start = start
        self.states: dict[ClientId, Params] = {}
        self.sizes: dict[ClientId, int] = {}

    def add(self, client: ClientId, update: Update) -> None:
        """Keeps a state."""
        if update.params is not None:
            self.states[client] = update.params
            self.sizes[client] = update.size

    def blocks(self, vector: str) -> Iterator[tuple[slice, Tensor]]:
        """Stretches of one of the three vectors, all clients' beside each other (K, n)."""
        vectors = [getattr(state, vector) for state in self.states.values()]
        for begin in range(0, len(vectors[0]), BLOCK):
            place = slice(begin, begin + BLOCK)
            yield place, torch.stack([v[place] for v in vectors])

    def gram(self, beside: Tensor | None = None) -> Tensor:
        """Inner products (K, K) of the clients' steps; from the start, so that near-equal models keep their digits.

        With one more vector beside them, which comes last, (K + 1, K + 1).
        """
        count = len(self.states) + (beside is not None)
        gram = torch.zeros(count, count, dtype=torch.float64)
        for place, rows in self.blocks("weights"):
            steps = (rows - self.start.weights[place]).double()
            if beside is not None:
                steps = torch.cat([steps, beside[place].double()[None]])
            gram += steps @ steps.T
        return gram

    @property
    def shares_by_size(self) -> Tensor:
        """Each client's share (K,) of all samples that were trained on."""
        sizes = torch.tensor(list(self.sizes.values()), dtype=torch.float64)
        return sizes / sizes.sum()

    def mean(self, shares: Tensor) -> Params:
        """The mean of the states with shares (K,) that sum to 1."""
        return as_state(Params(*(self.sum_of(name, shares) for name in ("weights", "buffers", "counters"))), self.start)

    def sum_of(self, vector: str, shares: Tensor) -> Tensor:
        """One of the three vectors, summed over the clients with shares (K,), in double precision."""
        result = torch.empty(len(getattr(self.start, vector)), dtype=torch.float64)
        for place, rows in self.blocks(vector):
            result[place] = shares @ rows.double()
        return result


@dataclass(frozen=True)
class PerCoordinate:
    """Each entry of the state from the clients' values of that entry alone, sizes ignored.

    >>> from dataclasses import replace
    >>> from fedpca import PerCoordinate, Plan, base, one_stage
    >>> largest = PerCoordinate(lambda values: values.amax(dim=0))  # from (clients, n) to (n,)
    >>> one_stage(replace(base(Plan(rounds=3)), aggregate=largest)).recipe(1).aggregate is largest
    True
    """

    rule: Callable[[Tensor], Tensor]  # values (K, n), of the vector's own type -> (n,)

    def __call__(self, server: Server) -> CoordinateFold:
        return CoordinateFold(server.params, self.rule)


class CoordinateFold(UpdateCollection):
    """States waiting to be looked at entry by entry."""

    def __init__(self, start: Params, rule: Callable[[Tensor], Tensor]) -> None:
        super().__init__(start)
        self.rule = rule

    def finish(self) -> Outcome:
        """The state; whole clients have no weights in it."""
        if not self.states:
            return Outcome(self.start)
        return Outcome(Params(*(self._apply_rule(name) for name in ("weights", "buffers", "counters"))))

    def _apply_rule(self, vector: str) -> Tensor:
        result = torch.empty_like(getattr(self.start, vector))
        for place, rows in self.blocks(vector):
            result[place] = self.rule(rows)
        return result


def middle(rows: Tensor) -> Tensor:
    """The median of each column: of an even number the mean of the two in the middle, for counters the lower one."""
    low, high = (len(rows) - 1) // 2, len(rows) // 2
    ranked = rows.sort(dim=0).values
    return (ranked[low] + ranked[high]) / 2 if rows.is_floating_point() else ranked[low]


coordinate_median = PerCoordinate(middle)  # Yin et al. 2018


@dataclass(frozen=True)
class Trimmed:
    """The mean of each column without as many of its lowest and highest values; of counters the lower median.

    Whole values are left out: those far away do not count even by a rounding error.
    """

    share: float  # of the clients, at either end; below 0.5

    def __call__(self, rows: Tensor) -> Tensor:
        if not rows.is_floating_point():
            return middle(rows)
        cut, ranked = share_of(len(rows), self.share), rows.sort(dim=0).values
        return ranked[cut : len(rows) - cut].double().mean(dim=0).to(rows.dtype)


def share_of(count: int, share: float) -> int:
    """So large a share of so many, rounded down; 0.2 of 5 is 1."""
    return int(share * count + 1e-9)


@dataclass(frozen=True)
class GeometricMedian:
    """The point of least summed distance to the clients' weights, by size, by smoothed Weiszfeld steps (RFA)."""

    steps: int
    min_distance: float
    tolerance: float  # relative change of the summed distance at which the steps end

    def __call__(self, server: Server) -> GeometricFold:
        return GeometricFold(server.params, self)


class GeometricFold(UpdateCollection):
    """States waiting for their geometric median."""

    def __init__(self, start: Params, rule: GeometricMedian) -> None:
        super().__init__(start)
        self.rule = rule

    def finish(self) -> Outcome:
        """The median; it is a mean of the states, and buffers and counters are averaged with the same weights."""
        if not self.states:
            return Outcome(self.start)
        sizes = torch.tensor(list(self.sizes.values())).double()
        return Outcome(self.mean(geometric_weights(self.gram(), sizes, self.rule)))


def geometric_weights(gram: Tensor, sizes: Tensor, rule: GeometricMedian) -> Tensor:
    """The weights (K,) of the points whose mean is their geometric median; all distances follow from inner products."""
    alphas = sizes / sizes.sum()
    betas, before = alphas, float("inf")
    for _ in range(rule.steps):
        distances = distances_to(gram, betas)
        total = float(alphas @ distances)
        if abs(before - total) < rule.tolerance * total:
            break
        betas, before = alphas / distances.clamp_min(rule.min_distance), total
        betas = betas / betas.sum()
    return betas


def distances_to(gram: Tensor, betas: Tensor) -> Tensor:
    """|x_k - sum_j betas_j x_j| for every k, from inner products (K, K)."""
    along = gram @ betas
    return (gram.diagonal() - 2 * along + betas @ along).clamp_min(0).sqrt()
