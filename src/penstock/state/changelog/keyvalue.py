"""Changelogs of key-value stores: plain, with timestamps, with a time to live, and least-recently-used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.changelog.base import (
    NOTHING_NOTED,
    Headers,
    KeyedFormat,
    Written,
    changes_of,
    first_bytes,
    headers_column,
    headers_noted,
    now_of,
    records_of,
    times_noted,
)
from penstock.state.views.frames import big_endian, frame, unframe
from penstock.state.views.header_format import split_headers, with_headers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.overlay import ReadableMap

__all__ = [
    "ExpiringFormat",
    "KeyValueFormat",
    "LruFormat",
    "TimestampedFormat",
    "entry_headers",
    "headers_of_records",
    "stamped",
]

_EMPTY = pa.scalar(b"", pa.large_binary())


def stamped(values: pa.Array, now: NDArray[np.int64] | int) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return values without the time that stands before them, and those times; ``now`` for nulls."""
    bare, prefix, _ = unframe(values, before=8)
    times = prefix.view(">i8").reshape(-1).astype(np.int64)
    if bare.null_count:
        times = np.where(bare.is_null().to_numpy(zero_copy_only=False), now, times)
    return bare, times


def entry_headers(entries: pa.Array, rows: pa.Array, written: Written) -> tuple[pa.Array, pa.Array | None]:
    """Return the entries of a store that keeps headers without them, and the headers of their records.

    Those of deletions are the headers of the records that deleted.
    """
    bare, headers = split_headers(entries)
    deleted = headers_noted(rows, written, only=entries.is_null()) if entries.null_count else None
    if headers is None:
        return bare, deleted
    own = headers_column(headers)
    return bare, own if deleted is None else pc.coalesce(own, deleted)


def headers_of_records(records: pa.RecordBatch) -> list[Headers] | None:
    """Return the headers of each record; None when no record has any."""
    column = records.column("headers")
    if column.null_count == len(column):
        return None
    return [() if each is None else tuple((h["key"], h["value"]) for h in each) for each in column.to_pylist()]


def _times(records: pa.RecordBatch) -> NDArray[np.int64]:
    times: NDArray[np.int64] = records.column("timestamp").to_numpy()
    return times


def _of_prefix(changes: pa.RecordBatch, prefix: int) -> pa.RecordBatch:
    """Return the rows whose keys begin with this byte, without it."""
    own = changes.filter(pa.array(first_bytes(changes.column(0), 1)[:, 0] == prefix))
    return changes_of(unframe(own.column(0), before=1)[0], own.column(1))


def _with_prefix(keys: pa.Array, prefix: int) -> pa.Array:
    return frame(keys, prefix=np.full((len(keys), 1), prefix, np.uint8))


class KeyValueFormat(KeyedFormat):
    """Key and value unchanged (``ChangeLoggingKeyValueBytesStore``)."""

    in_key_order = True

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        """Return the records of a batch, with the times of the records that wrote the rows."""
        rows = changes.column(0)
        return records_of(times_noted(rows, meta, written), rows, changes.column(1))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return changes_of(records.column("key"), records.column("value"))


class TimestampedFormat(KeyedFormat):
    """The value's time is the record's (``ChangeLoggingTimestampedKeyValueBytesStore``).

    Args:
        keeps_headers: Whether the entries have headers, which are the records' too
            (``ChangeLoggingTimestampedKeyValueBytesStoreWithHeaders``).
        logs_headers: Whether its records have the headers of those that wrote the rows.
    """

    in_key_order = True

    def __init__(self, *, keeps_headers: bool = False, logs_headers: bool = False) -> None:
        self._keeps_headers = self.reads_headers = keeps_headers
        self._logs_headers = logs_headers

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, entries = changes.column(0), changes.column(1)
        headers = headers_noted(rows, written) if self._logs_headers else None
        if self._keeps_headers:
            entries, headers = entry_headers(entries, rows, written)
        values, times = stamped(entries, times_noted(rows, meta, written) if entries.null_count else 0)
        return records_of(times, rows, values, headers)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        entries = frame(records.column("value"), prefix=big_endian(_times(records)))
        if self._keeps_headers:
            entries = with_headers(entries, headers_of_records(records))
        return changes_of(records.column("key"), entries)


class _IndexedFormat(KeyedFormat):
    """The base of both formats with an index: ``0 + key`` holds 8 bytes, under which ``1`` and they begin its row."""

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:
        names: list[bytes] = to_bytes_list(keys)  # type: ignore[assignment]
        rows = held.get_many([b"\x00" + key for key in names])
        index = [self._index(key, row[:8]) for key, row in zip(names, rows, strict=True) if row is not None]
        return pa.concat_arrays([_with_prefix(gone, 0), bytes_column(index)])

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:
        raise NotImplementedError


class ExpiringFormat(_IndexedFormat):
    """The time of the put is the record's."""

    def records(
        self,
        changes: pa.RecordBatch,
        meta: Mapping[str, int],
        written: Written = NOTHING_NOTED,  # noqa: ARG002 - the protocol
    ) -> pa.RecordBatch:
        own = _of_prefix(changes, 0)
        values, times = stamped(own.column(1), now_of(meta))
        return records_of(times, own.column(0), values)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        keys, times = records.column("key"), big_endian(_times(records))
        entries = _with_prefix(keys, 0), frame(records.column("value"), prefix=times)
        by_time = _with_prefix(frame(keys, prefix=times), 1), pa.repeat(_EMPTY, len(keys))
        return changes_of(*(pa.concat_arrays(pair) for pair in zip(entries, by_time, strict=True)))

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:
        return b"\x01" + number + key


class LruFormat(_IndexedFormat):
    """Key and value, in the order of their last use; a key that had to go is a deletion.

    Args:
        keeps_headers: Whether the values are entries with a timestamp and headers, as `TimestampedFormat` has them.
    """

    def __init__(self, *, keeps_headers: bool = False) -> None:
        self._inner = TimestampedFormat(keeps_headers=True) if keeps_headers else KeyValueFormat()
        self.reads_headers = keeps_headers

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        own = _of_prefix(changes, 0)
        values, uses = stamped(own.column(1), -1)
        order = pa.array(np.argsort(uses, kind="stable"))
        notes = {row[1:]: note for row, note in written.items() if row[:1] == b"\x00"}
        return self._inner.records(changes_of(own.column(0).take(order), values.take(order)), meta, notes)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return self._used_from(0, self._inner.rows(records, {}))

    def _rows_over(self, held: ReadableMap, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        last = next(held.scan(b"\x01", reverse=True), None)
        return self._used_from(
            0 if last is None else int.from_bytes(last[0][1:], "big") + 1, self._inner.rows(records, {})
        )

    @staticmethod
    def _used_from(first: int, entries: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of keys used one after the other; the numbers stay below that of the task's next use."""
        keys = entries.column("key")
        uses = big_endian(np.arange(first, first + len(keys), dtype=np.int64))
        entries = _with_prefix(keys, 0), frame(entries.column("value"), prefix=uses)
        by_use = _with_prefix(frame(pa.repeat(_EMPTY, len(keys)), prefix=uses), 1)
        return changes_of(pa.concat_arrays([entries[0], by_use]), pa.concat_arrays([entries[1], keys]))

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:  # noqa: ARG004 - the base class has it
        return b"\x01" + number
