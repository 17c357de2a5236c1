"""Converters of keys, values and headers, under Kafka's class names."""

from penstock.connect.converters.converter import Converter, Role
from penstock.connect.converters.headers import SimpleHeaderConverter, header_text, parse_header
from penstock.connect.converters.json_converter import JsonConverter
from penstock.connect.converters.simple import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)

__all__ = [
    "CONVERTERS",
    "BooleanConverter",
    "ByteArrayConverter",
    "Converter",
    "DoubleConverter",
    "FloatConverter",
    "IntegerConverter",
    "JsonConverter",
    "LongConverter",
    "Role",
    "ShortConverter",
    "SimpleHeaderConverter",
    "StringConverter",
    "header_text",
    "parse_header",
]

CONVERTERS: tuple[type[Converter], ...] = (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    JsonConverter,
    LongConverter,
    ShortConverter,
    SimpleHeaderConverter,
    StringConverter,
)
