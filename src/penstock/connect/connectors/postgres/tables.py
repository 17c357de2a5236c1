"""Tables: their schemas, by the columns of the catalog or of the stream, and the structs of their rows.

Defaults of columns are taken out of the text of an expression as Debezium does; names of topics, schemas and fields are
those of the database, or such that Kafka or Avro can have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.postgres.column_masks import ColumnMasks, Patterns
from penstock.connect.connectors.postgres.columns import MOST_SCALE, ColumnForm, Handling, column_form, with_schema
from penstock.connect.connectors.postgres.envelope import (
    BLOCK,
    SOURCE,
    TIME_FIELDS,
    Origin,
    context_headers,
    now_fields,
    source_struct,
)
from penstock.connect.connectors.postgres.pgoutput import UNCHANGED, Cell, RelationMessage
from penstock.connect.connectors.postgres.types import PgType, source_type
from penstock.connect.data import STRING, DataError, Header, Headers, Schema, SourceRecord, Struct, Type, struct
from penstock.errors import ConnectError
from penstock.serde.data.logical import scaled_decimal, unscaled

__all__ = [
    "ADJUSTMENTS",
    "CaptureSettings",
    "ColumnFacts",
    "Event",
    "TableRow",
    "TableFacts",
    "TableForm",
    "adjusted_field",
    "adjusted_schema",
    "default_value",
    "topic_name",
]


_INFINITE = ("infinity", "-infinity")
_FUNCTION = re.compile(r"[(]?[A-Za-z0-9_.]+\((?:.+(?:, ?.+)*)?\)")
_CLOCK = ("current_timestamp", "current_time", "current_date", "localtime", "localtimestamp")
_LITERAL = re.compile(r"'(.*?)'")
# The types whose defaults Debezium reads, with what stands for the result of a function.
_PLACEHOLDERS: Mapping[str, str] = {
    "int2": "0",
    "int4": "0",
    "int8": "0",
    "float4": "0.0",
    "float8": "0.0",
    "numeric": "0.0",
    "bit": "0",
    "varbit": "0",
    "bool": "false",
    "text": "",
    "varchar": "",
    "bpchar": "",
    "date": "1970-01-01",
    "time": "00:00:00",
    "timestamp": "1970-01-01 00:00:00",
    "timestamptz": "1970-01-01 00:00:00+00",
    "interval": "P0D",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "json": "{}",
    "jsonb": "{}",
    "xml": "",
}


def default_value(expression: str, kind: PgType, form: ColumnForm, handling: Handling) -> Any:
    """Return the default of a column whose default is this expression; None: its schema has none.

    It is what stands between the first two quotes, or the text as a whole; for a function a zero of the type.
    """
    if (
        kind.element is not None
        or form.schema.type is Type.STRUCT
        or expression.startswith("NULL::")
        or expression == "NULL"
    ):
        return None
    is_enum = kind.kind == "e"
    if not is_enum and (kind.name not in _PLACEHOLDERS or kind.domain is not None):
        return None
    if _FUNCTION.match(expression) or expression.lower() in _CLOCK:
        if is_enum:
            return None
        text = _PLACEHOLDERS[kind.name]
    else:
        literal = _LITERAL.search(expression)
        if literal is None and "'" in expression:
            return None  # a text of several lines
        text = literal[1] if literal is not None else expression
    if is_enum:
        return text
    if text in _INFINITE:
        return _infinite(text, kind, handling, form)
    return _parsed(text, kind, form)


def _infinite(text: str, kind: PgType, handling: Handling, form: ColumnForm) -> Any:
    """Return the default of a time without end: the ends of Java's times, as far as they go."""
    is_end = text == "infinity"
    if kind.name == "date" and form.schema.type is Type.INT32 and handling.times != "connect":
        return 169_560_311 if is_end else -170_999_002
    if kind.name == "timestamp" and (form.schema.name or "").endswith("MicroTimestamp"):
        return -9_223_372_036_853_775_810 if is_end else -(1 << 63)
    return None


def _parsed(text: str, kind: PgType, form: ColumnForm) -> Any:
    if kind.name == "numeric" and not re.fullmatch(r"\s*[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*", text):
        return None
    prepare = _FORMS.get(kind.name)
    try:
        if kind.name == "numeric" and kind.modifier >= 0:
            text = _padded(text.strip(), (kind.modifier - 4) & 0x7FF)
        value = form.read(text if prepare is None else prepare(text))
    except (ValueError, InvalidOperation, OverflowError, TypeError):
        return None
    return value


def _padded(text: str, scale: int) -> str:
    """Return a number with at least so many digits behind its point."""
    number, digits = unscaled(Decimal(text))
    return (
        text if digits >= scale or scale > MOST_SCALE else f"{scaled_decimal(number * 10 ** (scale - digits), scale):f}"
    )


def _boolean(text: str) -> str:
    if text.lower() in ("t", "true", "y", "yes", "on", "1"):
        return "t"
    return "f"


_FORMS: Mapping[str, Callable[[str], str]] = {"bool": _boolean}


_LOG = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What the catalog knows of a column.

    Attributes:
        type: Its type.
        required: It is never null.
        default: The expression of its default.
        is_generated: Its values are computed, and the stream does not have them.
        comment: Its comment.
        is_identity: It numbers the rows.
    """

    type: PgType
    required: bool = False
    default: str | None = None
    is_generated: bool = False
    comment: str | None = None
    is_identity: bool = False


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the catalog knows of a table: the columns of its key, and its columns by name."""

    key: Sequence[str] = ()
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What is compared to notice an altered table; a new value of an enum does not alter it."""
        return tuple(self.key), tuple(
            (name, each.type.number, each.required, each.default, each.comment) for name, each in self.columns.items()
        )


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What is the same for all tables.

    Attributes:
        prefix: ``topic.prefix``.
        database: The database.
        handling: How numbers and times are written.
        tombstones: A deletion is followed by a record without value.
        columns: Which columns come out, and how.
        delimiter: What stands between the parts of a topic's name.
        has_schema: The name of a topic has the table's schema.
        schema_names: ``schema.name.adjustment.mode``.
        field_names: ``field.name.adjustment.mode``.
        comments: ``include.schema.comments``.
        propagated: ``column.propagate.source.type``.
        propagated_types: ``datatype.propagate.source.type``.
        headers: The headers of each record.
    """

    prefix: str
    database: str
    handling: Handling
    tombstones: bool = True
    columns: ColumnMasks = field(default_factory=ColumnMasks)
    delimiter: str = "."
    has_schema: bool = True
    schema_names: str = "none"
    field_names: str = "none"
    comments: bool = False
    propagated: Patterns = field(default_factory=Patterns)
    propagated_types: Patterns = field(default_factory=Patterns)
    headers: Headers = field(default_factory=Headers)

    def with_run(self, run_id: str) -> CaptureSettings:
        """Return the settings with the headers that name the run."""
        return replace(self, headers=context_headers(self.prefix, run_id))

    def topic(self, schema: str, table: str) -> str:
        """Return the topic of a table."""
        parts = (self.prefix, schema, table) if self.has_schema else (self.prefix, table)
        return topic_name(self.delimiter.join(parts))


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row, and its key; None: the table has none."""

    values: Struct
    key: Struct | None


@dataclass(frozen=True, slots=True)
class Event:
    """A change as it is written: an update of a key is two.

    Attributes:
        op: ``c``, ``u``, ``d``, ``r`` or ``t``.
        key: The key of its record.
        before: The row before it.
        after: The row after it.
        header: A further header of its records.
    """

    op: str
    key: Struct | None = None
    before: Struct | None = None
    after: Struct | None = None
    header: Header | None = None


class TableForm:
    """A table's schemas, and the records of its changes.

    Args:
        capture: The connector's settings.
        relation: The table's columns.
        facts: What the catalog knows of them.
        is_snapshot: For rows that are read by a query, some of which Debezium writes in another way.

    Raises:
        ConnectError: The table's columns cannot be told apart.
    """

    def __init__(
        self, capture: CaptureSettings, relation: RelationMessage, facts: TableFacts, *, is_snapshot: bool = False
    ) -> None:
        self.relation = relation
        self.name = relation.namespace, relation.name
        self._capture = capture
        self._is_snapshot = is_snapshot
        _check_names(relation)
        self.topic = capture.topic(*self.name)
        base = self.topic
        self._forms: list[tuple[str, int, ColumnForm]] = []
        keyed: dict[str, tuple[int, ColumnForm]] = {}
        for at, column in enumerate(relation.columns):
            column_facts = facts.columns.get(column.name)
            facts_of = column_facts or ColumnFacts(PgType(column.kind, str(column.kind)))
            plain = self._column(column.name, facts_of)
            if plain is None:
                continue
            form = self._masked(column.name, facts_of, plain)
            keyed[column.name] = at, with_schema(form, replace(form.schema, parameters=plain.schema.parameters))
            if capture.columns.takes(f"{relation.namespace}.{relation.name}.{column.name}"):
                self._forms.append((column.name, at, form))
        fields = [(adjusted_field(name, capture.field_names), form.schema) for name, _, form in self._forms]
        row_name = adjusted_schema(f"{base}.Value", capture.schema_names)
        self._row = struct(fields, name=row_name, optional=True)
        self._key_forms = [(name, *keyed[name]) for name in facts.key if name in keyed]
        self._key: Schema | None = None
        if facts.key:  # a struct without fields, if no column of the key has a form
            key_fields = [(adjusted_field(name, capture.field_names), form.schema) for name, _, form in self._key_forms]
            self._key = struct(key_fields, name=adjusted_schema(f"{base}.Key", capture.schema_names))
        envelope = [("before", self._row), ("after", self._row), ("source", SOURCE), ("transaction", BLOCK)]
        envelope += [("op", STRING), *TIME_FIELDS]
        self._envelope = struct(envelope, name=adjusted_schema(f"{base}.Envelope", capture.schema_names), version=2)

    def _column(self, name: str, facts: ColumnFacts) -> ColumnForm | None:
        capture, relation = self._capture, self.relation
        path = f"{relation.namespace}.{relation.name}.{name}"
        handling = replace(capture.handling, snapshot=self._is_snapshot)
        form = column_form(facts.type, facts.type.modifier, handling, nullable=not facts.required)
        if form is None:
            _LOG.warning("the column %s is left out: its type has no form", path)
            return None
        if facts.default is not None:
            default = default_value(facts.default, facts.type, form, handling)
            form = replace(form, schema=replace(form.schema, default=default))
        return form

    def _masked(self, name: str, facts: ColumnFacts, form: ColumnForm) -> ColumnForm:
        """Return the form of a column outside of keys: masked, with its comment and its type in the database."""
        capture, relation = self._capture, self.relation
        path = f"{relation.namespace}.{relation.name}.{name}"
        if capture.comments and facts.comment and form.schema.doc is None:
            form = with_schema(form, replace(form.schema, doc=facts.comment))
        form = capture.columns.form(path, facts.type, form)
        shown, full = source_type(facts.type, self._serial(facts)), f"{capture.database}.{path}"
        type_name = f"{capture.database}.{relation.namespace}.{relation.name}.{shown['type']}"
        short_type = f"{relation.namespace}.{relation.name}.{shown['type']}"
        is_propagated = (
            capture.propagated.match(path)
            or capture.propagated.match(full)
            or capture.propagated_types.match(type_name)
            or capture.propagated_types.match(short_type)
            or capture.propagated_types.match(f"{capture.database}.{shown['type']}")
        )
        if is_propagated:
            parameters = {f"__debezium.source.column.{part}": text for part, text in shown.items()}
            parameters["__debezium.source.column.name"] = name
            schema = replace(form.schema, parameters={**(form.schema.parameters or {}), **parameters})
            form = with_schema(form, schema)
        return form

    def _serial(self, facts: ColumnFacts) -> str | None:
        """Return what a snapshot sees of the column's type that the stream does not."""
        if not self._is_snapshot:
            return None
        return "serial" if (facts.default or "").startswith("nextval(") else "plain"

    def row(self, cells: Sequence[Cell], *, partial: bool = False) -> TableRow:
        """The row of cells, with its key; of a partial one only the key's columns count, and others are null or zero.

        Raises:
            DataError: A value does not fit its column.
        """
        values = [self._value(name, form, cells[at], partial=partial) for name, at, form in self._forms]
        key = None
        if self._key is not None:
            parts = [self._value(name, form, cells[at], partial=partial) for name, at, form in self._key_forms]
            key = Struct.of_checked(self._key, parts)
        return TableRow(Struct.of_checked(self._row, values), key)

    def _value(self, name: str, form: ColumnForm, cell: Cell, *, partial: bool) -> Any:
        try:
            value = form.value(cell)
        except DataError as error:
            raise DataError(f"the column {name} of {'.'.join(self.name)}: {error.message}", hint=error.hint) from None
        if value is not None or form.schema.optional:
            return value
        if partial or cell is UNCHANGED or cell is None:
            return form.schema.default if form.schema.default is not None else form.zero
        raise DataError(
            f'Invalid value: null used for required field: "{name}", schema type: {form.schema.type}: '
            f"{form.shown(cell)} in the column {name} of {'.'.join(self.name)} has no value in its type",
            hint="decimal.handling.mode=string or double takes decimals that are infinite or no number.",
        )

    def changed(self, op: str, before: TableRow | None, after: TableRow | None) -> list[Event]:
        """Return the events of a change: an update of a key is a deletion and an insert."""
        if op == "u" and before is not None and after is not None and before.key is not None:
            old, new = before.key, after.key
            if new is not None and old != new:
                newly = Header("__debezium.newkey", new, new.schema)
                formerly = Header("__debezium.oldkey", old, old.schema)
                return [
                    Event("d", old, before.values, None, newly),
                    Event("c", new, None, after.values, formerly),
                ]
        shown = after if after is not None else before
        return [
            Event(
                op,
                None if shown is None else shown.key,
                None if before is None else before.values,
                None if after is None else after.values,
            )
        ]

    def records(self, event: Event, origin: Origin, block: Struct | None = None) -> list[SourceRecord]:
        """Return the records of an event, without offsets: its envelope, and after a deletion a tombstone."""
        source = source_struct(self._capture.prefix, self._capture.database, origin, self.name)
        values = [event.before, event.after, source, block, event.op, *now_fields().values()]
        headers = self._capture.headers
        if event.header is not None:
            headers = Headers([event.header, *headers])
        records = [self._record(event.key, Struct.of_checked(self._envelope, values), headers)]
        if event.op == "d" and self._capture.tombstones:
            records.append(self._record(event.key, None, headers))
        return records

    def _record(self, key: Struct | None, value: Struct | None, headers: Headers) -> SourceRecord:
        return SourceRecord(
            topic=self.topic,
            key=key,
            key_schema=None if key is None else self._key,
            value=value,
            value_schema=None if value is None else self._envelope,
            headers=headers,
        )


def _check_names(relation: RelationMessage) -> None:
    """Refuse columns that differ only in case, as Debezium does.

    Raises:
        ConnectError: There are such columns.
    """
    seen: set[str] = set()
    for column in relation.columns:
        if column.name.lower() in seen:
            raise ConnectError(
                f"Table '{relation.namespace}.{relation.name}' has columns that differ only by case. "
                f"Column name: '{column.name}'. Debezium does not support case-sensitive duplicate column names as "
                "this causes data corruption. Please rename one of the duplicate columns before running Debezium.",
                hint="Rename the column, or leave the table out with table.exclude.list.",
            )
        seen.add(column.name.lower())


_DIGITS = frozenset("0123456789")


def topic_name(name: str) -> str:
    """Return the name with an underscore for each character that topics do not have.

    >>> topic_name("shop.öffentlich.t#1")
    'shop._ffentlich.t_1'
    """
    return re.sub(r"[^a-zA-Z0-9._-]", lambda match: "_" * _java_length(match[0]), name)


def _java_length(character: str) -> int:
    return 1 + (ord(character) > 0xFFFF)


def _avro(name: str, allowed: str, is_first: Callable[[str], bool], write: Callable[[str], str]) -> str:
    valid = re.compile(rf"[{allowed}]")
    adjusted = "".join(each if valid.fullmatch(each) else write(each) for each in name)
    if name and valid.fullmatch(name[0]) and not is_first(name[0]):
        adjusted = ("_" + adjusted) if write is _underscores else write(name[0]) + adjusted[1:]
    return adjusted


def _underscores(character: str) -> str:
    return "_" * _java_length(character)


def _escaped(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"_u{int.from_bytes(data[at : at + 2], 'big'):04x}" for at in range(0, len(data), 2))


def adjusted_field(name: str, mode: str) -> str:
    """Return the name of a field by ``field.name.adjustment.mode``.

    >>> adjusted_field("1st-x", "none"), adjusted_field("1st-x", "avro"), adjusted_field("1st_x", "avro_unicode")
    ('1st-x', '_1st_x', '_u0031st_u005fx')
    """
    if mode == "none":
        return name
    if mode == "avro":
        return _avro(name, "A-Za-z0-9_", lambda first: first not in _DIGITS, _underscores)
    return _avro(name, "A-Za-z0-9", lambda first: first not in _DIGITS, _escaped)


def adjusted_schema(name: str, mode: str) -> str:
    """Return the name of a schema by ``schema.name.adjustment.mode``: dots stay.

    >>> adjusted_schema("shop.public.t-1.Key", "avro")
    'shop.public.t_1.Key'
    """
    if mode == "none":
        return name
    if mode == "avro":
        return _avro(name, "A-Za-z0-9_.", lambda first: first not in _DIGITS and first != ".", _underscores)
    return _avro(name, "A-Za-z0-9.", lambda first: first not in _DIGITS and first != ".", _escaped)


ADJUSTMENTS: Mapping[str, str] = {
    "none": "as they are",
    "avro": "characters that Avro does not have become underscores",
    "avro_unicode": "characters that Avro does not have, and underscores, become _uXXXX",
}
