"""The Protobuf and JSON Schema converters: Confluent's frames, names and forms; what they write they read again."""

import base64
import json
from decimal import Decimal

import pytest
from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import HealthCheck, given, settings

from penstock.connect.data import (
    DATE,
    INT8,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    Struct,
    Type,
    array,
    decimal_schema,
    map_of,
    struct,
    with_default,
)
from penstock.connect.functions import installed_plugins
from penstock.connect.plugins import Plugins
from penstock.connect.registry_converters import AvroConverter, JsonSchemaConverter, ProtobufConverter
from penstock.errors import ConfigError
from penstock.serde.formats.proto_classes import message_class
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.client import confluent_client
from penstock.testing import EmbeddedRegistry
from test_avro_converter import _has_avro as has_plain_names
from test_connect_properties import VALUES

LINE = struct(
    {
        "id": INT64,
        "small": INT8,
        "name": OPTIONAL_STRING,
        "price": decimal_schema(2),
        "day": DATE,
        "at": TIMESTAMP,
        "time": TIME,
        "tags": array(STRING),
        "counts": map_of(STRING, INT32),
        "inner": struct({"a": INT32}),
    },
    name="org.example.Line",
)
VALUE = {
    "id": -1,
    "small": 7,
    "name": "x",
    "price": Decimal("-1.50"),
    "day": Moment(86_400_000 * 59),
    "at": Moment(1_234),
    "time": Moment(3_723_004),
    "tags": ["a", "b"],
    "counts": {"k": 1},
    "inner": Struct(struct({"a": INT32}), {"a": 5}),
}


@pytest.fixture(scope="module")
def registry():
    with EmbeddedRegistry("connect-formats") as made:
        yield made


def converter(kind, registry, role="value", **more):
    made = kind()
    given = {name.replace("_", "."): value for name, value in more.items()}
    made.configure({"schema.registry.url": registry.url, **given}, role)
    return made


def plain(value):
    if isinstance(value, Struct):
        return {name: plain(each) for name, each in value.to_dict().items()}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_a_worker_finds_them_by_confluents_names():
    plugins: Plugins = installed_plugins()
    for name in ("io.confluent.connect.protobuf.ProtobufConverter", "io.confluent.connect.json.JsonSchemaConverter"):
        assert plugins.find(name).make().java_class == name


def test_protobuf_bytes_are_those_of_confluents_serializer(registry):
    made = converter(ProtobufConverter, registry)
    data = made.from_connect("lines", LINE, Struct(LINE, VALUE))
    assert (data[0], data[5]) == (0, 0)  # magic; the first message of the file
    version = registry.registry.version("lines-value", "latest")
    text = version.schema.text
    message, parameters = message_class(SchemaText(text, "PROTOBUF"), "org.example.Line")
    assert parameters["Line", "small"] == {"connect.type": "int8"}
    assert parameters["Line", "price"] == {"scale": "2"}
    names = {one.name: one.number for one in message.DESCRIPTOR.fields}
    assert list(names.values()) == list(range(1, 11))
    assert [one.name for one in message.DESCRIPTOR.nested_types] == ["ConnectDefault1Entry", "ConnectDefault2"]
    client = confluent_client({"url": registry.url})
    conf = {"auto.register.schemas": False, "use.latest.version": True, "use.deprecated.format": False}
    serializer = ProtobufSerializer(message, client, conf)
    context = SerializationContext("lines", MessageField.VALUE)
    assert serializer(message.FromString(data[6:]), context) == data


def test_protobuf_values_come_back_with_tags_and_confluents_names(registry):
    made = converter(ProtobufConverter, registry)
    found = converter(ProtobufConverter, registry).to_connect("l", made.from_connect("l", LINE, Struct(LINE, VALUE)))
    assert plain(found.value) == plain(Struct(LINE, VALUE))
    assert found.schema.name == "Line"
    small = found.schema.field("small").schema
    assert (small.type, small.optional, small.parameters) == (
        Type.INT8,
        True,
        {"io.confluent.connect.protobuf.Tag": "2"},
    )
    assert found.schema.field("counts").schema.name == "connect_default1"
    again = made.from_connect("again", found.schema, found.value)
    assert again[6:] == made.from_connect("l", LINE, Struct(LINE, VALUE))[6:]


def test_a_null_is_zero_unless_a_setting_keeps_it(registry):
    schema = struct({"n": OPTIONAL_INT32, "s": OPTIONAL_STRING})
    value = Struct(schema, {"s": "a"})

    def read(topic, **more):
        made = converter(ProtobufConverter, registry, **more)
        return made.to_connect(topic, made.from_connect(topic, schema, value)).value.to_dict()

    assert read("nulls") == {"n": 0, "s": "a"}
    assert read("optional", optional_for_nullables="true") == {"n": None, "s": "a"}
    assert read("wrapped", wrapper_for_nullables="true") == {"n": None, "s": "a"}


def test_plain_values_are_googles_messages_with_their_place_in_the_file(registry):
    made = converter(ProtobufConverter, registry, "key")
    data = made.from_connect("plain", STRING, "hi")
    assert data[5:7] == bytes([2, 14])  # one number: 7, StringValue's place in wrappers.proto
    found = made.to_connect("plain", data)
    assert (found.schema, found.value) == (STRING, "hi")


def test_text_of_java_clients_is_read_with_enums_and_unions(registry):
    text = """syntax = "proto3"; package shop;
        message Other { int32 x = 1; }
        message Order { State state = 1; oneof pay { string card = 2; int64 cash = 3; } uint32 big = 4;
          optional int32 maybe = 5; map<string, int64> m = 6; enum State { NEW = 0; OLD = 5; } }"""
    message, _ = message_class(SchemaText(text, "PROTOBUF"), "shop.Order")
    client = confluent_client({"url": registry.url})
    number = client.register_schema("orders-value", RegistrySchema(text, "PROTOBUF"))
    body = message(state=5, cash=7, big=2**32 - 1, m={"a": 1}).SerializeToString()
    data = b"\0" + number.to_bytes(4, "big") + bytes([2, 2]) + body
    made = converter(ProtobufConverter, registry, enhanced_protobuf_schema_support="true")
    found = made.to_connect("orders", data)
    assert found.schema.name == "shop.Order"
    assert plain(found.value) == {
        "pay_0": {"card": None, "cash": 7},
        "state": "OLD",
        "big": 2**32 - 1,
        "maybe": None,
        "m": {"a": 1},
    }
    again = made.from_connect("orders-copy", found.schema, found.value)
    copy = {**plain(found.value), "maybe": 0}  # as Confluent's: only optional.for.nullables writes the word optional
    assert plain(made.to_connect("orders-copy", again).value) == copy
    with pytest.raises(DataError, match="no message at"):
        made.to_connect("orders", b"\0" + number.to_bytes(4, "big") + bytes([2, 8]) + body)
    with pytest.raises(DataError, match="not of their Protobuf schema"):
        made.to_connect("orders", data + b"\xff\xff")


def test_a_message_that_holds_itself_and_an_array_as_root_are_refused(registry):
    client = confluent_client({"url": registry.url})
    text = 'syntax = "proto3"; message Node { Node next = 1; }'
    number = client.register_schema("nodes-value", RegistrySchema(text, "PROTOBUF"))
    with pytest.raises(DataError, match="holds itself"):
        converter(ProtobufConverter, registry).to_connect("nodes", b"\0" + number.to_bytes(4, "big") + b"\0")
    chain = " ".join(f"message M{at} {{ M{at + 1} a = 1; M{at + 1} b = 2; }}" for at in range(40))
    text = f'syntax = "proto3"; {chain} message M40 {{ int32 a = 1; }}'
    number = client.register_schema("doubled-value", RegistrySchema(text, "PROTOBUF"))
    with pytest.raises(DataError, match="more than 10,000 fields"):
        converter(ProtobufConverter, registry).to_connect("doubled", b"\0" + number.to_bytes(4, "big") + b"\0")
    with pytest.raises(DataError, match="Unsupported root schema of type ARRAY"):
        converter(ProtobufConverter, registry).from_connect("t", array(STRING), ["a"])
    with pytest.raises(DataError, match="scrub"):
        converter(ProtobufConverter, registry).from_connect("t", *dashed("a-b"))
    data = converter(ProtobufConverter, registry, scrub_invalid_names="true").from_connect("t", *dashed("a-b"))
    assert converter(ProtobufConverter, registry).to_connect("t", data).value["a_b"] == 1


def dashed(name):
    schema = struct({name: INT32})
    return schema, Struct(schema, {name: 1})


def test_json_schemas_and_values_are_those_of_confluent(registry):
    schema = struct(
        {
            "id": INT64,
            "note": OPTIONAL_STRING,
            "n": with_default(INT32, 3),
            "price": decimal_schema(2),
            "by": map_of(INT32, STRING),
            "of": map_of(STRING, INT32),
        },
        name="org.example.Line",
    )
    made = converter(JsonSchemaConverter, registry)
    value = Struct(schema, {"id": 1, "price": Decimal("1.50"), "by": {1: "a"}, "of": {"b": 2}, "n": 4})
    data = made.from_connect("json", schema, value)
    assert data[:1] == b"\0"
    assert data[5:] == b'{"id":1,"note":null,"n":4,"price":"AJY=","by":[{"key":1,"value":"a"}],"of":{"b":2}}'
    version = registry.registry.version("json-value", "latest")
    document = json.loads(version.schema.text)
    assert (document["type"], document["title"]) == ("object", "org.example.Line")
    properties = document["properties"]
    assert properties["id"] == {"type": "integer", "connect.type": "int64", "connect.index": 0}
    assert properties["note"] == {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1}
    assert properties["n"] == {"type": "integer", "connect.type": "int32", "default": 3, "connect.index": 2}
    assert properties["price"] == {
        "type": "number",
        "connect.type": "bytes",
        "title": "org.apache.kafka.connect.data.Decimal",
        "connect.version": 1,
        "connect.parameters": {"scale": "2"},
        "connect.index": 3,
    }
    assert properties["by"]["items"]["properties"]["key"]["connect.index"] == 0
    found = converter(JsonSchemaConverter, registry).to_connect("json", data)
    assert (found.schema, found.value) == (schema, value)


def test_foreign_json_schemas_are_read_with_unions_references_and_all_of(registry):
    document = {
        "definitions": {"Id": {"type": "integer"}},
        "type": "object",
        "properties": {
            "id": {"$ref": "#/definitions/Id"},
            "any": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"x": {"type": "number"}}}]},
            "state": {"enum": ["NEW", "OLD"]},
            "maybe": {"type": ["null", "string"]},
            "both": {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "boolean"}}}]},
        },
        "required": ["id"],
    }
    client = confluent_client({"url": registry.url})
    number = client.register_schema("foreign-value", RegistrySchema(json.dumps(document), "JSON"))
    made = converter(JsonSchemaConverter, registry, use_optional_for_nonrequired="true")
    body = {"id": 1, "any": {"x": 1.5}, "state": "OLD", "both": {"a": "s"}}
    found = made.to_connect("foreign", b"\0" + number.to_bytes(4, "big") + json.dumps(body).encode())
    assert plain(found.value) == {
        "id": 1,
        "any": {"io.confluent.connect.json.OneOf.field.0": None, "io.confluent.connect.json.OneOf.field.1": {"x": 1.5}},
        "state": "OLD",
        "maybe": None,
        "both": {"a": "s", "b": None},
    }
    back = made.from_connect("copy", found.schema, found.value)
    assert json.loads(back[5:]) == {**body, "maybe": None, "both": {"a": "s", "b": None}}


def json_doubled(levels):
    found = {"M0": {"type": "integer"}}
    for at in range(levels):
        reference = {"$ref": f"#/definitions/M{at}"}
        found[f"M{at + 1}"] = {"type": "object", "properties": {"a": reference, "b": reference}}
    return {"$ref": f"#/definitions/M{levels}", "definitions": found}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "# holds itself"),
        ({"type": "object", "properties": {"a": {"description": "x"}}}, "does not say its type"),
        ({"type": "object", "properties": {"a": {"$ref": "#/definitions/b"}}}, "refers to #/definitions/b"),
        (json_doubled(24), "more than 10,000 fields"),
    ],
)
def test_json_schemas_without_end_or_type_are_refused(registry, schema, reason):
    client = confluent_client({"url": registry.url})
    subject = f"refused-{abs(hash(reason))}-value"
    number = client.register_schema(subject, RegistrySchema(json.dumps(schema), "JSON"))
    with pytest.raises(DataError, match=reason):
        converter(JsonSchemaConverter, registry).to_connect("refused", b"\0" + number.to_bytes(4, "big") + b"{}")


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(VALUES)
def test_values_with_schemas_come_back_from_json_schema(registry, typed):
    schema, value = typed
    made = converter(JsonSchemaConverter, registry)
    data = made.from_connect(f"t{abs(hash(schema))}", schema, value)
    found = made.to_connect("t", data)
    if data is None:
        assert value is None
    else:
        assert (found.schema, found.value) == (schema, value)


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(VALUES)
def test_values_in_messages_come_back_from_protobuf(registry, typed):
    schema, value = typed
    if not has_plain_names(schema) or not _repeatable(schema) or value is None or not _has_day(schema, value):
        return
    outer = struct({"v": schema})
    made = converter(ProtobufConverter, registry, optional_for_nullables="true")
    data = made.from_connect(f"p{abs(hash(schema))}", outer, Struct(outer, {"v": value}))
    found = made.to_connect("p", data).value
    assert plain(found) == plain(Struct(outer, {"v": value}))


def _repeatable(schema: Schema, *, inside: bool = False) -> bool:
    """Neither lists of lists nor nulls in them, and nothing nullable that Protobuf cannot leave out."""
    if schema.type in (Type.ARRAY, Type.MAP):
        return (
            not inside
            and not schema.optional
            and not schema.values.optional
            and _repeatable(schema.values, inside=True)
        )
    return all(_repeatable(part.schema) for part in schema.fields)


def _has_day(schema, value):
    if isinstance(value, Moment):
        try:
            value.datetime()
        except OverflowError:
            return False
    inner = list(value.to_dict().values()) if isinstance(value, Struct) else value if isinstance(value, list) else []
    inner += list(value.values()) if isinstance(value, dict) else []
    return all(_has_day(schema, each) for each in inner)


def test_descriptors_in_base64_keep_the_parameters_of_fields():
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from penstock.serde.formats.protobuf import ProtobufNaming, protobuf_file

    text, name = protobuf_file(struct({"d": decimal_schema(3)}), ProtobufNaming())
    file = FileDescriptorProto.FromString(base64.b64decode(text))
    assert name == "ConnectDefault1"
    assert list(file.dependency) == ["confluent/type/decimal.proto", "confluent/meta.proto"]
    assert message_class(SchemaText(text, "PROTOBUF"), None)[1] == {("ConnectDefault1", "d"): {"scale": "3"}}


CHOICES = (
    'syntax = "proto3";\nmessage M {\n  enum E {\n    A = 0;\n    B = 1;\n  }\n  E e = 1;\n  oneof u {\n    int32 x = 2;\n'
    "    string y = 3;\n  }\n}\n"
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"e": "B", "u_0": {"x": 5, "y": None}}),
        ({"int.for.enums": "true"}, {"e": 1, "u_0": {"x": 5, "y": None}}),
        ({"generate.index.for.unions": "false"}, {"e": "B", "u": {"x": 5, "y": None}}),
    ],
)
def test_enums_and_unions_have_the_form_of_the_settings(registry, settings, expected):
    client = confluent_client({"url": registry.url})
    schema_id = client.register_schema("choices-value", RegistrySchema(CHOICES, "PROTOBUF"))
    message, _ = message_class(SchemaText(CHOICES, "PROTOBUF"), "M")
    data = b"\x00" + schema_id.to_bytes(4, "big") + b"\x00" + message(e=1, x=5).SerializeToString()
    made = ProtobufConverter()
    made.configure({"schema.registry.url": registry.url, **settings}, "value")
    assert plain(made.to_connect("choices", data).value) == expected


def test_messages_that_wrap_a_value_are_the_value_unless_the_setting_says_otherwise(registry):
    data = converter(ProtobufConverter, registry).from_connect("raw", STRING, "v")
    assert converter(ProtobufConverter, registry).to_connect("raw", data).value == "v"
    made = ProtobufConverter()
    made.configure({"schema.registry.url": registry.url, "wrapper.for.raw.primitives": "false"}, "value")
    assert plain(made.to_connect("raw", data).value) == {"value": "v"}


@pytest.mark.parametrize("kind", [AvroConverter, JsonSchemaConverter, ProtobufConverter])
def test_an_identity_that_is_none_is_said(kind):
    """With one: tests/unit/serde/registry/test_registry_tokens.py."""
    converter = kind()
    url = {"schema.registry.url": "http://127.0.0.1:9"}
    converter.configure({**url, "penstock.registry.identity": "no_such_module:token"})
    with pytest.raises(ConfigError, match="no_such_module"):
        converter.client.schema(1)
