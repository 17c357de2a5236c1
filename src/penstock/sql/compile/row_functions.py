"""The functions of rows that operators call, for each record or over whole columns: they hold typed expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock.api.processing.processor import FixedKeyProcessor, FixedKeyRecord
from penstock.serde.column import Column, RowColumn
from penstock.serde.windowed import Windowed, WindowedColumn
from penstock.sql.analyse.plans import Expression, TableCall
from penstock.sql.catalog import BOUNDS, PSEUDO, Source, TimestampColumn
from penstock.sql.evaluate import compile_predicate, compile_rows
from penstock.sql.evaluate.vectorised import compile_columns, places_of
from penstock.sql.functions.dates import parse_timestamp
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.functions.registry import COMPUTATION_ERRORS
from penstock.sql.types import SqlValueError
from penstock.topology.operations.functions import ColumnFunction

__all__ = [
    "FlattenRows",
    "Joiner",
    "Keep",
    "KeyOf",
    "PlainRows",
    "Select",
    "SourceTime",
    "enrich",
    "key_columns",
    "plain_rows",
    "sink_time",
]

Row = tuple[Any, ...]


class _Lazy(ColumnFunction):
    """Expressions with the errors of their query; compiled at the first call, and again in another process."""

    def __init__(self, expressions: Sequence[Expression], errors: EvaluationErrors) -> None:
        self._expressions = tuple(expressions)
        self._errors = errors
        self._compiled: Callable[[Row], Any] | None = None
        self._by_column: Callable[[RowColumn], list[Column]] | None = None

    def _make(self) -> Callable[[Row], Any]:
        return compile_rows([each.typed for each in self._expressions], self._errors, self._labels)

    @property
    def _labels(self) -> list[str]:
        return [each.label for each in self._expressions]

    def _of(self, row: Row) -> Any:
        if self._compiled is None:
            self._compiled = self._make()
        return self._compiled(row)

    def _columns_of(self, rows: RowColumn) -> tuple[list[Column], np.ndarray[Any, Any] | None]:
        """Return the expressions' columns for the rows that are not null, and the positions of those; None: all."""
        if self._by_column is None:
            self._by_column = compile_columns([each.typed for each in self._expressions], self._errors, self._labels)
        if rows.absent is None:
            return self._by_column(rows), None
        index = np.flatnonzero(~rows.absent)
        return self._by_column(rows.take(index)), index

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None, "_by_column": None}


class Select(_Lazy):
    """Rows of expressions; a tombstone stays one."""

    def __call__(self, value: Row | None) -> Row | None:
        return None if value is None else self._of(value)

    def over_columns(self, *arguments: Column) -> Column | None:
        (rows,) = arguments
        if not isinstance(rows, RowColumn):
            return None
        columns, there = self._columns_of(rows)
        if there is None:
            return RowColumn(columns, len(rows))
        index = np.full(len(rows), -1, np.int64)
        index[there] = np.arange(len(there))
        return RowColumn(columns, len(there)).take_or_null(index)


class Keep(_Lazy):
    """A predicate as a filter of rows; tombstones do not pass."""

    def _make(self) -> Callable[[Row], Any]:
        return compile_predicate(self._expressions[0].typed, self._errors, self._labels[0])

    def __call__(self, value: Row | None) -> bool:
        return value is not None and bool(self._of(value))

    def over_columns(self, *arguments: Column) -> Column | None:
        (rows,) = arguments
        if not isinstance(rows, RowColumn):
            return None
        (column,), there = self._columns_of(rows)
        if there is None:
            return column
        index = np.full(len(rows), -1, np.int64)
        index[there] = np.arange(len(there))
        return column.take_or_null(index)


class KeyOf(_Lazy):
    """A new key of a row: a tuple; None if its only column is null.

    Columns that read more than the old key are null for a tombstone.

    Args:
        expressions: The columns of the key.
        errors: The errors of the query.
        keys: For tombstones: the places in a row of the columns of the old key.
        width: The number of columns of a row.
        whole: Whether a key with a null in it is null.
    """

    def __init__(
        self,
        expressions: Sequence[Expression],
        errors: EvaluationErrors,
        keys: Sequence[int] = (),
        width: int = 0,
        *,
        whole: bool = False,
    ) -> None:
        super().__init__(expressions, errors)
        self._keys = tuple(keys)
        self._width = width
        self._whole = whole
        self._of_key = [places_of(each.typed) <= set(keys) for each in expressions]

    def __call__(self, key: Any, value: Row | None) -> Row | None:
        if not self._expressions:
            return None
        if value is None:
            only_key = self._of(self._only_key(key))
            new_key = tuple(item if of_key else None for item, of_key in zip(only_key, self._of_key, strict=True))
        else:
            new_key = self._of(value)
        if self._whole:
            return None if None in new_key else new_key
        return None if new_key == (None,) else new_key

    def over_columns(self, *arguments: Column) -> Column | None:
        rows = arguments[1]
        if not isinstance(rows, RowColumn) or rows.absent is not None:
            return None
        if not self._expressions:
            return Column.nulls(len(rows))
        columns, _ = self._columns_of(rows)
        absent = None
        if self._whole or len(columns) == 1:
            absent = np.logical_or.reduce([column.null_mask() for column in columns])
        return RowColumn(columns, len(rows), absent)

    def _only_key(self, key: Any) -> Row:
        row: list[Any] = [None] * self._width
        plain = key.key if isinstance(key, Windowed) else key
        for index, item in zip(self._keys, plain or (), strict=False):
            row[index] = item
        return tuple(row)


class Joiner(ColumnFunction):
    """The row of two rows, with null for the columns of the side that is missing.

    Args:
        left: The number of columns of the left row.
        right: The number of columns of the right row.
        keys: The number of columns of the key that follow as columns.
        swapped: Whether the sides come in the other order.
    """

    def __init__(self, left: int, right: int, *, keys: int = 0, swapped: bool = False) -> None:
        self._left = (None,) * left
        self._right = (None,) * right
        self._no_key = (None,) * keys
        self._swapped = swapped

    def __call__(self, key: Any, left: Row | None, right: Row | None) -> Row:
        if self._swapped:
            left, right = right, left
        row = (*(self._left if left is None else left), *(self._right if right is None else right))
        if not self._no_key:
            return row
        plain = key.key if isinstance(key, Windowed) else key
        return (*row, *(plain or self._no_key))

    def over_columns(self, *arguments: Column) -> Column | None:
        keys, left, right = arguments
        if self._swapped:
            left, right = right, left
        one, two = columns_of(left, len(self._left)), columns_of(right, len(self._right))
        if one is None or two is None:
            return None
        columns = [*one, *two]
        if self._no_key:
            held = key_columns(keys, len(self._no_key))
            if held is None:
                return None
            columns += held
        return RowColumn(columns, len(left))


def columns_of(rows: Column, width: int) -> tuple[Column, ...] | None:
    """Return the columns of rows, with nulls in rows that are null; None if the rows come as tuples."""
    if isinstance(rows, RowColumn):
        return rows.shown() if len(rows.columns) == width else None
    if type(rows) is Column and rows.null_mask().all():
        return (Column.nulls(len(rows)),) * width
    return None


def key_columns(keys: Column, width: int) -> tuple[Column, ...] | None:
    """Return the first columns of keys, those of windowed keys too, with nulls in keys that are null.

    None as `columns_of`.
    """
    plain = keys.keys if isinstance(keys, WindowedColumn) else keys
    if isinstance(plain, RowColumn):
        return plain.shown()[:width] if len(plain.columns) >= width else None
    return columns_of(plain, width)


class PlainRows(ColumnFunction):
    """Rows of keys and values alone: what a query does not name of a record's origin is null.

    Args:
        order: For each column of the step the place of its value among key, value, headers, pseudo columns and bounds.
        headers: The number of header columns and pseudo columns.
        keys: The number of key columns.
    """

    def __init__(self, order: tuple[int, ...], headers: int, keys: int) -> None:
        self._order = order
        self._no_key = (None,) * keys
        self._origin = (None,) * headers

    def __call__(self, key: Any, value: Row | None) -> Row | None:
        if value is None:
            return None
        bounds: tuple[int, ...] = ()
        if isinstance(key, Windowed):
            bounds = (key.window.start, key.window.end)
            key = key.key
        parts = (*(self._no_key if key is None else key), *value, *self._origin, *bounds)
        return tuple([parts[index] for index in self._order])

    def over_columns(self, *arguments: Column) -> Column | None:
        keys, rows = arguments
        if not isinstance(rows, RowColumn) or isinstance(keys, WindowedColumn):
            return None
        held = key_columns(keys, len(self._no_key)) if self._no_key else ()
        if held is None:
            return None
        nothing = Column.nulls(len(rows))
        parts = (*held, *rows.columns, *(nothing for _ in self._origin))
        return RowColumn([parts[index] for index in self._order], len(rows), rows.absent)


class FlattenRows:
    """A row for each result of table functions, side by side."""

    def __init__(self, calls: Sequence[TableCall], errors: EvaluationErrors) -> None:
        self._arguments = [Select(call.arguments, errors) for call in calls]
        self._functions = [call.function for call in calls]
        self._errors = errors

    def __call__(self, value: Row | None) -> list[Row]:
        if value is None:
            return []
        results = []
        for function, arguments in zip(self._functions, self._arguments, strict=True):
            try:
                results.append(function.call(*(arguments(value) or ())) or [])
            except COMPUTATION_ERRORS as error:
                self._errors.report(function.name, error)
                results.append([])
        longest = max(map(len, results), default=0)
        padded = [[*result, *[None] * (longest - len(result))] for result in results]
        return [(*value, *row) for row in zip(*padded, strict=True)]


class Enrich(FixedKeyProcessor[Any, Any]):
    """Rows of records: key, value, headers, time, partition, offset, window, in the order of the step's columns.

    Args:
        order: For each column the place of its value among key, value, headers, pseudo columns and bounds.
        headers: For each header column the name of its header; None for all of them.
        keys: The number of key columns.
    """

    def __init__(self, order: tuple[int, ...], headers: tuple[str | None, ...], keys: int) -> None:
        self._order = order
        self._headers = headers
        self._no_key = (None,) * keys

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:  # type: ignore[override]
        value = record.value
        if value is None:
            self.context.forward(record)
            return
        key = record.key
        bounds: tuple[int, ...] = ()
        if isinstance(key, Windowed):
            bounds = (key.window.start, key.window.end)
            key = key.key
        origin = self.context.record_metadata()
        position = (-1, -1) if origin is None else (origin.partition, origin.offset)
        headers = [_header(record.headers, name) for name in self._headers]
        parts = (*(self._no_key if key is None else key), *value, *headers, record.timestamp, *position, *bounds)
        self.context.forward(record.with_value(tuple([parts[index] for index in self._order])))


def _header(headers: Sequence[tuple[str, bytes | None]], name: str | None) -> Any:
    if name is None:
        return [{"KEY": key, "VALUE": value} for key, value in headers]
    return next((value for key, value in reversed(headers) if key == name), None)


def plain_rows(source: Source) -> PlainRows:
    """Return the function that makes rows of a source's keys and values."""
    return PlainRows(_order(source), len(source.headers) + len(PSEUDO), len(source.keys))


def enrich(source: Source) -> Callable[[], Enrich]:
    """Return the supplier of the processor that makes rows of a source's records."""
    names = tuple(column.header if column.role == "HEADER" else None for column in source.headers)
    return partial(Enrich, _order(source), names, len(source.keys))


def _order(source: Source) -> tuple[int, ...]:
    parts = [column.name for column in (*source.keys, *source.values, *source.headers)]
    places = {name: index for index, name in enumerate(parts)}
    count = len(parts)
    order = [places[column.name] for column in source.columns]
    return (*order, *range(count, count + len(PSEUDO) + (len(BOUNDS) if source.window is not None else 0)))


class _Time:
    """The time in a column.

    Args:
        column: The column.
        position: Whether it is a column of the key, and its place there or in the value.
        errors: The errors of the query.
        raises: Whether a bad time raises; else it is reported.
    """

    def __init__(
        self, column: TimestampColumn, position: tuple[bool, int], errors: EvaluationErrors, *, raises: bool
    ) -> None:
        self._column = column
        self._of_key, self._index = position
        self._errors = errors
        self._raises = raises

    def of(self, key: Any, value: Row | None) -> int | None:
        """Return the time in milliseconds; None if there is none, which is reported."""
        row = (key.key if isinstance(key, Windowed) else key) if self._of_key else value
        try:
            timestamp = None if row is None else row[self._index]
            if timestamp is None:
                raise SqlValueError(f"{self._column.name} is null")
            if self._column.pattern is not None:
                timestamp = parse_timestamp(timestamp, self._column.pattern)
            if timestamp < 0:
                raise SqlValueError(f"{self._column.name} is {timestamp}, before 1970")
        except COMPUTATION_ERRORS as error:
            if self._raises:
                raise
            self._errors.report("TIMESTAMP", error)
            return None
        return int(timestamp)


class SourceTime(_Time):
    """The timestamp extractor of a source with TIMESTAMP: a record without a valid time is dropped."""

    def __call__(self, record: Any, partition_time: int) -> int:
        if record.value is None:
            return int(record.timestamp if record.timestamp >= 0 else partition_time)
        timestamp = self.of(record.key, record.value)
        return -1 if timestamp is None else timestamp


class SinkTime(FixedKeyProcessor[Any, Any]):
    """The time of results from a column; tombstones take the stream time."""

    def __init__(self, time: _Time) -> None:
        self._time = time

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:  # type: ignore[override]
        if record.value is None:
            timestamp: int | None = max(self.context.current_stream_time_ms(), 0)
        else:
            timestamp = self._time.of(record.key, record.value)
        if timestamp is not None:
            self.context.forward(record.with_timestamp(timestamp))


def sink_time(
    column: TimestampColumn, position: tuple[bool, int], errors: EvaluationErrors, *, raises: bool
) -> Callable[[], SinkTime]:
    """Return the supplier of the processor that sets the time of results."""
    return partial(SinkTime, _Time(column, position, errors, raises=raises))
