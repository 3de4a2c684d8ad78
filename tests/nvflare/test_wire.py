"""Messages as texts and bytes: everything comes back as it was, and whatever a peer sends is an answer or an error."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs.datum import DatumManager

from fedpca.core import Failure
from fedpca.errors import WireError
from fedpca.nvflare.wire import pack, unpack
from fedpca.sites.messages import Content


def travelled(packed: object) -> object:
    """What NVFlare hands over at the other end."""
    return fobs.deserialize(fobs.serialize(packed, DatumManager()), DatumManager())


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


values = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False),
    st.lists(st.floats(allow_nan=False), max_size=4),
)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8")),
        st.dictionaries(st.text(st.characters(codec="utf-8")), values),
        max_size=3,
    )
)
def test_tables_come_back_with_their_types_and_every_bit(tables: dict):
    found = unpack(travelled(pack(Content(tables)))).tables
    assert repr(found) == repr(tables)  # 1 is not 1.0 is not True, and -0.0 is not 0.0


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1, 2, 3, 4)])
def test_arrays_come_back_to_the_bit(dtype: str, shape: tuple[int, ...]):
    rng = np.random.default_rng(0)
    array = np.frombuffer(rng.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)
    by_columns = np.array(array, order="F")
    found = unpack(travelled(pack(Content({}, {"arrays": {"a": array, "b": by_columns}})))).states["arrays"]
    assert same_bits(found["a"], array)
    assert same_bits(found["b"], array)


def test_numbers_that_are_not_finite_arrive_so_that_they_can_be_named():
    content = Content(
        {"report": {"loss": math.nan, "more": [math.inf, -math.inf]}}, {"arrays": {"w": np.array([np.nan])}}
    )
    found = unpack(travelled(pack(content)))
    assert math.isnan(found.tables["report"]["loss"])
    assert found.tables["report"]["more"] == [math.inf, -math.inf]
    assert np.isnan(found.states["arrays"]["w"]).all()


def test_one_state_for_many_sites_is_encoded_once():
    state, encoded = {"w": np.ones(5)}, {}
    packed = [pack(Content({"n": {"i": i}}, {"arrays": state}), encoded)["states"]["arrays"] for i in range(3)]
    assert packed[0] is packed[1] is packed[2]


def test_a_message_is_nothing_but_texts_bytes_and_dicts_so_that_fobs_rebuilds_no_object():
    content = Content({"order": {"round": 1}}, {"arrays": {"w": np.ones(5)}})

    def plain(value: object) -> bool:
        return all(map(plain, [*value, *value.values()])) if type(value) is dict else type(value) in (str, bytes)

    assert plain(pack(content))
    assert plain(pack(Failure("it failed")))
    assert b"__fobs" not in fobs.serialize(pack(content), DatumManager())


def safetensors_file(head: object, data: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


HOSTILE = [
    None,
    [],
    "text",
    {},
    {"tables": "{}"},
    {"tables": "{}", "states": {}, "more": 1},
    {"tables": b"{}", "states": {}},
    {"tables": "{", "states": {}},
    {"tables": "[]", "states": {}},
    {"tables": '{"report": 1}', "states": {}},
    {"tables": "[" * 100_000, "states": {}},
    {"tables": '{"a": {"b": ' + "9" * 10_000 + "}}", "states": {}},
    {"tables": r'{"report": {"loss": "\ud800"}}', "states": {}},  # half of a character, which no text can hold
    {"tables": r'{"report": {"\udfff": 1}}', "states": {}},
    {"tables": '{"report": {"loss": [[1]]}}', "states": {}},
    {"tables": '{"report": {"loss": {"a": 1}}}', "states": {}},
    {"tables": '{"report": {"loss": null}}', "states": {}},
    {"tables": '{"report": {"loss": ' + "[" * 900 + "]" * 900 + "}}", "states": {}},
    {"tables": "{}", "states": []},
    {"tables": "{}", "states": {1: b""}},
    {"tables": "{}", "states": {"arrays": np.ones(3)}},
    {"tables": "{}", "states": {"arrays": "text"}},
    {"tables": "{}", "states": {"arrays": b""}},
    {"tables": "{}", "states": {"arrays": pickle.dumps(print)}},
    {"tables": "{}", "states": {"arrays": struct.pack("<Q", 2**60)}},
    {
        "tables": "{}",
        "states": {
            "arrays": safetensors_file({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, b"1234")
        },
    },
    {
        "tables": "{}",
        "states": {"arrays": safetensors_file({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"123")},
    },
    {
        "tables": "{}",
        "states": {"arrays": safetensors_file({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234")},
    },
    {
        "tables": "{}",
        "states": {"arrays": safetensors_file({"w": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}, b"1")},
    },
    {
        "tables": "{}",
        "states": {"arrays": safetensors_file({"w": {"dtype": "X", "shape": [1], "data_offsets": [0, 1]}}, b"1")},
    },
    {"tables": "{}", "states": {"arrays": safetensors_file(b"[" * 100_000)}},
    {"failure": 7},
    {"failure": "x" * 10**6},
]


@pytest.mark.parametrize("packed", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_message_is_an_error_of_one_line(packed: object):
    with pytest.raises(WireError) as caught:
        unpack(packed)
    assert len(str(caught.value)) < 400


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(data: bytes):
    with contextlib.suppress(WireError):
        unpack({"tables": "{}", "states": {"arrays": data}})
