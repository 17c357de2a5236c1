"""Columns: the same as row by row, with nulls, slices and bad rows."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, SerializationError
from penstock.serde import Column, Serdes, Window, Windowed, WindowedColumn

KINDS = {
    "string": ["", "über", "x" * 40],
    "bytes": [b"", b"\x00\xff"],
    "long": [0, -1, 2**63 - 1],
    "integer": [7, -(2**31)],
    "short": [7, -(2**15)],
    "double": [0.5, -1e300],
    "float": [0.5, -2.0],
    "boolean": [True, False],
    "text_long": [0, -12, 2**63 - 1],
    "json": [{"a": 1, "b": [None, "x", 1.5]}, [], "s", 5],
    "auto": ["x", 1, None, [1, (2, "b")], {"a": 1}, {1: "x"}],
    "list<long>": [[], [1, None]],
    "change<long>": [(1, None), (None, 2), (3, 4)],
}


@pytest.mark.parametrize("arrow", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("kind", KINDS)
def test_every_arrow_form_with_nulls_and_offsets(kind, arrow):
    serde = Serdes.of(kind)
    values = [None, *KINDS[kind], None]
    rows = [serde.serialize(v) for v in values]
    data = pa.array([None, rows[1], *rows, rows[1]], pa.large_binary()).cast(arrow).slice(2, len(rows))
    assert serde.decode(data).items() == values
    assert serde.decode(data.slice(0, 0)).items() == []
    encoded = serde.encode(Column.of_items(values))
    assert encoded.type == pa.large_binary()
    assert encoded.to_pylist() == rows
    assert serde.encode(Column.of_items([None, None])).to_pylist() == [None, None]
    assert serde.encode(Column.of_items([])).to_pylist() == []
    assert serde.decode(pa.array([None, None], arrow)).items() == [None, None]


def test_null_rows_may_lie_over_bytes():
    body = pa.py_buffer(b"\0" * 7 + b"\1" + b"junk!" + b"\0" * 7 + b"\2")
    offsets = pa.py_buffer(np.array([0, 8, 13, 21], np.int64))
    data = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 3, [pa.py_buffer(b"\x05"), offsets, body])
    assert Serdes.long().decode(data).items() == [1, None, 2]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", b"a", b"\xff"), ("long", b"\0" * 8, b"\0" * 7), ("boolean", b"\1", b"\2"), ("uuid", b"0b6a9a4e-3c1d-4f0e-9a55-3d1f6c2b7a10", b"x"),
        ("json", b"{}", b"{"), ("text_long", b"1", b"1.5"), ("text_long", b"1", b"9" * 19), ("auto", b"sx", b"zz"), ("auto", b"sx", b"s\xff"),
        ("list<long>", b"\0" * 9, b"\0" * 5 + b"\x7f" + b"\0" * 3), ("void", None, b"x"), ("windowed<string>", b"a" + b"\0" * 8, b"abc"),
        ("session<string>", b"a" + b"\0" * 16, b"abc"), ("change<string>", b"a\x01", b"a\x09"),
    ],
)  # fmt: skip
def test_bad_bytes_name_their_row(kind, good, bad):
    with pytest.raises(SerializationError) as caught:
        Serdes.of(kind).decode(pa.array([good, None, bad, good], pa.binary()))
    assert caught.value.row == 2
    assert "row 2" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [("string", 5), ("string", "\ud800"), ("bytes", "x"), ("long", 2**63), ("long", 1.5), ("long", True), ("integer", 2**31), ("double", "1"),
     ("boolean", 1), ("uuid", "x"), ("json", {1}), ("json", float("nan")), ("auto", object()), ("windowed<string>", "x"), ("text_long", "5"),
     ("list<long>", 5), ("void", 1), ("change<long>", (None, None))],
)  # fmt: skip
def test_bad_values_name_their_row(kind, bad):
    with pytest.raises(SerializationError) as caught:
        Serdes.of(kind).encode(Column.of_items([None, bad]))
    assert caught.value.row == 1


@pytest.mark.parametrize("count", [1, 100])
def test_a_number_too_large_for_a_float_is_refused_however_many_there_are(count):
    values = [0.5] * (count - 1)
    with pytest.raises(SerializationError, match="float numbers"):
        Serdes.of("float").encode(Column.of_items([*values, 1e300]))
    assert len(Serdes.of("float").encode(Column.of_items([*values, float("inf")]))) == count


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("kind", ["short", "integer", "float", "long"])
def test_numbers_keep_their_type_however_many_there_are(kind, count):
    serde = Serdes.of(kind)

    def sevens(number):
        return serde.decode(serde.encode(Column.of_items([7] * number)))

    wanted = sevens(1000).series().dtype
    assert sevens(count).series().dtype == wanted
    assert Column.concat([sevens(1), sevens(count)]).series().dtype == wanted
    assert sevens(count).take_or_null(np.array([0, -1])).series().dtype == wanted
    nothing = sevens(count).take_or_null(np.full(3, -1))
    assert (nothing.items(), nothing.series().dtype) == ([None] * 3, wanted)


def test_series_of_another_type_is_refused():
    for kind, series in (
        ("string", pl.Series([1])),
        ("long", pl.Series(["1"])),
        ("long", pl.Series([1.0])),
        ("integer", pl.Series([2**40])),
    ):
        with pytest.raises(SerializationError):
            Serdes.of(kind).encode(Column.of_series(series))


def test_columns_stay_columns():
    assert Serdes.string().decode(pa.array([b"a"])).series().dtype == pl.String
    assert Serdes.long().decode(pa.array([b"\0" * 8, None])).series().dtype == pl.Int64
    assert Serdes.integer().encode(Column.of_series(pl.Series([1, None], dtype=pl.Int64))).to_pylist() == [
        b"\0\0\0\1",
        None,
    ]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)


@given(st.lists(PLAIN, max_size=4))
def test_auto_reads_what_it_writes(values):
    serde = Serdes.auto()
    data = serde.encode(Column.of_items(values))
    assert data.to_pylist() == [serde.serialize(v) for v in values]
    back = serde.decode(data).items()
    assert back == values
    assert [type(v) for v in back] == [type(v) for v in values]


def test_auto_rare_types_and_columns():
    values = [date(2024, 1, 2), datetime(2024, 1, 2, tzinfo=UTC), timedelta(days=-1, microseconds=3), Decimal("1.50"), uuid4(), {3, 1},
              frozenset("ab"), Windowed("k", Window(1, 2)), 2**70, -(2**63) - 1, "x" * 300, ["y" * 300]]  # fmt: skip
    serde = Serdes.auto()
    assert [serde.deserialize(serde.serialize(v)) for v in values] == values
    for series in (
        pl.Series(["a", None]), pl.Series([1, None, -5]), pl.Series([0.5, None]), pl.Series([b"x", None]), pl.Series([None, None]),
        pl.Series([{"a": 1, "b": "é\n"}, None, {"a": None, "b": None}]), pl.Series([True, None]), pl.Series([2**63], dtype=pl.UInt64),
        pl.Series([{"f": 1.5}]),
    ):  # fmt: skip
        data = serde.encode(Column.of_series(series))
        assert data.to_pylist() == [serde.serialize(v) for v in series.to_list()]
        assert serde.decode(data).items() == series.to_list()


@given(st.lists(st.fixed_dictionaries({
    "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])), "i": st.none() | st.integers(-(2**63), 2**63 - 1),
    "f": st.none() | st.floats(allow_nan=False, allow_infinity=False), "l": st.lists(st.integers(0, 9)), "b": st.booleans(),
}) | st.none(), min_size=1, max_size=5))  # fmt: skip
def test_json_columns_are_json_rows(rows):
    dtype = pl.Struct({"s": pl.String, "i": pl.Int64, "f": pl.Float64, "l": pl.List(pl.Int64), "b": pl.Boolean})
    serde = Serdes.json()
    rows = [None if r is None else {field.name: r[field.name] for field in dtype.fields} for r in rows]
    data = serde.encode(Column.of_series(pl.Series("", rows, dtype)))
    wanted = [None if r is None else json.dumps(r, separators=(",", ":"), ensure_ascii=False).encode() for r in rows]
    assert data.to_pylist() == wanted
    typed = Serdes.json(dtype)
    assert typed.decode(data).series().to_list() == rows
    assert typed.encode(Column.of_items(rows)).to_pylist() == [typed.serialize(r) for r in rows]


def test_json_with_schema():
    serde = Serdes.json({"user": str, "amount": float, "tags": [str], "at": {"x": int}})
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert serde == Serdes.json(
        pa.schema(
            {
                "user": pa.string(),
                "amount": pa.float64(),
                "tags": pa.list_(pa.string()),
                "at": pa.struct({"x": pa.int64()}),
            }
        )
    )
    row = b'{"user":"a","more":1,"at":{"x":2}}'
    column = serde.decode(pa.array([row, None, b"{}"]))
    assert column.is_columnar
    assert column.items()[0] == {"user": "a", "amount": None, "tags": None, "at": {"x": 2}} == serde.deserialize(row)
    assert column.items()[1] is None
    narrow = Column.of_series(pl.Series([{"user": "a"}, None]))
    assert serde.encode(narrow).to_pylist() == [b'{"user":"a","amount":null,"tags":null,"at":null}', None]
    for bad in (b"[1]", b'{"amount":"x"}', b'{"user":"a"},{"user":"b"}', b"", b'{"user":'):
        with pytest.raises(SerializationError) as caught:
            serde.decode(pa.array([row, bad]))
        assert caught.value.row == 1
    with pytest.raises(SerializationError):
        serde.encode(Column.of_items([{"amount": "x"}]))
    with pytest.raises(ConfigError):
        Serdes.json({"user": "strin"})


def test_changes_as_kafka_writes_them():
    serde = Serdes.of("change<string>")
    values, olds = Column.of_items(["new", "n", None]), Column.of_items([None, "old", "o"])
    data = serde.encode_changes(values, olds)
    assert data.to_pylist() == [b"new\x01", b"\x02nold\x02", b"o\x00"]
    rows = [None, *data.to_pylist(), b"o\x00\x03", b"n\x01\x04", b"\x02no\x00\x05"]
    news, before, latest = serde.decode_changes(pa.array(rows))
    assert news.items() == [None, "new", "n", None, None, "n", "n"]
    assert before.items() == [None, None, "old", "o", "o", None, "o"]
    assert latest.tolist() == [True, True, True, True, False, True, False]
    long = "x" * 300
    assert serde.deserialize(serde.serialize((long, "y"))) == (long, "y")
    assert serde.encode_changes(Column.of_items(["a", "b"]), Column.nulls(2)).to_pylist() == [b"a\x01", b"b\x01"]
    for flag, place in ((b"\x01", 0), (b"\x00", 1)):
        pair = serde.decode_changes(pa.array([b"junk", b"ab" + flag, flag]).slice(1))
        assert pair[place].items() == ["ab", ""]
        assert pair[1 - place].items() == [None, None]
    assert serde.encode_changes(Column.nulls(1), Column.of_items(["a"])).to_pylist() == [b"a\x00"]


def test_windowed_columns():
    keys = Column.of_series(pl.Series(["a", None, "b"]))
    column = WindowedColumn(keys, np.array([1, 2, 3]), np.array([11, 12, 13]))
    items = [Windowed("a", Window(1, 11)), None, Windowed("b", Window(3, 13))]
    assert column.items() == items
    assert column.series().to_list() == [{"key": "a", "start": 1, "end": 11}, None, {"key": "b", "start": 3, "end": 13}]
    assert column.null_mask().tolist() == [False, True, False]
    assert column.take(np.array([2, 0])).items() == [items[2], items[0]]
    assert column.filter(np.array([False, True, True])).items() == items[1:]
    both = Column.concat([column, column])
    assert isinstance(both, WindowedColumn)
    assert both.items() == items * 2
    serde = Serdes.time_windowed("string", "10 ms")
    assert serde.decode(serde.encode(column)).items() == items
    assert serde.decode(serde.encode(column).slice(1)).items() == items[1:]
    assert Serdes.time_windowed("string").deserialize(b"a" + b"\0" * 8).window.end == 2**63 - 1


def test_names_and_aliases():
    for name in (*KINDS, "uuid", "void", "windowed<string,60000>", "windowed<list<long>>", "session<long>"):
        serde = Serdes.of(name)
        assert serde.name == name
        assert pickle.loads(pickle.dumps(serde)) == serde == Serdes.of(serde)
        assert hash(serde) == hash(Serdes.of(name))
    assert Serdes.of("org.apache.kafka.common.serialization.Serdes$LongSerde") == Serdes.long() == Serdes.of(int)
    assert Serdes.of("org.apache.kafka.common.serialization.Serdes$ByteArraySerde") == Serdes.bytes()
    with pytest.raises(ConfigError, match="Did you mean string"):
        Serdes.of("strng")
    with pytest.raises(ConfigError):
        Serdes.of(5)
