"""Which replies of clients can be used; who sent another is left out by name, so that one client never ends a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import isfinite

import torch
from torch import Tensor

from fedpca.core import ClientId, Failure, Params, Report, Update


def usable_reports(
    replies: Iterable[tuple[ClientId, Report | Failure]], left_out: dict[ClientId, str]
) -> dict[ClientId, Report]:
    """The reports whose numbers are all finite; why another client's cannot be used is noted in `left_out`."""
    reports = {}
    for client, reply in replies:
        if reason := reply.reason if isinstance(reply, Failure) else report_error(reply):
            left_out[client] = reason
        elif not isinstance(reply, Failure):
            reports[client] = reply
    return reports


def usable_updates(
    replies: Iterator[tuple[ClientId, Update | Failure]], like: Params, left_out: dict[ClientId, str]
) -> Iterator[tuple[ClientId, Update]]:
    """The updates that can be aggregated; why another client's cannot is noted in `left_out`.

    Small ones are looked at several at a time: one pass over all of them tells whether each must be looked at alone.
    """
    while some := list(islice(replies, like.states_at_once)):
        states = [reply.params for _, reply in some if isinstance(reply, Update) and reply.params]
        clear = len(states) > 1 and are_usable(states, like)
        for client, reply in some:
            if reason := update_error(reply, None if clear else like):
                left_out[client] = reason
            elif isinstance(reply, Update):
                yield client, reply


def report_error(report: Report) -> str | None:
    """Which number of a report is not finite, or None."""
    for name, value in report.items():
        if not (all(map(isfinite, value)) if isinstance(value, list) else isfinite(value)):
            return f"its report says {name} = {value}"
    return None


def update_error(reply: Update | Failure, like: Params | None) -> str | None:
    """Why an answer cannot be used, or None; without `like` its state is known to be usable."""
    if isinstance(reply, Failure):
        return reply.reason
    if reply.size < 0 or (reply.size > 0) != (reply.params is not None) or not 0 <= reply.reliability <= 1 + 1e-9:
        sent = "weights" if reply.params else "no weights"
        return f"it sent {sent}, size {reply.size}, reliability {reply.reliability}"
    return report_error(reply.report) or (state_error(reply.params, like) if reply.params and like else None)


def state_error(params: Params, like: Params) -> str | None:
    """What makes a state unusable beside another: a foreign shape, or a value that is not finite; else None."""
    for name, got, needed in zip(("weights", "buffers", "counters"), params.vectors, like.vectors, strict=True):
        if got.shape != needed.shape or got.dtype != needed.dtype:
            return f"its {name} are {got.dtype} {tuple(got.shape)}, not {needed.dtype} {tuple(needed.shape)}"
        if got.is_floating_point() and not _is_finite(got):
            return f"its {name} are not finite"
    return None


def are_usable(states: Sequence[Params], like: Params) -> bool:
    """Whether no state has a `state_error`; False may also be said of good ones whose sum overflows."""
    return all(
        vector.shape == other.shape and vector.dtype == other.dtype
        for state in states
        for vector, other in zip(state.vectors, like.vectors, strict=True)
    ) and all(
        isfinite(torch.stack(vectors).sum().item())
        for vectors in ([state.weights for state in states], [state.buffers for state in states])
        if vectors and vectors[0].numel()
    )


def _is_finite(vector: Tensor) -> bool:
    """Whether every entry is finite; their sum tells in one pass, unless it overflows."""
    return vector.numel() == 0 or isfinite(vector.sum().item()) or bool(vector.isfinite().all())
