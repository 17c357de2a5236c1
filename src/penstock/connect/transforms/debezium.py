"""Debezium's transformations: the state of a row out of its envelope, logical tables, outboxes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.base.java_text.regex import compile_java, replacement
from penstock.base.log_lines import own_logger
from penstock.connect.config import ConfigDef, Importance, JavaRegex, Kind, OneOf
from penstock.connect.data import (
    OPTIONAL_STRING,
    STRING,
    ConnectRecord,
    DataError,
    Field,
    Header,
    Headers,
    Schema,
    Struct,
    Type,
    array,
    struct,
)
from penstock.connect.transforms.transformation import R, Transformation, setting

__all__ = [
    "DEBEZIUM_TRANSFORMS",
    "ByLogicalTableRouter",
    "EventRouter",
    "ExtractChangedRecordState",
    "ExtractNewRecordState",
]

_LOG = own_logger(__name__)
PACKAGE = "io.debezium.transforms"
DELETED = "__deleted"


def _envelope(record: ConnectRecord) -> Struct | None:
    """Return the value of a record, if it is a change in Debezium's envelope."""
    value = record.value
    if isinstance(value, Struct) and (value.schema.name or "").endswith("Envelope"):
        return value
    return None


def _setting(name: str, kind: Kind, doc: str, default: str, rule: Any = None) -> Any:
    return setting(name, kind, doc, default=default, rule=rule, importance=Importance.MEDIUM)


@dataclass(frozen=True, slots=True)
class _Reference:
    """A field of the envelope or of one of its parts, under the name that it gets."""

    part: str
    name: str
    shown: str

    @classmethod
    def of(cls, text: str, prefix: str) -> _Reference:
        field_path, _, alias = text.strip().partition(":")
        part, _, name = field_path.rpartition(".")
        return cls(part, name, prefix + (alias or field_path.replace(".", "_")))

    def find(self, envelope: Struct) -> tuple[Schema, Any] | None:
        """Return the schema and the value of the field; None: the envelope has no such field."""
        if self.part:
            part = envelope.schema.field(self.part)
            if part is None or part.schema.type is not Type.STRUCT:
                return None
            field, holder = part.schema.field(self.name), envelope[self.part]
            return None if field is None else (field.schema, None if holder is None else holder.raw(self.name))
        top = envelope.schema.field(self.name)
        if top is not None and top.schema.type is not Type.STRUCT:
            return top.schema, envelope.raw(self.name)
        source = envelope.schema.field("source")
        field = None if source is None else source.schema.field(self.name)
        if field is None or envelope["source"] is None:
            return None
        return field.schema, envelope["source"].raw(self.name)


def _optional(schema: Schema) -> Schema:
    return replace(schema, optional=True, default=None)


def _references(texts: list[str], prefix: str) -> list[_Reference]:
    return [_Reference.of(each, prefix) for each in texts if each.strip()]


class ExtractNewRecordState(Transformation):
    """The row after a change in place of its envelope.

    Example:
        >>> from penstock.connect.data import SinkRecord
        >>> row = struct({"id": STRING}, name="t.Value", optional=True)
        >>> envelope = struct({"before": row, "after": row, "op": STRING}, name="t.Envelope")
        >>> unwrap = ExtractNewRecordState()
        >>> unwrap.configure({})
        >>> change = Struct(envelope, {"after": Struct(row, {"id": "7"}), "op": "c"})
        >>> str(unwrap.apply(SinkRecord(topic="t", value=change, value_schema=envelope)).value)
        'Struct{id=7}'
    """

    java_class: ClassVar[str] = f"{PACKAGE}.ExtractNewRecordState"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            _setting(
                "delete.tombstone.handling.mode",
                Kind.STRING,
                "What becomes of a deletion and the tombstone behind it.",
                "tombstone",
                OneOf(("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")),
            ),
            _setting("add.fields", Kind.LIST, "Fields of the envelope to add to the row.", ""),
            _setting("add.fields.prefix", Kind.STRING, "Stands before the names of added fields.", "__"),
            _setting("add.headers", Kind.LIST, "Fields of the envelope to add as headers.", ""),
            _setting("add.headers.prefix", Kind.STRING, "Stands before the names of added headers.", "__"),
            _setting("route.by.field", Kind.STRING, "The field of the row whose value is the topic.", ""),
            _setting("drop.fields.header.name", Kind.STRING, "The header that lists fields to leave out.", ""),
            _setting(
                "drop.fields.keep.schema.compatible", Kind.BOOLEAN, "Leave only optional fields out of the row.", "true"
            ),
            _setting("drop.fields.from.key", Kind.BOOLEAN, "Leave the fields out of the key too.", "false"),
            _setting(
                "replace.null.with.default", Kind.BOOLEAN, "Null in a field with a default is the default.", "true"
            ),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._mode: str = parsed["delete.tombstone.handling.mode"]
        self._fields = _references(parsed["add.fields"], parsed["add.fields.prefix"])
        self._headers = _references(parsed["add.headers"], parsed["add.headers.prefix"])
        self._route: str = parsed["route.by.field"]
        self._dropped_by: str = parsed["drop.fields.header.name"]
        self._keeps_required: bool = parsed["drop.fields.keep.schema.compatible"]
        self._drops_of_key: bool = parsed["drop.fields.from.key"]
        self._with_default: bool = parsed["replace.null.with.default"]
        self._schemas: dict[tuple[Schema, tuple[Any, ...]], Schema] = {}

    def apply(self, record: R) -> R | None:
        """Return the record with the row alone, or none."""
        if record.value is None:
            return record if self._mode == "rewrite-with-tombstone" else None
        envelope = _envelope(record)
        if envelope is None:
            return record
        if envelope["op"] == "t":
            return None
        added = [(each.shown, field) for each in self._headers if (field := each.find(envelope)) is not None]
        headers = Headers(
            [*record.headers, *(Header(name, value, _optional(schema)) for name, (schema, value) in added)]
        )
        record = record.with_(headers=headers)
        after = envelope["after"]
        if after is None:
            return self._deleted(record, envelope)
        return self._written(record, envelope, after, deleted="false")

    def _deleted(self, record: R, envelope: Struct) -> R | None:
        if self._mode == "drop":
            return None
        before = envelope["before"]
        if self._mode == "delete-to-tombstone":
            return self._routed(record, before).with_(value=None, value_schema=None)
        if self._mode == "tombstone":
            part = envelope.schema.field("after")
            schema = None if part is None else part.schema
            return self._routed(record, before).with_(value=None, value_schema=schema)
        if before is None:
            return None
        return self._written(record, envelope, before, deleted="true")

    def _routed(self, record: R, row: Struct | None) -> R:
        if not self._route or row is None:
            return record
        topic, part = row[self._route], row.schema.field(self._route)
        if part is not None and part.schema.type is not Type.STRING:
            raise DataError(f"Field '{self._route}' is not of type STRING")
        return record if topic is None else record.with_(topic=topic)

    def _written(self, record: R, envelope: Struct, row: Struct, *, deleted: str) -> R:
        record, dropped = self._without(self._routed(record, row))
        fields = [part for part in row.schema.fields if not self._drops(part, dropped)]
        added: list[tuple[str, Schema, Any]] = []
        if self._mode.startswith("rewrite"):
            added.append((DELETED, OPTIONAL_STRING, deleted))
        for each in self._fields:
            field = each.find(envelope)
            if field is not None:
                added.append((each.shown, _optional(field[0]), field[1]))
        shape = (row.schema, tuple((name, schema) for name, schema, _ in added) + tuple(part.name for part in fields))
        schema = self._schemas.get(shape)
        if schema is None:
            parts = [(part.name, part.schema) for part in fields] + [(name, kind) for name, kind, _ in added]
            schema = replace(struct(parts, name=row.schema.name, version=row.schema.version), doc=row.schema.doc)
            self._schemas[shape] = schema
        values = [row.get(part, with_default=self._with_default) for part in fields] + [value for _, _, value in added]
        return record.with_(value=Struct.of_checked(schema, values), value_schema=schema)

    def _drops(self, part: Field, dropped: frozenset[str]) -> bool:
        return part.name in dropped and (part.schema.optional or not self._keeps_required)

    def _without(self, record: R) -> tuple[R, frozenset[str]]:
        """Return the record, and the fields that a header says to leave out."""
        header = record.headers.last(self._dropped_by) if self._dropped_by else None
        dropped = frozenset(header.value or ()) if header is not None else frozenset()
        key = record.key
        if dropped and self._drops_of_key and isinstance(key, Struct):
            fields = [part for part in key.schema.fields if part.name not in dropped]
            schema = struct([(part.name, part.schema) for part in fields], name=key.schema.name)
            kept = Struct.of_checked(schema, [key.raw(part.name) for part in fields])
            record = record.with_(key=kept, key_schema=schema)
        return record, dropped


class ExtractChangedRecordState(Transformation):
    """Headers with the names of the fields that a change has changed, and of those that it has not."""

    java_class: ClassVar[str] = f"{PACKAGE}.ExtractChangedRecordState"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            _setting("header.changed.name", Kind.STRING, "The header of the fields that have changed.", ""),
            _setting("header.unchanged.name", Kind.STRING, "The header of the fields that have not.", ""),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the names of the headers."""
        parsed = self.config.parse(settings)
        self._names: tuple[str, str] = parsed["header.changed.name"], parsed["header.unchanged.name"]

    def apply(self, record: R) -> R:
        """Return the record with the headers."""
        envelope = _envelope(record)
        if envelope is None:
            return record
        before, after = envelope["before"], envelope["after"]
        changed: list[str] = []
        same: list[str] = []
        if before is not None and after is not None:
            for part in after.schema.fields:
                (same if before[part.name] == after[part.name] else changed).append(part.name)
        headers = record.headers
        for name, fields in zip(self._names, (changed, same), strict=True):
            if name:
                schema = replace(array(OPTIONAL_STRING, optional=True), name=name)
                headers = Headers([*headers, Header(name, fields, schema)])
        return record.with_(headers=headers)


class ByLogicalTableRouter(Transformation):
    """Several tables as one: its topic, its schemas, and keys that say which table a row is of."""

    java_class: ClassVar[str] = f"{PACKAGE}.ByLogicalTableRouter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "topic.regex",
                Kind.STRING,
                "The topics that are merged.",
                rule=JavaRegex(),
                importance=Importance.HIGH,
            ),
            setting("topic.replacement", Kind.STRING, "The topic of the logical table.", importance=Importance.HIGH),
            _setting("key.enforce.uniqueness", Kind.BOOLEAN, "Keys say which table a row is of.", "true"),
            _setting(
                "key.field.name",
                Kind.STRING,
                "The field of keys that says so.",
                "__dbz__physicalTableIdentifier",
            ),
            _setting("key.field.regex", Kind.STRING, "The part of a topic that the field has.", "", JavaRegex()),
            _setting("key.field.replacement", Kind.STRING, "What the field has of that part.", ""),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the expressions."""
        parsed = self.config.parse(settings)
        self._regex: re.Pattern[str] = compile_java(parsed["topic.regex"])
        self._replacement: str = parsed["topic.replacement"]
        self._is_unique: bool = parsed["key.enforce.uniqueness"]
        self._key_field: str = parsed["key.field.name"]
        self._key_regex = compile_java(parsed["key.field.regex"]) if parsed["key.field.regex"] else None
        self._key_replacement: str = parsed["key.field.replacement"]
        self._keys: dict[tuple[Schema, str], Schema] = {}
        self._envelopes: dict[tuple[Schema, str], Schema] = {}

    def apply(self, record: R) -> R:
        """Return the record as one of the logical table."""
        topic = record.topic
        match = None if topic is None else self._regex.fullmatch(topic)
        if topic is None or match is None:
            return record
        envelope = _envelope(record)
        if envelope is None and record.value is not None:
            return record
        new = replacement(self._replacement, match)
        if not new:
            raise DataError(f"the topic of {topic} would be empty", hint="Look at topic.replacement.")
        if isinstance(record.key, Struct):
            record = self._keyed(record, record.key, new, topic)
        if envelope is not None:
            record = self._moved(record, envelope, new)
        return record.with_(topic=new)

    def _keyed(self, record: R, key: Struct, new: str, topic: str) -> R:
        name = f"{new}.Key"
        schema = self._keys.get((key.schema, name))
        if schema is None:
            parts = [(part.name, part.schema) for part in key.schema.fields]
            if self._is_unique:
                parts.append((self._key_field, STRING))
            schema = self._keys[key.schema, name] = struct(parts, name=name)
        values = list(key.all_raw())
        if self._is_unique:
            values.append(self._identifier(topic))
        return record.with_(key=Struct.of_checked(schema, values), key_schema=schema)

    def _identifier(self, topic: str) -> str:
        match = None if self._key_regex is None else self._key_regex.fullmatch(topic)
        return topic if match is None else replacement(self._key_replacement, match)

    def _moved(self, record: R, envelope: Struct, new: str) -> R:
        old = envelope.schema
        schema = self._envelopes.get((old, new))
        if schema is None:
            row = old.fields[0].schema
            renamed = replace(row, name=f"{new}.Value")
            parts = [(part.name, renamed if part.name in ("before", "after") else part.schema) for part in old.fields]
            schema = self._envelopes[old, new] = struct(parts, name=f"{new}.Envelope", version=old.version)
        values = [
            Struct.of_checked(part.schema, list(value.all_raw()))
            if part.name in ("before", "after") and isinstance(value, Struct)
            else value
            for part, value in zip(schema.fields, envelope.all_raw(), strict=True)
        ]
        return record.with_(value=Struct.of_checked(schema, values), value_schema=schema)


class EventRouter(Transformation):
    """Events that an application writes to an outbox table, each to the topic of its aggregate."""

    java_class: ClassVar[str] = f"{PACKAGE}.outbox.EventRouter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            _setting("table.field.event.id", Kind.STRING, "The column of the event's identity.", "id"),
            _setting("table.field.event.key", Kind.STRING, "The column of the record's key.", "aggregateid"),
            _setting("table.field.event.payload", Kind.STRING, "The column of the record's value.", "payload"),
            _setting("table.field.event.timestamp", Kind.STRING, "The column of the record's time.", ""),
            _setting("table.fields.additional.placement", Kind.LIST, "Further columns: column:place:alias.", ""),
            _setting(
                "table.fields.additional.error.on.missing", Kind.BOOLEAN, "Fail if such a column is not there.", "true"
            ),
            _setting("route.by.field", Kind.STRING, "The column that the topic is made of.", "aggregatetype"),
            _setting("route.topic.regex", Kind.STRING, "What is taken of it.", "(?<routedByValue>.*)", JavaRegex()),
            _setting("route.topic.replacement", Kind.STRING, "The topic.", "outbox.event.${routedByValue}"),
            _setting("route.tombstone.on.empty.payload", Kind.BOOLEAN, "An empty value is a tombstone.", "false"),
            _setting(
                "table.op.invalid.behavior",
                Kind.STRING,
                "What happens to updates of the table.",
                "warn",
                OneOf(("warn", "error", "fatal")),
            ),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the names of the columns."""
        parsed = self.config.parse(settings)
        self._parsed = parsed
        self._regex: re.Pattern[str] = compile_java(parsed["route.topic.regex"])
        self._placements = [_placement(each) for each in parsed["table.fields.additional.placement"] if each.strip()]

    def apply(self, record: R) -> R | None:
        """Return the event, or none for what is no new row."""
        envelope = _envelope(record)
        if envelope is None:
            return None if record.value is None else record
        op, row = envelope["op"], envelope["after"]
        if op == "d" or row is None:
            return None
        if op == "u":
            sentence = f"Unexpected update message received '{record.key}' and ignored"
            if self._parsed["table.op.invalid.behavior"] == "fatal":
                raise DataError(sentence, hint="Rows of an outbox are inserted and deleted, never updated.")
            _LOG.warning("%s", sentence)
            return None
        return self._event(record, envelope, row)

    def _event(self, record: R, envelope: Struct, row: Struct) -> R:
        parsed = self._parsed
        payload_part = self._column(row, parsed["table.field.event.payload"])
        payload = row[payload_part.name]
        identity = self._column(row, parsed["table.field.event.id"])
        headers = [*record.headers, Header("id", row[identity.name], identity.schema)]
        fields: list[tuple[str, Schema, Any]] = []
        partition = record.partition
        for column, target, alias in self._placements:
            part = row.schema.field(column)
            if part is None:
                if parsed["table.fields.additional.error.on.missing"]:
                    raise DataError(f"Unable to find field {column} in event", hint="Look at the outbox table.")
                continue
            if target == "header":
                headers.append(Header(alias, row[column], part.schema))
            elif target == "partition":
                partition = int(row[column])
            else:
                fields.append((alias, part.schema, row[column]))
        value, schema = payload, payload_part.schema
        if fields:
            schema = struct([("payload", payload_part.schema), *((name, kind) for name, kind, _ in fields)])
            value = Struct.of_checked(schema, [payload, *(each for _, _, each in fields)])
        elif payload in (None, "", b"") and parsed["route.tombstone.on.empty.payload"]:
            return self._sent(record, row, headers, partition, envelope, (None, None))
        return self._sent(record, row, headers, partition, envelope, (value, schema))

    def _sent(
        self,
        record: R,
        row: Struct,
        headers: list[Header],
        partition: int | None,
        envelope: Struct,
        value: tuple[Any, Schema | None],
    ) -> R:
        parsed = self._parsed
        route = self._column(row, parsed["route.by.field"])
        routed = "" if row[route.name] is None else str(row[route.name])
        match = self._regex.search(routed)
        topic = routed if match is None else replacement(parsed["route.topic.replacement"], match)
        key, key_schema = record.key, record.key_schema
        name = parsed["table.field.event.key"]
        if name and row.schema.field(name) is not None:
            part = self._column(row, name)
            key, key_schema = row[name], part.schema
        time_name = parsed["table.field.event.timestamp"]
        timestamp = envelope["ts_ms"] if not time_name else row[self._column(row, time_name).name]
        return record.with_(
            topic=topic,
            partition=partition,
            key=key,
            key_schema=key_schema,
            value=value[0],
            value_schema=value[1],
            timestamp=timestamp,
            headers=Headers(headers),
        )

    @staticmethod
    def _column(row: Struct, name: str) -> Field:
        part = row.schema.field(name)
        if part is None:
            raise DataError(f"Unable to find field {name} in event", hint="Look at the columns of the outbox table.")
        return part


def _placement(text: str) -> tuple[str, str, str]:
    """Return a column, its place and the name that it gets there."""
    column, _, rest = text.strip().partition(":")
    target, _, alias = rest.partition(":")
    if target not in ("header", "envelope", "partition"):
        raise DataError(
            f"table.fields.additional.placement: {text} has no place",
            hint="Write column:header, :envelope or :partition.",
        )
    return column, target, alias or column


DEBEZIUM_TRANSFORMS: tuple[type[Transformation], ...] = (
    ByLogicalTableRouter,
    EventRouter,
    ExtractChangedRecordState,
    ExtractNewRecordState,
)
