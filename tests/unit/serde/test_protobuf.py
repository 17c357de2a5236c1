"""Protobuf: messages, dicts and columns."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_messages import order_messages

from penstock.errors import ConfigError, SerializationError
from penstock.serde import Column, Serdes
from penstock.testing import EmbeddedRegistry

Order, Line, Other = order_messages()
FULL = {
    "id": -7,
    "user": "ann",
    "amount": 1.5,
    "kind": "SALE",
    "at": datetime(2026, 11, 21, 3, tzinfo=UTC),
    "lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 1}],
    "counts": {"x": 1},
    "post": None,
    "pickup": False,
    "note": "n",
    "extra": None,
    "tags": [b"\x00"],
    "took": timedelta(seconds=1.5),
    "discount": None,
}
EMPTY = dict.fromkeys(FULL) | {
    "id": 0,
    "user": "",
    "amount": 0.0,
    "kind": "KIND_UNKNOWN",
    "lines": [],
    "counts": {},
    "tags": [],
}


def test_messages_and_their_columns():
    serde = Serdes.protobuf(Order, framing="none")
    rows = serde.encode(Column.of_items([FULL, None, Order(), {"extra": '{"a": [1, null]}'}]))
    column = serde.decode(rows)
    assert [type(item) for item in column.items()] == [Order, type(None), Order, Order]
    series = column.series()
    assert series[0] == FULL
    assert series[1] is None
    assert series[2] == EMPTY
    assert series[3]["extra"] == '{"a": [1.0, null]}'
    assert serde.encode(Column.of_series(series)).to_pylist() == rows.to_pylist()
    assert serde.encode(Column.of_items(column.items())).to_pylist() == rows.to_pylist()
    picked = column.filter(np.array([True, False, False, True]))
    assert picked.series().struct.field("kind").to_list() == ["SALE", "KIND_UNKNOWN"]
    total = series.alias("v").to_frame().unnest("v").select(pl.col("lines").list.len())
    assert total.to_series().to_list() == [2, None, 0, 0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.none()
        | st.fixed_dictionaries(
            {
                "id": st.integers(-(2**63), 2**63 - 1),
                "user": st.text(st.characters(exclude_categories=["Cs"])),
                "amount": st.floats(allow_nan=False),
                "kind": st.sampled_from(["KIND_UNKNOWN", "GIFT", "SALE"]),
                "lines": st.lists(st.fixed_dictionaries({"sku": st.text("abc"), "count": st.integers(0, 2**32 - 1)})),
                "counts": st.dictionaries(st.text("abc"), st.integers(-(2**31), 2**31 - 1)),
                "note": st.none() | st.text("abc"),
                "tags": st.lists(st.binary(max_size=5)),
                "at": st.none() | st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
            }
        ),
        min_size=1,
        max_size=6,
    )
)
def test_random_messages(rows):
    serde = Serdes.protobuf(Order, framing="none")
    encoded = serde.encode(Column.of_items(rows))
    assert encoded.to_pylist() == serde.serialize_rows(rows)
    found = serde.decode(encoded).series().to_list()
    for row, one in zip(rows, found, strict=True):
        assert one == (None if row is None else {**EMPTY, **row})


def test_framing_says_which_message_of_the_file_it_is():
    with EmbeddedRegistry() as registry:
        order = Serdes.protobuf(Order, registry=registry.url).for_topic("orders", "value")
        line = Serdes.protobuf(Line, registry=registry.url).for_topic("orders", "value")
        other = Serdes.protobuf(Other, registry=registry.url).for_topic("orders", "value")
        assert order.serialize(Order(id=1)) == b"\0\0\0\0\1\0\x08\1"
        assert line.serialize(Line(count=1)) == b"\0\0\0\0\1\4\0\2\x10\1"  # [0, 1], after the map's entry
        assert other.serialize(Other()) == b"\0\0\0\0\1\2\2"
        assert line.deserialize(line.serialize(Line(count=1))) == Line(count=1)
        with pytest.raises(SerializationError, match=r"reads shop\.Order, and these bytes are a shop\.Order\.Line"):
            order.deserialize(line.serialize(Line()))
        with pytest.raises(SerializationError, match="row 1"):
            order.decode(pa.array([None, other.serialize(Other())], pa.large_binary()))
        header = Serdes.protobuf(Line, framing="header", registry=registry.url).for_topic("orders", "value")
        assert header.serialize(Line(count=1))[17:] == b"\4\0\2\x10\1"
        assert header.decode(header.encode(Column.of_items([Line(count=1)]))).items() == [Line(count=1)]


JAVA_TEXT = """syntax = "proto3"; package shop;
    message Other { int32 x = 1; }
    message Order { map<string, int64> counts = 1; message Line { string sku = 1; int32 count = 2; } int64 id = 2; }"""


def test_the_text_of_java_clients_says_which_message_it_is():
    with EmbeddedRegistry() as registry:
        number = registry.register("orders-value", JAVA_TEXT, "PROTOBUF")
        frame = b"\0" + number.to_bytes(4, "big")
        line = Serdes.protobuf(Line, registry=registry.url).for_topic("orders", "value")
        assert line.deserialize(frame + b"\4\2\0\x10\1") == Line(count=1)  # [1, 0]: Java does not count the map's entry
        order = Serdes.protobuf(Order, registry=registry.url).for_topic("orders", "value")
        for path, name in ((b"\0", "shop.Other"), (b"\4\2\0", "shop.Order.Line"), (b"\2\4", "message [2]")):
            with pytest.raises(SerializationError, match=re.escape(name)):
                order.deserialize(frame + path)


def test_fields_of_a_later_version_are_kept():
    later, _, _ = order_messages(later=True)
    with EmbeddedRegistry() as registry:
        new = Serdes.protobuf(later, registry=registry.url).for_topic("a", "value")
        old = Serdes.protobuf(Order, registry=registry.url).for_topic("b", "value")
        message = old.deserialize(new.serialize(later(id=1, later="x")))
        assert message.id == 1
        assert new.deserialize(new.serialize(later.FromString(old.serialize(message)[6:]))).later == "x"


def test_messages_that_hold_themselves_have_no_column_type():
    serde = Serdes.protobuf(Other, framing="none")
    column = serde.decode(serde.encode(Column.of_items([Other(parent=Other())])))
    assert column.items() == [Other(parent=Other())]
    with pytest.raises(SerializationError, match="no column type"):
        column.series()


@pytest.mark.parametrize("value", [5, "x", {"nothing": 1}, {"id": "x"}, {"kind": "WHAT"}, {"at": 5}, Line()])
def test_what_cannot_be_written_says_so(value):
    with pytest.raises(SerializationError, match=r"shop\.Order"):
        Serdes.protobuf(Order, framing="none").serialize(value)


def test_bad_bytes_and_bad_classes():
    serde = Serdes.protobuf(Order, framing="none")
    with pytest.raises(SerializationError, match=r"shop\.Order messages"):
        serde.deserialize(b"\x0a\xff")
    with EmbeddedRegistry() as registry:
        framed = Serdes.protobuf(Order, registry=registry.url).for_topic("t", "value")
        framed.serialize(Order())
        for data in (b"\0\0\0\0\1", b"\0\0\0\0\1\4\0", b"\0\0\0\0\1\xff\xff\xff\xff\xff"):
            with pytest.raises(SerializationError, match="path of a message"):
                framed.deserialize(data)
    with pytest.raises(ConfigError, match="not a class of Protobuf messages"):
        Serdes.protobuf(dict)


def test_serdes_of_classes_made_at_run_time_pickle():
    serde = Serdes.protobuf(Order, framing="none")
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert again.deserialize(serde.serialize(FULL)).user == "ann"
    from google.protobuf.timestamp_pb2 import Timestamp

    assert pickle.loads(pickle.dumps(Serdes.protobuf(Timestamp, framing="none"))).message is Timestamp
