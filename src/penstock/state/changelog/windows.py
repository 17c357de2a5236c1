"""Changelogs of window and session stores.

Expired rows are deleted from the store without a record, as in Kafka: the topic's retention forgets them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.state.changelog.base import changes_of, first_bytes, now_of, records_of
from penstock.state.changelog.keyvalue import stamped
from penstock.state.memory import MemoryMap
from penstock.state.views.frames import big_endian, frame, unframe
from penstock.state.views.retention import Retention
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SessionFormat", "WindowFormat"]


def _numbers(column: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.ascontiguousarray(column).view(">i8").reshape(-1).astype(np.int64)


def _not_expired(changes: pa.RecordBatch, retention: Retention) -> pa.RecordBatch:
    """The changes without those by which rows were deleted as too old."""
    if not changes.column(1).null_count:
        return changes
    gone = changes.column(1).is_null().to_numpy(zero_copy_only=False)
    gone &= _numbers(first_bytes(changes.column(0), 8)) < retention.first_bucket
    return changes.filter(pa.array(~gone)) if gone.any() else changes


class WindowFormat:
    """Key, start (8 bytes), sequence number (4 bytes); the value's time, where it has one, is the record's."""

    keeps_all = False

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        changes = _not_expired(changes, self._retention(meta))
        keys, _, _ = unframe(changes.column(0), before=8)
        if not self._spec.retain_duplicates:
            keys = frame(keys, suffix=np.zeros((len(keys), 4), np.uint8))
        if not self._spec.timestamped:
            return records_of(now_of(meta), keys, changes.column(1))
        values, times = stamped(changes.column(1), now_of(meta))
        return records_of(times, keys, values)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        retention = self._retention(meta)
        keys, _, tails = unframe(records.column("key"), after=12)
        buckets = retention.bucket(_numbers(tails[:, :8]))
        tails = tails if self._spec.retain_duplicates else tails[:, :8]
        values = records.column("value")
        if self._spec.timestamped:
            values = frame(values, prefix=big_endian(records.column("timestamp").to_numpy()))
        kept = pa.array(buckets >= retention.first_bucket)
        return changes_of(frame(keys, big_endian(buckets), tails), values).filter(kept)

    def _retention(self, meta: Mapping[str, int]) -> Retention:
        return Retention(self._spec, MemoryMap(), dict(meta), self._spec.window_size_ms)


class SessionFormat:
    """Key, end and start (8 bytes each); the end is the record's time."""

    keeps_all = False

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        changes = _not_expired(changes, self._retention(meta))
        keys, _, _ = unframe(changes.column(0), before=8)
        return records_of(_ends(keys), keys, changes.column(1))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        retention = self._retention(meta)
        buckets = retention.bucket(_ends(records.column("key")))
        kept = pa.array(buckets >= retention.first_bucket)
        return changes_of(frame(records.column("key"), big_endian(buckets)), records.column("value")).filter(kept)

    def _retention(self, meta: Mapping[str, int]) -> Retention:
        return Retention(self._spec, MemoryMap(), dict(meta), 0)


def _ends(keys: pa.Array) -> NDArray[np.int64]:
    return _numbers(unframe(keys, after=16)[2][:, :8])
