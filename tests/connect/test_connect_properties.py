"""Properties: what a converter writes it reads again; a transformation leaves its input as it was."""

import copy
import json
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connect_forms import write_record
from penstock.connect.converters import JsonConverter, SimpleHeaderConverter, StringConverter, parse_header
from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT64,
    STRING,
    TIMESTAMP,
    Header,
    Headers,
    Moment,
    Schema,
    SchemaAndValue,
    SinkRecord,
    SourceRecord,
    Struct,
    Type,
    array,
    decimal_schema,
    map_of,
    struct,
)
from penstock.connect.plugins import transformation_chain
from penstock.connect.transforms import TRANSFORMS
from penstock.errors import PenstockError
from penstock.serde.data.logical import decimal_from_bytes, decimal_to_bytes

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LONGS = st.integers(-(2**63), 2**63 - 1)
LEAVES = [  # without negative zeros, which JSON loses: Kafka's converter reads numbers as BigDecimal, as this one does
    (INT8, st.integers(-128, 127)),
    (INT64, LONGS),
    (FLOAT32, st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)),
    (FLOAT64, st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)),
    (BOOLEAN, st.booleans()),
    (STRING, TEXTS),
    (BYTES, st.binary(max_size=8)),
    (DATE, st.integers(-(10**6), 10**6).map(lambda days: Moment(days * 86_400_000))),
    (TIMESTAMP, LONGS.map(Moment)),
    (decimal_schema(2), st.integers(-(10**12), 10**12).map(lambda cents: Decimal(cents).scaleb(-2))),
]


def nested(inner):
    """Schemas with a strategy of their values, one level deeper."""
    lists = inner.map(lambda pair: (array(pair[0]), st.lists(pair[1], max_size=3)))
    maps = inner.map(lambda pair: (map_of(STRING, pair[0]), st.dictionaries(TEXTS, pair[1], max_size=3)))
    optional = inner.map(nullable)
    structs = st.dictionaries(TEXTS.filter(bool), inner, max_size=3).map(structured)
    return lists | maps | optional | structs


def nullable(pair):
    schema, values = pair
    return pair if schema.type is Type.STRUCT else (schema.as_optional(), st.none() | values)  # a struct has its schema


def structured(parts):
    schema = struct({name: part[0] for name, part in parts.items()})
    values = st.fixed_dictionaries({name: part[1] for name, part in parts.items()})
    return schema, values.map(lambda made: Struct(schema, made))


VALUES = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=6).flatmap(
    lambda pair: st.tuples(st.just(pair[0]), pair[1])
)
PLAIN = st.recursive(
    st.none() | st.booleans() | LONGS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def json_converter(**more):
    converter = JsonConverter()
    converter.configure({name.replace("_", "."): value for name, value in more.items()})
    return converter


@given(VALUES, st.sampled_from(["BASE64", "NUMERIC"]))
def test_json_with_schemas_comes_back(typed, decimals):
    schema, value = typed
    converter = json_converter(decimal_format=decimals)
    data = converter.from_connect("t", schema, value)
    found = converter.to_connect("t", data)
    assert (found.schema, found.value) == (schema, value)
    assert converter.from_connect("t", found.schema, found.value) == data


@given(PLAIN)
def test_json_without_schemas_comes_back(value):
    converter = json_converter(schemas_enable="false")
    data = converter.from_connect("t", None, value)
    assert converter.to_connect("t", data).value == value
    if data is not None:
        assert json.loads(data) == value


@given(st.binary(max_size=40))
def test_any_bytes_are_json_or_an_error_of_the_converter(data):
    for enabled in ("true", "false"):
        try:
            json_converter(schemas_enable=enabled).to_connect("t", data)
        except PenstockError:
            continue


@given(st.text(max_size=60) | st.text('[]{}",:0123456789.-e \\', max_size=60))
def test_any_header_is_read(text):
    assert isinstance(SimpleHeaderConverter().to_connect("t", text.encode("utf-8", "replace")), SchemaAndValue)


@pytest.mark.parametrize("text", ["[" * 5000, "{" * 5000, '["' * 3000, "1e999999999", "9" * 5000, "-" * 5000])
def test_headers_that_nest_or_count_too_far_are_texts_or_numbers(text):
    assert parse_header(text).value is not None


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=5) | st.dictionaries(st.integers(0, 9), LONGS, min_size=1)
)
def test_headers_of_numbers_come_back(value):
    converter = SimpleHeaderConverter()
    assert converter.to_connect("t", converter.from_connect("t", None, value)).value == value


@given(TEXTS)
def test_texts_come_back(text):
    converter = StringConverter()
    converter.configure({})
    assert converter.to_connect("t", converter.from_connect("t", STRING, text)).value == text


@given(st.integers(-(10**30), 10**30), st.integers(-5, 20))
def test_decimals_come_back(number, scale):
    value = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    schema = decimal_schema(scale)
    found = decimal_from_bytes(schema, decimal_to_bytes(schema, value))
    assert (found, found.as_tuple().exponent) == (value, value.as_tuple().exponent)


SETTINGS = {
    "Cast": {"spec": "a:string,b:int8"},
    "ExtractField": {"field": "a"},
    "HeaderFrom": {"fields": "a,b", "headers": "x,y", "operation": "move"},
    "HoistField": {"field": "a"},
    "InsertField": {"static.field": "s", "static.value": "v", "topic.field": "t", "timestamp.field": "ts"},
    "MaskField": {"fields": "a,b"},
    "ReplaceField": {"exclude": "a", "renames": "b:c"},
    "SetSchemaMetadata": {"schema.name": "n"},
    "TimestampConverter": {"field": "b", "target.type": "string", "format": "yyyy"},
    "DropHeaders": {"headers": "h"},
    "InsertHeader": {"header": "h", "value.literal": "[1,2]"},
    "RegexRouter": {"regex": "(.*)", "replacement": "x$1"},
    "ValueToKey": {"fields": "a"},
}


@st.composite
def records(draw):
    if draw(st.booleans()):
        schema, value = draw(
            st.fixed_dictionaries({"a": st.sampled_from(LEAVES), "b": st.sampled_from(LEAVES)}).map(structured)
        )
        value = draw(value)
    else:
        schema, value = None, draw(st.fixed_dictionaries({"a": PLAIN, "b": PLAIN}))
    headers = Headers([Header("h", [1], None), Header("other", "x", STRING)])
    parts = {"topic": "t", "partition": 0, "timestamp": draw(st.none() | st.integers(0, 2**41)), "headers": headers}
    parts |= {"value": value, "value_schema": schema, "key": copy.deepcopy(value), "key_schema": schema}
    return draw(st.sampled_from([SinkRecord, SourceRecord]))(**parts)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(records())
def test_transformations_leave_their_input_as_it_was(record):
    before = json.dumps(write_record(record))
    for made in TRANSFORMS:
        transformation = made()
        name = made.java_class.rpartition(".")[2].partition("$")[0]
        transformation.configure(SETTINGS.get(name, {}))
        try:
            out = transformation.apply(record)
        except PenstockError:
            out = None
        assert json.dumps(write_record(record)) == before, made
        if out is not None:
            write_record(out)


@given(records())
def test_a_chain_is_its_parts_one_after_another(record):
    prefix = "org.apache.kafka.connect.transforms."
    hoist = {"transforms.h.type": f"{prefix}HoistField$Value", "transforms.h.field": "f"}
    route = {"transforms.r.type": f"{prefix}RegexRouter", "transforms.r.regex": "t", "transforms.r.replacement": "u"}
    one = transformation_chain({"transforms": "h,r", **hoist, **route}).apply(record)
    two = transformation_chain({"transforms": "r,h", **hoist, **route}).apply(record)
    assert one == two
    assert one.topic == "u"


def test_a_schema_is_compared_and_hashed_by_what_it_says():
    one, two = (struct({"a": Schema(Type.STRING, parameters={"p": "q"})}, name="n") for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != one.as_optional()


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("9223372036854775808", "BYTES", Decimal(9223372036854775808)),
        ("[1, 2.5]", "ARRAY", [1.0, 2.5]),
        ("[1,null]", "STRING", "[1,null]"),
        ('{"a":{"b":1}}', "MAP", {"a": {"b": 1}}),
        ("12:00", "INT8", 12),  # as Kafka: what follows the token of a number is not looked at
        ('"a', "STRING", '"a'),
        ("[2019-08-23]", "ARRAY", [Moment(1566518400000)]),
        ("null", None, None),
    ],
)
def test_headers_get_the_types_that_they_look_like(text, kind, value):
    found = parse_header(text)
    assert (None if found.schema is None else found.schema.type.name, found.value) == (kind, value)


def test_a_replacement_that_ends_in_a_backslash_is_an_error_of_the_record():
    config = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    chain = transformation_chain({**config, "transforms.r.regex": "t", "transforms.r.replacement": "x\\"})
    with pytest.raises(PenstockError, match="backslash"):
        chain.apply(SinkRecord(topic="t"))


def test_a_big_whole_number_is_masked_by_a_whole_number_only():
    mask = next(made for made in TRANSFORMS if made.java_class.endswith("MaskField$Value"))()
    mask.configure({"fields": "a", "replacement": "1_0"})
    with pytest.raises(PenstockError, match="Unable to convert 1_0"):
        mask.apply(SinkRecord(topic="t", value={"a": 2**70}))
