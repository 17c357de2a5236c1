"""Changelogs of key-value stores: plain, with timestamps, with a time to live, and of the keys used last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.state.changelog.base import changes_of, first_bytes, now_of, records_of
from penstock.state.views.frames import big_endian, frame, unframe

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ExpiringFormat", "KeyValueFormat", "LruFormat", "TimestampedFormat", "stamped"]

_EMPTY = pa.scalar(b"", pa.large_binary())


def stamped(values: pa.Array, now: int) -> tuple[pa.Array, NDArray[np.int64]]:
    """Values without the time that stands before them, and those times; ``now`` for nulls."""
    bare, prefix, _ = unframe(values, before=8)
    times = prefix.view(">i8").reshape(-1).astype(np.int64)
    if bare.null_count:
        times = np.where(bare.is_null().to_numpy(zero_copy_only=False), now, times)
    return bare, times


def _times(records: pa.RecordBatch) -> NDArray[np.int64]:
    times: NDArray[np.int64] = records.column("timestamp").to_numpy()
    return times


def _of_prefix(changes: pa.RecordBatch, prefix: int) -> pa.RecordBatch:
    """The rows whose keys begin with this byte, without it."""
    own = changes.filter(pa.array(first_bytes(changes.column(0), 1)[:, 0] == prefix))
    return changes_of(unframe(own.column(0), before=1)[0], own.column(1))


def _with_prefix(keys: pa.Array, prefix: int) -> pa.Array:
    return frame(keys, prefix=np.full((len(keys), 1), prefix, np.uint8))


class KeyValueFormat:
    """Key and value as they are (``ChangeLoggingKeyValueBytesStore``)."""

    keeps_all = False

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        """The records of a batch; which record a change came from is not known, so they have the stream time."""
        return records_of(now_of(meta), changes.column(0), changes.column(1))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return changes_of(records.column("key"), records.column("value"))


class TimestampedFormat:
    """The value's time is the record's (``ChangeLoggingTimestampedKeyValueBytesStore``)."""

    keeps_all = False

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        values, times = stamped(changes.column(1), now_of(meta))
        return records_of(times, changes.column(0), values)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return changes_of(records.column("key"), frame(records.column("value"), prefix=big_endian(_times(records))))


class ExpiringFormat:
    """The time of the put is the record's."""

    keeps_all = False

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        own = _of_prefix(changes, 0)
        values, times = stamped(own.column(1), now_of(meta))
        return records_of(times, own.column(0), values)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        keys, times = records.column("key"), big_endian(_times(records))
        entries = _with_prefix(keys, 0), frame(records.column("value"), prefix=times)
        by_time = _with_prefix(frame(keys, prefix=times), 1), pa.repeat(_EMPTY, len(keys))
        return changes_of(*(pa.concat_arrays(pair) for pair in zip(entries, by_time, strict=True)))


class LruFormat:
    """Key and value, in the order of their last use; a key that had to go is a deletion."""

    keeps_all = False

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        own = _of_prefix(changes, 0)
        values, uses = stamped(own.column(1), -1)
        order = pa.array(np.argsort(uses, kind="stable"))
        return records_of(now_of(meta), own.column(0).take(order), values.take(order))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        keys = records.column("key")
        uses = big_endian(np.arange(len(keys), dtype=np.int64))
        entries = _with_prefix(keys, 0), frame(records.column("value"), prefix=uses)
        by_use = _with_prefix(frame(pa.repeat(_EMPTY, len(keys)), prefix=uses), 1)
        return changes_of(pa.concat_arrays([entries[0], by_use]), pa.concat_arrays([entries[1], keys]))
