"""What server and sites say to each other, whatever carries it. What arrives is checked.

| message | part | what |
|---|---|---|
| to a site | `arrays` | the global state under the model's own names |
| | `shown` | vectors that the server's rule keeps and shows to clients, where it has any |
| | `order` | `round`, `rounds`, and the site's own `verdict` as JSON, which nests and keeps every float's bits |
| | `run` | the run's `id`, `task`, `classes`; whether to `evaluate`; `exchange`; `privacy` of reports |
| | | of tables: how columns go into the model (`table`); whether to tell `sums` of them |
| its report | `report` | the numbers |
| its update | `arrays` | the trained state; absent where the site had nothing to train on |
| | `update` | `size`, `reliability` |
| | `report` | the numbers |
| with either | `evaluation` | how the global model does on the site's held-out images, if asked for and there are any |
| who it is | `site` | `name`, `identity`, `classes`, `shape`, and how many images there are for `train` and `test` |
| | | of a `table`: name, kind and sums of each column, as JSON |
| in place of any answer | `refusal` | `name`, and the `reason`: what its policy does not allow |
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from reprlib import Repr
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from torch import Tensor

from fedpca.core import ClientId, Order, Params, Report, Update, Verdict
from fedpca.errors import WireError
from fedpca.models.flat import Layout
from fedpca.settings.base import Share
from fedpca.settings.privacy import ReportPrivacy
from fedpca.sites.columns import MAX_COLUMNS, MAX_NAME, ColumnHead
from fedpca.sites.settings import SiteName
from fedpca.sites.task import Task

HELLO, REPORT, TRAIN, EVALUATE = "hello", "report", "train", "evaluate"  # kinds of messages
STATE, SHOWN = "arrays", "shown"  # parts of messages that are arrays
ORDER, RUN, SITE, NUMBERS, UPDATE, EVALUATION = "order", "run", "site", "report", "update", "evaluation"
REFUSAL = "refusal"
SAME_MODEL = "server and sites must build the same model"
MAX_CLASSES, MAX_ROWS, MAX_SIDE = 100_000, 10**9, 1_000_000  # of a site
MAX_NUMBERS = 1000  # of a report
MAX_REASON = 500  # characters of a refusal
BRIEF = Repr()  # writes out the beginning of a long text or list, where repr would write out megabytes first
BRIEF.maxstring = BRIEF.maxother = 80
ClassName = Annotated[str, Field(max_length=MAX_NAME, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
EXACTLY = ConfigDict(strict=True, extra="forbid")

Values = Mapping[str, Any]  # texts, numbers, and lists of them
Arrays = Mapping[str, NDArray[Any]]  # a state by the names of its tensors
Value = TypeVar("Value")


@dataclass(frozen=True)
class Content:
    """All that one message says."""

    tables: Mapping[str, Values] = field(default_factory=dict)
    states: Mapping[str, Arrays] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the arrays, texts and numbers, without what an engine wraps around them."""
        arrays = sum(array.nbytes for state in self.states.values() for array in state.values())
        return arrays + sum(_size(value) for table in self.tables.values() for value in table.values())

    def __or__(self, other: Content) -> Content:
        return Content({**self.tables, **other.tables}, {**self.states, **other.states})


class OrderHead(BaseModel):
    """An order besides its states."""

    model_config = EXACTLY
    round: PositiveInt
    rounds: PositiveInt
    verdict: Json[Verdict]


class UpdateHead(BaseModel):
    """An update besides its state and report."""

    model_config = EXACTLY
    size: int
    reliability: float


class RunHead(BaseModel):
    """Which run a message belongs to, and all that a site must know of it."""

    model_config = EXACTLY
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]  # names a folder at the site
    task: Json[Task]
    classes: list[str]  # in the order of the model's outputs; none as long as they are not agreed on
    table: (
        str  # how its columns go into the model, as `encoding.write_encoding` writes it; empty as long as that is open
    )
    evaluate: bool
    sums: bool  # whether a site that joins is to tell the sums of its table: not after the first round
    exchange: Literal["two", "one"]
    privacy: Json[ReportPrivacy]


class SiteHead(BaseModel):
    """Who a site is, and what it has."""

    model_config = EXACTLY
    name: SiteName
    identity: Annotated[str, Field(max_length=64)]  # the same after a restart, another for another site of that name
    classes: Annotated[list[ClassName], Field(max_length=MAX_CLASSES)]  # none where labels are numbers of outputs
    shape: Annotated[list[Annotated[PositiveInt, Field(le=MAX_SIDE)]], Field(max_length=4)]  # of an image
    train: Annotated[PositiveInt, Field(le=MAX_ROWS)]
    test: Annotated[NonNegativeInt, Field(le=MAX_ROWS)]
    table: Json[Annotated[list[ColumnHead], Field(max_length=MAX_COLUMNS)]] = []  # its columns; none of images

    @model_validator(mode="after")
    def _columns_fit_the_rows(self) -> SiteHead:
        if len({head.name for head in self.table}) < len(self.table):
            raise ValueError("two columns of its table have the same name")
        for head in self.table:
            if head.totals and head.totals.count > self.train:
                got = f"{head.totals.count} values in {self.train} rows"
                raise ValueError(f"column {head.name!r:.80} cannot have {got}")
        return self


class Refusal(BaseModel):
    """That a site does not do what it was asked for, and why."""

    model_config = EXACTLY
    name: SiteName
    reason: Annotated[str, Field(max_length=MAX_REASON)]


METRIC_VALUES = TypeAdapter(dict[str, Share], config=ConfigDict(strict=True))
ORDER_HEAD, UPDATE_HEAD = TypeAdapter(OrderHead), TypeAdapter(UpdateHead)
RUN_HEAD, SITE_HEAD, REFUSAL_TEXT = TypeAdapter(RunHead), TypeAdapter(SiteHead), TypeAdapter(Refusal)
REPORT_VALUES = TypeAdapter(dict[str, float | list[float]], config=ConfigDict(strict=True))


def write_orders(params: Params, orders: Mapping[ClientId, Order], layout: Layout) -> dict[ClientId, Content]:
    """What goes to each site: the global state and its own order; nothing about other sites.

    Arrays are one object however many sites they go to, so that an engine can encode them once.
    """
    state, made = _arrays(params, layout), dict[int, Arrays]()

    def shown(order: Order) -> Mapping[str, Arrays]:
        if order.shown and id(order.shown) not in made:
            made[id(order.shown)] = {name: vector.numpy() for name, vector in order.shown.items()}
        return {SHOWN: made[id(order.shown)]} if order.shown else {}

    return {
        site: Content(
            {ORDER: {"round": order.round, "rounds": order.rounds, "verdict": json.dumps(asdict(order.verdict))}},
            {STATE: state, **shown(order)},
        )
        for site, order in orders.items()
    }


def read_order(content: Content, layout: Layout) -> tuple[Params, Order]:
    """The global state and the order that a site got."""
    head = validate(ORDER_HEAD, content, ORDER)
    shown = {name: _vector(name, array) for name, array in content.states.get(SHOWN, {}).items()}
    return _params(content, STATE, layout), Order(head.round, head.rounds, head.verdict, shown)


def _vector(name: str, array: NDArray[Any]) -> Tensor:
    if array.ndim != 1 or array.dtype not in (np.float32, np.float64):
        got = f"{array.dtype!s:.80} {array.shape!s:.80}"
        raise WireError(f"{SHOWN}: {name!r:.80} must be a vector of float32 or float64, got {got}")
    return torch.from_numpy(array.copy())


def write_report(report: Report) -> Content:
    """A site's answer to being asked what it sees."""
    return Content({NUMBERS: _numbers(report)})


def read_report(content: Content) -> Report:
    """The report that a site sent."""
    if (count := len(content.tables.get(NUMBERS, {}))) > MAX_NUMBERS:
        raise WireError(f"{NUMBERS!r} must have at most {MAX_NUMBERS} numbers, got {count} numbers")
    return validate(REPORT_VALUES, content, NUMBERS)


def write_update(update: Update, layout: Layout) -> Content:
    """A site's answer to an order to train."""
    head = {"size": int(update.size), "reliability": float(update.reliability)}
    states = {} if update.params is None else {STATE: _arrays(update.params, layout)}
    return Content({UPDATE: head, NUMBERS: _numbers(update.report)}, states)


def read_update(content: Content, layout: Layout) -> Update:
    """The update that a site sent."""
    head = validate(UPDATE_HEAD, content, UPDATE)
    params = _params(content, STATE, layout) if STATE in content.states else None
    return Update(params, head.size, head.reliability, read_report(content))


def write_run(
    run: str,
    task: Task,
    exchange: str,
    privacy: ReportPrivacy,
    *,
    classes: Sequence[str],
    table: str,
    evaluate: bool,
    sums: bool,
) -> Content:
    """What every message to a site says about its run."""
    texts = {"id": run, "task": task.model_dump_json(), "privacy": privacy.model_dump_json(), "exchange": exchange}
    return Content({RUN: {**texts, "classes": list(classes), "table": table, "evaluate": evaluate, "sums": sums}})


def read_run(content: Content) -> RunHead:
    """Which run a message belongs to."""
    return validate(RUN_HEAD, content, RUN)


def write_site(site: SiteHead) -> Content:
    """A site's answer to being asked who it is."""
    return Content({SITE: site.model_dump(round_trip=True)})  # columns as JSON, which keeps every float's bits


def read_site(content: Content) -> SiteHead:
    """Who answered."""
    return validate(SITE_HEAD, content, SITE)


def write_refusal(name: str, reason: str) -> Content:
    """A site's answer to what its policy does not allow."""
    return Content({REFUSAL: {"name": name, "reason": reason[:MAX_REASON]}})


def read_refusal(content: Content) -> Refusal | None:
    """Who refuses and why; None of any other answer."""
    return validate(REFUSAL_TEXT, content, REFUSAL) if REFUSAL in content.tables else None


def write_evaluation(metrics: Mapping[str, float] | None) -> Content:
    """How the global model does at a site, to go with its answer; nothing where it was not tested."""
    return Content() if metrics is None else Content({EVALUATION: _numbers(metrics)})


def read_evaluation(content: Content, metrics: Collection[str]) -> dict[str, float] | None:
    """How the global model does at a site, by each of these metrics, if it said so."""
    if EVALUATION not in content.tables:
        return None
    evaluation = validate(METRIC_VALUES, content, EVALUATION)
    if evaluation.keys() != set(metrics):
        raise WireError(f"{EVALUATION!r} must have {', '.join(metrics)}, got {', '.join(evaluation):.80}")
    return evaluation


def _size(value: object) -> int:
    match value:
        case list():
            return sum(map(_size, value))
        case str():
            return len(value.encode(errors="surrogatepass"))
    return len(value) if isinstance(value, bytes) else 8


def _numbers(report: Report) -> Values:
    """The numbers as engines take them: Python's own floats, no other kind."""
    return {key: [*map(float, value)] if isinstance(value, list) else float(value) for key, value in report.items()}


def _arrays(params: Params, layout: Layout) -> Arrays:
    return {name: tensor.numpy() for name, tensor in layout.named(params).items()}


def validate(kind: TypeAdapter[Value], content: Content, name: str) -> Value:
    """A table of the types that it must have; an error names the first value that is not.

    Texts of errors quote what arrived, but no more than a line of it.
    """
    if name not in content.tables:
        raise WireError(f"the message must have {name!r}, got only {[*content.tables, *content.states]!s:.80}")
    try:
        return kind.validate_python(dict(content.tables[name]))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise WireError(f"{place!r:.80}: {first['msg']}, got {BRIEF.repr(first['input']):.80}") from None


def _params(content: Content, name: str, layout: Layout) -> Params:
    """A state of the layout's names, shapes and types, or an error that names what differs."""
    if name not in content.states:
        raise WireError(f"the message must have {name!r:.80}, got only {[*content.tables, *content.states]!s:.80}")
    arrays, needed = content.states[name], _needed(layout)
    if missing := needed.keys() - arrays.keys():
        raise WireError(f"{name}: {min(missing)!r:.80} is missing; {SAME_MODEL}")
    if unknown := arrays.keys() - needed.keys():
        raise WireError(f"{name}: the model here has no {min(unknown)!r:.80}; {SAME_MODEL}")
    for key, (shape, dtype) in needed.items():
        got = arrays[key]
        if (got.shape, got.dtype) != (shape, dtype):
            place = f"{name}: {key!r} must be {dtype} {shape}"
            raise WireError(f"{place}, got {got.dtype!s:.80} {got.shape!s:.80}; {SAME_MODEL}")
    return layout.params({key: torch.from_numpy(arrays[key].copy()) for key in needed})  # now that they fit


def _needed(layout: Layout) -> dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]:
    kinds = ((layout.weights, "float32"), (layout.buffers, "float32"), (layout.counters, "int64"))
    return {slot.name: (slot.shape, np.dtype(kind)) for slots, kind in kinds for slot in slots}
