"""From records to rows of a table: stretches of one schema, columns that fit the table's, the last row of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from penstock.connect.connectors.lakehouse.tables import LakeFormat
from penstock.connect.connectors.objects.formats import table_of
from penstock.connect.data import DataError, Schema, SinkBatch, SinkColumns, SinkRecord, Struct
from penstock.log.base import TopicPartition

__all__ = ["KeyRule", "KeyedRows", "Stretch", "conform", "last_of_keys", "merge_columns", "rows_of", "stretches_of"]


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
    merged = {} if current is None else {field.name: field for field in current}
    for field in incoming:
        mine = merged.get(field.name)
        if mine is not None:
            kind = _merged_type(mine.type, field.type, rules, field.name, evolves=evolves)
            merged[field.name] = pa.field(field.name, kind, nullable=mine.nullable)
            continue
        kind = _new_type(field.type, rules, field.name)
        if kind is None:
            continue  # only nulls so far: the column comes with its first value
        _check_name(field.name, merged, rules)
        if current is not None and not evolves:
            raise DataError(
                f"the table has no column {field.name}", hint="Set auto.evolve=true, or leave the field out of records."
            )
        merged[field.name] = pa.field(field.name, kind)
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
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        column = pa.nulls(rows.num_rows, field.type) if at < 0 else _cast(rows.column(at), field)
        if not field.nullable and column.null_count:
            raise DataError(
                f"the column {field.name} must not be null", hint="Write the field into all records of the topic."
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
class Stretch:
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

    def picked(self, rows: Sequence[int]) -> Stretch:
        """Return the stretch with these rows only."""
        return Stretch(
            self.topic,
            self.tp,
            [self.offsets[row] for row in rows],
            [self.keys[row] for row in rows],
            self.key_schema,
            [self.values[row] for row in rows],
            self.value_schema,
            lambda row: self.record_at(rows[row]),
        )

    def behind(self, offset: int) -> Stretch:
        """Return the stretch from an offset on."""
        if not self.offsets or self.offsets[0] >= offset:
            return self
        return self.picked([row for row, each in enumerate(self.offsets) if each >= offset])


def stretches_of(records: Sequence[SinkRecord]) -> Iterator[Stretch]:
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


def _of_columns(part: SinkColumns) -> Stretch:
    tp = TopicPartition(part.topic, part.partition)
    return Stretch(
        part.topic, tp, part.offsets, part.keys, part.key_schema, part.values, part.value_schema, part.record_at
    )


def _of_records(records: Sequence[SinkRecord]) -> Iterator[Stretch]:
    for run in _runs(records):
        first = run[0]
        yield Stretch(
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
    for _, place in groupby(records, lambda record: (record.topic, record.original_topic, record.original_partition)):
        run: list[SinkRecord] = []
        for record in place:
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

    def values(self, stretch: Stretch) -> tuple[Sequence[Mapping[str, Any]], pa.Table]:
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
                hint="Write keys to the topic, or choose fields of the value by pk.mode and pk.fields.",
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


def rows_of(stretch: Stretch, key: KeyRule | None) -> KeyedRows:
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
                hint="Put it into a field, for example by the transformation HoistField.",
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
