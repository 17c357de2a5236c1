"""Changelogs of window and session stores.

Expired rows are deleted from the store without a record, as in Kafka: the topic's retention forgets them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.state.changelog.base import (
    NOTHING_NOTED,
    KeyedFormat,
    Written,
    changes_of,
    first_bytes,
    headers_noted,
    records_of,
    times_noted,
)
from penstock.state.changelog.keyvalue import entry_headers, headers_of_records, stamped
from penstock.state.memory import MemoryMap
from penstock.state.views.frames import big_endian, frame, unframe
from penstock.state.views.header_format import with_headers
from penstock.state.views.retention import Retention
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.overlay import ReadableMap

__all__ = ["SessionFormat", "WindowFormat"]


def _numbers(column: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.ascontiguousarray(column).view(">i8").reshape(-1).astype(np.int64)


def _not_expired(changes: pa.RecordBatch, retention: Retention) -> pa.RecordBatch:
    """Return the changes without the deletions of expired rows."""
    if not changes.column(1).null_count:
        return changes
    gone = changes.column(1).is_null().to_numpy(zero_copy_only=False)
    gone &= _numbers(first_bytes(changes.column(0), 8)) < retention.first_bucket
    return changes.filter(pa.array(~gone)) if gone.any() else changes


class _ExpiringFormat(KeyedFormat):
    """The base of both formats: rows that begin with their bucket (8 bytes), and expire with it."""

    def __init__(self, spec: StoreSpec, window_size_ms: int) -> None:
        self._spec = spec
        self.reads_headers = spec.keeps_headers
        self._window_size_ms = window_size_ms

    def _retention(self, meta: Mapping[str, int]) -> Retention:
        return Retention(self._spec, MemoryMap(), dict(meta), self._window_size_ms)

    def _live(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return rows, the same without their buckets, and their values; deletions of expired rows are left out."""
        changes = _not_expired(changes, self._retention(meta))
        rows, _, _ = unframe(changes.column(0), before=8)
        return changes.column(0), rows, changes.column(1)

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:  # noqa: ARG002 - the base class has it
        return self._names(gone, {})[0]

    def _names(self, keys: pa.Array, meta: Mapping[str, int]) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the rows of the records of these keys, and their buckets."""
        raise NotImplementedError


class WindowFormat(_ExpiringFormat):
    """Key, start (8 bytes), sequence number (4 bytes); the value's time, where it has one, is the record's."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec, spec.window_size_ms)

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, keys, values = self._live(changes, meta)
        if not self._spec.retain_duplicates:
            keys = frame(keys, suffix=np.zeros((len(keys), 4), np.uint8))
        headers = headers_noted(rows, written) if self._spec.logs_headers else None
        if not self._spec.timestamped:
            return records_of(times_noted(rows, meta, written), keys, values, headers)
        if self._spec.keeps_headers:
            values, headers = entry_headers(values, rows, written)
        values, times = stamped(values, times_noted(rows, meta, written) if values.null_count else 0)
        return records_of(times, keys, values, headers)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        names, buckets = self._names(records.column("key"), meta)
        values = records.column("value")
        if self._spec.timestamped:
            values = frame(values, prefix=big_endian(records.column("timestamp").to_numpy()))
        if self._spec.keeps_headers:
            values = with_headers(values, headers_of_records(records))
        kept = pa.array(buckets >= self._retention(meta).first_bucket)
        return changes_of(names, values).filter(kept)

    def _names(self, keys: pa.Array, meta: Mapping[str, int]) -> tuple[pa.Array, NDArray[np.int64]]:
        keys, _, tails = unframe(keys, after=12)
        buckets = self._retention(meta).bucket(_numbers(tails[:, :8]))
        tails = tails if self._spec.retain_duplicates else tails[:, :8]
        return frame(keys, big_endian(buckets), tails), buckets


class SessionFormat(_ExpiringFormat):
    """Key, end and start (8 bytes each); the record's time is the end, if that of the one that wrote is not noted."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec, window_size_ms=0)

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, keys, values = self._live(changes, meta)
        values, headers = entry_headers(values, rows, written) if self._spec.keeps_headers else (values, None)
        return records_of(times_noted(rows, meta, written) if written else _ends(keys), keys, values, headers)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        names, buckets = self._names(records.column("key"), meta)
        kept = pa.array(buckets >= self._retention(meta).first_bucket)
        values = records.column("value")
        if self._spec.keeps_headers:
            values = with_headers(values, headers_of_records(records))
        return changes_of(names, values).filter(kept)

    def _names(self, keys: pa.Array, meta: Mapping[str, int]) -> tuple[pa.Array, NDArray[np.int64]]:
        buckets = self._retention(meta).bucket(_ends(keys))
        return frame(keys, big_endian(buckets)), buckets


def _ends(keys: pa.Array) -> NDArray[np.int64]:
    return _numbers(unframe(keys, after=16)[2][:, :8])
