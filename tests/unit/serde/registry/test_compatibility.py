"""Which schema reads what another wrote."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from penstock.errors import SchemaRegistryError
from penstock.serde.registry import Reference, Registry, StoredSchema
from penstock.serde.registry.compatibility import differences


def _avro(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def _field(name, kind, **more):
    return {"name": name, "type": kind, **more}


A, B = _field("a", "int"), _field("b", "string")
ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
NARROW = {"type": "enum", "name": "E", "symbols": ["X"]}


@pytest.mark.parametrize(
    ("reader", "writer", "problem"),
    [
        (_avro(A), _avro(A, B), None),
        (_avro(A, B), _avro(A), "READER_FIELD_MISSING_DEFAULT_VALUE: b"),
        (_avro(A, {**B, "default": ""}), _avro(A), None),
        (_avro(_field("c", "int", aliases=["a"])), _avro(A), None),
        (_avro(A, name="Q"), _avro(A), "NAME_MISMATCH"),
        (_avro(A, name="Q", aliases=["R"]), _avro(A), None),
        (_avro(A, name="x.R"), _avro(A, name="y.R"), None),
        ("long", "int", None),
        ("int", "long", "TYPE_MISMATCH"),
        ("double", "float", None),
        ("bytes", "string", None),
        (["null", "string"], "string", None),
        ("string", ["null", "string"], "TYPE_MISMATCH"),
        (["null", "string"], ["null", "string", "int"], "MISSING_UNION_BRANCH"),
        (ENUM, NARROW, None),
        (NARROW, ENUM, "MISSING_ENUM_SYMBOLS"),
        ({**NARROW, "default": "X"}, ENUM, None),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, None),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "/values"),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}, "FIXED_SIZE"),
        (_avro(_field("next", ["null", "R"])), _avro(_field("next", ["null", "R"]), A), None),
    ],
)
def test_avro(reader, writer, problem):
    found = differences(StoredSchema(json.dumps(reader)), StoredSchema(json.dumps(writer)), _nobody)
    assert (not found) if problem is None else problem in " ".join(found)


def _object(properties, *, required=(), closed=False):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {**schema, "additionalProperties": False} if closed else schema


X, Y = {"x": {"type": "integer"}}, {"y": {"type": "string"}}


@pytest.mark.parametrize(
    ("new", "old", "fits"),
    [
        ({"type": "number"}, {"type": "integer"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        ({}, {"type": "integer"}, True),
        ({"type": ["string", "null"]}, {"type": "string"}, True),
        ({"type": "string"}, {"type": ["string", "null"]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
        ({"type": "integer", "maximum": 9}, {"type": "integer", "maximum": 5}, True),
        ({"type": "integer", "maximum": 5}, {"type": "integer"}, False),
        ({"type": "string", "minLength": 3}, {"type": "string", "minLength": 2}, False),
        ({"type": "string", "pattern": "a"}, {"type": "string"}, False),
        (_object(X, required=["x"]), _object(X), False),
        (_object({"x": {"type": "integer", "default": 1}}, required=["x"]), _object(X), True),
        (_object({**X, **Y}), _object(X), False),
        (_object({**X, **Y}, closed=True), _object(X, closed=True), True),
        (_object(X), _object({**X, **Y}), True),
        (_object(X, closed=True), _object({**X, **Y}, closed=True), False),
        (_object(X, closed=True), _object(X), False),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}, True),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "string"}, True),
        ({"type": "string"}, {"oneOf": [{"type": "string"}, {"type": "integer"}]}, False),
        (
            {"$ref": "#/definitions/n", "definitions": {"n": {"type": "number"}}},
            {"$ref": "#/$defs/m", "$defs": {"m": {"type": "integer"}}},
            True,
        ),
    ],
)
def test_json_schema(new, old, fits):
    found = differences(StoredSchema(json.dumps(new), "JSON"), StoredSchema(json.dumps(old), "JSON"), _nobody)
    assert (not found) is fits


def _proto(*fields, package="shop", name="Order", oneof=()):
    file = FileDescriptorProto(name="order.proto", package=package, syntax="proto3")
    message = file.message_type.add(name=name)
    for declared in oneof:
        message.oneof_decl.add(name=declared)
    for label, number, kind, *group in fields:
        field = message.field.add(name=label, number=number, type=getattr(FieldDescriptorProto, f"TYPE_{kind}"))
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        if group:
            field.oneof_index = group[0]
    return StoredSchema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")


ID = ("id", 1, "INT32")


@pytest.mark.parametrize(
    ("new", "old", "fits"),
    [
        (_proto(ID, ("more", 2, "STRING")), _proto(ID), True),
        (_proto(), _proto(ID), True),
        (_proto(("renamed", 1, "INT32")), _proto(ID), True),
        (_proto(("id", 1, "INT64")), _proto(ID), True),
        (_proto(("id", 1, "STRING")), _proto(ID), False),
        (_proto(("id", 1, "SINT32")), _proto(ID), False),
        (_proto(ID, package="other"), _proto(ID), False),
        (_proto(ID, name="Other"), _proto(ID), False),
        (
            _proto(("id", 1, "INT32", 0), ("x", 2, "INT32", 0), oneof=["o"]),
            _proto(ID, ("x", 2, "INT32", 0), oneof=["o"]),
            False,
        ),
    ],
)
def test_protobuf(new, old, fits):
    assert (not differences(new, old, _nobody)) is fits


def _text(body, head='syntax = "proto3"; package shop;'):
    return StoredSchema(f"{head} {body}", "PROTOBUF")


ORDER = "message Order { int32 id = 1; }"
LINES = "message Order { repeated Line lines = 1; } message Line { int32 count = 1; }"


@pytest.mark.parametrize(
    ("new", "old", "fits"),
    [
        (_text("message Order { int32 id = 1; string more = 2; }"), _text(ORDER), True),
        (_text("message Order { string id = 1; }"), _text(ORDER), False),
        (_text(ORDER, 'syntax = "proto3"; package other;'), _text(ORDER), False),
        (_text(LINES.replace("int32", "int64")), _text(LINES), True),
        (_text(LINES.replace("int32", "string")), _text(LINES), False),
        (_text(LINES.replace("Line", "Entry")), _text(LINES), False),
        (_text(ORDER), _proto(ID), True),
        (_proto(("id", 1, "STRING")), _text(ORDER), False),
        (_text("message Order { int32 id = 1; oneof o { int32 x = 2; } }"), _text(ORDER), True),
        (_text("message Order { oneof o { int32 x = 2; } int32 id = 1; }"),
         _text("message Order { oneof o { int32 x = 2; int32 y = 3; } int32 id = 1; }"), False),
        (_text("message Order { repeated group G = 1 { optional int32 a = 2; } }", 'syntax = "proto2";'),
         _text(ORDER), True),
    ],
)  # fmt: skip
def test_texts_of_protobuf_are_compared_as_descriptors_are(new, old, fits):
    assert (not differences(new, old, _nobody)) is fits


def test_a_text_of_protobuf_is_compared_with_what_it_imports():
    event = _text("message Event { int64 at = 1; }")
    refers = (Reference("event.proto", "event", 1),)

    def order(kind):
        text = f'syntax = "proto3"; package shop; import "event.proto"; message Order {{ Event event = 1; {kind} id = 2; }}'
        return StoredSchema(text, "PROTOBUF", refers)

    assert differences(order("int64"), order("int32"), lambda _: event) == []
    assert len(differences(order("string"), order("int32"), lambda _: event)) == 1


def test_kinds_do_not_mix_and_wrong_schemas_are_refused():
    assert differences(StoredSchema('"string"'), StoredSchema("{}", "JSON"), _nobody)
    for text, kind in (
        ("{", "AVRO"),
        ('{"type": "nonsense"}', "AVRO"),
        ('{"type": "enum", "name": "E"}', "AVRO"),
        ("{", "JSON"),
        ('{"type": "nonsense"}', "JSON"),
        ("!", "PROTOBUF"),
        ('"string"', "XML"),
    ):
        with pytest.raises(SchemaRegistryError) as refused:
            Registry().register("s", StoredSchema(text, kind))
        assert refused.value.facts == {"status": 422, "code": 42201}


V1, V2, V3 = (
    StoredSchema(json.dumps(_avro(A))),
    StoredSchema(json.dumps(_avro(A, {**B, "default": ""}))),
    StoredSchema(json.dumps(_avro(A, B))),
)


@pytest.mark.parametrize(
    ("level", "accepted"),
    [
        ("NONE", True),
        ("BACKWARD", True),  # V3 reads V2, but not V1
        ("BACKWARD_TRANSITIVE", False),
        ("FORWARD", True),
        ("FORWARD_TRANSITIVE", True),
        ("FULL", True),
        ("FULL_TRANSITIVE", False),
    ],
)
def test_levels(level, accepted):
    registry = Registry()
    registry.set_config("s", {"compatibility": level})
    registry.register("s", V1)
    registry.register("s", V2)
    assert (not registry.problems("s", V3)) is accepted
    if accepted:
        assert registry.register("s", V3).number == 3
    else:
        with pytest.raises(SchemaRegistryError, match="oldSchemaVersion: 1") as refused:
            registry.register("s", V3)
        assert refused.value.code == 409


def test_references_are_resolved():
    registry = Registry()
    registry.register("inner", StoredSchema(json.dumps(_avro(A, name="x.Inner"))))
    outer = json.dumps(_avro(_field("i", "x.Inner"), name="x.Outer"))
    with pytest.raises(SchemaRegistryError):
        registry.register("outer", StoredSchema(outer))
    found = registry.register("outer", StoredSchema(outer, references=(Reference("x.Inner", "inner", 1),)))
    assert registry.referenced_by(registry.version("inner", 1)) == [found.schema_id]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_version("inner", 1)
    assert refused.value.code == 42206


def _nobody(reference):
    raise AssertionError(reference)
