"""The Avro converter over a registry in this process: its schemas are Confluent's, what it writes it reads again."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.connect.data import (
    DATE,
    INT8,
    INT32,
    OPTIONAL_STRING,
    STRING,
    DataError,
    Schema,
    SettingError,
    Struct,
    Type,
    array,
    decimal_schema,
    map_of,
    struct,
    with_default,
)
from penstock.connect.functions import installed_plugins
from penstock.connect.registry_converters import AvroConverter
from penstock.connect.registry_converters.avro_schemas import from_avro, to_avro
from penstock.testing import EmbeddedRegistry
from test_connect_properties import VALUES


@pytest.fixture(scope="module")
def registry():
    with EmbeddedRegistry("connect-avro") as made:
        yield made


def converter(registry, role="value", **more):
    made = AvroConverter()
    made.configure({"schema.registry.url": registry.url, **more}, role)
    return made


def test_schemas_are_those_that_confluent_writes():
    value = struct(
        {
            "a": INT8,
            "b": OPTIONAL_STRING,
            "c": with_default(INT32, 3),
            "d": decimal_schema(2),
            "e": DATE.as_optional(),
            "f": map_of(INT32, STRING),
        },
        name="org.example.Line",
    )
    made = to_avro(value)
    assert (made["name"], made["namespace"], made["connect.name"]) == ("Line", "org.example", "org.example.Line")
    fields = {field["name"]: field for field in made["fields"]}
    assert fields["a"] == {"name": "a", "type": {"type": "int", "connect.type": "int8"}}
    assert fields["b"] == {"name": "b", "type": ["null", "string"], "default": None}
    assert fields["c"] == {"name": "c", "type": {"type": "int", "connect.default": 3}, "default": 3}
    assert fields["d"]["type"] == {
        "type": "bytes",
        "scale": 2,
        "precision": 64,
        "connect.version": 1,
        "connect.parameters": {"scale": "2"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }
    assert fields["e"]["type"][1]["logicalType"] == "date"
    assert fields["f"]["type"]["items"]["name"] == "MapEntry"
    assert from_avro(made) == value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(VALUES)
def test_values_with_schemas_come_back(registry, typed):
    schema, value = typed
    if not _has_avro(schema):
        return
    made = converter(registry, **{"value.subject.name.strategy": "topic"})
    topic = f"t{abs(hash(schema))}"
    data = made.from_connect(topic, schema, value)
    found = converter(registry).to_connect(topic, data)
    if data is None:
        assert value is None
        return
    assert (found.schema, found.value) == (schema, value)


def _has_avro(schema):
    """Avro's names are letters, digits and underscores."""
    inner = [part.schema for part in schema.fields] + [each for each in (schema.keys, schema.values) if each]
    names = all(part.name.isascii() and part.name.isidentifier() for part in schema.fields)
    return names and all(_has_avro(each) for each in inner)


def test_keys_and_values_have_subjects_of_their_own_and_plain_dicts_get_a_schema(registry):
    data = converter(registry, "key").from_connect("lines", STRING, "a")
    assert data[:1] == b"\0"
    value = converter(registry).from_connect("lines", None, {"path": "/", "tags": ["x"], "n": 1.5})
    assert {"lines-key", "lines-value"} <= set(registry.registry.subjects())
    found = converter(registry).to_connect("lines", value).value
    assert (found["path"], found["tags"], found["n"]) == ("/", ["x"], 1.5)


def test_foreign_avro_is_read_with_enums_fixed_and_unions(registry):
    text = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
            {"name": "any", "type": ["null", "string", "long"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
    from io import BytesIO

    from fastavro import parse_schema, schemaless_writer

    number = registry.register("orders-value", text)
    out = BytesIO()
    schemaless_writer(out, parse_schema(text), {"state": "OLD", "hash": b"ab", "any": 7, "at": 5})
    found = converter(registry).to_connect("orders", b"\0" + number.to_bytes(4, "big") + out.getvalue())
    assert (found.value["state"], found.value["hash"], found.value["at"]) == ("OLD", b"ab", 5)
    assert found.value["any"]["long"] == 7
    assert found.schema.field("state").schema.parameters["io.confluent.connect.avro.Enum"] == "shop.State"


@pytest.mark.parametrize("data", [b"", b"\0", b"\x05abc", b"\0\0\0\0\xff", b"\0\0\0\0\x01"])
def test_bytes_that_are_none_of_its_own_are_an_error_of_the_record(registry, data):
    with pytest.raises(DataError):
        converter(registry).to_connect("t", data + b"")
    schema = struct({"a": array(INT32)})
    good = converter(registry).from_connect("cut", schema, Struct(schema, {"a": [1, 2, 3]}))
    with pytest.raises(DataError):
        converter(registry).to_connect("cut", good[:-2])


def test_settings_are_checked_and_the_class_is_found_by_its_name(registry):
    with pytest.raises(SettingError, match=r"schema\.registry\.url"):
        AvroConverter().configure({})
    with pytest.raises(SettingError, match="no converter of headers"):
        converter(registry, "header")
    assert installed_plugins().find("AvroConverter").java_class == "io.confluent.connect.avro.AvroConverter"
    made = to_avro(Schema(Type.STRING, name="n", version=2), metadata=False)
    assert json.dumps(made) == '{"type": "string"}'
