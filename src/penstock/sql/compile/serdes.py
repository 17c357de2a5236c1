"""Serdes: of topics by the formats of their sources, of rows in internal topics and stores, of states of aggregates."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import SqlError
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, RowColumn
from penstock.serde.windowed import SessionWindowedSerde, TimeWindowedSerde
from penstock.sql.analyse.plans import PlanStep
from penstock.sql.catalog import DataFormat, Source, SourceWindow
from penstock.sql.formats import FormatProperties, check_columns, format_info, row_format
from penstock.sql.formats.json_rows import array_layout, json_capture, json_texts
from penstock.sql.formats.layouts import FEW, joined, read_rows
from penstock.sql.functions.aggregates import from_state, to_state
from penstock.sql.parse import expression_nodes as x
from penstock.sql.types import BIGINT, SqlType

__all__ = [
    "RowsSerde",
    "StateSerde",
    "format_properties",
    "format_serde",
    "key_serde",
    "source_serdes",
    "step_key_serde",
]


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # dumps() would make one a call


class RowsSerde(BaseSerde):
    """The serde of rows in internal topics and stores: a JSON list with the values as states have them."""

    def __init__(self, kinds: Sequence[SqlType]) -> None:
        self._kinds = tuple(kinds)
        self._write = [to_state(kind) for kind in self._kinds]
        self._read = [from_state(kind) for kind in self._kinds]
        pairs = zip(self._kinds, self._read, strict=True)
        self._layout = array_layout([json_capture(kind, read, json.loads) for kind, read in pairs])

    @property
    def name(self) -> str:
        return f"rows<{', '.join(map(str, self._kinds))}>"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        row = [write(item) for write, item in zip(self._write, value, strict=True)]
        return _to_json(row).encode("utf-8", "surrogatepass")

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        row = json.loads(data.decode("utf-8", "surrogatepass"))
        return tuple([read(item) for read, item in zip(self._read, row, strict=True)])

    def decode(self, data: pa.Array) -> Column:
        column = read_rows(data, len(self._kinds), lambda _: self._layout, self.deserialize)
        return super().decode(data) if column is None else column

    def encode(self, column: Column) -> pa.Array:
        if not isinstance(column, RowColumn) or len(column) <= FEW:
            return super().encode(column)
        try:
            return _arrays(column, self._kinds, [_written(write) for write in self._write])
        except Exception:  # noqa: BLE001 - whatever is wrong with a row, writing it alone says so
            return super().encode(column)

    def __reduce__(self) -> Any:
        return RowsSerde, (self._kinds,)


def _written(write: Callable[[Any], Any]) -> Callable[[Any], str]:
    return lambda item: _to_json(write(item))


def _arrays(rows: RowColumn, kinds: Sequence[SqlType], writers: Sequence[Callable[[Any], str]]) -> pa.Array:
    """Write rows as JSON arrays."""
    parts: list[Any] = []
    for column, kind, write in zip(rows.columns, kinds, writers, strict=True):
        parts += ["," if parts else "[", json_texts(column, kind, write)]
    return joined([*parts, "]"] if parts else ["[]"], len(rows), rows.absent)


class StateSerde(BaseSerde):
    """The serde of the states of aggregates, which are plain JSON.

    Args:
        meaning: The groups and aggregates. It is part of the name, by which an upgrade compares stores: states of other
            groups or aggregates would be read without an error.
        longs: The number of states in a row, if all are whole numbers; such rows are read and written by the column.
    """

    def __init__(self, meaning: str, longs: int = 0) -> None:
        self._meaning = meaning
        self._longs = longs
        self._layout = array_layout([json_capture(BIGINT, int, int)] * longs) if longs else None

    @property
    def name(self) -> str:
        return f"states<{self._meaning}>"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        return _to_json(value).encode("utf-8", "surrogatepass")

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else json.loads(data.decode("utf-8", "surrogatepass"))

    def decode(self, data: pa.Array) -> Column:
        column = None
        if self._layout is not None:
            column = read_rows(data, self._longs, lambda _: self._layout, self.deserialize)
        return super().decode(data) if column is None else column

    def encode(self, column: Column) -> pa.Array:
        if not isinstance(column, RowColumn) or len(column.columns) != self._longs or len(column) <= FEW:
            return super().encode(column)
        try:
            return _arrays(column, [BIGINT] * self._longs, [_to_json] * self._longs)
        except Exception:  # noqa: BLE001 - whatever is wrong with a row, writing it alone says so
            return super().encode(column)

    def __reduce__(self) -> Any:
        return StateSerde, (self._meaning, self._longs)


def format_serde(form: DataFormat, columns: Sequence[tuple[str, SqlType]], part: str) -> Any:
    """Return the serde of the rows of a key or value in a format."""
    return row_format(form.name, tuple(columns), format_properties(form, part))


def format_properties(form: DataFormat, part: str) -> FormatProperties:
    """Return the settings of a format for keys or values."""
    info = format_info(form.name)
    settings = dict(form.properties)
    wrapped = info.wraps_by_default if form.wrap is None else form.wrap
    if part == "key":
        wrapped = not info.unwraps
    schema_id = settings.get("SCHEMA_ID")
    return FormatProperties(
        part=part,
        wrapped=wrapped,
        delimiter=settings.get("DELIMITER", ","),
        schema_id=int(schema_id) if schema_id else None,
        schema_full_name=settings.get("SCHEMA_FULL_NAME"),
        nullable=settings.get("NULLABLE_REPRESENTATION", ""),
    )


def key_serde(form: DataFormat, columns: Sequence[tuple[str, SqlType]], window: SourceWindow | None) -> Any:
    """Return the serde of keys, within windows if there are any."""
    inner = format_serde(form, columns, "key")
    if window is None:
        return inner
    return SessionWindowedSerde(inner) if window.size_ms is None else TimeWindowedSerde(inner, window.size_ms)


def source_serdes(source: Source) -> tuple[Any, Any]:
    """Return the serdes of the keys and values of a source's topic."""
    keys = [(column.name, column.type) for column in source.keys]
    values = [(column.name, column.type) for column in source.values]
    return key_serde(source.key_format, keys, source.window), format_serde(source.value_format, values, "value")


def step_key_serde(step: PlanStep, *, windowed: bool = True) -> Any:
    """Return the serde of a step's keys in internal topics and stores.

    Formats with schemas in a registry give way to JSON, as internal topics have no subjects there.
    """
    form = step.key_format
    if format_info(form.name).infers or not format_info(form.name).unwraps:
        form = DataFormat("JSON" if step.key else "NONE")
    columns: list[tuple[str, SqlType]] = []
    for index, kind in enumerate(step.key):
        names = step.key_names[index] if index < len(step.key_names) else ()
        name = names[0].name if names and isinstance(names[0], x.ColumnNode) else f"KEY_{index}"
        columns.append((name if name not in [other for other, _ in columns] else f"KEY_{index}", kind))
    try:
        check_columns(form.name, tuple(columns), "key")
    except SqlError:
        form = DataFormat("JSON")
    return key_serde(form, columns, step.window if windowed else None)
