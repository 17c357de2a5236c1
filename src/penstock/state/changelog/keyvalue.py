"""Changelogs of key-value stores: plain, with timestamps, with a time to live, and least-recently-used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.state.changelog.base import KeyedFormat, changes_of, first_bytes, now_of, records_of
from penstock.state.views.frames import big_endian, frame, from_bytes_list, to_bytes_list, unframe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.overlay import ReadableMap

__all__ = ["ExpiringFormat", "KeyValueFormat", "LruFormat", "TimestampedFormat", "stamped"]

_EMPTY = pa.scalar(b"", pa.large_binary())


def stamped(values: pa.Array, now: int) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return values without the time that stands before them, and those times; ``now`` for nulls."""
    bare, prefix, _ = unframe(values, before=8)
    times = prefix.view(">i8").reshape(-1).astype(np.int64)
    if bare.null_count:
        times = np.where(bare.is_null().to_numpy(zero_copy_only=False), now, times)
    return bare, times


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

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Return the records of a batch; their sources are not known, so they have the stream time."""
        return records_of(now_of(meta), changes.column(0), changes.column(1))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return changes_of(records.column("key"), records.column("value"))


class TimestampedFormat(KeyedFormat):
    """The value's time is the record's (``ChangeLoggingTimestampedKeyValueBytesStore``)."""

    in_key_order = True

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        values, times = stamped(changes.column(1), now_of(meta))
        return records_of(times, changes.column(0), values)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return changes_of(records.column("key"), frame(records.column("value"), prefix=big_endian(_times(records))))


class _IndexedFormat(KeyedFormat):
    """The base of both formats with an index: ``0 + key`` holds 8 bytes, under which ``1`` and they begin its row."""

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:
        names: list[bytes] = to_bytes_list(keys)  # type: ignore[assignment]
        rows = held.get_many([b"\x00" + key for key in names])
        index = [self._index(key, row[:8]) for key, row in zip(names, rows, strict=True) if row is not None]
        return pa.concat_arrays([_with_prefix(gone, 0), from_bytes_list(index)])

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:
        raise NotImplementedError


class ExpiringFormat(_IndexedFormat):
    """The time of the put is the record's."""

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
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
    """Key and value, in the order of their last use; a key that had to go is a deletion."""

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        own = _of_prefix(changes, 0)
        values, uses = stamped(own.column(1), -1)
        order = pa.array(np.argsort(uses, kind="stable"))
        return records_of(now_of(meta), own.column(0).take(order), values.take(order))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return self._used_from(0, records)

    def _rows_over(self, held: ReadableMap, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        last = next(held.scan(b"\x01", reverse=True), None)
        return self._used_from(0 if last is None else int.from_bytes(last[0][1:], "big") + 1, records)

    @staticmethod
    def _used_from(first: int, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of keys used one after the other; the numbers stay below that of the task's next use."""
        keys = records.column("key")
        uses = big_endian(np.arange(first, first + len(keys), dtype=np.int64))
        entries = _with_prefix(keys, 0), frame(records.column("value"), prefix=uses)
        by_use = _with_prefix(frame(pa.repeat(_EMPTY, len(keys)), prefix=uses), 1)
        return changes_of(pa.concat_arrays([entries[0], by_use]), pa.concat_arrays([entries[1], keys]))

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:  # noqa: ARG004 - the base class has it
        return b"\x01" + number
