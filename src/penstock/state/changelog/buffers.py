"""Changelogs of buffers: suppressed changes, and records of a stream-table join with grace.

Values are Kafka's ``BufferValue``: the record's origin, prior, old and new value, the time in the buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.serde.column import bytes_column, from_fixed_width, join, large_binary, parts, to_bytes_list
from penstock.state.changelog.formats import (
    NOTHING_NOTED,
    RECORDS_SCHEMA,
    KeyedFormat,
    Written,
    changes_of,
    first_bytes,
    now_of,
    records_of,
)
from penstock.state.views.change_buffer import SAME, Headers, old_source, pack_headers, unpack_headers
from penstock.state.views.change_columns import ChangeColumns
from penstock.state.views.header_entries import unpack_headers as entry_headers_of
from penstock.state.views.keyvalue import frame, unframe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.maps import ReadableMap

__all__ = ["ChangeBufferFormat", "Fields", "RecordBufferFormat", "lengths_of", "number_column"]

_VERSION = 3
_PRIOR, _OLD = "vh.prior", "vh.old"
_HERE = pa.scalar(b"\x01", pa.large_binary())


class _BufferSource(NamedTuple):
    """Kafka's ``ProcessorRecordContext``; ``headers`` is null where there are none."""

    times: NDArray[np.int64]
    offsets: NDArray[np.int64]
    topics: pa.Array
    partitions: NDArray[np.int64]
    counts: NDArray[np.int64]
    headers: pa.Array

    def pack(self) -> list[pa.Array]:
        topics = self.topics.fill_null(b"")
        return [
            number_column(self.times, 8),
            number_column(self.offsets, 8),
            number_column(lengths_of(topics), 4),
            topics,
            number_column(self.partitions, 4),
            number_column(self.counts, 4),
            self.headers.fill_null(b""),
        ]

    @classmethod
    def take(cls, fields: Fields) -> _BufferSource:
        times, offsets, topics = fields.number(8), fields.number(8), fields.sized()
        partitions, counts = fields.number(4), fields.number(4)
        return cls(times, offsets, topics, partitions, counts, fields.headers(counts))


class ChangeBufferFormat(KeyedFormat):
    """Kafka's ``InMemoryTimeOrderedKeyValueChangeBuffer``, version 3 of its format.

    Args:
        keeps_headers: Whether its records have the headers and timestamps of the prior and the old value, too.
    """

    def __init__(self, *, keeps_headers: bool = False) -> None:
        self._keeps_headers = self.reads_headers = keeps_headers

    def records(
        self,
        changes: pa.RecordBatch,
        meta: Mapping[str, int],
        written: Written = NOTHING_NOTED,  # noqa: ARG002 - the protocol
    ) -> pa.RecordBatch:
        own = changes.filter(pa.array(first_bytes(changes.column(0), 1)[:, 0] == ord("k")))
        keys = unframe(own.column(0), before=1)[0]
        there = own.column(1).is_valid()
        gone, held = keys.filter(own.column(1).is_null()), keys.filter(there)
        rows = own.column(1).filter(there)
        values, headers = held, None
        if len(held):
            sources = None
            if self._keeps_headers:
                sources, rows = _split_sources(rows)
            columns = ChangeColumns.unpack(rows)
            values = _pack_changes(columns)
            if sources is not None:
                headers = _record_headers(_value_headers(columns, sources))
        pieces = [
            records_of(now_of(meta), gone, pa.nulls(len(gone), pa.large_binary())),
            records_of(now_of(meta), held, values, _version_headers(len(held)) if headers is None else headers),
        ]
        return pa.concat_batches(pieces)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        keys, count = records.column("key"), records.num_rows
        changes = _unpack_changes(Fields(records.column("value")))
        letters = {letter: np.full((count, 1), ord(letter), np.uint8) for letter in "kt"}
        places = join(number_column(changes.times, 8), keys)
        held = changes.pack()
        if self._keeps_headers:
            held = join(bytes_column(_sources_of(records)), held)
        return changes_of(
            pa.concat_arrays([frame(keys, prefix=letters["k"]), frame(places, prefix=letters["t"])]),
            pa.concat_arrays([held, pa.repeat(_HERE, count)]),
        )

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:
        names: list[bytes] = to_bytes_list(keys)  # type: ignore[assignment]
        rows = held.get_many([b"k" + key for key in names])
        if self._keeps_headers:
            rows = [None if row is None else _split_source(row)[1] for row in rows]
        places = [b"t" + row[:8] + key for key, row in zip(names, rows, strict=True) if row is not None]
        own = frame(gone, prefix=np.full((len(gone), 1), ord("k"), np.uint8))
        return pa.concat_arrays([own, bytes_column(places)])


def _split_source(row: bytes) -> tuple[bytes, bytes]:
    """Return the headers and timestamp of the old value, and the change."""
    at = entry_headers_of(row)[1] + 8
    return row[:at], row[at:]


def _split_sources(rows: pa.Array) -> tuple[list[bytes], pa.Array]:
    pairs = [_split_source(row) for row in rows.to_pylist()]
    return [source for source, _ in pairs], bytes_column([change for _, change in pairs])


def _value_headers(changes: ChangeColumns, sources: list[bytes]) -> list[Headers]:
    """Return the record headers with the headers and timestamps of older values: those of the prior are not known."""
    unknown = old_source(None)
    headers_of_rows: list[Headers] = []
    rows = zip(changes.priors.is_valid().to_pylist(), changes.olds.is_valid().to_pylist(), sources, strict=True)
    for (has_prior, has_old, source), same in zip(rows, changes.old_is_prior().tolist(), strict=True):
        prior = ((_PRIOR, unknown),) if has_prior and not same else ()
        headers_of_rows.append((*prior, *(((_OLD, source),) if has_old else ())))
    return headers_of_rows


def _sources_of(records: pa.RecordBatch) -> list[bytes]:
    """Return the headers and timestamp of each record's old value."""
    unknown = old_source(None)
    return [
        next((header["value"] for header in each or () if header["key"] == _OLD), unknown)
        for each in records.column("headers").to_pylist()
    ]


def _version_headers(count: int) -> pa.Array:
    """Return the headers of records that have nothing but the version of the format."""
    kind = RECORDS_SCHEMA.field("headers").type
    names = pa.repeat(pa.scalar("v"), count)
    values = pa.repeat(pa.scalar(bytes([_VERSION]), pa.binary()), count)
    both = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), both, type=kind)


def _record_headers(more: Sequence[Headers]) -> pa.Array:
    """Return the headers of records: the version of the format, and others behind it."""
    kind = RECORDS_SCHEMA.field("headers").type
    version = {"key": "v", "value": bytes([_VERSION])}
    return pa.array([[version, *({"key": k, "value": v} for k, v in each)] for each in more], kind)


def _pack_changes(changes: ChangeColumns) -> pa.Array:
    headers: Sequence[Headers] = changes.headers or [()] * len(changes)
    source = _BufferSource(
        changes.timestamps,
        changes.offsets,
        changes.topics,
        changes.partitions,
        np.array([len(each) for each in headers], np.int64),
        bytes_column([pack_headers(each) for each in headers]),
    )
    same = changes.old_is_prior()
    olds = pc.if_else(pa.array(same), pa.scalar(b"", pa.large_binary()), changes.olds)
    old_lengths = np.where(same, SAME, lengths_of(olds))
    return join(
        *source.pack(),
        number_column(lengths_of(changes.priors), 4),
        changes.priors.fill_null(b""),
        number_column(old_lengths, 4),
        olds.fill_null(b""),
        number_column(lengths_of(changes.news), 4),
        changes.news.fill_null(b""),
        number_column(changes.times, 8),
    )


def _unpack_changes(fields: Fields) -> ChangeColumns:
    source = _BufferSource.take(fields)
    priors = fields.sized()
    old_lengths = fields.number(4)
    olds = fields.bytes(old_lengths)
    same = np.flatnonzero(old_lengths == SAME)
    if len(same):
        index = np.arange(len(olds))
        index[same] = len(olds) + same
        olds = pa.concat_arrays([olds, priors]).take(pa.array(index))
    news, times = fields.sized(), fields.number(8)
    packed = to_bytes_list(source.headers)
    headers = [unpack_headers(each or b"") for each in packed] if any(packed) else None
    return ChangeColumns(
        times, source.times, source.offsets, source.partitions, source.topics, priors, olds, news, headers
    )


class RecordBufferFormat(KeyedFormat):
    """Kafka's ``RocksDBTimeOrderedKeyValueBuffer``. Key: 0, time (8 bytes), key, number (4 bytes)."""

    def records(
        self,
        changes: pa.RecordBatch,
        meta: Mapping[str, int],
        written: Written = NOTHING_NOTED,  # noqa: ARG002 - the protocol
    ) -> pa.RecordBatch:
        keys = frame(changes.column(0), prefix=np.zeros((changes.num_rows, 1), np.uint8))
        there = changes.column(1).is_valid()
        gone, held = keys.filter(changes.column(1).is_null()), keys.filter(there)
        fields = Fields(changes.column(1).filter(there))
        partitions, offsets = fields.number(4), fields.number(8)
        topics, counts = fields.sized(), fields.number(4)
        times = first_bytes(unframe(held, before=1)[0], 8).view(">i8").reshape(-1).astype(np.int64)
        source = _BufferSource(times, offsets, topics, partitions, counts, fields.headers(counts))
        news = fields.bytes(fields.left)
        null, zero = np.full(len(held), -1, np.int64), np.zeros(len(held), np.int64)
        nulls = number_column(null, 4)
        values = join(*source.pack(), nulls, nulls, number_column(lengths_of(news), 4), news, number_column(zero, 8))
        return pa.concat_batches(
            [
                records_of(now_of(meta), gone, pa.nulls(len(gone), pa.large_binary())),
                records_of(now_of(meta), held, values),
            ]
        )

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        fields = Fields(records.column("value"))
        source = _BufferSource.take(fields)
        fields.number(4)
        fields.number(4)
        news = fields.sized()
        values = join(
            number_column(source.partitions, 4),
            number_column(source.offsets, 8),
            number_column(lengths_of(source.topics), 4),
            source.topics,
            number_column(source.counts, 4),
            source.headers.fill_null(b""),
            news,
        )
        return changes_of(unframe(records.column("key"), before=1)[0], values)

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:  # noqa: ARG002 - the base class has it
        return unframe(gone, before=1)[0]


def number_column(numbers: NDArray[np.int64], width: int) -> pa.Array:
    """Return numbers as big-endian bytes of this width, 4 or 8."""
    return from_fixed_width(np.ascontiguousarray(numbers, f">i{width}").view(np.uint8).reshape(-1, width))


def lengths_of(column: pa.Array) -> NDArray[np.int64]:
    """Return the length in bytes of each element, -1 for null."""
    _, offsets = parts(column)
    lengths: NDArray[np.int64] = np.diff(offsets)
    return np.where(np.asarray(column.is_valid()), lengths, -1)


class Fields:
    """A reader of field after field from the front of every element; raises ValueError where an element is too short.

    Args:
        column: The elements, none of them null.
    """

    def __init__(self, column: pa.Array) -> None:
        self._column = large_binary(column)
        self._body, offsets = parts(self._column)
        self._at = offsets[:-1].copy()
        self._ends = offsets[1:]

    @property
    def left(self) -> NDArray[np.int64]:
        """The number of bytes of each element that have not been taken."""
        return self._ends - self._at

    def _check(self, ends: NDArray[np.int64]) -> None:
        if (ends > self._ends).any():
            raise ValueError("a field that is cut short")

    def number(self, width: int) -> NDArray[np.int64]:
        """Take a big-endian number of 4 or 8 bytes."""
        self._check(self._at + width)
        taken = np.ascontiguousarray(self._body[self._at[:, None] + np.arange(width)])
        self._at = self._at + width
        numbers: NDArray[np.int64] = taken.view(f">i{width}").reshape(-1).astype(np.int64)
        return numbers

    def bytes(self, lengths: NDArray[np.int64]) -> pa.Array:
        """Take so many bytes; null where the length is negative."""
        there = np.maximum(lengths, 0)
        self._check(self._at + there)
        ends = np.zeros(len(there) + 1, np.int64)
        np.cumsum(there, out=ends[1:])
        data = self._body[np.arange(ends[-1]) + np.repeat(self._at - ends[:-1], there)] if ends[-1] else self._body[:0]
        self._at = self._at + there
        null = lengths < 0
        bitmap = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
        buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(there), buffers)

    def sized(self) -> pa.Array:
        """Take bytes behind their length; null where that is negative."""
        return self.bytes(self.number(4))

    def headers(self, counts: NDArray[np.int64]) -> pa.Array:
        """Take so many headers, each a name and a value behind their lengths, as written; null where there are none."""
        if not (counts > 0).any():
            return bytes_column([None] * len(counts))
        lengths = np.full(len(counts), -1, np.int64)
        for row in np.flatnonzero(counts > 0).tolist():
            at = start = int(self._at[row])
            for _ in range(2 * int(counts[row])):
                if at + 4 > int(self._ends[row]):
                    raise ValueError("headers that are cut short")
                at += 4 + max(int.from_bytes(self._body[at : at + 4].tobytes(), "big", signed=True), 0)
            lengths[row] = at - start
        return self.bytes(lengths)
