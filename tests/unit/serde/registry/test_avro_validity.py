"""Which Avro schemas the registry takes: the rules of the specification, with the answer of Confluent's registry."""

import json

import pytest

from penstock.serde.registry import Reference, Registry, StoredSchema
from penstock.serde.registry.avro_validity import check_avro
from penstock.serde.registry.model import SchemaRegistryError


def record(*fields, **more):
    return {"type": "record", "name": "A", "fields": list(fields), **more}


def field(kind, **more):
    return record({"name": "f", "type": kind, **more})


INT, FIXED = "int", {"type": "fixed", "name": "F", "size": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}

WRONG = [
    (["null", ["int", "string"]], "Nested union"),
    ({"type": "array", "items": ["int", ["string"]]}, "Nested union"),
    (["int", "int"], "Duplicate in union: int"),
    ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "Duplicate in union: array"),
    ([FIXED, "F"], "Duplicate in union: F"),
    (["int", {"type": "int", "logicalType": "date"}], "Duplicate in union: int"),
    (record(name="bad name"), "Illegal character in"),
    (record(name="1st"), "Illegal character in"),
    (record(name=""), "No name in schema"),
    (record(name="x", namespace="a b"), "Illegal namespace"),
    (record(name="a..b"), "Illegal namespace"),
    (record(name="int"), "named after primitives"),
    (record(aliases=["b c"]), "Illegal character in"),
    (record({"name": "a-b", "type": "int"}), "Illegal character in"),
    (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "Duplicate field a"),
    (record({"name": "a"}), "No field type"),
    (record({"type": "int"}), "No field name"),
    (field("int", order="sideways"), "Illegal order"),
    ({"type": "record", "name": "A"}, "Record has no fields"),
    ({"type": "enum", "name": "E"}, "Enum has no symbols"),
    ({**ENUM, "symbols": ["X", "X"]}, "Duplicate enum symbol: X"),
    ({**ENUM, "symbols": ["a b"]}, "Illegal character in"),
    ({**ENUM, "default": "Z"}, "not in the enum symbol set"),
    ({"type": "fixed", "name": "F"}, "Invalid or no size"),
    ({**FIXED, "size": -1}, "Invalid or no size"),
    ({**FIXED, "size": "2"}, "Invalid or no size"),
    ({"type": "array"}, "Array has no items"),
    ({"type": "map"}, "Map has no values"),
    (record({"name": "a", "type": ENUM}, {"name": "b", "type": ENUM}), "Can't redefine: E"),
    (field("Nobody"), "Undefined name"),
    ({"type": "union"}, "Undefined name"),
    (7, "No type"),
    *((field(kind, default=value), "Invalid default for field f") for kind, value in (
        (INT, 1 << 40), (INT, -(1 << 31) - 1), (INT, 1.5), (INT, "1"), (INT, True), (INT, None),
        ("long", 1 << 63), ("double", "NaN"), ("boolean", 0), ("string", 1), ("bytes", "\u0100"), ("null", 0),
        (["null", "int"], "x"), (["string", "int"], 1.5), (ENUM, "Z"), (FIXED, "abc"),
        ({"type": "array", "items": "int"}, [1, "x"]), ({"type": "map", "values": "int"}, {"a": 1 << 40}),
        ({"type": "array", "items": "int"}, {}), (record({"name": "g", "type": "int"}, name="B"), {}),
    )),
]  # fmt: skip

RIGHT = [
    "string",
    ["null", "int", "string"],
    [],
    record(name="n.A", aliases=["B", "m.C"]),
    record(namespace="my-company.events"),
    record(namespace=""),
    field(["null", "int"], default=3),  # of any branch, since Avro 1.12
    field(["null", "int"], default=None),
    field("int", default=(1 << 31) - 1),
    field("long", default=-(1 << 63)),
    field("double", default=1),
    field("bytes", default="\u00ff"),
    field(ENUM, default="Y"),
    field({**ENUM, "default": "X"}),
    field(FIXED, default="ab"),
    field({"type": "map", "values": ["null", "int"]}, default={"a": None, "b": 1}),
    field(record({"name": "g", "type": "int", "default": 1}, name="B"), default={}),
    record({"name": "next", "type": ["null", "A"], "default": None}),
    record({"name": "e", "type": ENUM}, {"name": "f", "type": "E", "default": "X"}),
    record({"name": "e", "type": {**ENUM, "namespace": "m"}}, {"name": "f", "type": "m.E"}),
]


@pytest.mark.parametrize(("document", "problem"), WRONG)
def test_a_schema_that_breaks_a_rule_is_refused_as_invalid(document, problem):
    registry = Registry()
    with pytest.raises(SchemaRegistryError) as caught:
        registry.register("s", StoredSchema(json.dumps(document)))
    assert (caught.value.status, caught.value.code) == (422, 42201)
    assert problem in str(caught.value)
    assert registry.subjects() == []


@pytest.mark.parametrize("document", RIGHT)
def test_a_schema_that_keeps_the_rules_is_taken(document):
    check_avro(document)
    assert Registry().register("s", StoredSchema(json.dumps(document))).number == 1


def test_a_default_that_would_never_end_is_refused():
    with pytest.raises(ValueError, match="Invalid default"):
        check_avro(record({"name": "a", "type": "A", "default": {"a": {"a": {}}}}, {"name": "n", "type": "int"}))


def test_types_of_other_schemas_are_known():
    registry = Registry()
    registry.register("inner", StoredSchema(json.dumps({**ENUM, "namespace": "n"})))
    text = json.dumps(record({"name": "e", "type": "n.E", "default": "Y"}))
    assert registry.register("outer", StoredSchema(text, "AVRO", (Reference("n.E", "inner", 1),))).number == 1
    wrong = json.dumps(record({"name": "e", "type": "n.E", "default": "Z"}, name="W"))
    with pytest.raises(SchemaRegistryError, match="Invalid default"):
        registry.register("outer2", StoredSchema(wrong, "AVRO", (Reference("n.E", "inner", 1),)))
