"""Debezium's envelopes: a change with the rows before and after it, and where it comes from."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.base.log_lines import own_logger
from penstock.base.version import __version__
from penstock.connect.connectors.postgres.columns import ColumnForm, Handling, column_form
from penstock.connect.connectors.postgres.masks import ColumnMasks
from penstock.connect.connectors.postgres.pgoutput import UNCHANGED, Cell, RelationMessage
from penstock.connect.connectors.postgres.types import PgType
from penstock.connect.data import (
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    DataError,
    Header,
    Headers,
    Moment,
    Schema,
    SourceRecord,
    Struct,
    Type,
    struct,
    with_default,
)
from penstock.serde.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME

__all__ = ["CaptureSettings", "Origin", "Row", "TableForm", "TableFacts"]

_LOG = own_logger(__name__)
SNAPSHOTS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
SOURCE = struct(
    [
        ("version", STRING),
        ("connector", STRING),
        ("name", STRING),
        ("ts_ms", INT64),
        (
            "snapshot",
            replace(
                with_default(OPTIONAL_STRING, "false"),
                name="io.debezium.data.Enum",
                version=1,
                parameters={"allowed": SNAPSHOTS},
            ),
        ),
        ("db", STRING),
        ("sequence", OPTIONAL_STRING),
        ("ts_us", OPTIONAL_INT64),
        ("ts_ns", OPTIONAL_INT64),
        ("schema", STRING),
        ("table", STRING),
        ("txId", OPTIONAL_INT64),
        ("lsn", OPTIONAL_INT64),
        ("xmin", OPTIONAL_INT64),
    ],
    name="io.debezium.connector.postgresql.Source",
)
BLOCK = struct(
    [("id", STRING), ("total_order", INT64), ("data_collection_order", INT64)],
    name="event.block",
    version=1,
    optional=True,
)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the catalog knows of a table: the columns of its key, those that are never null, and their types."""

    key: Sequence[str]
    required: frozenset[str]
    types: Mapping[str, PgType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a change comes from.

    Attributes:
        lsn: Its position in the server's log.
        xid: The number of its transaction.
        time_us: The time of the commit, microseconds since 1970.
        snapshot: ``false`` for changes, ``true`` for rows of the first snapshot, ``last`` for the last of them.
        sequence: The positions of the last commit before it, and of itself, as Debezium has them.
    """

    lsn: int | None
    xid: int | None
    time_us: int
    snapshot: str = "false"
    sequence: str | None = None


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What names topics and schemas.

    Attributes:
        prefix: ``topic.prefix``.
        database: The database.
        handling: How numbers and times are written.
        tombstones: A deletion is followed by a record without value.
        columns: Which columns come out, and how.
        delimiter: What stands between the parts of a topic's name.
    """

    prefix: str
    database: str
    handling: Handling
    tombstones: bool = True
    columns: ColumnMasks = field(default_factory=ColumnMasks)
    delimiter: str = "."


@dataclass(frozen=True, slots=True)
class Row:
    """A row, and its key; None: the table has none."""

    values: Struct
    key: Struct | None


class TableForm:
    """A table's schemas, and the records of its changes."""

    def __init__(self, capture: CaptureSettings, relation: RelationMessage, facts: TableFacts) -> None:
        self.relation = relation
        self._capture = capture
        parts = (capture.prefix, relation.namespace, relation.name)
        self.topic = _topic_name(capture.delimiter.join(parts))
        name = self.topic
        self._forms: dict[str, ColumnForm] = {}
        keyed: dict[str, ColumnForm] = {}
        self._places: dict[str, int] = {}
        for at, column in enumerate(relation.columns):
            path = f"{relation.namespace}.{relation.name}.{column.name}"
            kind = facts.types.get(column.name)
            form = column_form(
                column.kind if kind is None else kind,
                column.modifier,
                capture.handling,
                nullable=column.name not in facts.required,
            )
            if form is None:
                _LOG.warning("the column %s is left out: its type has no form", path)
                continue
            is_taken = capture.columns.takes(path)
            if not is_taken and column.name not in facts.key:
                continue
            form = capture.columns.form(path, kind or PgType(column.kind, "", modifier=column.modifier), form)
            self._places[column.name] = at
            keyed[column.name] = form
            if is_taken:
                self._forms[column.name] = form
        self._row = struct(
            [(name, form.schema) for name, form in self._forms.items()], name=f"{name}.Value", optional=True
        )
        self._key_forms = {column: keyed[column] for column in facts.key if column in keyed}
        self._key: Schema | None = None
        if self._key_forms:
            self._key = struct([(column, form.schema) for column, form in self._key_forms.items()], name=f"{name}.Key")
        fields = [("before", self._row), ("after", self._row), ("source", SOURCE), ("transaction", BLOCK)]
        fields += [("op", STRING), ("ts_ms", OPTIONAL_INT64), ("ts_us", OPTIONAL_INT64), ("ts_ns", OPTIONAL_INT64)]
        self._envelope = struct(fields, name=f"{name}.Envelope", version=2)

    def row(self, cells: Sequence[Cell], *, partial: bool = False) -> Row:
        """The row of cells, with its key; of a partial one only the key's columns count, and others are null or zero.

        Raises:
            DataError: A value does not fit its column.
        """
        row, key = Struct(self._row), None if self._key is None else Struct(self._key)
        for name, form in self._forms.items():
            row[name] = self._value(name, form, cells, partial=partial)
        if key is not None:
            for name, form in self._key_forms.items():
                key[name] = self._value(name, form, cells, partial=partial)
        return Row(row, key)

    def _value(self, name: str, form: ColumnForm, cells: Sequence[Cell], *, partial: bool) -> Any:
        cell = cells[self._places[name]]
        try:
            value = form.value(cell)
        except DataError as error:
            table = f"{self.relation.namespace}.{self.relation.name}"
            raise DataError(f"the column {name} of {table}: {error.message}", hint=error.hint) from None
        is_absent = value is None and (partial or cell is UNCHANGED)
        return _zero(form) if is_absent and not form.schema.optional else value

    def change(self, op: str, rows: tuple[Row | None, Row | None], origin: Origin) -> list[SourceRecord]:
        """The records of a change: ``c``, ``u``, ``d``, ``r`` or ``t``, with the rows before and after it."""
        before, after = rows
        now_ns = time.time_ns()
        source: Mapping[str, Any] = {
            "version": __version__,
            "connector": "postgresql",
            "name": self._capture.prefix,
            "ts_ms": origin.time_us // 1000,
            "snapshot": origin.snapshot,
            "db": self._capture.database,
            "sequence": origin.sequence,
            "ts_us": origin.time_us,
            "ts_ns": origin.time_us * 1000,
            "schema": self.relation.namespace,
            "table": self.relation.name,
            "txId": origin.xid,
            "lsn": origin.lsn,
        }
        values: dict[str, Any] = {
            "before": None if before is None else before.values,
            "after": None if after is None else after.values,
            "source": Struct(SOURCE, dict(source)),
            "op": op,
        }
        values |= {"ts_ms": now_ns // 1_000_000, "ts_us": now_ns // 1000, "ts_ns": now_ns}
        old_key = None if before is None else before.key
        new_key = None if after is None else after.key
        if op == "u" and old_key is not None and new_key is not None and old_key != new_key:
            deleted, *tombstone = self.change("d", (before, None), origin)
            (created,) = self.change("c", (None, after), origin)
            newly = Headers([Header("__debezium.newkey", new_key, new_key.schema)])
            formerly = Headers([Header("__debezium.oldkey", old_key, old_key.schema)])
            return [deleted.with_(headers=newly), *tombstone, created.with_(headers=formerly)]
        key = new_key if after is not None else old_key
        records = [self._record(key, Struct(self._envelope, values))]
        if op == "d" and self._capture.tombstones:
            records.append(self._record(key, None))
        return records

    def _record(self, key: Struct | None, value: Struct | None) -> SourceRecord:
        return SourceRecord(
            topic=self.topic,
            key=key,
            key_schema=None if key is None else self._key,
            value=value,
            value_schema=None if value is None else self._envelope,
        )


ZERO_TIMES = {
    "io.debezium.time.ZonedTimestamp": "1970-01-01T00:00:00Z",
    "io.debezium.time.ZonedTime": "00:00:00Z",
}


def _topic_name(name: str) -> str:
    """The name with an underscore for each character that topics do not have."""
    return re.sub(r"[^a-zA-Z0-9._-]", lambda match: "_" * (1 + (ord(match[0]) > 0xFFFF)), name)  # as Java counts them


def _zero(form: ColumnForm) -> Any:
    """A value in place of one that the server does not send, for a column that cannot be null."""
    schema = form.schema
    if schema.type is Type.STRUCT or schema.name == DECIMAL_NAME:
        return form.value("(0,0)" if (schema.name or "").endswith("Point") else "0")
    if schema.name in ZERO_TIMES:
        return ZERO_TIMES[schema.name]
    if schema.name in (DATE_NAME, TIME_NAME, TIMESTAMP_NAME):
        return Moment(0)
    zeros: dict[Type, Any] = {Type.STRING: "", Type.BYTES: b"", Type.BOOLEAN: False, Type.ARRAY: []}
    zeros |= {Type.FLOAT32: 0.0, Type.FLOAT64: 0.0}
    return zeros.get(schema.type, 0)
