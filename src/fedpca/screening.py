"""Which replies of clients can be used; who sent another is left out by name, so that one client never ends a run.

Nobody's word is taken on trust: a report part declares what its numbers can be (`Claims`), a client says when it joins
how many samples it has, and a state has the shape of the global one and numbers that a model can compute with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf, isfinite
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedpca.core import Aggregate, ClientId, Failure, Outcome, Params, Report, Server, Update, ability
from fedpca.errors import printable

MAX_KEYS = 100  # of a report whose part does not declare them
MAX_LENGTH = 10_000  # of a list in a report
MAX_ENTRY = 1e18  # of a state: the square of a larger one is no float32 any more, and no model computes with it
SLACK = 1e-9  # by which rounding may take a number out of its bounds

Part = TypeVar("Part", bound=Callable[..., object])


class Bound(NamedTuple):
    """What one number of a report can be, or each number of a list."""

    low: float
    high: float
    needed: Literal["always", "trained", "never"] = "always"  # in every report, of those who trained, or as it comes
    many: bool = False  # a list of numbers
    # for differential privacy of reports:
    usual: tuple[float, float] | None = None  # to which it is clipped; None: to the bounds, if these are narrow
    absent: float | None = None  # stands for a number that is absent because of the data; None: the server knows why
    public: bool = False  # the same whatever the data are


@dataclass(frozen=True)
class Claims:
    """What a report can say: the bounds of its numbers, and whether others may come too."""

    bounds: Mapping[str, Bound] = field(default_factory=dict)
    open: bool = False  # a part says something that it does not declare

    def after_training(self) -> Claims:
        """The same, said only by those who trained."""
        held = {key: own._replace(needed="trained") for key, own in self.bounds.items() if own.needed == "always"}
        return Claims({**self.bounds, **held}, self.open)

    def under(self, side: str) -> Claims:
        """The same, each number under a side's name."""
        return Claims({f"{side}/{key}": bound for key, bound in self.bounds.items()}, self.open)


def says(**bounds: Bound) -> Callable[[Part], Part]:
    """Declares what the numbers of a report function can be."""

    def declare(part: Part) -> Part:
        vars(part)["claims"] = Claims(bounds)
        return part

    return declare


def claims_of(part: object) -> Claims:
    """What a part's report can say; of one that does not declare it: anything."""
    if part is None:
        return Claims()
    declared: Claims | None = ability(part, "claims")
    return Claims(open=True) if declared is None else declared


def joint_claims(claims: Iterable[Claims]) -> Claims:
    """What a report made of several can say."""
    own = list(claims)
    return Claims({key: bound for one in own for key, bound in one.bounds.items()}, any(one.open for one in own))


class Limits(NamedTuple):
    """What an update is compared with."""

    like: Params  # the global state
    claims: Claims  # of the report after training
    sizes: Mapping[ClientId, int]  # of the clients, as they said when they joined


def usable_reports(
    replies: Iterable[tuple[ClientId, Report | Failure]], claims: Claims, left_out: dict[ClientId, str]
) -> dict[ClientId, Report]:
    """What was asked for of the reports that can be; why another client's cannot be used is noted in `left_out`."""
    reports = {}
    for client, reply in replies:
        if reason := reply.reason if isinstance(reply, Failure) else report_error(reply, claims):
            left_out[client] = reason
        elif not isinstance(reply, Failure):
            reports[client] = asked_for(reply, claims)
    return reports


def usable_updates(
    replies: Iterator[tuple[ClientId, Update | Failure]], limits: Limits, left_out: dict[ClientId, str]
) -> Iterator[tuple[ClientId, Update]]:
    """The updates that can be aggregated; why another client's cannot is noted in `left_out`.

    Small ones are looked at several at a time: one pass over all of them tells whether each must be looked at alone.
    """
    while some := list(islice(replies, limits.like.states_at_once)):
        states = [reply.params for _, reply in some if isinstance(reply, Update) and reply.params]
        clear = len(states) > 1 and are_usable(states, limits.like)
        for client, reply in some:
            if reason := update_error(client, reply, limits, clear):
                left_out[client] = reason
            elif isinstance(reply, Update):
                yield client, reply


def asked_for(report: Report, claims: Claims) -> Report:
    """The numbers of a report that somebody asked for; the very report where there are no others."""
    if claims.open or report.keys() <= claims.bounds.keys():
        return report
    return {key: value for key, value in report.items() if key in claims.bounds}


def report_error(report: Report, claims: Claims, trained: bool = True) -> str | None:
    """What a report lacks, or which of its numbers cannot be, or None; what nobody asked for is not looked at."""
    for key, bound in claims.bounds.items():
        if key not in report and (bound.needed == "always" or (bound.needed == "trained" and trained)):
            return f"its report lacks {key}"
    asked = asked_for(report, claims)
    if len(asked) > len(claims.bounds) + MAX_KEYS:
        return f"its report has {len(asked)} numbers, which must be {len(claims.bounds) + MAX_KEYS} at most"
    for key, value in asked.items():
        if (wrong := _claim_error(value, claims.bounds.get(key))) is not None:
            return f"its report says {printable(key, 80)} = {value!s:.80}{wrong}"
    return None


def _claim_error(value: float | list[float], bound: Bound | None) -> str | None:
    """What is wrong with a claim, to be put behind it; "" if it is no finite number, None if nothing is."""
    if bound is not None and isinstance(value, list) != bound.many:
        return f", which must be {'a list of numbers' if bound.many else 'one number'}"
    values = value if isinstance(value, list) else [value]
    if len(values) > MAX_LENGTH:
        return f": {len(values)} numbers, which must be {MAX_LENGTH} at most"
    if not all(map(isfinite, values)):
        return ""
    if bound is None or all(bound.low - SLACK <= one <= bound.high + SLACK for one in values):
        return None
    return f", which must be from {bound.low:g} to {bound.high:g}"


def update_error(client: ClientId, reply: Update | Failure, limits: Limits, clear: bool) -> str | None:
    """Why an answer cannot be used, or None; `clear`: its state is known to be usable."""
    if isinstance(reply, Failure):
        return reply.reason
    if reply.size < 0 or (reply.size > 0) != (reply.params is not None) or not 0 <= reply.reliability <= 1 + 1e-9:
        sent = "weights" if reply.params else "no weights"
        return f"it sent {sent}, size {reply.size}, reliability {reply.reliability}"
    if reply.size > (most := limits.sizes.get(client, inf)):
        return f"it says that it trained on {reply.size} samples, which must be {most} at most: it joined with those"
    error = report_error(reply.report, limits.claims, trained=reply.params is not None)
    return error or (state_error(reply.params, limits.like) if reply.params and not clear else None)


def state_error(params: Params, like: Params) -> str | None:
    """What makes a state unusable beside another: a foreign shape, or a value that no model has; else None."""
    for name, got, needed in zip(("weights", "buffers", "counters"), params.vectors, like.vectors, strict=True):
        if got.shape != needed.shape or got.dtype != needed.dtype:
            return f"its {name} are {got.dtype} {tuple(got.shape)}, not {needed.dtype} {tuple(needed.shape)}"
        if got.is_floating_point() and not _is_small(got):
            if (largest := _largest(got)) <= MAX_ENTRY:
                continue
            if not isfinite(largest):
                return f"its {name} are not finite"
            return f"its {name} reach {largest:.3g}, which must be {MAX_ENTRY:g} at most"
    return None


def are_usable(states: Sequence[Params], like: Params) -> bool:
    """Whether no state has a `state_error`."""
    return all(
        vector.shape == other.shape and vector.dtype == other.dtype
        for state in states
        for vector, other in zip(state.vectors, like.vectors, strict=True)
    ) and all(_is_small(vector) for state in states for vector in (state.weights, state.buffers))


def is_finite(params: Params) -> bool:
    """Whether every number of a state is one."""
    return all(_is_small(own) or isfinite(_largest(own)) for own in (params.weights, params.buffers))


def without_spoilers(
    aggregate: Aggregate, server: Server, updates: dict[ClientId, Update], left_out: dict[ClientId, str]
) -> Outcome:
    """The outcome without those whose updates make a model that is not finite: the longest ones, as many as it takes.

    They are taken out of `updates`. If nobody is left, the model stays as it was, and what the rule keeps.
    """
    for client in sorted(updates, key=lambda client: step_length(updates[client], server.params), reverse=True):
        left_out[client] = "with its update the global model would not be finite"
        del updates[client]
        fold = aggregate(server)
        for other, update in updates.items():
            fold.add(other, update)
        if updates and is_finite((outcome := fold.finish()).params):
            return outcome
    return Outcome(server.params, {}, memory=server.memory, shown=server.shown, shown_to=server.shown_to)


def step_length(update: Update, start: Params) -> float:
    """How far an update takes the weights, in double precision, where no square overflows."""
    if update.params is None:
        return 0.0
    return float(torch.linalg.vector_norm(update.params.weights - start.weights, dtype=torch.float64).item())


def _is_small(vector: Tensor) -> bool:
    """Whether the sum of all squares, which takes a tenth of the time of the largest entry, rules out a large one."""
    return bool(float(torch.dot(vector, vector)) <= MAX_ENTRY**2)


def _largest(vector: Tensor) -> float:
    """The largest amount of any entry; not finite where an entry is not."""
    return float(torch.linalg.vector_norm(vector, ord=inf).item()) if vector.numel() else 0.0
