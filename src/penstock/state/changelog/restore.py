"""The restore of a task's stores from their changelogs: records become rows, and the rows a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl
import pyarrow as pa

from penstock.state.base import CHANGES_SCHEMA
from penstock.state.changelog import changelog_format
from penstock.state.changelog.base import columns_read, schema_read
from penstock.state.changelog.following import reading_changelog
from penstock.state.segments.segment import SegmentHead, SegmentName
from penstock.state.segments.storage import SegmentStorage
from penstock.state.snapshots import write_snapshot
from penstock.topology.stores import StoreSpec

__all__ = ["StoreRestorer", "put_snapshot", "in_pieces"]

_LEAST = 1_000_000  # records, before older ones are looked through for those that count no more
_PIECE_ROWS = 100_000


class StoreRestorer:
    """One store of one task. It takes all records of its changelog partition in order.

    Attributes:
        records: The number of records taken.
    """

    def __init__(self, spec: StoreSpec) -> None:
        self._name = spec.name
        self._format = changelog_format(spec)
        self._pieces: list[pl.DataFrame] = []
        self._waiting = 0
        self._kept = 0
        self.records = 0

    def add(self, records: pa.RecordBatch) -> None:
        """Add the next records."""
        frame = pl.from_arrow(records.select(columns_read(self._format)))
        assert isinstance(frame, pl.DataFrame)  # noqa: S101 - for the type checker
        frame = frame.filter(pl.col("key").is_not_null())  # of a source topic that serves as changelog
        self._pieces.append(frame)
        self.records += len(frame)
        self._waiting += len(frame)
        if self._waiting > max(_LEAST, 2 * self._kept) and not self._format.keeps_all:
            self._pieces = [self._newest()]
            self._kept = self._waiting = len(self._pieces[0])

    def rows(self, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Return the store's rows in the order of their keys (``CHANGES_SCHEMA``).

        Args:
            meta: The task's numbers at the end of the last record's batch.
        """
        records = self._joined() if self._format.keeps_all else self._newest()
        table = records.to_arrow().cast(schema_read(self._format)).combine_chunks()
        batches = table.to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
        with reading_changelog(self._name):
            rows = self._format.rows(batch, meta)
        order = pl.Series("", rows.column(0), dtype=pl.Binary).arg_sort()
        return rows.take(order.to_arrow())

    def _joined(self) -> pl.DataFrame:
        if not self._pieces:
            empty = pl.from_arrow(schema_read(self._format).empty_table())
            assert isinstance(empty, pl.DataFrame)  # noqa: S101 - for the type checker
            return empty
        return pl.concat(self._pieces)

    def _newest(self) -> pl.DataFrame:
        """Return the last record of each key, in their order; deletions are left out."""
        newest = self._joined().unique("key", keep="last", maintain_order=True)
        return newest.filter(pl.col("value").is_not_null())


def put_snapshot(storage: SegmentStorage, head: SegmentHead, stores: Mapping[str, pa.RecordBatch]) -> int:
    """Put a snapshot in place, also where one exists; return its size in bytes.

    Args:
        storage: The task's segments.
        head: Its header.
        stores: Store -> all its rows, in the order of their keys.
    """
    name = SegmentName(head.batch, "snapshot")
    storage.delete(name)
    write_snapshot(storage, head, in_pieces(stores))
    return storage.sizes()[name]


def in_pieces(stores: Mapping[str, pa.RecordBatch]) -> dict[str, Iterator[pa.RecordBatch]]:
    """Return the rows of stores in pieces, as a segment takes them."""
    return {store: _pieces(rows) for store, rows in stores.items() if rows.num_rows}


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, _PIECE_ROWS):
        yield rows.slice(start, _PIECE_ROWS).cast(CHANGES_SCHEMA)
