"""The types of `core` as Flower records and back. What comes in is checked, and never unpickled.

| message | record | what |
|---|---|---|
| to a client | `arrays` | the global state under the model's own names |
| | `arrays/SIDE` | what one of two combined methods made, where clients need it |
| | `order` | `round`, `rounds`, and the client's own `verdict` as JSON, which nests and keeps every float's bits |
| | `run` | the run's `id`, `settings`, `classes`; whether to `evaluate`; `exchange`; `veil` |
| its report | `report` | the numbers |
| its update | `arrays` | the trained state; absent where the client had nothing to train on |
| | `update` | `size`, `reliability` |
| | `report` | the numbers |
| with either | `evaluation` | how the global model does on the site's held-out images, if asked for and there are any |
| who it is | `site` | `name`, `identity`, `classes`, `shape`, and how many images there are for `train` and `test` |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import BytesIO
from math import prod
from typing import Annotated, Literal, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.lib import format as npy
from pydantic import BaseModel, ConfigDict, Field, Json, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from torch import Tensor

from fedpca.core import ClientId, Order, Params, Report, Update, Verdict
from fedpca.errors import WireError
from fedpca.models.flat import Layout
from fedpca.settings.experiment import Experiment

ARRAYS, SIDE, ORDER, UPDATE, REPORT = "arrays", "arrays/", "order", "update", "report"
RUN, SITE, EVALUATION = "run", "site", "evaluation"
NPY = "numpy.ndarray"  # Flower's name for arrays in NumPy's file format
SAME_MODEL = "server and clients must build the same model"
EXACTLY = ConfigDict(strict=True, extra="forbid")

Record = TypeVar("Record", bound=ArrayRecord | ConfigRecord | MetricRecord)
Value = TypeVar("Value")


class OrderHead(BaseModel):
    """An order besides its arrays."""

    model_config = EXACTLY
    round: PositiveInt
    rounds: PositiveInt
    verdict: Json[Verdict]


class UpdateHead(BaseModel):
    """An update besides its arrays and report."""

    model_config = EXACTLY
    size: int
    reliability: float


class RunHead(BaseModel):
    """Which run a message belongs to, and all that a site must know of it."""

    model_config = EXACTLY
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]  # names a folder at the site
    settings: Json[Experiment]
    classes: list[str]  # in the order of the model's outputs; none as long as they are not agreed on
    evaluate: bool
    exchange: Literal["two", "one"]
    veil: Json[dict[str, float | None]]


class SiteHead(BaseModel):
    """Who a site is, and what it has."""

    model_config = EXACTLY
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
    identity: Annotated[
        str, Field(max_length=64)
    ]  # the same after a restart, another for another site of the same name
    classes: list[str]  # none where labels are the numbers of the model's outputs
    shape: list[PositiveInt]  # of an image
    train: PositiveInt
    test: NonNegativeInt


Metric = Annotated[float, Field(ge=0, le=1)]


class Evaluation(BaseModel):
    """How the global model does on a site's held-out images, as `evaluate.metrics` has it."""

    model_config = EXACTLY
    acc: Metric
    bacc: Metric
    auc: Metric
    auc_ovo: Metric


EVALUATED = TypeAdapter(Evaluation)
ORDER_HEAD, UPDATE_HEAD = TypeAdapter(OrderHead), TypeAdapter(UpdateHead)
RUN_HEAD, SITE_HEAD = TypeAdapter(RunHead), TypeAdapter(SiteHead)
NUMBERS = TypeAdapter(dict[str, float | list[float]], config=ConfigDict(strict=True))


def orders_to_records(params: Params, orders: Mapping[ClientId, Order], layout: Layout) -> dict[ClientId, RecordDict]:
    """What goes to each client: the global state and its own order; nothing about other clients.

    A state is encoded once, however many clients it goes to.
    """
    encoded: dict[int, ArrayRecord] = {}

    def arrays(state: Params) -> ArrayRecord:
        if id(state) not in encoded:
            encoded[id(state)] = _arrays(state, layout)
        return encoded[id(state)]

    return {
        client: RecordDict(
            {
                ARRAYS: arrays(params),
                **{SIDE + side: arrays(state) for side, state in order.sides.items()},
                ORDER: _head(order),
            }
        )
        for client, order in orders.items()
    }


def order_from_records(records: RecordDict, layout: Layout) -> tuple[Params, Order]:
    """The global state and the order that came to this client."""
    head = _checked(ORDER_HEAD, records, ORDER, ConfigRecord)
    sides = {name.removeprefix(SIDE): _params(records, name, layout) for name in records if name.startswith(SIDE)}
    return _params(records, ARRAYS, layout), Order(head.round, head.rounds, head.verdict, sides)


def report_to_records(report: Report) -> RecordDict:
    """A client's answer to being asked what it sees."""
    return RecordDict({REPORT: _metrics(report)})


def report_from_records(records: RecordDict) -> Report:
    """The report that a client sent."""
    return _checked(NUMBERS, records, REPORT, MetricRecord)


def update_to_records(update: Update, layout: Layout) -> RecordDict:
    """A client's answer to an order to train."""
    head = MetricRecord({"size": int(update.size), "reliability": float(update.reliability)})
    records = RecordDict({UPDATE: head, REPORT: _metrics(update.report)})
    if update.params is not None:
        records[ARRAYS] = _arrays(update.params, layout)
    return records


def update_from_records(records: RecordDict, layout: Layout) -> Update:
    """The update that a client sent."""
    head = _checked(UPDATE_HEAD, records, UPDATE, MetricRecord)
    params = _params(records, ARRAYS, layout) if ARRAYS in records else None
    return Update(params, head.size, head.reliability, report_from_records(records))


def run_to_record(
    run: str,
    settings: Experiment,
    classes: Sequence[str],
    *,
    evaluate: bool,
    exchange: str,
    veil: Mapping[str, float | None],
) -> ConfigRecord:
    """What every message to a site says about its run."""
    texts = {"id": run, "settings": settings.model_dump_json(), "exchange": exchange, "veil": json.dumps(dict(veil))}
    return ConfigRecord({**texts, "classes": list(classes), "evaluate": evaluate})


def run_from_records(records: RecordDict) -> RunHead:
    """Which run a message belongs to."""
    return _checked(RUN_HEAD, records, RUN, ConfigRecord)


def site_to_records(site: SiteHead) -> RecordDict:
    """A site's answer to being asked who it is."""
    return RecordDict({SITE: ConfigRecord(site.model_dump())})


def site_from_records(records: RecordDict) -> SiteHead:
    """Who answered."""
    return _checked(SITE_HEAD, records, SITE, ConfigRecord)


def evaluation_to_record(metrics: Report) -> MetricRecord:
    """How the global model does at a site, to go with its answer."""
    return _metrics(metrics)


def evaluation_from_records(records: RecordDict) -> dict[str, float] | None:
    """How the global model does at a site, if it said so."""
    return _checked(EVALUATED, records, EVALUATION, MetricRecord).model_dump() if EVALUATION in records else None


def size_of(records: RecordDict) -> int:
    """Bytes of the arrays, texts and numbers, without what Flower wraps around them."""
    return sum(_size(value) for record in records.values() for value in record.values())


def _size(value: object) -> int:
    match value:
        case Array():
            return len(value.data)
        case list():
            return sum(map(_size, value))
        case str():
            return len(value.encode())
    return len(value) if isinstance(value, bytes) else 8


def _head(order: Order) -> ConfigRecord:
    verdict = json.dumps(asdict(order.verdict))
    return ConfigRecord({"round": order.round, "rounds": order.rounds, "verdict": verdict})


def _metrics(report: Report) -> MetricRecord:
    """The numbers as Flower takes them: Python's own floats, no other kind."""
    return MetricRecord({key: [*map(float, v)] if isinstance(v, list) else float(v) for key, v in report.items()})


def _arrays(params: Params, layout: Layout) -> ArrayRecord:
    return ArrayRecord(layout.named(params), keep_input=False)


def _record(records: RecordDict, name: str, kind: type[Record]) -> Record:
    record = records.get(name)
    if not isinstance(record, kind):
        came = f"{type(record).__name__}" if name in records else f"only {list(records)}"
        raise WireError(f"the message must have the {kind.__name__} {name!r:.80}, came {came:.80}")
    return record


def _checked(
    kind: TypeAdapter[Value], records: RecordDict, name: str, record: type[ConfigRecord] | type[MetricRecord]
) -> Value:
    """A record's content, of the types that it must have; an error names the first that is not.

    Texts of errors quote what came, but no more than a line of it.
    """
    try:
        return kind.validate_python(dict(_record(records, name, record)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise WireError(f"{place!r:.80}: {first['msg']}, came {first['input']!r:.80}") from None


def _params(records: RecordDict, name: str, layout: Layout) -> Params:
    """A state of the layout's names, shapes and types, or an error that names what differs."""
    record, needed = _record(records, name, ArrayRecord), _needed(layout)
    if missing := needed.keys() - record.keys():
        raise WireError(f"{name}: {min(missing)!r:.80} is missing; {SAME_MODEL}")
    if unknown := record.keys() - needed.keys():
        raise WireError(f"{name}: the model here has no {min(unknown)!r:.80}; {SAME_MODEL}")
    return layout.params({key: _tensor(record[key], f"{name}: {key!r}", *needed[key]) for key in needed})


def _needed(layout: Layout) -> dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]:
    kinds = ((layout.weights, "float32"), (layout.buffers, "float32"), (layout.counters, "int64"))
    return {slot.name: (slot.shape, np.dtype(kind)) for slots, kind in kinds for slot in slots}


def _tensor(array: Array, place: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Tensor:
    """The tensor in NumPy's file format, read only once its head says what is needed.

    `numpy.load` would first allocate whatever size the head claims. An array of objects, which NumPy pickles, is just
    another wrong type here: its bytes are not looked at.
    """
    if array.stype != NPY:
        raise WireError(f"{place} must be serialised as {NPY!r}, came {array.stype!r:.80}")
    came_shape, by_columns, came_dtype, start = _npy_head(array.data, place)
    if (came_shape, came_dtype) != (shape, dtype):
        raise WireError(f"{place} must be {dtype} {shape}, came {came_dtype!s:.80} {came_shape!s:.80}; {SAME_MODEL}")
    if len(array.data) - start != prod(shape) * dtype.itemsize:
        raise WireError(f"{place} must have {prod(shape) * dtype.itemsize} bytes, came {len(array.data) - start}")
    flat = np.frombuffer(array.data, dtype, offset=start)
    return torch.from_numpy(flat.reshape(shape, order="F" if by_columns else "C").copy())


def _npy_head(data: bytes, place: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    """Shape, whether columns come first, type, and where the numbers start."""
    stream = BytesIO(data)
    try:
        if (version := npy.read_magic(stream)) != (1, 0):
            raise ValueError(f"version {version}")
        shape, by_columns, dtype = npy.read_array_header_1_0(stream)
    except Exception as error:  # whatever a stranger's bytes can bring about, exhausted recursion and memory included
        raise WireError(f"{place} must be an array in NumPy's file format 1.0: {error!s:.80}") from None
    return shape, by_columns, dtype, stream.tell()
