"""What the formats of changelogs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from penstock.state.base import CHANGES_SCHEMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RECORDS_SCHEMA", "ChangelogFormat", "changes_of", "first_bytes", "now_of", "records_of"]

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORDS_SCHEMA = pa.schema(
    [("timestamp", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary()), ("headers", _HEADERS)]
)


class ChangelogFormat(Protocol):
    """From the rows of a store's byte map to records, and back.

    ``keeps_all``: every record counts for `rows`, not only the last one of each key.
    """

    keeps_all: bool

    def records(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        """The records of a batch.

        Args:
            changes: The last value of each row that changed, in the order of the rows' bytes.
            meta: The task's numbers at the end of the batch.
        """
        ...

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        """The rows that these records stand for.

        Args:
            records: In the order of the log; unless ``keeps_all``, one a key and none without a value.
            meta: The task's numbers at the end of the last record's batch.
        """
        ...


def now_of(meta: Mapping[str, int]) -> int:
    """The time of records that have none of their own: the task's stream time. Kafka takes no negative ones."""
    return max(meta.get("stream_time", 0), 0)


def records_of(
    timestamps: NDArray[np.int64] | int, keys: pa.Array, values: pa.Array, headers: pa.Array | None = None
) -> pa.RecordBatch:
    """Records of these columns, or with one time for all."""
    if isinstance(timestamps, int):
        times = pa.repeat(pa.scalar(timestamps, pa.int64()), len(keys))
    else:
        times = pa.array(np.maximum(timestamps, 0), pa.int64())
    if headers is None:
        headers = pa.nulls(len(keys), _HEADERS)
    return pa.RecordBatch.from_arrays([times, keys, values, headers], schema=RECORDS_SCHEMA)


def changes_of(keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
    """Rows as segments hold them."""
    return pa.RecordBatch.from_arrays([keys, values], schema=CHANGES_SCHEMA)


def first_bytes(column: pa.Array, width: int) -> NDArray[np.uint8]:
    """The first bytes of each element, a row each; elements that are shorter or null give anything."""
    if not len(column):
        return np.zeros((0, width), np.uint8)
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(column), column.offset * 8)
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    )
    at = np.minimum(offsets[:, None] + np.arange(width), len(data) - 1)
    found: NDArray[np.uint8] = data[at]
    return found
