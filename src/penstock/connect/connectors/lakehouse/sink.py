"""The task of sinks to lakehouse tables, for any format: rows and offsets in one commit, so that each is there once.

From records to rows of a table: stretches of one schema, columns that fit the table's, the last row of each key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.log_lines import own_logger
from penstock.connect.api import SinkTask
from penstock.connect.config import ConfigDef
from penstock.connect.connectors.lakehouse.tables import ConflictError, LakeFormat, LakeTable, Upsert
from penstock.connect.connectors.objects.formats import table_of
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.data import DataError, RetriableError, Schema, SinkBatch, SinkColumns, SinkRecord, Struct
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = ["FIRST_TASK", "LakeSinkConnector", "LakeSinkTask", "rows_of", "stretches_of"]


def merge_columns(current: pa.Schema | None, incoming: pa.Schema, rules: LakeFormat, *, evolves: bool) -> pa.Schema:
    """Return the columns of a table that takes rows with other ones.

    Args:
        current: The columns of the table; None: there is none yet.
        incoming: The columns of the rows.
        rules: The format of the table.
        evolves: Whether new columns are added.

    Raises:
        DataError: A column has a type that does not fit, or is new and must not be.
    """
    merged = {} if current is None else {each.name: each for each in current}
    for arrow_field in incoming:
        mine = merged.get(arrow_field.name)
        if mine is not None:
            kind = _merged_type(mine.type, arrow_field.type, rules, arrow_field.name, evolves=evolves)
            merged[arrow_field.name] = pa.field(arrow_field.name, kind, nullable=mine.nullable)
            continue
        kind = _new_type(arrow_field.type, rules, arrow_field.name)
        if kind is None:
            continue  # only nulls so far: the column comes with its first value
        _check_name(arrow_field.name, merged, rules)
        if current is not None and not evolves:
            raise DataError(
                f"the table has no column {arrow_field.name}",
                hint="Set auto.evolve=true, or leave the field out of records.",
            )
        merged[arrow_field.name] = pa.field(arrow_field.name, kind)
    return pa.schema(list(merged.values()))


def _check_name(name: str, others: Mapping[str, pa.Field], rules: LakeFormat) -> None:
    if not name:
        raise DataError("a field has no name", hint="Rename it by the transformation ReplaceField, or leave it out.")
    same = [each for each in others if each.lower() == name.lower()] if rules.ignores_case else []
    if same:
        raise DataError(
            f"the field {name} and the column {same[0]} differ in capital letters alone, which the format ignores",
            hint="Rename the field by the transformation ReplaceField.",
        )


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema that `merge_columns` has made: null where they have none.

    Raises:
        DataError: A value does not fit.
    """
    columns = []
    for arrow_field in schema:
        at = rows.schema.get_field_index(arrow_field.name)
        column = pa.nulls(rows.num_rows, arrow_field.type) if at < 0 else _cast(rows.column(at), arrow_field)
        if not arrow_field.nullable and column.null_count:
            raise DataError(
                f"the column {arrow_field.name} must not be null", hint="Write the field into all records of the topic."
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise DataError(
            f"a value does not fit into the column {field.name}, which is {field.type}: {error}",
            hint="Widen the column in the table, or correct the record.",
        ) from error


def _new_type(incoming: pa.DataType, rules: LakeFormat, name: str) -> pa.DataType | None:
    """Return the type of a new column; None if nothing but nulls is known of it."""
    if pa.types.is_null(incoming):
        return None
    if pa.types.is_struct(incoming):
        parts = [(part.name, _new_type(part.type, rules, name)) for part in incoming]
        fields = [pa.field(part, kind) for part, kind in parts if kind is not None]
        return pa.struct(fields) if fields else None
    if _is_list(incoming):
        element = _new_type(incoming.value_type, rules, name)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_map(incoming):
        key, value = (_new_type(each, rules, name) for each in (incoming.key_type, incoming.item_type))
        return None if key is None or value is None else pa.map_(key, value)
    kind = rules.column_type(incoming)
    if kind is None:
        raise DataError(
            f"the field {name} is {incoming}, for which the format has no type", hint="Leave it out, or cast it."
        )
    return kind


def _merged_type(
    current: pa.DataType, incoming: pa.DataType, rules: LakeFormat, name: str, *, evolves: bool
) -> pa.DataType:
    if pa.types.is_null(incoming) or current == incoming:
        return current
    if pa.types.is_struct(current) and pa.types.is_struct(incoming):
        return pa.struct(list(merge_columns(_schema(current), _schema(incoming), rules, evolves=evolves)))
    if _is_list(current) and _is_list(incoming):
        element = current.value_field
        kind = _merged_type(element.type, incoming.value_type, rules, name, evolves=evolves)
        return pa.list_(element.with_type(kind))
    if pa.types.is_map(current) and pa.types.is_map(incoming):
        key = _merged_type(current.key_type, incoming.key_type, rules, name, evolves=evolves)
        return pa.map_(key, _merged_type(current.item_type, incoming.item_type, rules, name, evolves=evolves))
    if not any(is_kind(current) and is_kind(incoming) for is_kind in KINDS):
        raise DataError(
            f"a value of {incoming} does not fit into the column {name}, which is {current}",
            hint="Correct the record, or give the field another name by the transformation ReplaceField.",
        )
    return rules.widened(current, incoming)


def _schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema(list(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind) or pa.types.is_int32(kind))


KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    _is_number,
    _is_text,
    _is_bytes,
    _is_time,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_boolean,
)


@dataclass(frozen=True, slots=True)
class SchemaStretch:
    """Neighbours of one partition, one topic's name and one schema.

    Attributes:
        topic: The topic by the records: transformations may have given it another name.
        tp: Where they were read.
        offsets: Their offsets there.
        keys: The keys.
        key_schema: Their schema.
        values: The values.
        value_schema: Their schema.
        record_at: Makes the record with this index.
    """

    topic: str
    tp: TopicPartition
    offsets: Sequence[int]
    keys: Sequence[Any]
    key_schema: Schema | None
    values: Sequence[Any]
    value_schema: Schema | None
    record_at: Callable[[int], SinkRecord]

    def __len__(self) -> int:
        return len(self.offsets)

    def picked(self, rows: Sequence[int]) -> SchemaStretch:
        """Return the stretch with these rows only."""
        return SchemaStretch(
            self.topic,
            self.tp,
            [self.offsets[row] for row in rows],
            [self.keys[row] for row in rows],
            self.key_schema,
            [self.values[row] for row in rows],
            self.value_schema,
            lambda row: self.record_at(rows[row]),
        )

    def behind(self, offset: int) -> SchemaStretch:
        """Return the stretch from an offset on."""
        if not self.offsets or self.offsets[0] >= offset:
            return self
        return self.picked([row for row, each in enumerate(self.offsets) if each >= offset])


def stretches_of(records: Sequence[SinkRecord]) -> Iterator[SchemaStretch]:
    """Yield what a task is given, in stretches."""
    parts = records.parts() if isinstance(records, SinkBatch) else records
    singles: list[SinkRecord] = []
    for part in parts:
        if isinstance(part, SinkRecord):
            singles.append(part)
            continue
        yield from _of_records(singles)
        singles = []
        yield _of_columns(part)
    yield from _of_records(singles)


def _of_columns(part: SinkColumns) -> SchemaStretch:
    tp = TopicPartition(part.topic, part.partition)
    return SchemaStretch(
        part.topic, tp, part.offsets, part.keys, part.key_schema, part.values, part.value_schema, part.record_at
    )


def _of_records(records: Sequence[SinkRecord]) -> Iterator[SchemaStretch]:
    for run in _runs(records):
        first = run[0]
        yield SchemaStretch(
            str(first.topic),
            TopicPartition(str(first.original_topic), int(first.original_partition or 0)),
            [int(record.original_offset or 0) for record in run],
            [record.key for record in run],
            first.key_schema,
            [record.value for record in run],
            first.value_schema,
            run.__getitem__,
        )


def _runs(records: Sequence[SinkRecord]) -> Iterator[list[SinkRecord]]:
    for _, group in groupby(records, lambda record: (record.topic, record.original_topic, record.original_partition)):
        run: list[SinkRecord] = []
        for record in group:
            if run and (record.value_schema != run[-1].value_schema or record.key_schema != run[-1].key_schema):
                yield run
                run = []
            run.append(record)
        yield run


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The origin of the key's columns.

    Attributes:
        in_value: They are fields of the value; else the record's key is or has them.
        fields: Their names; empty: all fields of the record's key.
    """

    in_value: bool
    fields: Sequence[str]

    def values(self, stretch: SchemaStretch) -> tuple[Sequence[Mapping[str, Any]], pa.Table]:
        """Return the key of each row, and all of them as a table.

        Raises:
            DataError: A record has no such key.
        """
        source, schema = (stretch.values, stretch.value_schema) if self.in_value else (stretch.keys, stretch.key_schema)
        what = "value" if self.in_value else "key"
        first = source[0]
        if isinstance(first, Struct | dict):
            table = _fields_table(source, schema, what)
            names = self.fields or sorted(table.column_names)  # JSON has fields in any order
            missing = [name for name in names if name not in table.column_names]
            if missing:
                raise DataError(
                    f"the record's {what} has no field {missing[0]}, which pk.fields names", hint="Correct pk.fields."
                )
            table = table.select(names)
        elif first is None:
            raise DataError(
                f"the record has no {what}, and rows are upserted by it",
                hint="Set pk.mode=record_key, by which it deletes a row, or behavior.on.null.values=ignore."
                if self.in_value
                else "Write keys to the topic, or choose fields of the value by pk.mode and pk.fields.",
            )
        elif len(self.fields) != 1:
            raise DataError(
                f"the record's {what} has no fields, so pk.fields must name one column, and names {len(self.fields)}",
                hint="Set pk.fields to the name of the column.",
            )
        else:
            table = table_of(source, schema).rename_columns([self.fields[0]])
        if any(pa.types.is_nested(part.type) for part in table.schema):
            raise DataError(
                "a column of the record's key is a struct, a list or a map", hint="Name plain fields by pk.fields."
            )
        if any(column.null_count for column in table.columns):
            raise DataError("a column of the record's key is null", hint="Write a key into each record.")
        return table.to_pylist(), table


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of a stretch: in upserts with the key of each record; of one without value the key alone.

    Attributes:
        rows: The rows of records that have a value.
        keys: The key of each record; None: rows are appended.
        key_table: The keys as columns.
        has_value: Whether each record has a value.
    """

    rows: pa.Table
    keys: Sequence[tuple[Any, ...]] | None = None
    key_table: pa.Table | None = None
    has_value: Sequence[bool] = ()


def rows_of(stretch: SchemaStretch, key: KeyRule | None) -> KeyedRows:
    """Return the rows of a stretch.

    Args:
        stretch: Records; without a key rule all of them have values.
        key: How rows are identified; None: they are appended.

    Raises:
        DataError: The records do not make rows.
    """
    if key is None:
        return KeyedRows(_fields_table(stretch.values, stretch.value_schema, "value"))
    keys, key_table = key.values(stretch)
    has_value = [value is not None for value in stretch.values]
    alive = [row for row, is_there in enumerate(has_value) if is_there]
    rows = key_table.slice(0, 0)
    if alive:
        rows = _fields_table([stretch.values[row] for row in alive], stretch.value_schema, "value")
        of_rows = key_table if len(alive) == len(has_value) else key_table.take(pa.array(alive))
        for name in key_table.column_names:
            at = rows.schema.get_field_index(name)
            column = of_rows.column(name)
            rows = rows.append_column(name, column) if at < 0 else rows.set_column(at, name, column)
    return KeyedRows(rows, [tuple(each.values()) for each in keys], key_table, has_value)


def _fields_table(values: Sequence[Any], schema: Schema | None, what: str) -> pa.Table:
    for value in values:
        if not isinstance(value, Struct | dict):
            raise DataError(
                f"the record's {what} is not a struct, but {type(value).__name__}",
                hint=f"Set {what}.converter to one that makes structs, such as JsonConverter, or put the {what} into a "
                "field by the transformation HoistField.",
            )
        if not value and isinstance(value, dict):
            raise DataError(f"the record's {what} has no fields", hint="Filter such records out.")
    return table_of(values, schema)


def last_of_keys(stretches: Sequence[KeyedRows]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the rows of each stretch that are the last ones of their keys, and the records whose keys are deleted."""
    last: dict[tuple[Any, ...], tuple[int, int, bool]] = {}
    for number, stretch in enumerate(stretches):
        row = 0
        for record, (key, has_value) in enumerate(zip(stretch.keys or (), stretch.has_value, strict=True)):
            last[key] = (number, row if has_value else record, has_value)
            row += has_value
    rows: list[list[int]] = [[] for _ in stretches]
    deleted: list[list[int]] = [[] for _ in stretches]
    for number, at, has_value in last.values():
        (rows if has_value else deleted)[number].append(at)
    return rows, deleted


FIRST_TASK = "penstock.first.task"
"""In the config of the one task that maintains tables."""

_MOST_CONFLICTS = 20
_COMPACTION = "compact.commits"
_log = own_logger(__name__)


@dataclass(slots=True)
class _Pending:
    """The rows of a table that are not committed yet."""

    table: LakeTable | None
    schema: pa.Schema | None
    parts: list[tuple[SchemaStretch, KeyedRows]] = field(default_factory=list)


class LakeSinkTask(SinkTask):
    """A task: it keeps rows until there are enough, or it is time, and commits them with the offsets behind them.

    A table has the offsets of its rows, of each connector and partition; what is below them is there already. A commit
    fails if another one came between, of a task that had the partition before or of another writer: then the table is
    looked up again, and only what is missing is written.
    """

    config: ClassVar[ConfigDef]
    table_setting: ClassVar[str]
    expiry_setting: ClassVar[str]

    def open_format(self, parsed: Mapping[str, Any], settings: Mapping[str, str]) -> LakeFormat:
        """Open the format of the tables.

        Raises:
            ConnectError: A package is missing, or a setting is wrong.
        """
        raise NotImplementedError

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = parsed = self.config.parse(settings)
        self._format = self.open_format(parsed, settings)
        upserts = parsed["insert.mode"] == "upsert"
        self._key = KeyRule(parsed["pk.mode"] == "record_value", parsed["pk.fields"]) if upserts else None
        self._may_seek = not settings.get("transforms")  # they may spread a partition over tables
        self._maintains = settings.get(FIRST_TASK) == "true"
        self._tables: dict[str, LakeTable] = {}
        self._maintained: dict[tuple[str, str], int] = {}  # commits since, by table and setting
        self._pending: dict[str, _Pending] = {}
        self._taken: dict[TopicPartition, int] = {}
        self._since: float | None = None
        self._broken: ConnectError | None = None

    def open(self, places: Collection[TopicPartition]) -> None:
        self._tables.clear()
        if not self._may_seek:
            self.context.offset({})
            return
        stored: dict[TopicPartition, int] = {}
        for tp in places:
            table = self._table(self.table_name(tp.topic))
            offset = None if table is None else table.next_offset(tp)
            if offset is not None:
                stored[tp] = offset
        self.context.offset(stored)

    def put(self, records: Sequence[SinkRecord]) -> None:
        if self._broken is not None:
            raise self._broken
        for stretch in stretches_of(records):
            self._take(stretch)
        if self._is_due():
            self._flush()

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets that the tables have: those of the first records that they do not."""
        first: dict[TopicPartition, int] = {}
        for pending in self._pending.values():
            for stretch, _ in pending.parts:
                first[stretch.tp] = min(first.get(stretch.tp, stretch.offsets[0]), stretch.offsets[0])
        return {tp: min(offset, first.get(tp, offset)) for tp, offset in offsets.items()}

    def close(self, places: Collection[TopicPartition]) -> None:
        """Commit what is kept. What cannot be written now comes again where the partitions go."""
        if self._broken is None:
            try:
                self._flush()
            except RetriableError as error:
                _log.info("kept rows are left to the next task: %s", error)
        for pending in self._pending.values():
            pending.parts = [part for part in pending.parts if part[0].tp not in places]
        for tp in places:
            self._taken.pop(tp, None)

    # Records that come

    def _take(self, stretch: SchemaStretch) -> None:
        """Keep the rows of records that are neither kept nor in the table."""
        new = stretch.behind(self._taken.get(stretch.tp, 0))
        if not new:
            return
        name = self.table_name(new.topic)
        pending = self._pending.get(name)
        if pending is None:
            table = self._table(name)
            if table is None:
                self._check_creation(name)
            pending = self._pending[name] = _Pending(table, None if table is None else table.schema)
        try:
            stored = 0 if pending.table is None else pending.table.next_offset(new.tp) or 0
        except ConflictError:  # it is gone
            self._look_again(name, pending)
            stored = 0 if pending.table is None else pending.table.next_offset(new.tp) or 0
        pending.parts += self._fitted(pending, self._with_values(new.behind(stored)))
        self._taken[new.tp] = new.offsets[-1] + 1
        if self._since is None:
            self._since = time.monotonic()

    def _with_values(self, stretch: SchemaStretch) -> SchemaStretch:
        """Return a stretch without the records whose missing value means nothing, or is refused."""
        handling = self._parsed["behavior.on.null.values"]
        if handling == "delete" and self._key is not None:
            return stretch
        empty = [row for row, value in enumerate(stretch.values) if value is None]
        if not empty:
            return stretch
        if handling == "fail":
            for row in empty:
                hint = "Set behavior.on.null.values, or filter such records out."
                self._refuse(stretch, row, DataError("it has no value", hint=hint))
        gone = set(empty)
        return stretch.picked([row for row in range(len(stretch)) if row not in gone])

    def _fitted(self, pending: _Pending, stretch: SchemaStretch) -> list[tuple[SchemaStretch, KeyedRows]]:
        """Return the rows of a stretch, without those of records that do not fit, which are refused."""
        if not stretch:
            return []
        try:
            keyed_rows = rows_of(stretch, self._key)
            _check_key(keyed_rows, pending)
            schema = pending.schema
            evolves = self._parsed["auto.evolve"]
            if keyed_rows.rows.num_rows:
                schema = merge_columns(schema, keyed_rows.rows.schema, self._format, evolves=evolves)
                _check_columns(schema)
                conform(keyed_rows.rows, schema)
            elif keyed_rows.key_table is not None and schema is not None:
                key_schema = keyed_rows.key_table.schema
                merge_columns(schema, key_schema, self._format, evolves=False)
                conform(keyed_rows.key_table, pa.schema([schema.field(name) for name in key_schema.names]))
        except DataError as error:
            if len(stretch) == 1:
                self._refuse(stretch, 0, error)
                return []
            middle = len(stretch) // 2
            first = self._fitted(pending, stretch.picked(range(middle)))
            return first + self._fitted(pending, stretch.picked(range(middle, len(stretch))))
        pending.schema = schema
        return [(stretch, keyed_rows)]

    def _refuse(self, stretch: SchemaStretch, row: int, error: DataError) -> None:
        shown = f"the record at {stretch.tp.topic}-{stretch.tp.partition} offset {stretch.offsets[row]}"
        described = DataError(f"{shown} cannot be written: {error.message}", hint=error.hint)
        reporter = self.context.errant_record_reporter
        if reporter is None:
            self._broken = ConnectError(described.message, hint=error.hint)
            raise self._broken from error
        reporter.report(stretch.record_at(row), described)

    # Commits

    def _is_due(self) -> bool:
        if self._since is None:
            return False
        count = sum(len(stretch) for pending in self._pending.values() for stretch, _ in pending.parts)
        age_ms = (time.monotonic() - self._since) * 1000
        return bool(count >= self._parsed["flush.size"] or age_ms >= self._parsed["flush.interval.ms"])

    def _flush(self) -> None:
        """Commit all tables. Those that cannot be written now keep their rows, and are tried again."""
        for name in list(self._pending):
            self._write(name, self._pending[name])
            del self._pending[name]
            self._maintain(name)
        self._since = None
        self.context.request_commit()

    def _write(self, name: str, pending: _Pending) -> None:
        for _ in range(_MOST_CONFLICTS):
            try:
                if pending.table is not None and pending.table.refresh():
                    self._fit_again(pending)
                if not pending.parts or pending.schema is None:
                    return
                if pending.table is None:
                    self._check_creation(name)
                    self._format.create(name, pending.schema)
                else:
                    self._commit(pending.table, pending)
                    self._count_commit(name)
                    return
            except ConflictError as error:
                _log.debug("%s has changed: %s", name, error)
            self._look_again(name, pending)
        raise RetriableError(f"{name} is changed by other writers all the time: {_MOST_CONFLICTS} commits were in vain")

    def _look_again(self, name: str, pending: _Pending) -> None:
        """Look a table up that has changed, or is gone."""
        self._tables.pop(name, None)
        pending.table = self._table(name)
        self._fit_again(pending)

    def _check_creation(self, name: str) -> None:
        if not self._parsed["auto.create"]:
            raise ConnectError(f"there is no table {name}", hint="Make it, or set auto.create=true.")

    def _fit_again(self, pending: _Pending) -> None:
        """Compare kept records with what the table has become."""
        table = pending.table
        pending.schema = None if table is None else table.schema
        stretches = [stretch for stretch, _ in pending.parts]
        pending.parts = []
        for stretch in stretches:
            stored = 0 if table is None else table.next_offset(stretch.tp) or 0
            pending.parts += self._fitted(pending, stretch.behind(stored))

    def _commit(self, table: LakeTable, pending: _Pending) -> None:
        assert pending.schema is not None  # noqa: S101 - _write looks
        offsets = {stretch.tp: stretch.offsets[-1] + 1 for stretch, _ in pending.parts}
        keyed_rows = [rows for _, rows in pending.parts]
        if self._key is None:
            table.append(pa.concat_tables([conform(each.rows, pending.schema) for each in keyed_rows]), offsets)
            return
        alive, dead = last_of_keys(keyed_rows)
        names = next(each.key_table.column_names for each in keyed_rows if each.key_table is not None)
        key_schema = pa.schema([pending.schema.field(name) for name in names])
        rows = [
            conform(each.rows.take(pa.array(at, pa.int64())), pending.schema)
            for each, at in zip(keyed_rows, alive, strict=True)
        ]
        deleted = [
            conform(each.key_table.take(pa.array(at, pa.int64())), key_schema)
            for each, at in zip(keyed_rows, dead, strict=True)
            if each.key_table is not None
        ]
        table.upsert(Upsert(pa.concat_tables(rows), pa.concat_tables(deleted), names), offsets)

    def _count_commit(self, name: str) -> None:
        for setting in {_COMPACTION, self.expiry_setting}:
            self._maintained[name, setting] = self._maintained.get((name, setting), 0) + 1

    def _maintain(self, name: str) -> None:
        if not self._maintains:
            return
        compacts = self._is_maintenance_due(name, _COMPACTION)
        expires = self._is_maintenance_due(name, self.expiry_setting)
        table = self._tables.get(name)
        if table is None:
            return
        try:
            if compacts:
                self._maintained[name, _COMPACTION] = 0
                table.compact()
            if expires:  # behind it: what it has replaced goes at once
                self._maintained[name, self.expiry_setting] = 0
                table.expire()
        except ConflictError as error:
            _log.info("%s is maintained later: %s", name, error)
            self._tables.pop(name, None)

    def _is_maintenance_due(self, name: str, setting: str) -> bool:
        every = self._parsed[setting]
        return bool(every) and self._maintained.get((name, setting), 0) >= every

    def table_name(self, topic: str) -> str:
        """Return the table of a topic."""
        return str(self._parsed[self.table_setting]).replace("${topic}", topic)

    def _table(self, name: str) -> LakeTable | None:
        table = self._tables.get(name)
        if table is None:
            table = self._format.load(name)
            if table is not None:
                self._tables[name] = table
        return table


def _check_key(keyed_rows: KeyedRows, pending: _Pending) -> None:
    """Refuse keys that have other columns than those that are written in the same commit."""
    earlier = next((rows.key_table for _, rows in pending.parts if rows.key_table is not None), None)
    if earlier is None or keyed_rows.key_table is None or keyed_rows.key_table.column_names == earlier.column_names:
        return
    raise DataError(
        f"its key has the fields {', '.join(keyed_rows.key_table.column_names)}, and those before it "
        f"{', '.join(earlier.column_names)}",
        hint="Name the fields that all keys have by pk.fields.",
    )


def _check_columns(schema: pa.Schema) -> None:
    if not schema.names:
        raise DataError(
            "all its fields are null, and there is no table yet that says what they are",
            hint="Make the table first, or send records with schemas.",
        )


class LakeSinkConnector(AlikeTasksSink):
    """A sink to lakehouse tables: one of its tasks also maintains them."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        first, *others = super().task_configs(max_tasks)
        return [{**first, FIRST_TASK: "true"}, *others]
