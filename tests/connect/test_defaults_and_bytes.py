"""Defaults of structs in TimestampConverter, and base64 and words in JSON as Kafka's converter takes or refuses them."""

import json

import pytest

from penstock.connect.converters import JsonConverter
from penstock.connect.data import (
    OPTIONAL_STRING,
    STRING,
    TIMESTAMP,
    DataError,
    Moment,
    SinkRecord,
    Struct,
    struct,
    with_struct_default,
)
from penstock.connect.plugins import transformation_chain


def converted(value, **settings):
    schema = struct({"t": TIMESTAMP.as_optional(), "u": STRING}, optional=True)
    schema = with_struct_default(schema, Struct(schema, {"t": Moment(86_400_000), "u": "x"}))
    chain = transformation_chain(
        {
            "transforms": "c",
            "transforms.c.type": "org.apache.kafka.connect.transforms.TimestampConverter$Value",
            "transforms.c.field": "t",
            **{f"transforms.c.{name}": each for name, each in settings.items()},
        }
    )
    record = SinkRecord(topic="t", value_schema=schema, value=None if value is None else Struct(schema, value))
    return chain.apply(record)


@pytest.mark.parametrize(
    ("settings", "default", "value"),
    [
        ({"target.type": "unix"}, 86_400_000, 5),
        ({"target.type": "string", "format": "yyyy-MM-dd"}, "1970-01-02", "1970-01-01"),
        ({"target.type": "Date"}, Moment(86_400_000), Moment(0)),
        ({"target.type": "Time"}, Moment(0), Moment(5)),
    ],
)
def test_the_default_of_a_struct_is_converted_like_its_values(settings, default, value):
    for given in (None, {"t": Moment(5), "u": "y"}):
        made = converted(given, **settings)
        assert made.value_schema.default.to_dict() == {"t": default, "u": "x"}
        assert made.value_schema.default.schema.field("t").schema == made.value_schema.field("t").schema
        assert (None if made.value is None else made.value["t"]) == (None if given is None else value)


def test_a_default_that_is_no_time_is_that_records_error():
    schema = struct({"t": OPTIONAL_STRING})
    schema = with_struct_default(schema, Struct(schema, {"t": "soon"}))
    settings = {"type": "org.apache.kafka.connect.transforms.TimestampConverter$Value", "field": "t"}
    settings |= {"target.type": "unix", "format": "yyyy"}
    chain = transformation_chain({"transforms": "c", **{f"transforms.c.{k}": v for k, v in settings.items()}})
    with pytest.raises(DataError, match="Could not parse timestamp"):
        chain.apply(SinkRecord(topic="t", value_schema=schema, value=Struct(schema, {"t": "2024"})))


def read(payload):
    converter = JsonConverter()
    converter.configure({}, "value")
    document = {"schema": {"type": "bytes", "optional": False}, "payload": payload}
    return converter.to_connect("t", json.dumps(document).encode()).value


@pytest.mark.parametrize("payload", ["???", "aGk", "aGk==", "aG k=", "a", "a===", "aGk-", "aGk_", "aGk=\u00a0", "=aGk"])
def test_text_that_is_no_base64_is_refused(payload):
    with pytest.raises(DataError, match="Invalid bytes field"):
        read(payload)


@pytest.mark.parametrize(
    ("payload", "data"),
    [("", b""), (" aGk= \n", b"hi"), ("aGk=aGk=", b"hihi"), ("aGkx aGkx", b"hi1hi1"), ("aGl=", b"hi")],
)
def test_groups_of_base64_with_blanks_between_them_are_bytes(payload, data):
    assert read(payload) == data


@pytest.mark.parametrize(("data", "value"), [(b'null"a"', None), (b"true]", True), (b'"a"b', "a"), (b"1 2", 1)])
def test_what_follows_the_first_value_is_not_looked_at(data, value):
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, "value")
    assert converter.to_connect("t", data).value == value


@pytest.mark.parametrize("data", [b"nullx", b"true1", b"1]", b'1"a"', b"\xff", b'"\xff"', b"\x00", b'"a\tb"', b"NaN"])
def test_bytes_that_are_no_json_are_refused(data):
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, "value")
    with pytest.raises(DataError):
        converter.to_connect("t", data)
