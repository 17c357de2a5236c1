"""Any value as plain JSON: one function for all that Python, serdes and stores have."""

from __future__ import annotations

import json
import uuid
from array import array
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.serde.plain_json import base64_of, plain, text_of
from penstock.serde.windowed import Window, Windowed

Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - what users have


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


@dataclass
class Point:
    x: int
    at: date


class Record:
    def to_dict(self):
        return {"amount": Decimal("1.50")}


class Odd:
    def __str__(self) -> str:
        return "odd"


KINDS = [
    (None, None),
    (True, True),
    (2**70, 2**70),
    (1.5, 1.5),
    (float("nan"), "nan"),
    (float("-inf"), "-inf"),
    ("text\x00", "text\x00"),
    (b"plain", "plain"),
    (b"\xff\x00", "\\xff\x00"),
    (bytearray(b"a"), "a"),
    (memoryview(b"a"), "a"),
    (Decimal("1.50"), "1.50"),
    (Fraction(1, 3), "1/3"),
    (uuid.UUID(int=7), str(uuid.UUID(int=7))),
    (date(2024, 2, 29), "2024-02-29"),
    (time(1, 2, 3, 4000), "01:02:03.004000"),
    (datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29T00:00:00+00:00"),
    (timedelta(seconds=1.5), "0:00:01.500000"),
    (Colour.RED, "red"),
    (Size.BIG, 3),
    ([1, (2, b"x")], [1, [2, "x"]]),
    ({"b", "a"}, ["a", "b"]),
    (deque([1]), [1]),
    (range(3), [0, 1, 2]),
    (array("i", [1, 2]), [1, 2]),
    (Pair(1, Decimal(2)), {"left": 1, "right": "2"}),
    ({"a": {"b": b"c"}}, {"a": {"b": "c"}}),
    (OrderedDict(a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (
        {2: "a", b"k": 2, None: 3, True: 4, date(2024, 1, 1): 5},
        {"2": "a", "k": 2, "null": 3, "true": 4, "2024-01-01": 5},
    ),
    (Point(1, date(2024, 1, 1)), {"x": 1, "at": "2024-01-01"}),
    (Record(), {"amount": "1.50"}),
    (Windowed(b"k", Window(0, 5)), {"key": "k", "start": 0, "end": 5}),
    (np.int64(7), 7),
    (np.float32(0.5), 0.5),
    (np.bool_(True), True),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (pa.scalar(Decimal("1.5")), "1.5"),
    (pa.array([b"a", None]), ["a", None]),
    (pl.Series([date(2024, 1, 1)]), ["2024-01-01"]),
    (complex(1, 2), "(1+2j)"),
    (Odd(), "odd"),
    (int, "<class 'int'>"),
]


@pytest.mark.parametrize(
    ("value", "wanted"), KINDS, ids=[f"{type(kind[0]).__name__}-{n}" for n, kind in enumerate(KINDS)]
)
def test_each_kind_of_value_has_a_form(value, wanted) -> None:
    found = plain(value)
    assert found == wanted
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert plain([value]) == [wanted]
    assert plain({"v": value}) == {"v": wanted}


def test_bytes_have_the_form_that_is_asked_for_at_any_depth() -> None:
    assert plain({"a": [b"hi"], "b": b"hi"}, base64_of) == {"a": [{"base64": "aGk="}], "b": {"base64": "aGk="}}
    assert text_of(b"\xc3\xa4\xff") == "ä\\xff"


def test_values_that_are_nested_without_end_are_cut() -> None:
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    assert "..." in json.dumps(plain(deep))
    round_about: dict = {}
    round_about["self"] = round_about
    assert "..." in json.dumps(plain(round_about))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals() | st.uuids()
    | st.dates() | st.times() | st.datetimes() | st.timedeltas() | st.complex_numbers() | st.fractions(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers() | st.binary(), inner),
    max_leaves=8,
)  # fmt: skip


@given(anything)
def test_any_value_is_written_by_json(value) -> None:
    json.dumps(plain(value), allow_nan=False)
    json.dumps(plain(value, base64_of), allow_nan=False)
