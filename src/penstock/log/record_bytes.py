"""The size of records in memory, cheaply."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["record_bytes"]

_SMALL_BYTES = 1 << 16


def record_bytes(records: pa.RecordBatch) -> int:
    """Return the size of records; of slices of small batches that of the whole batch.

    Arrow's ``nbytes`` looks at each value that a slice can see: 13 us, whatever the size, which a stream thread would
    spend several times on each handful of records.
    """
    whole = records.get_total_buffer_size()
    return int(whole if whole <= _SMALL_BYTES else records.nbytes)
