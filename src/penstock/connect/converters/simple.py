"""Converters of single values: texts, bytes, numbers, booleans."""

# ruff: noqa: ARG002 - the topic is part of the interface

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from penstock.connect.config import ConfigDef, Importance, Kind, Setting, Width
from penstock.connect.converters.converter import CONVERTER_TYPE, Converter, Role
from penstock.connect.data import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT16,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    BytesError,
    DataError,
    Schema,
    SchemaAndValue,
    Type,
    java_class,
    type_of,
)
from penstock.serde.data.values import java_text

__all__ = [
    "BooleanConverter",
    "ByteArrayConverter",
    "DoubleConverter",
    "FloatConverter",
    "IntegerConverter",
    "LongConverter",
    "NumberConverter",
    "ShortConverter",
    "StringConverter",
]

SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")  # half a pair: one replacement in Java, three in Python
MARKS = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}
PACKAGE = "org.apache.kafka.connect.converters"


class StringConverter(Converter):
    """Values as their text, in UTF-8 or another encoding; anything else by Java's ``toString``."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.storage.StringConverter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            CONVERTER_TYPE,
            Setting(
                name="converter.encoding",
                kind=Kind.STRING,
                default="UTF-8",
                importance=Importance.HIGH,
                doc="The name of the Java character set to use for encoding strings as byte arrays.",
                width=Width.MEDIUM,
                label="Encoding",
            ),
        ]
    )

    def __init__(self) -> None:
        self._encoding = "utf-8"

    def configure(self, settings: Mapping[str, Any], role: Role = "value") -> None:
        """Take the settings.

        Raises:
            BytesError: There is no such encoding.
        """
        name = str(self.parsed(settings, role)["converter.encoding"])
        try:
            self._encoding = codecs.lookup(name).name
        except LookupError as error:
            raise BytesError(f"Unsupported encoding {name}") from error

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the text of the bytes; bytes that are none become U+FFFD."""
        if data is None:
            return SchemaAndValue(OPTIONAL_STRING, None)
        if self._encoding == "utf-8":
            return SchemaAndValue(OPTIONAL_STRING, _utf8(data))
        marks = MARKS.get(self._encoding)
        if marks is not None and not data.startswith(marks):  # big-endian in Java, as the machine has it in Python
            return SchemaAndValue(OPTIONAL_STRING, _decoded(data, f"{self._encoding}-be"))
        return SchemaAndValue(OPTIONAL_STRING, _decoded(data, self._encoding))

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of the text; characters that the encoding lacks become question marks."""
        if value is None:
            return None
        text = java_text(value, schema)
        if self._encoding == "utf-16":  # Java writes big-endian with a mark, Python as the machine has it
            return codecs.BOM_UTF16_BE + text.encode("utf-16-be", "replace") if text else b""
        if self._encoding == "utf-32":
            return text.encode("utf-32-be", "replace")
        return text.encode(self._encoding, "replace")

    def all_to_connect(self, topic: str, data: Sequence[bytes | None]) -> tuple[Schema | None, list[Any]] | None:
        """Return the texts of many bytes."""
        if self._encoding != "utf-8":
            return OPTIONAL_STRING, [self.to_connect(topic, each).value for each in data]
        try:
            return OPTIONAL_STRING, [None if each is None else each.decode() for each in data]
        except UnicodeDecodeError:
            return OPTIONAL_STRING, [None if each is None else _utf8(each) for each in data]

    def all_from_connect(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        """Return the bytes of many texts."""
        if self._encoding == "utf-8":
            try:
                write = self.from_connect
                return [each.encode() if type(each) is str else write(topic, schema, each) for each in values]
            except UnicodeEncodeError:
                pass  # half a surrogate pair
        return super().all_from_connect(topic, schema, values)


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        if not encoding.startswith("utf-16"):
            return data.decode(encoding, "replace")
    if encoding == "utf-16":
        encoding = "utf-16-be" if data.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
        data = data[2:]
    return _wrong_utf16(data, "big" if encoding == "utf-16-be" else "little")


def _wrong_utf16(data: bytes, order: Literal["big", "little"]) -> str:
    """Return the text of wrong UTF-16: Java takes half a pair and what follows it as one wrong character."""
    units = [int.from_bytes(data[at : at + 2], order) for at in range(0, len(data) - 1, 2)]
    characters: list[str] = []
    at = 0
    while at < len(units):
        unit, low = units[at], units[at + 1] if at + 1 < len(units) else None
        at += 1
        if not 0xD800 <= unit < 0xE000:
            characters.append(chr(unit))
            continue
        if unit < 0xDC00:
            at += 1
            if low is None:
                return "".join([*characters, "\ufffd"])
            if 0xDC00 <= low < 0xE000:
                characters.append(chr(0x10000 + ((unit - 0xD800) << 10) + low - 0xDC00))
                continue
        characters.append("\ufffd")
    return "".join([*characters, "\ufffd"] if len(data) % 2 else characters)


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    java_class: ClassVar[str] = f"{PACKAGE}.ByteArrayConverter"

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the bytes."""
        return SchemaAndValue(OPTIONAL_BYTES, data)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes.

        Raises:
            DataError: The value is something else.
        """
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is not None and not isinstance(value, bytes):
            raise DataError(
                f"ByteArrayConverter is not compatible with objects of type class {java_class(value, schema)}"
            )
        return value

    def all_to_connect(self, topic: str, data: Sequence[bytes | None]) -> tuple[Schema | None, list[Any]] | None:
        """Return the bytes, as they are."""
        return OPTIONAL_BYTES, list(data)


class NumberConverter(Converter):
    """Numbers of one type, in as many bytes as it has, the highest first.

    Attributes:
        word: Its name in messages.
        schema: The schema of what it reads.
        form: The form of its bytes, for ``struct``.
    """

    word: ClassVar[str]
    schema: ClassVar[Schema]
    form: ClassVar[str]

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the number that the bytes are.

        Raises:
            DataError: They are too few or too many.
        """
        if data is None:
            return SchemaAndValue(self.schema, None)
        try:
            return SchemaAndValue(self.schema, struct.unpack(self.form, data)[0])
        except struct.error:
            name = {">h": "Short", ">i": "Integer", ">q": "Long"}.get(self.form, "") + "Deserializer"
            cause = BytesError(f"Size of data received by {name} is not {struct.calcsize(self.form)}")
            raise DataError(f"Failed to deserialize {self.word}: ") from cause

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of the number.

        Raises:
            DataError: The value is of another type.
        """
        if value is None:
            return None
        if type_of(value, schema) is not self.schema.type:
            raise DataError(f"Failed to serialize to {self.word} (was class {java_class(value, schema)}): ")
        try:
            return struct.pack(self.form, value)
        except (struct.error, OverflowError) as error:
            raise DataError(f"Failed to serialize to {self.word}: ") from error


class ShortConverter(NumberConverter):
    """Whole numbers of 16 bits."""

    java_class: ClassVar[str] = f"{PACKAGE}.ShortConverter"
    word, schema, form = "short", OPTIONAL_INT16, ">h"


class IntegerConverter(NumberConverter):
    """Whole numbers of 32 bits."""

    java_class: ClassVar[str] = f"{PACKAGE}.IntegerConverter"
    word, schema, form = "integer", OPTIONAL_INT32, ">i"


class LongConverter(NumberConverter):
    """Whole numbers of 64 bits."""

    java_class: ClassVar[str] = f"{PACKAGE}.LongConverter"
    word, schema, form = "long", OPTIONAL_INT64, ">q"


class FloatConverter(NumberConverter):
    """Numbers of 32 bits."""

    java_class: ClassVar[str] = f"{PACKAGE}.FloatConverter"
    word, schema, form = "float", OPTIONAL_FLOAT32, ">f"


class DoubleConverter(NumberConverter):
    """Numbers of 64 bits."""

    java_class: ClassVar[str] = f"{PACKAGE}.DoubleConverter"
    word, schema, form = "double", OPTIONAL_FLOAT64, ">d"


class BooleanConverter(Converter):
    """Booleans, one byte each."""

    java_class: ClassVar[str] = f"{PACKAGE}.BooleanConverter"

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the boolean of one byte.

        Raises:
            DataError: It is not one byte, or neither 0 nor 1.
        """
        if data is None:
            return SchemaAndValue(OPTIONAL_BOOLEAN, None)
        if len(data) != 1:
            cause = BytesError("Size of data received by BooleanDeserializer is not 1")
            raise DataError("Failed to deserialize boolean: ") from cause
        if data[0] > 1:
            shown = int.from_bytes(data, "big", signed=True)
            cause = BytesError(f"Unexpected byte received by BooleanDeserializer: {shown}")
            raise DataError("Failed to deserialize boolean: ") from cause
        return SchemaAndValue(OPTIONAL_BOOLEAN, data == b"\x01")

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return one byte.

        Raises:
            DataError: The value is not a boolean.
        """
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type}")
        if value is not None and not isinstance(value, bool):
            raise DataError(f"BooleanConverter is not compatible with objects of type class {java_class(value)}")
        return None if value is None else bytes([value])
