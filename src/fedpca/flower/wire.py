"""The content of a message as Flower's records and back. What comes in is never unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedpca.errors import WireError
from fedpca.sites.audit_messages import SUMMARY
from fedpca.sites.messages import EVALUATION, NUMBERS, SHOWN, STATE, UPDATE, Arrays, Content

NPY = "numpy.ndarray"  # Flower's name for arrays in NumPy's file format
Record = ArrayRecord | ConfigRecord | MetricRecord


def to_records(content: Content, encoded: dict[int, ArrayRecord] | None = None) -> RecordDict:
    """A message's content as Flower carries it; states that are in `encoded` are not encoded again."""
    encoded = {} if encoded is None else encoded
    records: dict[str, Record] = {}
    for name, arrays in content.states.items():
        if id(arrays) not in encoded:
            encoded[id(arrays)] = ArrayRecord({key: Array(array) for key, array in arrays.items()})
        records[name] = encoded[id(arrays)]
    tables = {name: MetricRecord if _kind(name) is MetricRecord else ConfigRecord for name in content.tables}
    return RecordDict({**records, **{name: kind(dict(content.tables[name])) for name, kind in tables.items()}})


def from_records(records: RecordDict) -> Content:
    """What a message says; its values are whatever the sender put in, for `sites.messages` to check."""
    for name, record in records.items():
        if not isinstance(record, kind := _kind(name)):
            raise WireError(f"{name!r:.80} must be of kind {kind.__name__}, got {type(record).__name__}")
    arrays = {name: _arrays(name, record) for name, record in records.array_records.items()}
    tables = {name: dict(record) for name, record in records.config_records.items()}
    return Content(tables | {name: dict(record) for name, record in records.metric_records.items()}, arrays)


def _kind(name: str) -> type[Record]:
    """Flower's kind of record for a part of a message."""
    if name in (STATE, SHOWN):
        return ArrayRecord
    return MetricRecord if name in (NUMBERS, UPDATE, EVALUATION, SUMMARY) else ConfigRecord


def _arrays(name: str, record: Mapping[str, Array]) -> Arrays:
    return {key: _array(array, f"{name:.80}: {key!r:.80}") for key, array in record.items()}


def _array(array: Array, place: str) -> NDArray[Any]:
    """The array in NumPy's file format, read only if it has as many bytes as its head says.

    `numpy.load` would first allocate whatever size the head claims. An array of objects, which NumPy pickles, is just
    another wrong type here: its bytes are not looked at. The numbers are not copied before their shape was compared.
    """
    if array.stype != NPY:
        raise WireError(f"{place} must be serialised as {NPY!r}, got {array.stype!r:.80}")
    shape, by_columns, dtype, start = _npy_head(array.data, place)
    if dtype.kind not in "fiu" or min(shape, default=0) < 0:
        raise WireError(f"{place} must hold numbers, got {dtype!s:.80} {shape!s:.80}")
    if len(array.data) - start != prod(shape) * dtype.itemsize:
        raise WireError(f"{place} must have {prod(shape) * dtype.itemsize} bytes, got {len(array.data) - start}")
    try:
        flat = np.frombuffer(array.data, dtype, offset=start)
        return flat.reshape(shape, order="F" if by_columns else "C")
    except ValueError as error:  # more dimensions than NumPy has
        raise WireError(f"{place} cannot be read: {error!s:.80}") from None


def _npy_head(data: bytes, place: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether columns come first, type, and where the numbers start."""
    stream = BytesIO(data)
    try:
        if (version := npy.read_magic(stream)) != (1, 0):
            raise ValueError(f"version {version}")
        shape, by_columns, dtype = npy.read_array_header_1_0(stream)
    except Exception as error:  # whatever a stranger's bytes can bring about, exhausted recursion and memory included
        raise WireError(f"{place} must be an array in NumPy's file format 1.0: {error!s:.80}") from None
    return shape, by_columns, dtype, stream.tell()
