"""The base of changelog formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.base import CHANGES_SCHEMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.overlay import ReadableMap

__all__ = [
    "NOTHING_NOTED",
    "RECORDS_SCHEMA",
    "ChangelogFormat",
    "Headers",
    "KeyedFormat",
    "Written",
    "changes_of",
    "columns_read",
    "first_bytes",
    "headers_column",
    "headers_noted",
    "now_of",
    "records_of",
    "schema_read",
    "times_noted",
]

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORDS_SCHEMA = pa.schema(
    [("timestamp", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary()), ("headers", _HEADERS)]
)


Headers = tuple[tuple[str, bytes | None], ...]
Written = Mapping[bytes, tuple[int, Headers]]
NOTHING_NOTED: Written = MappingProxyType({})


_ALWAYS_READ = ("timestamp", "key", "value")


class ChangelogFormat(Protocol):
    """The conversion of a store's rows to records, and back.

    ``keeps_all``: every record counts for `rows`, not only the last one of each key. ``reads_headers``: the rows have
    what stands in the records' headers, so that these are read, too.
    """

    keeps_all: bool
    reads_headers: bool

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        """Return the records of a batch.

        Args:
            changes: The last value of each row that changed, in the order of the rows' bytes.
            meta: The task's numbers at the end of the batch.
            written: By row the time and the headers of the record that wrote it, as far as they were noted. They are
                those of records of which the row has none; without a note that is the stream time, and no headers.
        """
        ...

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Return the rows that these records stand for.

        Args:
            records: In the order of the log; unless ``keeps_all``, one a key and none without a value.
            meta: The task's numbers at the end of the last record's batch.
        """
        ...

    def changes(self, records: pa.RecordBatch, held: ReadableMap, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Return the changes of rows that these records stand for, in any order; of several of a row the last counts.

        Args:
            records: In the order of the log; unless ``keeps_all``, one a key, and without a value for deletions.
            held: The rows before.
            meta: As for `rows`; versioned stores: the task's numbers before the first record.
        """
        ...


class KeyedFormat:
    """The base of formats of which the last record of a key says all about it.

    ``in_key_order``: a key has one row, rows are in the order of their keys, and no other row has to be looked at.
    """

    keeps_all = False
    reads_headers = False
    in_key_order = False

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Return the rows that these records stand for, as `ChangelogFormat` says."""
        raise NotImplementedError

    def changes(self, records: pa.RecordBatch, held: ReadableMap, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Return the changes of rows that these records stand for, as `ChangelogFormat` says."""
        there = records.column("value").is_valid()
        stale = self._stale(records.column("key"), records.column("key").filter(pc.invert(there)), held)
        rows = self._rows_over(held, records.filter(there), meta)
        if not len(stale):
            return rows
        return pa.concat_batches([changes_of(stale, pa.nulls(len(stale), pa.large_binary())), rows])

    def _rows_over(self, held: ReadableMap, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - for those that count on
        """Return the rows of new records."""
        return self.rows(records, meta)

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:  # noqa: ARG002 - for those with an index
        """Return the rows to be deleted, missing ones do not matter.

        Args:
            keys: The keys of all new records.
            gone: Those of records without a value.
            held: The rows before.
        """
        return gone


def columns_read(of: ChangelogFormat) -> list[str]:
    """Return the columns of records that a format makes rows of."""
    return [*_ALWAYS_READ, *(["headers"] if of.reads_headers else [])]


def schema_read(of: ChangelogFormat) -> pa.Schema:
    """Return the schema of `columns_read`."""
    return pa.schema([RECORDS_SCHEMA.field(name) for name in columns_read(of)])


def now_of(meta: Mapping[str, int]) -> int:
    """Return the time of records that have none of their own: the task's stream time. Kafka takes no negative ones."""
    return max(meta.get("stream_time", 0), 0)


def times_noted(rows: pa.Array, meta: Mapping[str, int], written: Written) -> NDArray[np.int64] | int:
    """Return the times of the records that wrote these rows, for records without a time of their own."""
    now = now_of(meta)
    if not written:
        return now
    return np.array([written[row][0] if row in written else now for row in rows.to_pylist()], np.int64)


def headers_noted(rows: pa.Array, written: Written, only: pa.Array | None = None) -> pa.Array | None:
    """Return the headers of the records that wrote these rows, as a column; None: there are none.

    Args:
        rows: The rows.
        written: What was noted.
        only: Whether a row counts; None: all do.
    """
    if not written:
        return None
    counts = [True] * len(rows) if only is None else only.to_pylist()
    headers = [
        written[row][1] if use and row in written else () for row, use in zip(rows.to_pylist(), counts, strict=True)
    ]
    return headers_column(headers)


def headers_column(headers: Sequence[Headers]) -> pa.Array | None:
    """Return headers as a column of `RECORDS_SCHEMA`; None where there are none."""
    if not any(headers):
        return None
    return pa.array([[{"key": k, "value": v} for k, v in each] or None for each in headers], _HEADERS)


def records_of(
    timestamps: NDArray[np.int64] | int, keys: pa.Array, values: pa.Array, headers: pa.Array | None = None
) -> pa.RecordBatch:
    """Return records of these columns; ``timestamps`` may be one time for all."""
    if isinstance(timestamps, int):
        times = pa.array(np.full(len(keys), timestamps, np.int64))
    else:
        times = pa.array(np.maximum(timestamps, 0), pa.int64())
    if headers is None:
        headers = pa.nulls(len(keys), _HEADERS)
    return pa.RecordBatch.from_arrays([times, keys, values, headers], schema=RECORDS_SCHEMA)


def changes_of(keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
    """Return rows as segments hold them."""
    return pa.RecordBatch.from_arrays([keys, values], schema=CHANGES_SCHEMA)


def first_bytes(column: pa.Array, width: int) -> NDArray[np.uint8]:
    """Return the first bytes of each element, a row each; undefined for elements that are shorter or null."""
    if not len(column):
        return np.zeros((0, width), np.uint8)
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(column), column.offset * 8)
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    )
    at = np.minimum(offsets[:, None] + np.arange(width), len(data) - 1)
    leading_bytes: NDArray[np.uint8] = data[at]
    return leading_bytes
