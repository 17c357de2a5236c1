"""The JSON converter: with schemas in each record, with one schema for all, or without.

Whatever is unusual in a text is left to the reader of whole texts, which decides about it and has the errors.
"""

from __future__ import annotations

import json
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from json.scanner import make_scanner
from typing import Any, ClassVar, Generic, TypeVar

from penstock.base.java_text.texts import is_blank
from penstock.connect.config import AnyCase, ConfigDef, Importance, Kind, Model, Setting, Width
from penstock.connect.converters.converter import CONVERTER_TYPE, Converter, Role
from penstock.connect.data import (
    NO_VALUE,
    BytesError,
    DataError,
    Moment,
    Schema,
    SchemaAndValue,
    SchemaBuilderError,
    Struct,
    Type,
    array,
    map_of,
    struct,
    with_default,
    wrapped,
)
from penstock.serde.data.json_values import JsonOptions, from_json, quoted, read_integer, read_json, to_json
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    date_from_days,
    time_from_millis,
)
from penstock.serde.data.values import BITS

__all__ = ["EnvelopeReader", "JsonConverter"]

# Schemas

TYPES = {kind.value: kind for kind in Type}


def schema_to_json(schema: Schema | None, options: JsonOptions, *, field: str | None = None) -> str:
    """Return the JSON text of a schema.

    Args:
        schema: The schema.
        options: How its default is written.
        field: The field that it is of.

    Example:
        >>> schema_to_json(Schema(Type.INT8, name="size"), JsonOptions())
        '{"type":"int8","optional":false,"name":"size"}'
    """
    if schema is None:
        return "null"
    parts = [f'"type":"{schema.type.value}"']
    match schema.type:
        case Type.ARRAY:
            parts.append(f'"items":{schema_to_json(schema.values, options)}')
        case Type.MAP:
            parts.append(f'"keys":{schema_to_json(schema.keys, options)}')
            parts.append(f'"values":{schema_to_json(schema.values, options)}')
        case Type.STRUCT:
            fields = (schema_to_json(part.schema, options, field=part.name) for part in schema.fields)
            parts.append(f'"fields":[{",".join(fields)}]')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{quoted(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{quoted(schema.doc)}')
    if schema.parameters is not None:
        pairs = (f"{quoted(name)}:{quoted(value)}" for name, value in schema.parameters.items())
        parts.append(f'"parameters":{{{",".join(pairs)}}}')
    if schema.default is not None:
        parts.append(f'"default":{to_json(schema, schema.default, options)}')
    if field is not None:
        parts.append(f'"field":{quoted(field)}')
    return f"{{{','.join(parts)}}}"


def schema_from_json(node: Any, options: JsonOptions) -> Schema | None:
    """Return the schema of parsed JSON.

    Raises:
        DataError: It is not a schema.
        SchemaBuilderError: It cannot be: a field twice, a default that does not fit.

    Example:
        >>> str(schema_from_json({"type": "string", "optional": True}, JsonOptions()))
        'Schema{STRING}'
    """
    if node is None:
        return None
    name = node.get("type") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise DataError("Schema must contain 'type' field")
    kind = TYPES.get(name)
    if kind is None:
        raise DataError(f"Unknown schema type: {name}")
    version = node.get("version")
    schema = replace(
        _bare(kind, node, options),
        optional=node.get("optional") is True,
        name=_text(node, "name"),
        version=wrapped(version, 32) if isinstance(version, int) and not isinstance(version, bool) else None,
        doc=_text(node, "doc"),
        parameters=_parameters(node.get("parameters")),
    )
    if "default" not in node:
        return schema
    default = from_json(schema, node["default"], options)
    return with_default(schema, default)


def _bare(kind: Type, node: dict[str, Any], options: JsonOptions) -> Schema:
    match kind:
        case Type.ARRAY:
            if node.get("items") is None:
                raise DataError("Array schema did not specify the element type")
            return array(schema_from_json(node["items"], options))
        case Type.MAP:
            for part, word in (("keys", "key"), ("values", "value")):
                if part not in node:
                    raise DataError(f"Map schema did not specify the {word} type")
            keys, values = schema_from_json(node["keys"], options), schema_from_json(node["values"], options)
            for schema, word in ((keys, "keySchema"), (values, "valueSchema")):
                if schema is None:
                    raise SchemaBuilderError(f"{word} cannot be null.")
            return map_of(keys, values)
        case Type.STRUCT:
            fields = node.get("fields")
            if not isinstance(fields, list):
                raise DataError('Struct schema\'s "fields" argument is not an array.')
            return struct([_field(part, options) for part in fields])
    return Schema(kind)


def _field(node: Any, options: JsonOptions) -> tuple[str, Schema]:
    name = node.get("field") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise DataError("Struct schema's field name not specified properly")
    schema = schema_from_json(node, options)
    if schema is None:
        raise SchemaBuilderError(f"fieldSchema for field {name} cannot be null.")
    return name, schema


def _text(node: dict[str, Any], key: str) -> str | None:
    value = node.get(key)
    return value if isinstance(value, str) else None


def _parameters(node: Any) -> dict[str, str] | None:
    if not isinstance(node, dict) or not node:
        return None
    if not all(isinstance(value, str) for value in node.values()):
        raise DataError("Schema parameters must have string values.")
    return dict(node)


# Records as texts, without a tree of each

MOST_ENVELOPES = 8
MOST_BRACKETS = 100  # fewer than the levels that a text may have
LONGEST_FLOAT = 24  # characters that Python writes for one
BLANKS = " \t\n\r"
_SCHEMA = re.compile(r'\{[ \t\n\r]*"schema"[ \t\n\r]*:[ \t\n\r]*')
_PAYLOAD = re.compile(r'[ \t\n\r]*,[ \t\n\r]*"payload"[ \t\n\r]*:')
_HALF_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LOGICAL: dict[str, Callable[[int], Moment]] = {
    TIMESTAMP_NAME: Moment,
    DATE_NAME: date_from_days,
    TIME_NAME: time_from_millis,
}
_KINDS: dict[Type, type] = {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT64: float}
_SCAN_ANY = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]


class _UnusualError(ValueError):
    """The text is for the reader of whole texts."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A field.

    Attributes:
        name: Its name.
        kind: Python's type of its JSON.
        null: What is taken for null.
        may_be_null: Whether null is taken for something.
        limit: Whole numbers are below it, and not below its opposite.
        make: What makes the value of a whole number; None: it is the value.
    """

    name: str
    kind: type
    null: Any
    may_be_null: bool
    limit: int
    make: Callable[[int], Moment] | None


@dataclass(frozen=True, slots=True)
class _Envelope:
    """The common beginning of texts of one schema, and the fields of their payloads."""

    head: bytes
    brackets: int
    schema: Schema
    parts: tuple[_Part, ...]


class EnvelopeReader:
    """A reader of texts that begin as one before did.

    Args:
        replace_null: Null becomes the default, where there is one.
    """

    def __init__(self, *, replace_null: bool) -> None:
        self._replace_null = replace_null
        self._envelopes: list[_Envelope] = []
        self._others: list[Schema] = []  # whose payloads are not of plain fields

    def read(self, data: bytes) -> SchemaAndValue | None:
        """Return the value of a text; None: the text has to be read whole."""
        for envelope in self._envelopes:
            if data.startswith(envelope.head):
                try:
                    return SchemaAndValue(envelope.schema, _payload(envelope, data))
                except (ValueError, OverflowError, StopIteration, RecursionError, DataError):
                    return None
        return None

    def remember(self, data: bytes, schema: Schema | None) -> None:
        """Remember how a text begins that was read and has this schema, if its payloads are of plain fields."""
        if schema is None or data[1:2] == b"\0" or any(each is schema for each in self._others):
            return
        if any(data.startswith(each.head) for each in self._envelopes):
            return  # something is unusual in the payload
        parts = self._parts(schema) if schema.type is Type.STRUCT else None
        if parts is None:
            self._others = [schema, *self._others[: MOST_ENVELOPES - 1]]
            return
        try:
            text = data.decode()
            before = _SCHEMA.match(text)
            between = _PAYLOAD.match(text, _SCAN_ANY(text, before.end())[1]) if before is not None else None
        except (ValueError, StopIteration, RecursionError):
            return
        head = b"" if between is None else text[: between.end()].encode()
        if not head:
            return
        brackets = head.count(b"[") + head.count(b"{")
        self._envelopes = [_Envelope(head, brackets, schema, parts), *self._envelopes[: MOST_ENVELOPES - 1]]

    def _parts(self, schema: Schema) -> tuple[_Part, ...] | None:
        """Return the fields of a struct; None if one is not plain."""
        parts = [self._part(each.name, each.schema) for each in schema.fields]
        plain = [each for each in parts if each is not None]
        return tuple(plain) if len(plain) == len(parts) and schema.name not in (*_LOGICAL, DECIMAL_NAME) else None

    def _part(self, name: str, schema: Schema) -> _Part | None:
        has_default = schema.default is not None and self._replace_null
        null, may_be_null = (schema.default, True) if has_default else (None, schema.optional)
        if schema.name in _LOGICAL:
            bits = 64 if schema.name == TIMESTAMP_NAME else 32
            return _Part(name, int, null, may_be_null, 1 << (bits - 1), _LOGICAL[schema.name])
        if schema.name == DECIMAL_NAME:
            return None
        if schema.type in BITS:
            return _Part(name, int, null, may_be_null, 1 << (BITS[schema.type] - 1), None)
        kind = _KINDS.get(schema.type)
        return None if kind is None else _Part(name, kind, null, may_be_null, 0, None)


def _payload(envelope: _Envelope, data: bytes) -> Struct:
    """Return the payload of a text that begins as its envelope does.

    Raises:
        ValueError: Something is unusual; so do the other errors of reading and of values say.
    """
    tail = data[len(envelope.head) :]
    if envelope.brackets + tail.count(b"[") + tail.count(b"{") > MOST_BRACKETS:
        raise _UnusualError
    if b"\\u" in tail and _HALF_ESCAPE.search(tail):  # perhaps in a name
        raise _UnusualError
    text = tail.decode().lstrip(BLANKS)
    node, end = _scan(text, 0)
    if type(node) is not dict or text[end:].lstrip(BLANKS)[:1] != "}":
        raise _UnusualError
    values: list[Any] = []
    for part in envelope.parts:
        value: Any = node.get(part.name)
        kind = type(value)
        if kind is not part.kind:
            if kind is int and part.kind is float:
                value = float(value)
            elif value is None and part.may_be_null:
                value = part.null
            else:
                raise _UnusualError
        elif kind is int:
            if not -part.limit <= value < part.limit:
                raise _UnusualError
            if part.make is not None:
                value = part.make(value)
        values.append(value)
    return Struct.of_checked(envelope.schema, values)


def _double(text: str) -> float:
    """Return a number with a fraction or an exponent, but not one whose digits or exponent may be too many."""
    value = float(text)
    if len(text) > LONGEST_FLOAT or (not value and text != "0.0") or not math.isfinite(value):
        raise _UnusualError
    return value


def _constant(text: str) -> Any:
    raise _UnusualError(text)


_scan = make_scanner(json.JSONDecoder(parse_float=_double, parse_int=read_integer, parse_constant=_constant))  # type: ignore[arg-type]


# ruff: noqa: ARG002 - the topic is part of the interface


# The converter

K = TypeVar("K")
V = TypeVar("V")
NO_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)


def _setting(name: str, kind: Kind, default: Any, doc: str, **more: Any) -> Setting:
    return Setting(name=name, kind=kind, default=default, doc=doc, width=Width.MEDIUM, **more)


class JsonConverter(Converter):
    """Values as JSON text, by default in an envelope of schema and payload.

    Example:
        >>> converter = JsonConverter()
        >>> converter.configure({"schemas.enable": "false"})
        >>> converter.to_connect("lines", b'{"path": "/"}').value
        {'path': '/'}
    """

    java_class: ClassVar[str] = "org.apache.kafka.connect.json.JsonConverter"
    model: ClassVar[Model] = Model(
        "Kafka's JsonConverter", idle={"schemas.cache.size": "schemas that are in use are kept."}
    )
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            CONVERTER_TYPE,
            _setting(
                "schemas.enable",
                Kind.BOOLEAN,
                default=True,
                doc="Include schemas within each of the serialized values and keys.",
                importance=Importance.HIGH,
                group="Schemas",
                order=0,
                label="Enable Schemas",
            ),
            _setting(
                "schemas.cache.size",
                Kind.INT,
                default=1000,
                doc="The maximum number of schemas that can be cached in this converter instance.",
                importance=Importance.HIGH,
                group="Schemas",
                order=1,
                label="Schema Cache Size",
            ),
            _setting(
                "schema.content",
                Kind.STRING,
                default=None,
                doc="When set, this is used as the schema for all messages, and sinks read plain JSON with it.",
                importance=Importance.HIGH,
                group="Schemas",
                order=2,
                label="Schema Content",
            ),
            _setting(
                "decimal.format",
                Kind.STRING,
                default="BASE64",
                doc="Controls which format this converter will serialize decimals in. This value is case insensitive "
                "and can be either 'BASE64' (default) or 'NUMERIC'",
                rule=AnyCase(("NUMERIC", "BASE64")),
                importance=Importance.LOW,
                group="Serialization",
                order=0,
                label="Decimal Format",
            ),
            _setting(
                "replace.null.with.default",
                Kind.BOOLEAN,
                default=True,
                doc="Whether to replace fields that have a default value and that are null to the default value. When "
                "set to true, the default value is used, otherwise null is used.",
                importance=Importance.LOW,
                group="Serialization",
                order=1,
                label="Replace null with default",
            ),
        ]
    )

    def __init__(self) -> None:
        self._options = JsonOptions()
        self._with_schemas = True
        self._schema: Schema | None = None
        self._texts: _Cache[Schema, str] = _Cache(1000)
        self._schemas: _Cache[str, Schema] = _Cache(1000)
        self._envelopes = EnvelopeReader(replace_null=True)

    def configure(self, settings: Mapping[str, Any], role: Role = "value") -> None:
        """Take the settings.

        Raises:
            SettingError: One is wrong.
            DataError: ``schema.content`` is not a schema.
        """
        parsed = self.parsed(settings, role)
        self._options = JsonOptions(
            numeric_decimals=parsed["decimal.format"].upper() == "NUMERIC",
            replace_null=bool(parsed["replace.null.with.default"]),
        )
        self._with_schemas = bool(parsed["schemas.enable"])
        self._texts, self._schemas = _Cache(parsed["schemas.cache.size"]), _Cache(parsed["schemas.cache.size"])
        self._envelopes = EnvelopeReader(replace_null=self._options.replace_null)
        content = parsed["schema.content"]
        if content and not is_blank(content):
            try:
                self._schema = schema_from_json(read_json(content.encode(), leading_zeros=True), self._options)
            except BytesError as error:
                raise DataError("Failed to parse schema in converter config due to serialization error: ") from error

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the value that the text holds.

        Raises:
            DataError: It is not JSON, has no envelope where there should be one, or does not fit its schema.
        """
        if data is None:
            return NO_VALUE
        in_envelope = self._with_schemas and self._schema is None
        envelope = self._envelopes.read(data) if in_envelope else None
        if envelope is not None:
            return envelope
        try:
            node = read_json(data, leading_zeros=True)
        except BytesError as error:
            message = "Converting byte[] to Kafka Connect data failed due to serialization error: "
            raise DataError(message) from error
        if not self._with_schemas:
            return SchemaAndValue(None, from_json(None, node, self._options))
        if self._schema is not None:
            return SchemaAndValue(self._schema, from_json(self._schema, node, self._options))
        if not isinstance(node, dict) or node.keys() != {"schema", "payload"}:
            raise DataError(NO_ENVELOPE)
        schema = self._read_schema(node["schema"])
        value = from_json(schema, node["payload"], self._options)
        self._envelopes.remember(data, schema)
        return SchemaAndValue(schema, value)

    def all_to_connect(self, topic: str, data: Sequence[bytes | None]) -> tuple[Schema | None, list[Any]] | None:
        """Return the values of many texts; None: they are not of one schema."""
        read = self.to_connect
        if not self._with_schemas:
            return None, [read(topic, each).value for each in data]
        if None in data and any(data):
            return None  # known before anything is read
        schema: Schema | None = None
        values: list[Any] = []
        for number, each in enumerate(data):
            decoded = read(topic, each)
            if number and decoded.schema is not schema:
                return None
            schema = decoded.schema
            values.append(decoded.value)
        return schema, values

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text of a value.

        Raises:
            DataError: It does not fit its schema, or has no form in JSON.
        """
        if schema is None and value is None:
            return None
        try:
            if not self._with_schemas:
                return to_json(schema, value, self._options).encode()
            head = self._schema_text(schema)  # first: of two errors Kafka reports that of the schema
            return f'{{"schema":{head},"payload":{to_json(schema, value, self._options)}}}'.encode()
        except (BytesError, UnicodeEncodeError) as error:
            message = "Converting Kafka Connect data to byte[] failed due to serialization error: "
            raise DataError(message) from error

    def _schema_text(self, schema: Schema | None) -> str:
        if schema is None:
            return "null"
        text = self._texts.get(schema)
        return text or self._texts.put(schema, schema_to_json(schema, self._options))

    def _read_schema(self, node: Any) -> Schema | None:
        if node is None:
            return None
        key = repr(node)
        cached = self._schemas.get(key)
        if cached is not None:
            return cached
        schema = schema_from_json(node, self._options)
        return None if schema is None else self._schemas.put(key, schema)


class _Cache(Generic[K, V]):
    """The most recently used values, at most so many."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        self._values[key] = value
        while len(self._values) > max(self._size, 0):
            self._values.popitem(last=False)
        return value
