"""Logical types of Avro, unions, well-known messages of Protobuf, JSON Schema: inferred and declared, read and written."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from test_sql_formats import columns

from penstock.errors import SerializationError, SqlError
from penstock.serde.bound_serdes import bound
from penstock.serde.registry.model import Reference, StoredSchema
from penstock.serde.schemas.avro import AvroSerde
from penstock.sql.formats import FormatProperties, inferred_columns, row_format
from penstock.testing import EmbeddedRegistry

AT_MICROS = 1_600_000_000_123_456
AT = datetime.fromtimestamp(1_600_000_000, UTC).replace(microsecond=123_456)


@pytest.fixture
def registry():
    with EmbeddedRegistry() as made:
        yield made


def inferred(registry: Any, name: str, **given: Any) -> list[tuple[str, str]]:
    found = inferred_columns(name, "t", FormatProperties(registry={"url": registry.url}, **given))
    assert found is not None
    return [(column, str(kind)) for column, kind in found]


def rows(registry: Any, name: str, declared: str | None = None, **given: Any) -> Any:
    properties = FormatProperties(registry={"url": registry.url}, **given)
    kinds = inferred_columns(name, "t", properties) if declared is None else columns(declared)
    return bound(row_format(name, kinds, properties), "t", "value")


def written(registry: Any, kind: Any, value: Any) -> bytes:
    schema = {"type": "record", "name": "a.R", "fields": [{"name": "x", "type": kind}]}
    return bound(AvroSerde(schema, registry=registry.url), "t", "value").serialize({"x": value})


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


FIXED_DECIMAL = logical("fixed", "decimal", name="Amount", size=8, precision=10, scale=2)
ENUM = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
INFERRED = [
    (logical("int", "date"), date(1969, 12, 31), "DATE", date(1969, 12, 31)),
    (logical("int", "time-millis"), time(1, 2, 3, 4000), "TIME", time(1, 2, 3, 4000)),
    (logical("long", "time-micros"), time(0, 0, 1, 5), "BIGINT", 1_000_005),
    (logical("long", "timestamp-millis"), AT, "TIMESTAMP", AT_MICROS // 1000),
    (logical("long", "timestamp-micros"), AT, "BIGINT", AT_MICROS),
    (logical("long", "timestamp-nanos"), AT_MICROS * 1000, "BIGINT", AT_MICROS * 1000),
    (logical("long", "local-timestamp-millis"), AT.replace(tzinfo=None), "BIGINT", AT_MICROS // 1000),
    (logical("long", "local-timestamp-micros"), AT.replace(tzinfo=None), "BIGINT", AT_MICROS),
    (logical("bytes", "decimal", precision=10, scale=2), Decimal("-3.50"), "DECIMAL(10, 2)", Decimal("-3.50")),
    (FIXED_DECIMAL, Decimal("12.34"), "DECIMAL(10, 2)", Decimal("12.34")),
    (logical("string", "uuid"), uuid.UUID(int=7), "STRING", str(uuid.UUID(int=7))),
    (ENUM, "BLUE", "STRING", "BLUE"),
    ({"type": "fixed", "name": "Two", "size": 2}, b"\x00\xff", "BYTES", b"\x00\xff"),
    (logical("fixed", "duration", name="Span", size=12), b"\x01" * 12, "BYTES", b"\x01" * 12),
    ("bytes", b"\x01", "BYTES", b"\x01"),
    ("float", 1.5, "DOUBLE", 1.5),
    (["int", "string"], 5, "STRUCT<`INT` INTEGER, `STRING` STRING>", {"INT": 5, "STRING": None}),
    (["null", "int", "string"], "a", "STRUCT<`INT` INTEGER, `STRING` STRING>", {"INT": None, "STRING": "a"}),
    (["null", "long", "double"], None, "STRUCT<`LONG` BIGINT, `DOUBLE` DOUBLE>", None),
    (
        {"type": "array", "items": logical("long", "timestamp-micros")},
        [AT, AT],
        "ARRAY<BIGINT>",
        [AT_MICROS, AT_MICROS],
    ),
    (
        {"type": "map", "values": ["null", logical("long", "time-micros")]},
        {"a": None},
        "MAP<STRING, BIGINT>",
        {"a": None},
    ),
    (
        {"type": "record", "name": "In", "fields": [{"name": "at", "type": logical("long", "timestamp-micros")}]},
        {"at": AT},
        "STRUCT<`AT` BIGINT>",
        {"AT": AT_MICROS},
    ),
]


@pytest.mark.parametrize(("kind", "value", "sql", "wanted"), INFERRED, ids=[json.dumps(case[0]) for case in INFERRED])
@pytest.mark.parametrize("nullable", [False, True])
def test_values_of_avro_are_read_by_the_columns_that_are_inferred(registry, kind, value, sql, wanted, nullable) -> None:
    if value is None or (nullable and isinstance(kind, list)):
        nullable = False
    data = written(registry, ["null", kind] if nullable else kind, value)
    assert inferred(registry, "AVRO") == [("X", sql)]
    assert rows(registry, "AVRO").deserialize(data) == (wanted,)


DECLARED = [
    (logical("long", "timestamp-micros"), AT, "TIMESTAMP", AT_MICROS // 1000),
    (logical("long", "timestamp-micros"), AT, "STRING", str(AT_MICROS)),
    (logical("long", "timestamp-millis"), AT, "BIGINT", AT_MICROS // 1000),
    (logical("long", "timestamp-nanos"), AT_MICROS * 1000, "TIMESTAMP", AT_MICROS // 1000),
    (logical("long", "local-timestamp-millis"), AT.replace(tzinfo=None), "TIMESTAMP", AT_MICROS // 1000),
    (logical("long", "local-timestamp-micros"), AT.replace(tzinfo=None), "TIMESTAMP", AT_MICROS // 1000),
    (logical("long", "timestamp-millis"), 253_402_300_800_000, "TIMESTAMP", 253_402_300_800_000),
    (logical("long", "time-micros"), time(0, 0, 1, 5000), "TIME", time(0, 0, 1, 5000)),
    (logical("int", "time-millis"), time(0, 0, 1), "INT", 1000),
    (logical("int", "date"), date(1970, 1, 3), "INT", 2),
    (logical("int", "date"), date(1970, 1, 3), "STRING", "2"),
    ("long", 86_400_000, "TIMESTAMP", 86_400_000),
    ("int", 2, "DATE", date(1970, 1, 3)),
    (["null", "int", "string"], 5, "STRING", "5"),
    (["null", "int", "string"], "five", "STRING", "five"),
    (["null", "int", "string"], 5, "STRUCT<STRING STRING>", {"STRING": None}),
]


@pytest.mark.parametrize(
    ("kind", "value", "sql", "wanted"), DECLARED, ids=[f"{json.dumps(c[0])}-{c[2]}" for c in DECLARED]
)
def test_values_of_avro_are_read_by_columns_that_are_declared(registry, kind, value, sql, wanted) -> None:
    data = written(registry, kind, value)
    name = "STRUCT<`STRING` STRING>" if sql == "STRUCT<STRING STRING>" else sql
    assert rows(registry, "AVRO", f"X {name}").deserialize(data) == (wanted,)


def test_a_value_that_no_column_reads_does_not_spoil_its_record(registry) -> None:
    inner = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    fields = [
        {"name": "far", "type": logical("int", "date")},
        {"name": "list", "type": inner},
        {"name": "again", "type": "N"},
        {"name": "x", "type": "int"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    writer = bound(AvroSerde(schema, registry=registry.url), "t", "value")
    data = writer.serialize({"far": 2**31 - 1, "list": {"next": {"next": None}}, "again": {"next": None}, "x": 4})
    assert rows(registry, "AVRO", "X INT").deserialize(data) == (4,)


def test_a_record_that_is_used_twice_is_read_by_the_columns_of_each_place(registry) -> None:
    inner = {"type": "record", "name": "a.P", "fields": [{"name": "at", "type": logical("long", "timestamp-micros")}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "one", "type": inner}, {"name": "two", "type": "a.P"}]}
    data = bound(AvroSerde(schema, registry=registry.url), "t", "value").serialize(
        {"one": {"at": AT}, "two": {"at": AT}}
    )
    found = rows(registry, "AVRO", "one STRUCT<at BIGINT>, two STRUCT<at TIMESTAMP>").deserialize(data)
    assert found == ({"AT": AT_MICROS}, {"AT": AT_MICROS // 1000})


WRITTEN = [
    (logical("long", "timestamp-micros"), "TIMESTAMP", AT_MICROS // 1000, AT.replace(microsecond=123_000)),
    (logical("long", "timestamp-micros"), "BIGINT", AT_MICROS, AT),
    (
        logical("long", "local-timestamp-micros"),
        "TIMESTAMP",
        1500,
        datetime.fromtimestamp(1.5, UTC).replace(tzinfo=None),
    ),
    (logical("long", "timestamp-nanos"), "TIMESTAMP", 1500, 1_500_000_000),
    (logical("long", "time-micros"), "TIME", time(0, 0, 1), time(0, 0, 1)),
    (logical("string", "uuid"), "STRING", str(uuid.UUID(int=7)), uuid.UUID(int=7)),
    (FIXED_DECIMAL, "DECIMAL(10, 2)", Decimal("12.34"), Decimal("12.34")),
    (ENUM, "STRING", "RED", "RED"),
    ({"type": "fixed", "name": "Two", "size": 2}, "BYTES", b"ab", b"ab"),
    (["null", "int", "string"], "STRUCT<`INT` INT, `STRING` STRING>", {"INT": None, "STRING": "a"}, "a"),
    (
        ["null", {"type": "record", "name": "n.A", "fields": [{"name": "v", "type": "int"}]}, "string"],
        "STRUCT<A STRUCT<V INT>, `STRING` STRING>",
        {"A": {"V": 3}, "STRING": None},
        {"v": 3},
    ),
]


@pytest.mark.parametrize(("kind", "sql", "value", "wanted"), WRITTEN, ids=[json.dumps(case[0]) for case in WRITTEN])
def test_rows_are_written_with_the_schema_of_an_id(registry, kind, sql, value, wanted) -> None:
    schema = {"type": "record", "name": "a.R", "fields": [{"name": "X", "type": kind}]}
    number = registry.register("t-value", schema)
    one = rows(registry, "AVRO", f"X {sql}", schema_id=number)
    data = one.serialize((value,))
    assert bound(AvroSerde(None, registry=registry.url), "t", "value").deserialize(data) == {"X": wanted}
    assert one.deserialize(data) == (value,)


def test_a_member_of_a_union_is_one(registry) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "X", "type": ["int", "string"]}]}
    one = rows(registry, "AVRO", "X STRUCT<`INT` INT, `STRING` STRING>", schema_id=registry.register("t-value", schema))
    with pytest.raises(SerializationError, match="a union has one of INT, STRING, not 2 of them"):
        one.serialize(({"INT": 1, "STRING": "a"},))


def test_schemas_with_references_have_columns(registry) -> None:
    inner = {"type": "record", "name": "a.In", "fields": [{"name": "v", "type": "int"}]}
    registry.register("inner", inner)
    outer = {"type": "record", "name": "a.Out", "fields": [{"name": "in", "type": "a.In"}]}
    refers = (Reference("a.In", "inner", 1),)
    registry.registry.register("t-value", StoredSchema(json.dumps(outer), "AVRO", refers))
    assert inferred(registry, "AVRO") == [("IN", "STRUCT<`V` INTEGER>")]


PROTO = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/duration.proto";
    import "google/protobuf/wrappers.proto";
    import "google/protobuf/any.proto";
    import "google/protobuf/field_mask.proto";
    import "google/type/date.proto";
    import "google/type/timeofday.proto";
    message R {
      google.protobuf.Timestamp at = 1;
      google.protobuf.Duration span = 2;
      google.protobuf.Int64Value many = 3;
      google.protobuf.Any any = 4;
      google.protobuf.FieldMask mask = 5;
      google.type.Date day = 6;
      google.type.TimeOfDay clock = 7;
      Colour colour = 8;
      oneof choice { string text = 9; int32 number = 10; }
      fixed64 big = 11;
      enum Colour { RED = 0; BLUE = 1; }
    }
"""


def test_well_known_messages_of_protobuf_are_read_and_written(registry) -> None:
    registry.register("t-value", PROTO, "PROTOBUF")
    assert inferred(registry, "PROTOBUF") == [
        ("AT", "TIMESTAMP"),
        ("SPAN", "STRUCT<`SECONDS` BIGINT, `NANOS` INTEGER>"),
        ("MANY", "BIGINT"),
        ("ANY", "STRUCT<`TYPE_URL` STRING, `VALUE` BYTES>"),
        ("MASK", "STRUCT<`PATHS` ARRAY<STRING>>"),
        ("DAY", "DATE"),
        ("CLOCK", "TIME"),
        ("COLOUR", "STRING"),
        ("TEXT", "STRING"),
        ("NUMBER", "INTEGER"),
        ("BIG", "BIGINT"),
    ]
    one = rows(registry, "PROTOBUF", schema_id=1)
    value = (
        AT_MICROS // 1000,
        {"seconds": 3, "nanos": 4},
        5,
        {"type_url": "x/y", "value": b"z"},
        {"paths": ["a", "b"]},
        date(2024, 2, 29),
        time(23, 59, 59, 1000),
        "BLUE",
        None,
        7,
        2**62,
    )
    assert one.deserialize(one.serialize(value)) == value


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "format": "date-time"},
        "b": {"oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int32"}]},
        "c": {"type": "number", "title": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}},
        "d": {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp", "connect.type": "int64"},
        "e": {"type": ["null", "array"], "items": {"$ref": "#/definitions/in"}},
        "f": {"type": "string", "enum": ["x", "y"]},
        "g": {"type": "string", "connect.type": "bytes"},
    },
    "definitions": {"in": {"type": "object", "properties": {"v": {"type": "boolean"}}}},
}


def test_properties_of_json_schema_have_types(registry) -> None:
    registry.register("t-value", JSON_SCHEMA, "JSON")
    assert inferred(registry, "JSON_SR") == [
        ("A", "STRING"),
        ("B", "INTEGER"),
        ("C", "DECIMAL(64, 2)"),
        ("D", "TIMESTAMP"),
        ("E", "ARRAY<STRUCT<`V` BOOLEAN>>"),
        ("F", "STRING"),
        ("G", "BYTES"),
    ]


def test_json_schemas_that_are_not_of_connect_have_the_columns_that_they_can(registry) -> None:
    registry.register("other", {"type": "object", "properties": {"v": {"type": "boolean"}}}, "JSON")
    properties = {
        "a": {"type": ["null", "string", "integer"]},
        "b": {"type": "object", "additionalProperties": {"type": "number"}},
        "c": {"description": "anything"},
        "d": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "e": {"anyOf": [{"type": "integer"}]},
        "f": {"$ref": "other"},
        "g": {"$ref": "#/definitions/not_there"},
        "h": {"type": "array"},
        "i": {"type": "object"},
        "j": {"type": "integer", "default": "no number"},
        "k": {"allOf": [{"properties": {"x": {"type": "string"}}}, {"properties": {"y": {"type": "boolean"}}}]},
    }
    schema = {"type": "object", "properties": properties}
    refers = (Reference("other", "other", 1),)
    registry.registry.register("t-value", StoredSchema(json.dumps(schema), "JSON", refers))
    assert inferred(registry, "JSON_SR") == [
        ("A", "STRING"),
        ("B", "MAP<STRING, DOUBLE>"),
        ("E", "BIGINT"),
        ("F", "STRUCT<`V` BOOLEAN>"),
        ("I", "STRUCT<>"),
        ("J", "BIGINT"),
        ("K", "STRUCT<`X` STRING, `Y` BOOLEAN>"),
    ]


def proto_doubled(levels: int) -> str:
    chain = [f"message M{at} {{ M{at + 1} a = 1; M{at + 1} b = 2; }}" for at in range(levels)]
    return " ".join(['syntax = "proto3";', *chain, f"message M{levels} {{ int32 a = 1; }}"])


def avro_doubled(levels: int) -> Any:
    kind: Any = "int"
    for at in range(levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": "int" if at == 0 else f"M{at - 1}"}]
        kind = {"type": "record", "name": f"M{at}", "fields": fields}
    return kind


def json_doubled(levels: int) -> Any:
    found: dict[str, Any] = {"M0": {"type": "integer"}}
    for at in range(levels):
        reference = {"$ref": f"#/definitions/M{at}"}
        found[f"M{at + 1}"] = {"type": "object", "properties": {"a": reference, "b": reference}}
    return {"$ref": f"#/definitions/M{levels}", "definitions": found}


NODE = {
    "type": "record",
    "name": "a.Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "a.Node"]}],
}
ENDLESS = [
    ("PROTOBUF", "PROTOBUF", 'syntax = "proto3"; import "google/protobuf/struct.proto"; message R { google.protobuf.Struct s = 1; }', "Struct holds itself"),
    ("PROTOBUF", "PROTOBUF", 'syntax = "proto3"; message R { R left = 1; R right = 2; int32 v = 3; }', "R holds itself"),
    ("PROTOBUF", "PROTOBUF", 'syntax = "proto3"; message R { map<string, S> a = 1; } message S { repeated R r = 1; }', "R holds itself, through S"),
    ("PROTOBUF", "PROTOBUF", proto_doubled(40), "more than 10,000 fields"),
    ("AVRO", "AVRO", NODE, "a.Node holds itself"),
    ("AVRO", "AVRO", {"type": "record", "name": "L", "fields": [{"name": "l", "type": {"type": "array", "items": "L"}}]}, "L holds itself"),
    ("AVRO", "AVRO", {"type": "record", "name": "L", "fields": [{"name": "l", "type": {"type": "map", "values": ["null", "int", "L"]}}]}, "L holds itself"),
    ("AVRO", "AVRO", avro_doubled(20), "more than 10,000 fields"),
    ("JSON_SR", "JSON", {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}, "# holds itself"),
    ("JSON_SR", "JSON", {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}, "holds itself"),
    ("JSON_SR", "JSON", {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}, "# holds itself"),
    ("JSON_SR", "JSON", json_doubled(24), "more than 10,000 fields"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "schema", "reason"), ENDLESS, ids=[f"{c[0]}-{c[3]}-{n}" for n, c in enumerate(ENDLESS)]
)
def test_a_schema_without_end_is_refused_with_its_name(registry, name, kind, schema, reason) -> None:
    registry.register("t-value", schema, kind)
    with pytest.raises(SqlError) as raised:
        inferred(registry, name)
    assert "The schema of the values of topic 't' has no columns" in raised.value.message
    assert reason in raised.value.message
    assert "declare columns" in raised.value.message


def test_columns_that_are_declared_are_read_beside_a_message_that_holds_itself(registry) -> None:
    text = 'syntax = "proto3"; message R { R next = 1; int32 v = 2; }'
    number = registry.register("t-value", text, "PROTOBUF")
    one = rows(registry, "PROTOBUF", "`v` INT", schema_id=number)
    assert one.deserialize(one.serialize((4,))) == (4,)
    deep = b"\x10\x05"
    for _ in range(90):
        deep = b"\x0a" + _varint(len(deep)) + deep
    frame = one.serialize((4,))[:6]
    assert one.deserialize(frame + b"\x10\x04" + deep) == (4,)


def test_a_message_that_is_nested_10_000_deep_is_refused(registry) -> None:
    number = registry.register("t-value", 'syntax = "proto3"; message R { R next = 1; int32 v = 2; }', "PROTOBUF")
    one = rows(registry, "PROTOBUF", "`v` INT", schema_id=number)
    deep = b""
    for _ in range(10_000):
        deep = b"\x0a" + _varint(len(deep)) + deep
    with pytest.raises(SerializationError):
        one.deserialize(one.serialize((4,))[:6] + deep)


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number % 128 + 128])
        number //= 128
    return found + bytes([number])


@pytest.mark.parametrize("name", ["JSON", "JSON_SR"])
def test_json_values_that_are_nested_10_000_deep_are_refused(registry, name) -> None:
    one = rows(registry, name, "X ARRAY<INT>")
    frame = one.serialize(([1],))[:5] if name == "JSON_SR" else b""
    deep = frame + b'{"X": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    with pytest.raises(SerializationError):
        one.deserialize(deep)


def test_avro_values_that_are_nested_10_000_deep_are_refused(registry) -> None:
    registry.register("t-value", NODE)
    one = rows(registry, "AVRO", "V INT")
    frame = written_node(registry)[:5]
    assert one.deserialize(frame + b"\x02\x02\x04\x00") == (1,)
    with pytest.raises(SerializationError):
        one.deserialize(frame + b"\x02\x02" * 10_000 + b"\x02\x00")


def written_node(registry: Any) -> bytes:
    return bound(AvroSerde(NODE, registry=registry.url), "t", "value").serialize({"v": 1, "next": None})
