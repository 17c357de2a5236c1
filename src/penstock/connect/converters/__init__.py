"""Converters of keys, values and headers, under Kafka's class names."""

from penstock.connect.converters.converter import Converter, Role
from penstock.connect.converters.header_parsing import parse_header
from penstock.connect.converters.header_text import header_text
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
from penstock.connect.converters.simple_header import SimpleHeaderConverter

__all__ = [
    "BooleanConverter",
    "ByteArrayConverter",
    "CONVERTERS",
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
