"""Headers, topics and names of schemas: DropHeaders, HeaderFrom, InsertHeader, RegexRouter, SetSchemaMetadata, ..."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from penstock.base.java_text.dates import SimpleDateFormat
from penstock.base.java_text.regex import compile_java, replacement
from penstock.base.java_text.texts import JavaTextError
from penstock.connect.config import ConfigDef, Importance, JavaRegex, Kind, NonEmptyList, NonNull, OneOf, UniqueList
from penstock.connect.converters import parse_header
from penstock.connect.data import DataError, Schema, SettingError, Struct, Type, UnexpectedDataError, copy_basics
from penstock.connect.transforms.transformation import (
    PACKAGE,
    REPLACE_NULL,
    R,
    SidedTransformation,
    Transformation,
    require_map,
    require_struct,
    required,
    schema_cache,
    setting,
)

__all__ = ["DropHeaders", "Filter", "HeaderFrom", "InsertHeader", "RegexRouter", "SetSchemaMetadata", "TimestampRouter"]


class DropHeaders(Transformation):
    """Removes one or more headers from each record."""

    java_class: ClassVar[str] = f"{PACKAGE}.DropHeaders"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "headers",
                Kind.LIST,
                "The name of the headers to be removed.",
                rule=UniqueList(),
                importance=Importance.HIGH,
            )
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the names."""
        self._names = frozenset(self.config.parse(settings)["headers"])

    def apply(self, record: R) -> R:
        """Return the record without these headers."""
        return record.with_(headers=record.headers.without(self._names))


class InsertHeader(Transformation):
    """Add a header to each record."""

    java_class: ClassVar[str] = f"{PACKAGE}.InsertHeader"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting("header", Kind.STRING, "The name of the header.", rule=NonNull(), importance=Importance.HIGH),
            setting(
                "value.literal",
                Kind.STRING,
                "The literal value that is to be set as the header value on all records.",
                rule=NonNull(),
                importance=Importance.HIGH,
            ),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take name and value; the value's type is guessed as for headers that are read."""
        parsed = self.config.parse(settings)
        self._name = parsed["header"]
        self._literal = parse_header(parsed["value.literal"])

    def apply(self, record: R) -> R:
        """Return the record with one more header."""
        return record.with_(headers=record.headers.add(self._name, self._literal.value, self._literal.schema))


class HeaderFrom(SidedTransformation):
    """Moves or copies fields in the key/value of a record into that record's headers.

    Corresponding elements of ``fields`` and ``headers`` together identify a field and the header it should be moved
    or copied to.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "fields",
                Kind.LIST,
                "Field names in the record whose values are to be copied or moved to headers.",
                rule=NonEmptyList(),
                importance=Importance.HIGH,
            ),
            setting(
                "headers",
                Kind.LIST,
                "Header names, in the same order as the field names listed in the fields configuration property.",
                rule=NonEmptyList(),
                importance=Importance.HIGH,
            ),
            setting(
                "operation",
                Kind.STRING,
                "Either <code>move</code> if the fields are to be moved to the headers (removed from the key/value), "
                "or <code>copy</code> if the fields are to be copied to the headers (retained in the key/value).",
                rule=OneOf(("move", "copy")),
                importance=Importance.HIGH,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        if len(parsed["headers"]) != len(parsed["fields"]):
            raise SettingError("'fields' config must have the same number of elements as 'headers' config.")
        self._pairs: list[tuple[str, str]] = list(zip(parsed["fields"], parsed["headers"], strict=True))
        self._moves = parsed["operation"] == "move"
        self._purpose = f"header {parsed['operation']}"
        self.replace_null = required(parsed, REPLACE_NULL.name)
        self._schemas = schema_cache(self._rest)

    def apply(self, record: R) -> R:
        """Return the record with more headers, and if moved, fewer fields."""
        value, schema = self.value_of(record), self.schema_of(record)
        headers = record.headers
        if schema is None:
            fields = require_map(value, self._purpose)
            for name, header in self._pairs:
                headers = headers.add(header, fields.get(name))
            moved = {name for name, _ in self._pairs} if self._moves else set()
            kept = {name: part for name, part in fields.items() if name not in moved}
            return self.updated(record, None, kept, headers=headers)
        source = require_struct(value, self._purpose)
        changed = self._schemas(schema) if self._moves else schema
        result = source
        if self._moves:
            result = Struct(changed)
            for part in changed.fields:
                result[part.name] = source[part.name] if self.replace_null else source.raw(part.name)
        for name, header in self._pairs:
            field = schema.field(name)
            if field is None:
                raise UnexpectedDataError(f"there is no field {name} to make the header {header} of")
            headers = headers.add(header, self.field_of(source, field), field.schema)
        return self.updated(record, changed, result, headers=headers)

    def _rest(self, schema: Schema) -> Schema:
        moved = {name for name, _ in self._pairs}
        kept = [(part.name, part.schema) for part in schema.struct_fields() if part.name not in moved]
        return copy_basics(schema, Type.STRUCT, kept)


class Filter(Transformation):
    """Drops all records, filtering them from subsequent transformations in the chain.

    This is intended to be used conditionally to filter out records matching (or not matching) a particular predicate.
    """

    java_class: ClassVar[str] = f"{PACKAGE}.Filter"

    def apply(self, record: R) -> R | None:  # noqa: ARG002 - of the interface
        """Nothing."""
        return None


class RegexRouter(Transformation):
    """Update the record topic using the configured regular expression and replacement string, both of Java's syntax.

    Example:
        >>> from penstock.connect.data import SinkRecord
        >>> router = RegexRouter()
        >>> router.configure({"regex": "(.*)-raw", "replacement": "$1"})
        >>> router.apply(SinkRecord(topic="lines-raw")).topic
        'lines'
    """

    java_class: ClassVar[str] = f"{PACKAGE}.RegexRouter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "regex",
                Kind.STRING,
                "Regular expression to use for matching.",
                rule=JavaRegex(),
                importance=Importance.HIGH,
            ),
            setting("replacement", Kind.STRING, "Replacement string.", importance=Importance.HIGH),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._regex: re.Pattern[str] = compile_java(parsed["regex"])
        self._replacement: str | None = parsed["replacement"]

    def apply(self, record: R) -> R:
        """Return the record under another topic, if the expression matches the whole of its topic."""
        if record.topic is None or self._regex.fullmatch(record.topic) is None:
            return record
        match = self._regex.search(record.topic)
        if match is None or self._replacement is None:
            raise UnexpectedDataError(f"no replacement for the topic {record.topic}")
        try:
            new = replacement(self._replacement, match)
        except JavaTextError as error:
            raise UnexpectedDataError(str(error)) from error
        return record.with_(topic=record.topic[: match.start()] + new + record.topic[match.end() :])


class TimestampRouter(Transformation):
    """Update the record's topic field as a function of the original topic value and the record timestamp.

    This is mainly useful for sink connectors, since the topic field is often used to determine the equivalent entity
    name in the destination system (e.g. database table or search index name).
    """

    java_class: ClassVar[str] = f"{PACKAGE}.TimestampRouter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "topic.format",
                Kind.STRING,
                "Format string which can contain <code>${topic}</code> and <code>${timestamp}</code> as placeholders "
                "for the topic and timestamp, respectively.",
                default="${topic}-${timestamp}",
                importance=Importance.HIGH,
            ),
            setting(
                "timestamp.format",
                Kind.STRING,
                "Format string for the timestamp that is compatible with <code>java.text.SimpleDateFormat</code>.",
                default="yyyyMMdd",
                importance=Importance.HIGH,
            ),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the formats; a wrong one of the timestamp shows at the first record, as in Kafka."""
        parsed = self.config.parse(settings)
        self._topic: str | None = parsed["topic.format"]
        self._pattern: str | None = parsed["timestamp.format"]
        self._format: SimpleDateFormat | None = None

    def apply(self, record: R) -> R:
        """Return the record under another topic."""
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record: {record}")
        if self._topic is None or self._pattern is None:
            raise UnexpectedDataError("the settings topic.format and timestamp.format must not be null")
        try:
            self._format = self._format or SimpleDateFormat(self._pattern)
        except JavaTextError as error:
            raise UnexpectedDataError(str(error)) from error
        text = self._format.format(record.timestamp)
        topic = self._topic.replace("${topic}", record.topic or "").replace("${timestamp}", text)
        return record.with_(topic=topic)


class SetSchemaMetadata(SidedTransformation):
    """Set the schema name, version or both on the record's key or value schema."""

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting("schema.name", Kind.STRING, "Schema name to set.", default=None, importance=Importance.HIGH),
            setting("schema.version", Kind.INT, "Schema version to set.", default=None, importance=Importance.HIGH),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._name, self._version = parsed["schema.name"], parsed["schema.version"]
        self.replace_null = required(parsed, REPLACE_NULL.name)
        if self._name is None and self._version is None:
            raise SettingError("Neither schema name nor version configured")
        self._schemas = schema_cache(self._changed)

    def apply(self, record: R) -> R:
        """Return the record with another schema. Kafka takes structs only: so does this."""
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        changed = self._schemas(schema)
        if isinstance(value, Struct):
            value = self._moved(value, changed)
        return self.updated(record, changed, value)

    def _moved(self, value: Struct, schema: Schema) -> Struct:
        moved = Struct(schema)
        for part in schema.fields:
            moved[part.name] = self.field_of(value, part)
        return moved

    def _changed(self, schema: Schema) -> Schema:
        schema.struct_fields()
        name = schema.name if self._name is None else self._name
        return replace(schema, name=name, version=schema.version if self._version is None else self._version)
