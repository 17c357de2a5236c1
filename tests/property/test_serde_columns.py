"""The column methods of every serde give what its single methods give, value for value and error for error."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.errors import SerializationError
from penstock.serde import Serdes
from penstock.serde.column import Column
from penstock.serde.windowed import Window, Windowed

SERDES: dict[str, Any] = {
    **{
        name: Serdes.of(name)
        for name in ("string", "bytes", "short", "integer", "long", "float", "double", "boolean", "uuid", "void", "text_long", "json")
    },
    "list<long>": Serdes.list(Serdes.long()),
    "list<string>": Serdes.list(Serdes.string()),
    "list<double>": Serdes.list(Serdes.double()),
    "time windowed": Serdes.time_windowed(Serdes.string(), 10),
    "session windowed": Serdes.session_windowed(Serdes.long()),
}  # fmt: skip
UUID = uuid.UUID("00000000-0000-0000-0000-000000000001")


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()


class Number(int):
    """A number of a class of its own."""


EDGES = [1 << 15, 1 << 31, 1 << 53, 1 << 63, 1 << 64, 10**38, 10**308, 10**400]
HOSTILE: list[Any] = [
    None, 0, 1, -1, True, False, 0.0, -0.0, 0.1, 1.5, 1e39, 1e308, 3.4028235677973366e38, 16777217, 9007199254740993,
    float("nan"), float("inf"), -float("inf"), *EDGES, *[-each for each in EDGES], *[each - 1 for each in EDGES],
    *[-each - 1 for each in EDGES], Decimal("1.5"), Decimal(7), Decimal("NaN"), Decimal("1e400"),
    np.int8(3), np.int64(5), np.uint64((1 << 64) - 1), np.float32(1.5), np.float64("nan"), np.bool_(True), np.str_("np"),
    Number(7), Text("mine"), "", "a", "\x00", "ä€😀", "\ud800", "a\udfffb", "nan", "12", b"", b"a", b"\xff\x00",
    bytearray(b"ba"), memoryview(b"mv"), UUID, str(UUID), [], [1], [None], [1, "a"], ["a", None], [10**400], [1.5], [True],
    (1, 2), {}, {"a": 1}, {"a": None, "b": [1, {"c": "\ud800"}]}, {1: 2}, {"a": float("nan")}, {"a": Decimal("0.1")},
    {"a": 10**400}, {"a": b"x"}, {"a": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, dt.date(2020, 1, 1), object, 1j,
    Windowed("k", Window(0, 10)), Windowed("\ud800", Window(0, 10)), Windowed(5, Window(3, 9)), Windowed(None, Window(0, 10)),
]  # fmt: skip
FITTING: dict[str, list[Any]] = {
    "string": ["a", "", "ä"], "bytes": [b"a", b""], "short": [1, 2, -3], "integer": [1, 2, -3], "long": [1, 2, -3],
    "float": [1, 2.5], "double": [1, 2.5], "boolean": [True, False], "uuid": [UUID], "void": [None], "text_long": [1, -2],
    "json": [{"a": 1}, {"a": 2}], "list<long>": [[1, 2], []], "list<string>": [["a"]], "list<double>": [[1.5, 2]],
    "time windowed": [Windowed("k", Window(0, 10))], "session windowed": [Windowed(5, Window(3, 9))],
}  # fmt: skip
SERIES = [
    pl.Series([1, None, 3]), pl.Series([1, 200, 3], dtype=pl.UInt8), pl.Series([(1 << 64) - 1, 1], dtype=pl.UInt64),
    pl.Series([1 << 40, None], dtype=pl.Int64), pl.Series([1 << 20, -(1 << 20)], dtype=pl.Int32),
    pl.Series([1.5, None, float("nan")]), pl.Series([1e300, -1e300]), pl.Series([0.1, float("inf")], dtype=pl.Float32),
    pl.Series(["a", None, "\x00"]), pl.Series(["a", "b"], dtype=pl.Categorical), pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
    pl.Series([b"a", None, b"\xff"]), pl.Series([True, None, False]), pl.Series([None, None]), pl.Series([[1, 2], None, []]),
    pl.Series([["a", None]]), pl.Series([{"a": 1, "b": "x"}, None]), pl.Series([dt.date(2020, 1, 1)]),
    pl.Series([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]), pl.Series([Decimal("1.50"), None]), pl.Series([dt.timedelta(seconds=1)]),
    pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)), pl.Series([1 << 100, None], dtype=pl.Int128), pl.Series([[1.5]]),
    pl.Series([[(1 << 64) - 1]], dtype=pl.List(pl.UInt64)),
]  # fmt: skip
LENGTHS = [1, 3, 24, 25, 64, 65, 200]
ROWS = st.sampled_from(HOSTILE)


def one_by_one(serde: Any, items: list[Any]) -> list[bytes | None] | None:
    try:
        return [serde.serialize(item) for item in items]
    except SerializationError:
        return None


def by_column(serde: Any, column: Column) -> list[bytes | None] | None:
    try:
        return serde.encode(column).to_pylist()
    except SerializationError:
        return None


def agrees(name: str, items: list[Any]) -> None:
    serde = SERDES[name]
    assert by_column(serde, Column.of_items(list(items))) == one_by_one(serde, items), (name, items[:4], len(items))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SERDES)
def test_each_hostile_value_among_fitting_ones(name: str, length: int) -> None:
    fitting = FITTING[name]
    for value in HOSTILE:
        items = [fitting[number % len(fitting)] for number in range(length)]
        items[length // 2] = value
        agrees(name, items)
        if length > 2:
            items[0] = None
            agrees(name, items)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SERDES)
def test_columns_of_one_hostile_value(name: str, length: int) -> None:
    for value in HOSTILE:
        agrees(name, [value] * length)


@pytest.mark.parametrize("name", SERDES)
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
@given(items=st.lists(ROWS, min_size=1, max_size=6), length=st.sampled_from(LENGTHS))
def test_mixtures(name: str, items: list[Any], length: int) -> None:
    agrees(name, (items * length)[: max(length, len(items))])


@pytest.mark.parametrize("repeat", [1, 100])
@pytest.mark.parametrize("name", SERDES)
def test_series(name: str, repeat: int) -> None:
    serde = SERDES[name]
    for one in SERIES:
        series = pl.concat([one] * repeat)
        assert by_column(serde, Column.of_series(series)) == one_by_one(serde, series.to_list()), (name, series.dtype)


HOSTILE_BYTES = [
    None, b"", b"\x00", b"\x01", b"\x02", b"\x00" * 2, b"\x00" * 4, b"\xff" * 4, b"\x00" * 8, b"\xff" * 8, b"\x7f\xf0" + b"\x00" * 6,
    b"a", b"\xff", b"\xc3\x28", b"1", b"-1", b"99999999999999999999", b"+1", b" 1", b"1\n", b"{}", b'{"a":1}', b"[1,2]", b"nul", b"null",
    b"NaN", b'{"a":1e400}', b'"\\ud800"', b"{" * 50, str(UUID).encode(), b"0" * 32, b"k" + b"\x00" * 8, b"\x00" * 16, b"\x00" * 24, b"\xff" * 16,
]  # fmt: skip


def read_one_by_one(serde: Any, rows: list[bytes | None]) -> list[Any] | None:
    try:
        return [serde.deserialize(row) for row in rows]
    except SerializationError:
        return None


def read_by_column(serde: Any, rows: list[bytes | None]) -> list[Any] | None:
    try:
        return serde.decode(pa.array(rows, pa.large_binary())).items()
    except SerializationError:
        return None


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SERDES)
def test_hostile_bytes(name: str, length: int) -> None:
    serde = SERDES[name]
    for good in (serde.serialize(FITTING[name][0]), None):
        for bad in HOSTILE_BYTES:
            rows = [good] * length
            rows[length // 2] = bad
            expected, actual = read_one_by_one(serde, rows), read_by_column(serde, rows)
            assert repr(actual) == repr(expected), (name, bad, length)
