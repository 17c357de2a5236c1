"""The size of records in memory."""

from __future__ import annotations

import pyarrow as pa

from penstock.log.stored_batches import record_bytes


def batch(rows: int, size: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([b"v" * size] * rows, pa.large_binary())})


def test_small_batches_are_counted_whole_and_slices_of_large_ones_alone() -> None:
    small, large = batch(3, 10), batch(1_000, 1_000)
    assert small.nbytes <= record_bytes(small) <= small.nbytes + 256
    assert record_bytes(large) == large.nbytes
    assert record_bytes(large.slice(0, 10)) == large.slice(0, 10).nbytes < large.nbytes
