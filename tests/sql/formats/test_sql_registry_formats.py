"""The formats with schemas: rows through a registry, the schemas of columns, the columns of schemas."""

from __future__ import annotations

import json
import pickle
from datetime import date, time
from decimal import Decimal

import pytest
from test_sql_formats import columns

from penstock.errors import SerializationError, SqlError
from penstock.serde.bound_serdes import bound
from penstock.sql.formats import FormatProperties, inferred_columns, row_format
from penstock.testing import EmbeddedRegistry

ALL = (
    "A BOOLEAN, B INT, C BIGINT, D DOUBLE, E DECIMAL(6, 4), F STRING, G BYTES, H DATE, I TIME, J TIMESTAMP, "
    "K ARRAY<STRING>, L MAP<STRING, INT>, M STRUCT<X INT, Y STRUCT<Z MAP<STRING, STRING>>>, N ARRAY<STRUCT<V DOUBLE>>"
)
FULL = (
    *(
        True,
        -5,
        2**62,
        1.5,
        Decimal("-12.3650"),
        "ä",
        b"\x00\xff",
        date(1969, 12, 31),
        time(0, 0, 1),
        1_600_000_000_123,
    ),
    *(["a", "b"], {"k": 1}, {"X": 3, "Y": {"Z": {"q": "r"}}}, [{"V": 0.5}]),
)
NULLS = (None,) * len(FULL)
NAMES = ("AVRO", "JSON_SR", "PROTOBUF")


@pytest.fixture
def registry():
    with EmbeddedRegistry() as made:
        yield made


def serde(registry, name, declared, topic="t", part="value", **given):
    properties = FormatProperties(part=part, registry={"url": registry.url}, **given)
    return bound(row_format(name, columns(declared), properties), topic, part)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_all_types(registry, name):
    one = serde(registry, name, ALL)
    assert one.deserialize(one.serialize(FULL)) == FULL
    assert one.serialize(None) is None
    assert one.deserialize(None) is None
    assert pickle.loads(pickle.dumps(one)).deserialize(one.serialize(FULL)) == FULL
    assert registry.subjects() == ["t-value"]


@pytest.mark.parametrize("name", ["AVRO", "JSON_SR"])
def test_nulls(registry, name):
    one = serde(registry, name, ALL)
    assert one.deserialize(one.serialize(NULLS)) == NULLS


@pytest.mark.parametrize("nullable", ["OPTIONAL", "WRAPPER"])
def test_nulls_in_messages_where_they_are_asked_for(registry, nullable):
    one = serde(registry, "PROTOBUF", "A INT, B STRING, C BOOLEAN", nullable=nullable)
    assert one.deserialize(one.serialize((None, None, None))) == (None, None, None)
    assert one.deserialize(one.serialize((0, "", False))) == (0, "", False)


def test_nulls_in_messages_are_defaults_otherwise(registry):
    one = serde(registry, "PROTOBUF", "A INT, B STRING, C ARRAY<INT>, D STRUCT<E INT>")
    assert one.deserialize(one.serialize((None, None, None, None))) == (0, "", [], None)


def test_messages_without_a_registry():
    one = row_format("PROTOBUF_NOSR", columns("A INT, B STRING"))
    assert one.serialize((3, "x")) == b"\x08\x03\x12\x01x"
    assert one.deserialize(b"\x08\x03\x12\x01x") == (3, "x")


@pytest.mark.parametrize("name", NAMES)
def test_columns_come_back_from_their_schema(registry, name):
    serde(registry, name, ALL).serialize(FULL)
    found = inferred_columns(name, "t", FormatProperties(registry={"url": registry.url}))
    assert [(column, str(kind)) for column, kind in found] == [(column, str(kind)) for column, kind in columns(ALL)]


@pytest.mark.parametrize("name", ["AVRO", "JSON_SR"])
def test_single_columns_as_they_are(registry, name):
    one = serde(registry, name, "K BIGINT", part="key", wrapped=False)
    assert one.deserialize(one.serialize((7,))) == (7,)
    assert one.serialize((None,)) is None
    properties = FormatProperties(part="key", wrapped=False, registry={"url": registry.url})
    assert [(column, str(kind)) for column, kind in inferred_columns(name, "t", properties)] == [("ROWKEY", "BIGINT")]


def test_no_schema_no_columns(registry):
    assert inferred_columns("AVRO", "t", FormatProperties(registry={"url": registry.url})) is None
    assert inferred_columns("AVRO", "t", FormatProperties(schema_id=7, registry={"url": registry.url})) is None


def test_avro_of_others_fits_columns(registry):
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "foo", "type": "int"}, {"name": "more", "type": "int"}],
    }
    registry.register("t-value", schema)
    writer = serde(registry, "AVRO", "FOO INT, more INT", schema=json.dumps(schema))
    assert serde(registry, "AVRO", "foo STRING, bar INT").deserialize(writer.serialize((5, 6))) == ("5", None)
    with pytest.raises(SerializationError, match="instead of BOOLEAN"):
        serde(registry, "AVRO", "foo BOOLEAN").deserialize(writer.serialize((5, 6)))


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        (
            "AVRO",
            "AVRO",
            (
                '{"type": "record", "name": "R", "fields": [{"name": "c1", "type": "long"},'
                ' {"name": "c2", "type": "string", "default": "none"}]}'
            ),
        ),
        ("JSON_SR", "JSON", '{"type": "object", "properties": {"c1": {"type": "integer"}, "c2": {"type": "string"}}}'),
        ("PROTOBUF", "PROTOBUF", 'syntax = "proto3"; message Other {} message R { int64 c1 = 1; string c2 = 2; }'),
    ],
)
def test_a_schema_by_its_id(registry, name, kind, text):
    number = registry.register("t-value", text, kind)
    message = "R" if name == "PROTOBUF" else None
    properties = FormatProperties(schema_id=number, schema_full_name=message, registry={"url": registry.url})
    assert [column for column, _ in inferred_columns(name, "elsewhere", properties)] == ["c1", "c2"]
    writer = serde(registry, name, "`c1` BIGINT, `c2` STRING", "u", schema_id=number, schema_full_name=message)
    assert writer.deserialize(writer.serialize((3, "x"))) == (3, "x")
    assert registry.subjects() == ["t-value"]


def test_avro_schemas_are_those_of_connect(registry):
    serde(registry, "AVRO", "FOO INT, BAR STRUCT<X INT>").serialize((1, {"X": 2}))
    text = json.loads(registry.registry.version("t-value", "latest").schema.text)
    assert text["connect.name"] == "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
    assert text["fields"][0] == {"name": "FOO", "type": ["null", "int"], "default": None}
    assert text["fields"][1]["type"][1]["name"] == "KsqlDataSourceSchema_BAR"


def test_maps_in_avro_are_entries_with_the_names_of_connect(registry):
    serde(registry, "AVRO", "M MAP<STRING, STRUCT<X DECIMAL(4, 1)>>").serialize(({"k": {"X": Decimal("1.5")}},))
    text = json.loads(registry.registry.version("t-value", "latest").schema.text)
    kind = text["fields"][0]["type"][1]
    namespace = "io.confluent.ksql.avro_schemas"
    assert (kind["type"], kind["connect.name"]) == ("array", f"{namespace}.KsqlDataSourceSchema_M")
    entry = kind["items"]
    assert (entry["name"], entry["connect.internal.type"]) == ("KsqlDataSourceSchema_M", "MapEntry")
    assert entry["fields"][0] == {"name": "key", "type": ["null", "string"], "default": None}
    value = entry["fields"][1]["type"][1]
    assert value["name"] == "KsqlDataSourceSchema_M_MapValue"
    decimal = value["fields"][0]["type"][1]
    assert (decimal["precision"], decimal["scale"]) == (4, 1)
    assert decimal["connect.parameters"] == {"scale": "1", "connect.decimal.precision": "4"}


PROTO = """
syntax = "proto3";
package shop;
import "event.proto";
// a comment with message X {}
message Order {
  enum State { OPEN = 0; DONE = 1; }
  message Line { string item = 1; optional int32 count = 2; }
  uint32 id = 1;
  repeated Line lines = 2;
  map<string, double> prices = 3;
  State state = 4;
  oneof way { string ship = 5; bool pick_up = 6; }
  Event event = 7;
  float weight = 8 [deprecated = true];
  reserved 20 to 30;
}
"""


def test_proto_text_with_references(registry):
    from confluent_kafka.schema_registry import Schema, SchemaReference

    client = registry.client()
    client.register_schema("event", Schema('syntax = "proto3"; message Event { int64 at = 1; }', "PROTOBUF"))
    number = client.register_schema("t-value", Schema(PROTO, "PROTOBUF", [SchemaReference("event.proto", "event", 1)]))
    found = inferred_columns("PROTOBUF", "t", FormatProperties(registry={"url": registry.url}))
    declared = (
        "ID BIGINT, LINES ARRAY<STRUCT<ITEM STRING, COUNT INT>>, PRICES MAP<STRING, DOUBLE>, STATE STRING, "
        "SHIP STRING, PICK_UP BOOLEAN, EVENT STRUCT<`AT` BIGINT>, WEIGHT DOUBLE"
    )
    assert [(name, str(kind)) for name, kind in found] == [(name, str(kind)) for name, kind in columns(declared)]
    one = serde(registry, "PROTOBUF", declared, schema_id=number)
    row = (7, [{"ITEM": "x", "COUNT": None}], {"a": 0.5}, "DONE", None, True, {"AT": 4}, 0.25)
    assert one.deserialize(one.serialize(row)) == row


def test_messages_of_key_and_value_as_connect_writes_maps_are_maps(registry):
    text = """syntax = "proto3"; message R {
        repeated PricesEntry prices = 1; repeated DeepEntry deep = 2;
        message PricesEntry { string key = 1; double value = 2; }
        message DeepEntry { string key = 1; Inner value = 2; } message Inner { int32 x = 1; } }"""
    number = registry.register("t-value", text, "PROTOBUF")
    declared = "`prices` MAP<STRING, DOUBLE>, `deep` MAP<STRING, STRUCT<`x` INT>>"
    properties = FormatProperties(schema_id=number, registry={"url": registry.url})
    assert [(name, str(kind)) for name, kind in inferred_columns("PROTOBUF", "t", properties)] == [
        (name, str(kind)) for name, kind in columns(declared)
    ]
    one = serde(registry, "PROTOBUF", declared, schema_id=number)
    row = ({"a": 0.5, "b": 1.5}, {"k": {"x": 3}})
    assert one.deserialize(one.serialize(row)) == row


@pytest.mark.parametrize("text", ["message", "message X { int32 a = ; }", "message X { Y y = 1; }", "what is this"])
def test_texts_that_are_no_protobuf(text):
    from penstock.serde.formats.schema_text import SchemaText
    from penstock.sql.formats.protobuf_rows import message_class

    with pytest.raises(ValueError, match=r"proto|Protobuf"):
        message_class(SchemaText(text, "PROTOBUF"), None)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_are_no_rows(registry, name):
    one = serde(registry, name, "A INT")
    good = one.serialize((1,))
    for data in (b"", b"\0", b"x" + good[1:], good[:5] + b"\xff" * 3):
        with pytest.raises(SerializationError):
            one.deserialize(data)


@pytest.mark.parametrize("text", ["12.30", "0.00", "-0.01", "-99.99", "1.28"])
def test_a_decimal_alone_is_its_number_in_avro(registry, text):
    one = serde(registry, "AVRO", "K DECIMAL(4, 2)", part="key", wrapped=False)
    data = one.serialize((Decimal(text),))
    assert int.from_bytes(data[5:], "big", signed=True) == int(Decimal(text) * 100)
    assert one.deserialize(data) == (Decimal(text),)


def test_a_decimal_alone_that_its_schema_cannot_hold_is_refused(registry):
    one = serde(registry, "AVRO", "K DECIMAL(4, 2)", part="key", wrapped=False)
    with pytest.raises(SerializationError, match="not a decimal of 4 digits"):
        one.serialize((Decimal("123.45"),))


NESTED = (
    "A ARRAY<ARRAY<STRING>>, B ARRAY<MAP<STRING, INT>>, C MAP<STRING, MAP<STRING, INT>>, D STRUCT<X ARRAY<ARRAY<INT>>>"
)
COLLECTIONS = ([["a", "b"], []], [{"k": 1}], {"x": {"value": 2, "z": 3}}, {"X": [[1], [2, 3]]})


@pytest.mark.parametrize("name", NAMES)
def test_collections_within_collections(registry, name):
    one = serde(registry, name, NESTED)
    assert one.deserialize(one.serialize(COLLECTIONS)) == COLLECTIONS
    assert inferred_columns(name, "t", FormatProperties(registry={"url": registry.url})) == tuple(columns(NESTED))
    assert pickle.loads(pickle.dumps(one)).deserialize(one.serialize(COLLECTIONS)) == COLLECTIONS


def test_a_null_in_an_array_of_protobuf_says_so(registry):
    with pytest.raises(SerializationError, match="a null within the array A"):
        serde(registry, "PROTOBUF", "A ARRAY<INT>").serialize(([1, None],))


@pytest.mark.parametrize("name", ["AVRO", "PROTOBUF"])
@pytest.mark.parametrize("declared", ["`1a` INT", "`a.b` INT", "A STRUCT<`a b` INT>"])
def test_names_that_schemas_lack_are_refused_at_once(registry, name, declared):
    with pytest.raises(SqlError, match="takes no field of this name"):
        serde(registry, name, declared)
