"""JSON Schema: values, columns, checks."""

from __future__ import annotations

import json
import pickle

import polars as pl
import pyarrow as pa
import pytest

from penstock.errors import ConfigError, SerializationError
from penstock.serde import Column, Serdes
from penstock.testing import EmbeddedRegistry

ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "amount": {"type": "number"},
        "count": {"type": ["null", "integer"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"type": "object", "properties": {"city": {"oneOf": [{"type": "null"}, {"type": "string"}]}}},
    },
    "required": ["user"],
}
ROWS = [
    {"user": "ann", "amount": 1.5, "count": 3, "tags": ["x"], "to": {"city": "Ulm"}},
    {"user": "bob", "more": True},
]


def test_values_are_what_json_has_and_columns_what_the_schema_has():
    with EmbeddedRegistry() as registry:
        serde = Serdes.json_schema(ORDER, registry=registry.url).for_topic("orders", "value")
        assert serde.serialize({"user": "ann"}) == b'\0\0\0\0\1{"user":"ann"}'
        column = serde.decode(serde.encode(Column.of_items([*ROWS, None])))
        assert column.items() == [*ROWS, None]
        frame = column.series().alias("v").to_frame().unnest("v")
        assert frame.columns == ["user", "amount", "count", "tags", "to"]
        assert frame["user"].to_list() == ["ann", "bob", None]
        assert frame["count"].dtype == pl.Int64
        assert registry.registry.version("orders-value", 1).schema.kind == "JSON"
        generic = Serdes.json_schema(registry=registry.url)
        assert generic.decode(column.raw).items() == [*ROWS, None]
        assert generic.decode(column.raw).series().struct.field("user").to_list() == ["ann", "bob", None]


def test_values_are_checked_when_that_is_asked_for():
    strict = {"json.fail.invalid.schema": True}
    with EmbeddedRegistry() as registry:
        lenient = Serdes.json_schema(ORDER, registry=registry.url).for_topic("orders", "value")
        data = lenient.serialize({"amount": "much"})
        assert lenient.deserialize(data) == {"amount": "much"}
        serde = Serdes.json_schema(ORDER, registry={"url": registry.url, **strict}).for_topic("orders", "value")
        with pytest.raises(SerializationError, match="json_schema<Order> serde writes"):
            serde.serialize({"amount": "much"})
        with pytest.raises(SerializationError, match="serde reads values of its schema"):
            serde.deserialize(data)
        with pytest.raises(SerializationError, match="row 1"):
            serde.decode(pa.array([serde.serialize({"user": "a"}), data], pa.large_binary()))
        assert lenient.decode(pa.array([data], pa.large_binary())).items() == [{"amount": "much"}]


def test_without_a_registry():
    serde = Serdes.json_schema(ORDER, framing="none", registry={"json.fail.invalid.schema": "true"})
    assert serde.serialize({"user": "a"}) == b'{"user":"a"}'
    assert serde.decode(serde.encode(Column.of_items(ROWS))).items() == ROWS
    with pytest.raises(SerializationError, match="'user' is a required property"):
        serde.serialize({})
    assert pickle.loads(pickle.dumps(serde)) == serde
    with pytest.raises(SerializationError, match="JSON"):
        serde.deserialize(b"{")


def test_schemas_that_are_none():
    with pytest.raises(ConfigError, match="not a JSON Schema"):
        Serdes.json_schema({"type": "nonsense"})
    with pytest.raises(ConfigError, match="not a JSON Schema"):
        Serdes.json_schema("{")
    with pytest.raises(ConfigError, match="needs a schema"):
        Serdes.json_schema(framing="none")


def test_objects_without_a_column_type():
    free = json.dumps({"type": "object", "additionalProperties": {"type": "integer"}})
    serde = Serdes.json_schema(free, framing="none")
    column = serde.decode(serde.encode(Column.of_items([{"a": 1}, {"b": 2}])))
    assert column.items() == [{"a": 1}, {"b": 2}]
    assert not column.is_columnar
