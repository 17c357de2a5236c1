"""Stream-table joins with a grace period: records wait until stream time has passed them by the grace.

A record leaves with the first record that moves the buffer's stream time far enough, its own included; those that leave
together go by time, key and arrival. A record that comes too late to wait goes on at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.record import RecordContext
from penstock.runtime.rows import Rows
from penstock.serde.column import Column
from penstock.state.views.frames import from_bytes_list, to_bytes_list
from penstock.state.views.record_buffer import RecordBufferView, WaitingRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext

__all__ = ["GraceBuffer"]


class GraceBuffer:
    """Decides at which rows of the batch waiting records are joined."""

    def __init__(self, node: str, store: str, grace_ms: int, context: TaskContext) -> None:
        self._name = node
        self._store = store
        self._grace_ms = grace_ms
        self._context = context

    def release(self, rows: Rows) -> Rows:
        """Return the records that are to be joined, at the places where that happens."""
        rows = self._refuse_null_keys(rows)
        if not len(rows):
            return rows
        rows = replace(rows, origins=self._origins(rows))
        store = cast("RecordBufferView", self._context.store(self._store))
        before = store.observed_stream_time
        running = np.maximum.accumulate(np.maximum(rows.timestamps, before))
        late = rows.timestamps < np.append(before, running[:-1]) - self._grace_ms
        positions = np.arange(len(rows))
        leaves = np.maximum(positions, np.searchsorted(running, rows.timestamps + self._grace_ms))
        leaves[late] = positions[late]
        keys = cast("list[bytes]", to_bytes_list(store.spec.key_serde.encode(rows.keys)))
        waited = store.take_until(int(running[-1]) - self._grace_ms)
        store.observe(int(running[-1]))
        staying = np.flatnonzero(leaves == len(rows))
        if len(staying):
            store.add(self._waiting(rows.take(staying), [keys[i] for i in staying.tolist()], store))
        released = _released(rows, np.flatnonzero(leaves < len(rows)), waited, store)
        times = released.timestamps
        old_leaves = np.searchsorted(running, times[len(times) - len(waited) :] + self._grace_ms)
        going = np.concatenate([leaves[leaves < len(rows)], old_leaves])
        going_keys = [key for key, leave in zip(keys, leaves.tolist(), strict=True) if leave < len(rows)]
        return _in_order(rows, released, going, [*going_keys, *(record.key for record in waited)], len(waited))

    def _refuse_null_keys(self, rows: Rows) -> Rows:
        null = rows.keys.null_mask()
        for row in np.flatnonzero(null).tolist():
            error = ProcessingError(
                f"{self._name}: a record without key cannot wait in a join with a grace period",
                hint="Filter such records out before the join.",
                node=self._name,
            )
            self._context.failed(self._name, None, rows, row, error)
        return rows.filter(~null)

    def _origins(self, rows: Rows) -> list[RecordContext | None]:
        """Return the source record of each row, which it keeps while it waits."""
        topics, partitions, offsets = self._context.input.sources(rows.place.inputs)
        names = [None if topic is None else topic.decode() for topic in topics.to_pylist()]
        headers = rows.headers or [()] * len(rows)
        found = map(RecordContext, names, partitions.tolist(), offsets.tolist(), rows.timestamps.tolist(), headers)
        return [rows.origin(row) or own for row, own in enumerate(found)]

    @staticmethod
    def _waiting(rows: Rows, keys: list[bytes], store: RecordBufferView) -> list[WaitingRecord]:
        values = cast("list[bytes]", to_bytes_list(store.spec.value_serde.encode(rows.values)))
        headers = rows.headers or [()] * len(rows)
        sources = [(o.topic or "", o.partition, o.offset) for o in rows.origins or () if o is not None]
        parts = zip(rows.timestamps.tolist(), keys, values, headers, sources, strict=True)
        return [WaitingRecord(time, key, value, each, *source) for time, key, value, each, source in parts]


def _released(rows: Rows, own: NDArray[np.int64], waited: list[WaitingRecord], store: RecordBufferView) -> Rows:
    """Return the batch's own rows that leave, then those from before; all at the place of the first row."""
    parts = rows.take(own)
    if not waited:
        return parts
    headers = None
    if parts.headers is not None or any(record.headers for record in waited):
        headers = [*(parts.headers or [()] * len(parts)), *(record.headers for record in waited)]
    keys = store.spec.key_serde.decode(from_bytes_list([record.key for record in waited]))
    values = store.spec.value_serde.decode(from_bytes_list([record.value for record in waited]))
    return Rows(
        rows.place.take(np.zeros(len(own) + len(waited), np.int64)),
        np.concatenate([parts.timestamps, np.array([record.time for record in waited], np.int64)]),
        Column.concat([parts.keys, keys]),
        Column.concat([parts.values, values]),
        headers,
        origins=[*(parts.origins or ()), *map(_origin, waited)],
    )


def _origin(record: WaitingRecord) -> RecordContext:
    return RecordContext(record.topic or None, record.partition, record.offset, record.time, record.headers)


def _in_order(rows: Rows, released: Rows, leaves: NDArray[np.int64], keys: list[bytes], waited: int) -> Rows:
    """Return the records by the row with which they leave, time, key and arrival, at that row's place."""
    own = len(leaves) - waited
    times, when = released.timestamps.tolist(), leaves.tolist()
    order = np.array(
        sorted(range(len(keys)), key=lambda at: (when[at], times[at], keys[at], at - len(keys) if at >= own else at)),
        np.int64,
    )
    at_rows = leaves[order]
    return released.take(order).with_place(rows.place.take(at_rows).extend(np.arange(len(order))))
