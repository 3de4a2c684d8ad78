"""What a run's clients are told and answer on other machines, as bytes: safetensors files, which hold no code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

import torch
from pydantic import TypeAdapter
from safetensors.torch import load, save
from torch import Tensor

from fedpca.core import ClientId, Order, Params, Report, Update, Vectors, Verdict

PARAMS = ("weights", "buffers", "counters")
VERDICT = TypeAdapter(Verdict)
LENGTHS, SHOWN = "lengths", "shown/"
Memory = Mapping[str, Tensor]


class OrderData(TypedDict):
    """An order besides what all clients are told alike."""

    round: int
    rounds: int
    verdict: dict[str, Any]
    shown: bytes  # what this client alone sees; empty if nothing


class UpdateData(TypedDict):
    """An update besides its state."""

    trained: bool  # whether it has one
    size: int
    reliability: float
    report: dict[str, float | list[float]]


class Answers(TypedDict):
    """What some clients answered, in the order in which they were asked."""

    reports: list[dict[str, float | list[float]]]  # of clients that were asked to report
    updates: list[UpdateData]  # of clients that trained
    states: bytes  # of those that have one, stacked
    memory: dict[ClientId, bytes]  # of all


def write_state(params: Params, shown: Vectors) -> bytes:
    """What all clients are told alike: the global state, and what the server's rule shows."""
    tensors = dict(zip(PARAMS, params.vectors, strict=True))
    lengths = torch.tensor(params.lengths, dtype=torch.int64)
    return _bytes({**tensors, LENGTHS: lengths, **{SHOWN + name: vector for name, vector in shown.items()}})


def read_state(data: bytes) -> tuple[Params, Vectors]:
    """The global state, and what is shown."""
    tensors = load(data)
    shown = {name.removeprefix(SHOWN): vector for name, vector in tensors.items() if name.startswith(SHOWN)}
    return Params(*(tensors[name] for name in PARAMS), lengths=tuple(tensors[LENGTHS].tolist())), shown


def shown_to_all(orders: Mapping[ClientId, Order]) -> Vectors:
    """The vectors that every one of these orders shows under the same name."""
    first, *others = (order.shown for order in orders.values())
    return {name: own for name, own in first.items() if all(other.get(name) is own for other in others)}


def write_orders(orders: Mapping[ClientId, Order], shown: Vectors) -> dict[ClientId, OrderData]:
    """Each client's own order, without what is shown to all."""
    return {client: _order_data(order, shown) for client, order in orders.items()}


def _order_data(order: Order, shown: Vectors) -> OrderData:
    own = {name: vector for name, vector in order.shown.items() if name not in shown}
    return {
        "round": order.round,
        "rounds": order.rounds,
        "verdict": asdict(order.verdict),
        "shown": _bytes(own) if own else b"",
    }


def read_orders(data: Mapping[ClientId, OrderData], shown: Vectors) -> dict[ClientId, Order]:
    """The orders, with what is shown to all."""
    return {
        client: Order(own["round"], own["rounds"], VERDICT.validate_python(own["verdict"]), _shown(own, shown))
        for client, own in data.items()
    }


def _shown(data: OrderData, shown: Vectors) -> Vectors:
    return {**shown, **load(data["shown"])} if data["shown"] else shown


def write_memory(memory: Mapping[ClientId, Memory]) -> dict[ClientId, bytes]:
    """What each client remembers; those that remember nothing are left out."""
    return {client: _bytes(own) for client, own in memory.items() if own}


def read_memory(data: Mapping[ClientId, bytes], clients: Sequence[ClientId]) -> dict[ClientId, dict[str, Tensor]]:
    """What each of these clients remembers."""
    return {client: load(data[client]) if client in data else {} for client in clients}


def write_answers(answers: Sequence[Report | Update], memory: Mapping[ClientId, Memory]) -> Answers:
    """The reports or the updates of some clients, and what they remember now."""
    updates = [answer for answer in answers if isinstance(answer, Update)]
    states = [update.params for update in updates if update.params]
    columns = zip(*(state.vectors for state in states), strict=True)
    return {
        "reports": [dict(answer) for answer in answers if not isinstance(answer, Update)],
        "updates": [
            {
                "trained": own.params is not None,
                "size": own.size,
                "reliability": own.reliability,
                "report": {**own.report},
            }
            for own in updates
        ],
        "states": _bytes({name: torch.stack(vectors) for name, vectors in zip(PARAMS, columns, strict=False)}),
        "memory": write_memory(memory),
    }


def read_reports(answers: Answers) -> list[Report]:
    """The reports, in order."""
    return [*answers["reports"]]


def read_updates(answers: Answers, lengths: tuple[int, ...]) -> list[Update]:
    """The updates, in order."""
    columns = load(answers["states"])
    states = zip(*(columns[name] for name in PARAMS), strict=True) if columns else iter(())
    return [
        Update(
            Params(*next(states), lengths=lengths) if head["trained"] else None,
            head["size"],
            head["reliability"],
            head["report"],
        )
        for head in answers["updates"]
    ]


def _bytes(tensors: Mapping[str, Tensor]) -> bytes:
    data: bytes = save({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()})
    return data
