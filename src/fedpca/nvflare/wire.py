"""The content of a message as texts and bytes, and back; nothing else is given to NVFlare's own serialisation.

NVFlare packs what a call takes and returns with FOBS, which can rebuild objects of the types that it knows. Texts,
bytes and a dict of them need none of these. What arrives is read by `json` and `safetensors`, neither of which runs
anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedpca.core import Failure
from fedpca.errors import WireError
from fedpca.sites.messages import Arrays, Content

TABLES, STATES, FAILURE = "tables", "states", "failure"  # parts of a packed message
PLAIN = (str, bool, int, float)  # what a table holds, and lists of it
Packed = dict[str, Any]  # `tables`, a text, and `states`, bytes by their names; or `failure`, a text


def pack(content: Content | Failure, encoded: dict[int, bytes] | None = None) -> Packed:
    """A message, or why there is none, as NVFlare carries it; states that are in `encoded` are not encoded again."""
    if isinstance(content, Failure):
        return {FAILURE: content.reason}
    encoded = {} if encoded is None else encoded
    for arrays in content.states.values():
        if id(arrays) not in encoded:
            encoded[id(arrays)] = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    tables = json.dumps({name: dict(table) for name, table in content.tables.items()})
    return {TABLES: tables, STATES: {name: encoded[id(arrays)] for name, arrays in content.states.items()}}


def unpack(packed: object) -> Content:
    """What a message says; its values are whatever the sender put in, for `sites.messages` to check."""
    if type(packed) is not dict:
        raise WireError(f"a message must be a dict, got {type(packed).__name__}")
    if FAILURE in packed:
        reason = packed[FAILURE]
        raise WireError(f"it failed: {reason:.200}" if type(reason) is str else "it failed")
    if packed.keys() != {TABLES, STATES}:
        raise WireError(f"a message must have {TABLES} and {STATES}, got {[*packed]!s:.80}")
    return Content(_tables(packed[TABLES]), _states(packed[STATES]))


def _tables(text: object) -> Mapping[str, Mapping[str, Any]]:
    if type(text) is not str:
        raise WireError(f"{TABLES} must be a text, got {type(text).__name__}")
    try:
        tables = json.loads(text)
        json.dumps(tables, ensure_ascii=False).encode()  # JSON can name halves of characters, which no text can hold
    except (ValueError, RecursionError) as error:
        raise WireError(f"{TABLES} must be JSON: {error!s:.80}") from None
    if type(tables) is not dict or not all(type(table) is dict for table in tables.values()):
        raise WireError(f"{TABLES} must be JSON tables by their names, got {text:.80}")
    for name, table in tables.items():
        _require_plain(name, table)
    return tables


def _require_plain(name: str, table: Mapping[str, Any]) -> None:
    """Refuses what no table of a message holds."""
    for key, value in table.items():
        for own in value if type(value) is list else [value]:
            if type(own) not in PLAIN:  # it is not shown: to write it down may take longer than to read it
                required = "must be a text, a number, or a list of them"
                raise WireError(f"{name:.80}: {key!r:.80} {required}, got {type(own).__name__}")


def _states(states: object) -> Mapping[str, Arrays]:
    if type(states) is not dict or not all(type(name) is str for name in states):
        raise WireError(f"{STATES} must be bytes by their names, got {type(states).__name__}")
    return {name: _arrays(name, data) for name, data in states.items()}


def _arrays(name: str, data: object) -> dict[str, NDArray[Any]]:
    """The arrays in a safetensors file, whose head must add up to exactly the bytes that follow it."""
    if type(data) is not bytes:
        raise WireError(f"{name!r:.80} must be bytes, got {type(data).__name__}")
    try:
        arrays = load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise WireError(f"{name!r:.80} must be a safetensors file: {error!s:.80}") from None
    for key, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise WireError(f"{name:.80}: {key!r:.80} must hold numbers, got {array.dtype!s:.80}")
    return arrays
