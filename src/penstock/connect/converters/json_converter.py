"""The JSON converter: with schemas in each record, with one schema for all, or without."""

# ruff: noqa: ARG002 - the topic is part of the interface

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from penstock.base.java_text.blanks import is_blank
from penstock.connect.config import AnyCase, ConfigDef, Importance, Kind, Model, Setting, Width
from penstock.connect.converters.converter import CONVERTER_TYPE, Converter, Role
from penstock.connect.converters.json_envelopes import EnvelopeReader
from penstock.connect.converters.json_schemas import schema_from_json, schema_to_json
from penstock.connect.data import NO_VALUE, BytesError, DataError, Schema, SchemaAndValue
from penstock.serde.data.json_values import JsonOptions, from_json, read_json, to_json

__all__ = ["JsonConverter"]

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
        known = self._envelopes.read(data) if in_envelope else None
        if known is not None:
            return known
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
            found = read(topic, each)
            if number and found.schema is not schema:
                return None
            schema = found.schema
            values.append(found.value)
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
