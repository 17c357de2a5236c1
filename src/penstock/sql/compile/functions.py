"""Records made rows, rows of table functions, and the times of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.api.processing.processor import FixedKeyProcessor, FixedKeyRecord
from penstock.serde.windowed import Windowed
from penstock.sql.analyse.plans import TableCall
from penstock.sql.catalog import Source, TimestampColumn
from penstock.sql.catalog.source import BOUNDS, PSEUDO
from penstock.sql.compile.row_functions import PlainRows, Select
from penstock.sql.functions.dates import parse_timestamp
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.functions.registry import COMPUTATION_ERRORS
from penstock.sql.types import SqlValueError

__all__ = [
    "Enrich",
    "FlattenRows",
    "SinkTime",
    "SourceTime",
    "enrich",
    "plain_rows",
    "sink_time",
]

Row = tuple[Any, ...]


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
    """Sets the time of results from a column; tombstones take the stream time."""

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
