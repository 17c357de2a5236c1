"""The columns of tables: what records bring, what a table has, and rows that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.connect.connectors.lakehouse.tables import LakeFormat
from penstock.connect.data import DataError

__all__ = ["conform", "merge_columns"]


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
