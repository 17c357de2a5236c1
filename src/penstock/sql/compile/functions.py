"""The functions that operators call: they hold typed expressions and compile them where they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.api.processing.processor import FixedKeyProcessor, FixedKeyRecord
from penstock.serde.windowed import Windowed
from penstock.sql.analyse.plans import Expression, TableCall
from penstock.sql.catalog import Source, TimestampColumn
from penstock.sql.catalog.source import BOUNDS, PSEUDO
from penstock.sql.evaluate import compile_predicate, compile_rows
from penstock.sql.functions.dates import parse_timestamp
from penstock.sql.functions.errors import EvaluationErrors
from penstock.sql.functions.registry import COMPUTATION_ERRORS
from penstock.sql.types import SqlValueError

__all__ = [
    "Enrich",
    "FlattenRows",
    "Joiner",
    "KeyOf",
    "Keep",
    "PlainRows",
    "Select",
    "SinkTime",
    "SourceTime",
    "enrich",
    "plain_rows",
    "sink_time",
]

Row = tuple[Any, ...]


class _Lazy:
    """Expressions with the errors of their query; compiled at the first call, and again in another process."""

    def __init__(self, expressions: Sequence[Expression], errors: EvaluationErrors) -> None:
        self._expressions = tuple(expressions)
        self._errors = errors
        self._compiled: Callable[[Row], Any] | None = None

    def _make(self) -> Callable[[Row], Any]:
        names = [each.label for each in self._expressions]
        return compile_rows([each.typed for each in self._expressions], self._errors, names)

    def _of(self, row: Row) -> Any:
        if self._compiled is None:
            self._compiled = self._make()
        return self._compiled(row)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None}


class Select(_Lazy):
    """Rows of expressions; a tombstone stays one."""

    def __call__(self, value: Row | None) -> Row | None:
        return None if value is None else self._of(value)


class Keep(_Lazy):
    """Whether a row passes a predicate; tombstones do not."""

    def _make(self) -> Callable[[Row], Any]:
        only = self._expressions[0]
        return compile_predicate(only.typed, self._errors, only.label)

    def __call__(self, value: Row | None) -> bool:
        return value is not None and bool(self._of(value))


class KeyOf(_Lazy):
    """A new key of a row: a tuple; None if its only column is null.

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

    def __call__(self, key: Any, value: Row | None) -> Row | None:
        if value is None:
            value = self._only_key(key)
        if not self._expressions:
            return None
        found = self._of(value)
        if self._whole:
            return None if None in found else found
        return None if found == (None,) else found

    def _only_key(self, key: Any) -> Row:
        row: list[Any] = [None] * self._width
        plain = key.key if isinstance(key, Windowed) else key
        for place, item in zip(self._keys, plain or (), strict=False):
            row[place] = item
        return tuple(row)


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


class Joiner:
    """The row of two rows, with null for the columns of the side that is missing.

    Args:
        left: The number of columns of the left row.
        right: The number of columns of the right row.
        keyed: Whether the key follows as a column.
        swapped: Whether the sides come in the other order.
    """

    def __init__(self, left: int, right: int, *, keyed: bool = False, swapped: bool = False) -> None:
        self._left = (None,) * left
        self._right = (None,) * right
        self._keyed = keyed
        self._swapped = swapped

    def __call__(self, key: Any, left: Row | None, right: Row | None) -> Row:
        if self._swapped:
            left, right = right, left
        row = (*(self._left if left is None else left), *(self._right if right is None else right))
        if not self._keyed:
            return row
        plain = key.key if isinstance(key, Windowed) else key
        return (*row, plain[0] if plain else None)


class Enrich(FixedKeyProcessor[Any, Any]):
    """Makes rows of records: key, value, headers, time, partition, offset, window, in the order of the step's columns.

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
        place = (-1, -1) if origin is None else (origin.partition, origin.offset)
        headers = [_header(record.headers, name) for name in self._headers]
        parts = (*(self._no_key if key is None else key), *value, *headers, record.timestamp, *place, *bounds)
        self.context.forward(record.with_value(tuple([parts[index] for index in self._order])))


def _header(headers: Sequence[tuple[str, bytes | None]], name: str | None) -> Any:
    if name is None:
        return [{"KEY": key, "VALUE": value} for key, value in headers]
    return next((value for key, value in reversed(headers) if key == name), None)


class PlainRows:
    """Makes rows of keys and values alone: what a query does not name of a record's origin is null.

    Args:
        order: As `Enrich` has it.
        headers: The number of header columns.
        keys: The number of key columns.
    """

    def __init__(self, order: tuple[int, ...], headers: int, keys: int) -> None:
        self._order = order
        self._no_key = (None,) * keys
        self._origin = (None,) * (headers + len(PSEUDO))

    def __call__(self, key: Any, value: Row | None) -> Row | None:
        if value is None:
            return None
        bounds: tuple[int, ...] = ()
        if isinstance(key, Windowed):
            bounds = (key.window.start, key.window.end)
            key = key.key
        parts = (*(self._no_key if key is None else key), *value, *self._origin, *bounds)
        return tuple([parts[index] for index in self._order])


def plain_rows(source: Source) -> PlainRows:
    """The function that makes rows of a source's keys and values."""
    return PlainRows(_order(source), len(source.headers), len(source.keys))


def enrich(source: Source) -> Callable[[], Enrich]:
    """The supplier of the processor that makes rows of a source's records."""
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
        place: Whether it is a column of the key, and its place there or in the value.
        errors: The errors of the query.
        raises: Whether a bad time raises; else it is reported.
    """

    def __init__(
        self, column: TimestampColumn, place: tuple[bool, int], errors: EvaluationErrors, *, raises: bool
    ) -> None:
        self._column = column
        self._of_key, self._place = place
        self._errors = errors
        self._raises = raises

    def of(self, key: Any, value: Row | None) -> int | None:
        """The time in milliseconds; None if there is none, which is reported."""
        row = (key.key if isinstance(key, Windowed) else key) if self._of_key else value
        try:
            found = None if row is None else row[self._place]
            if found is None:
                raise SqlValueError(f"{self._column.name} is null")
            if self._column.pattern is not None:
                found = parse_timestamp(found, self._column.pattern)
            if found < 0:
                raise SqlValueError(f"{self._column.name} is {found}, before 1970")
        except COMPUTATION_ERRORS as error:
            if self._raises:
                raise
            self._errors.report("TIMESTAMP", error)
            return None
        return int(found)


class SourceTime(_Time):
    """The timestamp extractor of a source with TIMESTAMP: a record without a valid time is dropped."""

    def __call__(self, record: Any, partition_time: int) -> int:
        if record.value is None:
            return int(record.timestamp if record.timestamp >= 0 else partition_time)
        found = self.of(record.key, record.value)
        return -1 if found is None else found


class SinkTime(FixedKeyProcessor[Any, Any]):
    """Sets the time of results from a column; tombstones take the stream time."""

    def __init__(self, time: _Time) -> None:
        self._time = time

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:  # type: ignore[override]
        if record.value is None:
            found: int | None = max(self.context.current_stream_time_ms(), 0)
        else:
            found = self._time.of(record.key, record.value)
        if found is not None:
            self.context.forward(record.with_timestamp(found))


def sink_time(
    column: TimestampColumn, place: tuple[bool, int], errors: EvaluationErrors, *, raises: bool
) -> Callable[[], SinkTime]:
    """The supplier of the processor that sets the time of results."""
    return partial(SinkTime, _Time(column, place, errors, raises=raises))
