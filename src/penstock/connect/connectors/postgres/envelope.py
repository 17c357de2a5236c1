"""Debezium's envelopes: a change with the rows before and after it, and where it comes from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.connect.connectors.postgres.columns import ColumnForm, Handling, column_form
from penstock.connect.connectors.postgres.pgoutput import Cell, Relation
from penstock.connect.data import (
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Moment,
    Schema,
    SourceRecord,
    Struct,
    Type,
    struct,
    with_default,
)
from penstock.connect.data.logical import DATE_NAME, TIME_NAME, TIMESTAMP_NAME
from penstock.version import __version__

__all__ = ["Capture", "Origin", "TableForm", "TableFacts"]

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
    """What the catalog knows of a table: the columns of its primary key, and those that are never null."""

    key: Sequence[str]
    required: frozenset[str]


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
class Capture:
    """What names topics and schemas.

    Attributes:
        prefix: ``topic.prefix``.
        database: The database.
        handling: How numbers and times are written.
        tombstones: A deletion is followed by a record without value.
    """

    prefix: str
    database: str
    handling: Handling
    tombstones: bool = True


class TableForm:
    """A table's schemas, and the records of its changes."""

    def __init__(self, capture: Capture, relation: Relation, facts: TableFacts) -> None:
        self.relation = relation
        self._capture = capture
        self.topic = f"{capture.prefix}.{relation.namespace}.{relation.name}"
        self._forms: dict[str, ColumnForm] = {
            column.name: column_form(
                column.kind, column.modifier, capture.handling, nullable=column.name not in facts.required
            )
            for column in relation.columns
        }
        self._row = struct(
            [(name, form.schema) for name, form in self._forms.items()], name=f"{self.topic}.Value", optional=True
        )
        keys = [name for name in facts.key if name in self._forms]
        self._key: Schema | None = None
        if keys:
            self._key = struct([(name, self._forms[name].schema) for name in keys], name=f"{self.topic}.Key")
        fields = [("before", self._row), ("after", self._row), ("source", SOURCE), ("transaction", BLOCK)]
        fields += [("op", STRING), ("ts_ms", OPTIONAL_INT64), ("ts_us", OPTIONAL_INT64), ("ts_ns", OPTIONAL_INT64)]
        self._envelope = struct(fields, name=f"{self.topic}.Envelope", version=2)

    def row(self, cells: Sequence[Cell], *, partial: bool = False) -> Struct:
        """The row of cells; of a partial one only the key's columns count, and others that must be set are zero."""
        made = Struct(self._row)
        for (name, form), cell in zip(self._forms.items(), cells, strict=True):
            value = form.value(cell)
            if value is None and partial and not form.schema.optional:
                value = _zero(form)
            made[name] = value
        return made

    def change(self, op: str, rows: tuple[Struct | None, Struct | None], origin: Origin) -> list[SourceRecord]:
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
        values: dict[str, Any] = {"before": before, "after": after, "source": Struct(SOURCE, dict(source)), "op": op}
        values |= {"ts_ms": now_ns // 1_000_000, "ts_us": now_ns // 1000, "ts_ns": now_ns}
        old_key, new_key = self._key_of(before), self._key_of(after)
        if op == "u" and old_key is not None and new_key is not None and old_key != new_key:
            deleted = self.change("d", (before, None), origin)
            return [*deleted, *self.change("c", (None, after), origin)]
        key = new_key if after is not None else old_key
        made = [self._record(key, Struct(self._envelope, values))]
        if op == "d" and self._capture.tombstones and key is not None:
            made.append(self._record(key, None))
        return made

    def _key_of(self, row: Struct | None) -> Struct | None:
        if self._key is None or row is None:
            return None
        return Struct(self._key, {part.name: row[part.name] for part in self._key.fields})

    def _record(self, key: Struct | None, value: Struct | None) -> SourceRecord:
        return SourceRecord(
            topic=self.topic,
            key=key,
            key_schema=None if key is None else self._key,
            value=value,
            value_schema=None if value is None else self._envelope,
        )


def _zero(form: ColumnForm) -> Any:
    """A value in place of one that the server does not send, for a column that cannot be null."""
    schema = form.schema
    if schema.name is not None and schema.type in (Type.BYTES, Type.STRUCT):
        return form.value("0")
    if schema.name in (DATE_NAME, TIME_NAME, TIMESTAMP_NAME):
        return Moment(0)
    zeros: dict[Type, Any] = {Type.STRING: "", Type.BYTES: b"", Type.BOOLEAN: False, Type.ARRAY: []}
    zeros |= {Type.FLOAT32: 0.0, Type.FLOAT64: 0.0}
    return zeros.get(schema.type, 0)
