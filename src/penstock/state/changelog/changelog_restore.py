"""The restore of stores from their changelogs: records become rows, in pieces of any size, and the rows a snapshot."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.late_polars import pl
from penstock.errors import StateError
from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.changelog import ChangelogFormat, changelog_format
from penstock.state.changelog.formats import KeyedFormat, columns_read, schema_read
from penstock.state.maps import CHANGES_SCHEMA, MemoryMap
from penstock.state.segments.segment import SegmentHead, SegmentName
from penstock.state.segments.storage import SegmentStorage
from penstock.state.snapshots import write_snapshot
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from penstock.state.maps import ReadableMap

__all__ = ["StoreFollower", "StoreRestorer", "in_pieces", "put_snapshot", "reading_changelog"]

_SLICE_ROWS = 50_000
_FEW = 64  # rows; up to so many take less time as lists
_NOTHING = MemoryMap()


class StoreFollower:
    """The changes of one store's rows, from piece to piece of its changelog.

    Args:
        spec: The store.
        before: The task's numbers that belong to the rows before the first piece.
        meta: The task's numbers at the end of the last piece's last commit.
    """

    def __init__(self, spec: StoreSpec, before: Mapping[str, int], meta: Mapping[str, int]) -> None:
        self._spec = spec
        self._format = changelog_format(spec)
        self._meta = meta
        self._observed = before.get(self._observed_name, -1)

    @property
    def _observed_name(self) -> str:
        return f"{self._spec.name}/observed-stream-time"

    @property
    def columns(self) -> list[str]:
        """The columns of the log's records that a piece needs."""
        return ["offset", *columns_read(self._format)]

    @property
    def numbers(self) -> Mapping[str, int]:
        """Those of the task's numbers that the next piece builds on."""
        return {self._observed_name: self._observed} if self._format.keeps_all else {}

    def changes(self, pieces: Sequence[pa.RecordBatch], held: ReadableMap) -> tuple[Iterable[pa.RecordBatch], int]:
        """Return the changes (``CHANGES_SCHEMA``) in the order of the rows' bytes, and the number of records.

        The changes are slices, to be iterated over more than once, also when ``held`` has been closed.

        Args:
            pieces: The next records, in the order of the log.
            held: The rows so far.

        Raises:
            StateError: A record is none of such a store; also in an iteration.
        """
        if sum([each.num_rows for each in pieces]) <= _FEW:
            return self._few_changes(pieces, held)
        frames = [pl.from_arrow(each.select(columns_read(self._format)), rechunk=False) for each in pieces]
        frame = pl.concat([each for each in frames if isinstance(each, pl.DataFrame)])
        frame = frame.filter(pl.col("key").is_not_null())  # of a source topic that serves as changelog
        count = len(frame)
        if self._format.keeps_all:
            return [self._kept(_batch(frame, self._format), held)], count
        in_order = isinstance(self._format, KeyedFormat) and self._format.in_key_order
        frame = _last_in_key_order(frame) if in_order else frame.unique("key", keep="last", maintain_order=True)
        if not len(held):
            frame = frame.filter(pl.col("value").is_not_null())
        if in_order:
            return _Slices(self._spec.name, self._format, frame, self._meta), count
        with reading_changelog(self._spec.name):
            return [_ordered(self._format.changes(_batch(frame, self._format), held, self._meta))], count

    def _few_changes(self, pieces: Sequence[pa.RecordBatch], held: ReadableMap) -> tuple[Iterable[pa.RecordBatch], int]:
        """Return the same for a few records, without the cost of setting up columns."""
        form = self._format
        table = pa.Table.from_batches([each.select(columns_read(form)) for each in pieces]).cast(schema_read(form))
        keys = table.column("key").to_pylist()
        rows = [row for row, key in enumerate(keys) if key is not None]  # others are of a source topic
        count = len(rows)
        if not form.keeps_all:
            last = {keys[row]: row for row in rows}
            in_order = isinstance(form, KeyedFormat) and form.in_key_order
            rows = [last[key] for key in sorted(last)] if in_order else sorted(last.values())
            if not len(held):
                values = table.column("value").to_pylist()
                rows = [row for row in rows if values[row] is not None]
        batches = table.take(pa.array(rows, pa.int64())).combine_chunks().to_batches()
        if not batches:
            return [], count
        if form.keeps_all:
            return [self._kept(batches[0], held)], count
        with reading_changelog(self._spec.name):
            return [_ordered(form.changes(batches[0], held, self._meta))], count

    def _kept(self, records: pa.RecordBatch, held: ReadableMap) -> pa.RecordBatch:
        """Return the changes of records all of which count, also several of a key, and note their newest time."""
        with reading_changelog(self._spec.name):
            changes = self._format.changes(records, held, self.numbers)
        newest = pc.max(records.column("timestamp")).as_py()
        self._observed = max(self._observed, -1 if newest is None else newest)
        return _ordered(changes)


def _last_in_key_order(records: pl.DataFrame) -> pl.DataFrame:
    """Return the last record of each key in the order of the keys; much faster than ``unique`` and a sort."""
    ordered = records.sort("key", maintain_order=True)
    return ordered.filter(ordered["key"].ne_missing(ordered["key"].shift(-1)))


class _Slices:
    """The changes of records in the order of their keys, which is that of their rows; a slice in memory at a time."""

    def __init__(self, store: str, form: ChangelogFormat, records: pl.DataFrame, meta: Mapping[str, int]) -> None:
        self._store = store
        self._format = form
        self._records = records
        self._meta = meta

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for piece in self._records.iter_slices(_SLICE_ROWS):
            with reading_changelog(self._store):
                changes = self._format.changes(_batch(piece, self._format), _NOTHING, self._meta)
            yield _ordered(changes) if changes.column(1).null_count else changes


@contextmanager
def reading_changelog(store: str) -> Iterator[None]:
    """Raise StateError for records that do not fit a store."""
    try:
        yield
    except (LookupError, ValueError, OverflowError, struct.error, pa.ArrowException) as error:
        raise StateError(
            f"the changelog of store {store!r} has a record that such a store does not write: {error}",
            hint="Another program has written to it, or it is of a store of another kind. In micro-batches, bring the "
            "checkpoint back from a backup; in continuous mode nothing but this topic has the state. To start from "
            "nothing: penstock app reset.",
            store=store,
        ) from error


def _batch(frame: pl.DataFrame, form: ChangelogFormat) -> pa.RecordBatch:
    schema = schema_read(form)
    batches = frame.to_arrow().cast(schema).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _ordered(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return the last change of each row in the order of the rows."""
    if not changes.num_rows:
        return changes
    if changes.num_rows <= _FEW:
        rows = list(zip(to_bytes_list(changes.column(0)), to_bytes_list(changes.column(1)), strict=True))
        if changes.column(1).null_count:
            rows = list(dict(rows).items())
        rows.sort(key=itemgetter(0))
        columns = ([row[number] for row in rows] for number in range(2))
        return pa.RecordBatch.from_arrays(list(map(bytes_column, columns)), schema=CHANGES_SCHEMA)
    frame = pl.from_arrow(changes)
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - for the type checker
    if frame["value"].null_count():
        frame = frame.unique("key", keep="last", maintain_order=True)
    return frame.sort("key").to_arrow().cast(CHANGES_SCHEMA).combine_chunks().to_batches()[0]


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
