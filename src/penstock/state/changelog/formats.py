"""The changelogs of all kinds of stores but buffers, and the records of a commit's changes in the format of each.

- Windows and sessions: expired rows are deleted from the store without a record, as in Kafka: the topic's retention
  forgets them too.
- Records that wait for a match in a left or outer join of two streams: the key is time (8 bytes), side (1: left), key;
  the value Kafka's list of byte arrays, each of them the side again and the value.
- Versioned stores: every put, under the time from which its version is valid. Their rows do not show which puts made
  them, so the puts of a batch are noted while it runs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidStateError, StateError
from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.maps import CHANGES_SCHEMA, MemoryMap, Overlay, Put, ReadableMap, TaskOverlay
from penstock.state.views.header_entries import split_headers, with_headers
from penstock.state.views.keyvalue import big_endian, frame, unframe
from penstock.state.views.retention import Retention
from penstock.state.views.versioned import Versions
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "APPLICATION",
    "NOTE",
    "NOTHING_NOTED",
    "RECORDS_SCHEMA",
    "ChangelogFormat",
    "CurrentRecord",
    "Headers",
    "KeyedFormat",
    "NotingOverlay",
    "TaskNumbers",
    "VersionedFormat",
    "Written",
    "changes_of",
    "columns_read",
    "first_bytes",
    "headers_column",
    "headers_noted",
    "note_writes",
    "notes_of",
    "now_of",
    "records_of",
    "records_of_changes",
    "records_of_puts",
    "schema_read",
    "stamped",
    "times_noted",
]


class CurrentRecord:
    """The time and the headers of the record that a task processes; None between records, and for several at once."""

    __slots__ = ("note",)

    def __init__(self) -> None:
        self.note: tuple[int, Headers] | None = None


class NotingOverlay(Overlay):
    """An overlay that notes for each row the record that wrote it last.

    Args:
        base: The map below.
        current: The record that is processed.
    """

    __slots__ = ("_current", "written")

    def __init__(self, base: ReadableMap, current: CurrentRecord) -> None:
        super().__init__(base)
        self._current = current
        self.written: dict[bytes, tuple[int, Headers]] = {}

    def rebase(self, base: ReadableMap) -> None:
        """Forget the writes and the notes, and read through to another base."""
        super().rebase(base)
        self.written = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        super().put(key, value)
        if self._current.note is not None:
            self.written[key] = _as_now(self._current.note)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        super().put_many(keys, values)
        if self._current.note is not None:
            self.written.update(dict.fromkeys(keys, _as_now(self._current.note)))

    def _own(self, keys: Sequence[bytes]) -> list[Any]:
        return list(zip(super()._own(keys), map(self.written.get, keys, repeat(None)), strict=True))

    def restore(self, keys: Sequence[bytes], befores: Sequence[Any]) -> None:
        """Set the changes of keys, and their notes, to what they were."""
        super().restore(keys, [change for change, _ in befores])
        for key, (_, note) in zip(keys, befores, strict=True):
            if note is None:
                self.written.pop(key, None)
            else:
                self.written[key] = note


def _as_now(note: tuple[int, Headers]) -> tuple[int, Headers]:
    """Return a note whose headers no serde adds to any more."""
    return note if type(note[1]) is tuple else (note[0], tuple(note[1]))


def note_writes(state: TaskOverlay) -> CurrentRecord:
    """Let a state note its writes; before any view of it is opened."""
    current = CurrentRecord()
    state.wrap(lambda overlay: NotingOverlay(overlay.base, current))
    return current


def notes_of(state: TaskOverlay) -> Mapping[str, Written]:
    """Return by store which records wrote its rows in the present batch; nothing of a state that notes nothing."""
    return {
        store: overlay.written
        for store, overlay in state.maps.items()
        if isinstance(overlay, NotingOverlay) and overlay.written
    }


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


APPLICATION = b"application"  # the key of a record that is of no task: the plan, for when the checkpoint is lost
NOTE = b"@"  # in the keys of notes for replays, behind the task


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """The newest segment whose changes are in the changelogs, and the task's numbers in it."""

    batch: int
    checksum: str
    meta: Mapping[str, int]

    def record(self, task_id: str) -> pa.RecordBatch:
        """Return the numbers as a record.

        >>> record = TaskNumbers(3, "ab", {"stream_time": 7}).record("0_1")
        >>> TaskNumbers.parse(record.column("value")[0].as_py()).batch
        3
        """
        value = json.dumps({"batch": self.batch, "checksum": self.checksum, "meta": dict(self.meta)}).encode()
        return records_of(now_of(self.meta), bytes_column([task_id.encode()]), bytes_column([value]))

    @classmethod
    def parse(cls, value: bytes) -> TaskNumbers:
        """Parse a record's value; raise StateError if it is malformed."""
        try:
            facts = json.loads(value)
            meta = {str(name): int(number) for name, number in facts["meta"].items()}
            return cls(int(facts["batch"]), str(facts["checksum"]), meta)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StateError(
                f"the topic of the tasks' numbers has a record that Penstock did not write: {error!r}",
                hint="Another program has written to it. In micro-batches, bring the checkpoint back from a backup; in "
                "continuous mode nothing but this topic has them. To start from nothing: penstock app reset.",
            ) from error


# Headers

_LENGTH = struct.Struct(">i")
_LIST = b"\x01"
_HEAD = np.dtype([("kind", "u1"), ("count", ">i4"), ("length", ">i4"), ("side", "u1")])  # of a list of one


_EMPTY = pa.scalar(b"", pa.large_binary())


def stamped(values: pa.Array, now: NDArray[np.int64] | int) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return values without the time that stands before them, and those times; ``now`` for nulls."""
    bare, prefix, _ = unframe(values, before=8)
    times = prefix.view(">i8").reshape(-1).astype(np.int64)
    if bare.null_count:
        times = np.where(bare.is_null().to_numpy(zero_copy_only=False), now, times)
    return bare, times


def entry_headers(entries: pa.Array, rows: pa.Array, written: Written) -> tuple[pa.Array, pa.Array | None]:
    """Return the entries of a store that keeps headers without them, and the headers of their records.

    Those of deletions are the headers of the records that deleted.
    """
    bare, headers = split_headers(entries)
    deleted = headers_noted(rows, written, only=entries.is_null()) if entries.null_count else None
    if headers is None:
        return bare, deleted
    own = headers_column(headers)
    return bare, own if deleted is None else pc.coalesce(own, deleted)


def headers_of_records(records: pa.RecordBatch) -> list[Headers] | None:
    """Return the headers of each record; None when no record has any."""
    column = records.column("headers")
    if column.null_count == len(column):
        return None
    return [() if each is None else tuple((h["key"], h["value"]) for h in each) for each in column.to_pylist()]


def _times(records: pa.RecordBatch) -> NDArray[np.int64]:
    times: NDArray[np.int64] = records.column("timestamp").to_numpy()
    return times


def _of_prefix(changes: pa.RecordBatch, prefix: int) -> pa.RecordBatch:
    """Return the rows whose keys begin with this byte, without it."""
    own = changes.filter(pa.array(first_bytes(changes.column(0), 1)[:, 0] == prefix))
    return changes_of(unframe(own.column(0), before=1)[0], own.column(1))


def _with_prefix(keys: pa.Array, prefix: int) -> pa.Array:
    return frame(keys, prefix=np.full((len(keys), 1), prefix, np.uint8))


# Keys and values


class KeyValueFormat(KeyedFormat):
    """Key and value unchanged (``ChangeLoggingKeyValueBytesStore``)."""

    in_key_order = True

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        """Return the records of a batch, with the times of the records that wrote the rows."""
        rows = changes.column(0)
        return records_of(times_noted(rows, meta, written), rows, changes.column(1))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return changes_of(records.column("key"), records.column("value"))


class TimestampedFormat(KeyedFormat):
    """The value's time is the record's (``ChangeLoggingTimestampedKeyValueBytesStore``).

    Args:
        keeps_headers: Whether the entries have headers, which are the records' too
            (``ChangeLoggingTimestampedKeyValueBytesStoreWithHeaders``).
        logs_headers: Whether its records have the headers of those that wrote the rows.
    """

    in_key_order = True

    def __init__(self, *, keeps_headers: bool = False, logs_headers: bool = False) -> None:
        self._keeps_headers = self.reads_headers = keeps_headers
        self._logs_headers = logs_headers

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, entries = changes.column(0), changes.column(1)
        headers = headers_noted(rows, written) if self._logs_headers else None
        if self._keeps_headers:
            entries, headers = entry_headers(entries, rows, written)
        values, times = stamped(entries, times_noted(rows, meta, written) if entries.null_count else 0)
        return records_of(times, rows, values, headers)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        entries = frame(records.column("value"), prefix=big_endian(_times(records)))
        if self._keeps_headers:
            entries = with_headers(entries, headers_of_records(records))
        return changes_of(records.column("key"), entries)


class _IndexedFormat(KeyedFormat):
    """The base of both formats with an index: ``0 + key`` holds 8 bytes, under which ``1`` and they begin its row."""

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:
        names: list[bytes] = to_bytes_list(keys)  # type: ignore[assignment]
        rows = held.get_many([b"\x00" + key for key in names])
        index = [self._index(key, row[:8]) for key, row in zip(names, rows, strict=True) if row is not None]
        return pa.concat_arrays([_with_prefix(gone, 0), bytes_column(index)])

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:
        raise NotImplementedError


class ExpiringFormat(_IndexedFormat):
    """The time of the put is the record's."""

    def records(
        self,
        changes: pa.RecordBatch,
        meta: Mapping[str, int],
        written: Written = NOTHING_NOTED,  # noqa: ARG002 - the protocol
    ) -> pa.RecordBatch:
        own = _of_prefix(changes, 0)
        values, times = stamped(own.column(1), now_of(meta))
        return records_of(times, own.column(0), values)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        keys, times = records.column("key"), big_endian(_times(records))
        entries = _with_prefix(keys, 0), frame(records.column("value"), prefix=times)
        by_time = _with_prefix(frame(keys, prefix=times), 1), pa.repeat(_EMPTY, len(keys))
        return changes_of(*(pa.concat_arrays(pair) for pair in zip(entries, by_time, strict=True)))

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:
        return b"\x01" + number + key


class LruFormat(_IndexedFormat):
    """Key and value, in the order of their last use; a key that had to go is a deletion.

    Args:
        keeps_headers: Whether the values are entries with a timestamp and headers, as `TimestampedFormat` has them.
    """

    def __init__(self, *, keeps_headers: bool = False) -> None:
        self._inner = TimestampedFormat(keeps_headers=True) if keeps_headers else KeyValueFormat()
        self.reads_headers = keeps_headers

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        own = _of_prefix(changes, 0)
        values, uses = stamped(own.column(1), -1)
        order = pa.array(np.argsort(uses, kind="stable"))
        notes = {row[1:]: note for row, note in written.items() if row[:1] == b"\x00"}
        return self._inner.records(changes_of(own.column(0).take(order), values.take(order)), meta, notes)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        return self._used_from(0, self._inner.rows(records, {}))

    def _rows_over(self, held: ReadableMap, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        last = next(held.scan(b"\x01", reverse=True), None)
        return self._used_from(
            0 if last is None else int.from_bytes(last[0][1:], "big") + 1, self._inner.rows(records, {})
        )

    @staticmethod
    def _used_from(first: int, entries: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of keys used one after the other; the numbers stay below that of the task's next use."""
        keys = entries.column("key")
        uses = big_endian(np.arange(first, first + len(keys), dtype=np.int64))
        entries = _with_prefix(keys, 0), frame(entries.column("value"), prefix=uses)
        by_use = _with_prefix(frame(pa.repeat(_EMPTY, len(keys)), prefix=uses), 1)
        return changes_of(pa.concat_arrays([entries[0], by_use]), pa.concat_arrays([entries[1], keys]))

    @staticmethod
    def _index(key: bytes, number: bytes) -> bytes:  # noqa: ARG004 - the base class has it
        return b"\x01" + number


# Windows and sessions


def _numbers(column: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.ascontiguousarray(column).view(">i8").reshape(-1).astype(np.int64)


def _not_expired(changes: pa.RecordBatch, retention: Retention) -> pa.RecordBatch:
    """Return the changes without the deletions of expired rows."""
    if not changes.column(1).null_count:
        return changes
    gone = changes.column(1).is_null().to_numpy(zero_copy_only=False)
    gone &= _numbers(first_bytes(changes.column(0), 8)) < retention.first_bucket
    return changes.filter(pa.array(~gone)) if gone.any() else changes


class _ExpiringFormat(KeyedFormat):
    """The base of both formats: rows that begin with their bucket (8 bytes), and expire with it."""

    def __init__(self, spec: StoreSpec, window_size_ms: int) -> None:
        self._spec = spec
        self.reads_headers = spec.keeps_headers
        self._window_size_ms = window_size_ms

    def _retention(self, meta: Mapping[str, int]) -> Retention:
        return Retention(self._spec, MemoryMap(), dict(meta), self._window_size_ms)

    def _live(self, changes: pa.RecordBatch, meta: Mapping[str, int]) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return rows, the same without their buckets, and their values; deletions of expired rows are left out."""
        changes = _not_expired(changes, self._retention(meta))
        rows, _, _ = unframe(changes.column(0), before=8)
        return changes.column(0), rows, changes.column(1)

    def _stale(self, keys: pa.Array, gone: pa.Array, held: ReadableMap) -> pa.Array:  # noqa: ARG002 - the base class has it
        return self._names(gone, {})[0]

    def _names(self, keys: pa.Array, meta: Mapping[str, int]) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the rows of the records of these keys, and their buckets."""
        raise NotImplementedError


class WindowFormat(_ExpiringFormat):
    """Key, start (8 bytes), sequence number (4 bytes); the value's time, where it has one, is the record's."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec, spec.window_size_ms)

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, keys, values = self._live(changes, meta)
        if not self._spec.retain_duplicates:
            keys = frame(keys, suffix=np.zeros((len(keys), 4), np.uint8))
        headers = headers_noted(rows, written) if self._spec.logs_headers else None
        if not self._spec.timestamped:
            return records_of(times_noted(rows, meta, written), keys, values, headers)
        if self._spec.keeps_headers:
            values, headers = entry_headers(values, rows, written)
        values, times = stamped(values, times_noted(rows, meta, written) if values.null_count else 0)
        return records_of(times, keys, values, headers)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        names, buckets = self._names(records.column("key"), meta)
        values = records.column("value")
        if self._spec.timestamped:
            values = frame(values, prefix=big_endian(records.column("timestamp").to_numpy()))
        if self._spec.keeps_headers:
            values = with_headers(values, headers_of_records(records))
        kept = pa.array(buckets >= self._retention(meta).first_bucket)
        return changes_of(names, values).filter(kept)

    def _names(self, keys: pa.Array, meta: Mapping[str, int]) -> tuple[pa.Array, NDArray[np.int64]]:
        keys, _, tails = unframe(keys, after=12)
        buckets = self._retention(meta).bucket(_numbers(tails[:, :8]))
        tails = tails if self._spec.retain_duplicates else tails[:, :8]
        return frame(keys, big_endian(buckets), tails), buckets


class SessionFormat(_ExpiringFormat):
    """Key, end and start (8 bytes each); the record's time is the end, if that of the one that wrote is not noted."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec, window_size_ms=0)

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, keys, values = self._live(changes, meta)
        values, headers = entry_headers(values, rows, written) if self._spec.keeps_headers else (values, None)
        return records_of(times_noted(rows, meta, written) if written else _ends(keys), keys, values, headers)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:
        names, buckets = self._names(records.column("key"), meta)
        kept = pa.array(buckets >= self._retention(meta).first_bucket)
        values = records.column("value")
        if self._spec.keeps_headers:
            values = with_headers(values, headers_of_records(records))
        return changes_of(names, values).filter(kept)

    def _names(self, keys: pa.Array, meta: Mapping[str, int]) -> tuple[pa.Array, NDArray[np.int64]]:
        buckets = self._retention(meta).bucket(_ends(keys))
        return frame(keys, big_endian(buckets)), buckets


def _ends(keys: pa.Array) -> NDArray[np.int64]:
    return _numbers(unframe(keys, after=16)[2][:, :8])


# Joins and versions


class OuterJoinFormat(KeyedFormat):
    """Kafka's ``ListValueStore`` over ``LeftOrRightValue``."""

    in_key_order = True

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, values = changes.column(0), changes.column(1)
        sides = first_bytes(rows, 9)[:, 8]
        bare, lengths, _ = unframe(values, before=4)
        single = lengths.view(">i4").reshape(-1) == pc.binary_length(bare).fill_null(-1).to_numpy(zero_copy_only=False)
        heads = np.zeros(len(rows), _HEAD)
        heads["kind"], heads["count"], heads["side"] = 1, 1, sides
        heads["length"] = lengths.view(">i4").reshape(-1) + 1
        lists = frame(bare, prefix=heads.view(np.uint8).reshape(-1, _HEAD.itemsize))
        several = np.flatnonzero(~single)
        if len(several):
            lists = _replaced(lists, several, [_list(values[i].as_py(), int(sides[i])) for i in several.tolist()])
        return records_of(times_noted(rows, meta, written), rows, lists)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        lists = records.column("value")
        bare, prefixes, _ = unframe(lists, before=_HEAD.itemsize)
        heads = np.ascontiguousarray(prefixes).view(_HEAD).reshape(-1)
        fits = heads["length"] - 1 == pc.binary_length(bare).fill_null(0).to_numpy(zero_copy_only=False)
        if ((heads["kind"] != 1) | ((heads["count"] == 1) & ~fits)).any():
            raise ValueError("a list of values whose length is not its own")
        values = frame(bare, prefix=(heads["length"] - 1).astype(">i4").view(np.uint8).reshape(-1, 4))
        several = np.flatnonzero(heads["count"] != 1)
        if len(several):
            values = _replaced(values, several, [_values(lists[i].as_py()) for i in several.tolist()])
        return changes_of(records.column("key"), values)


def _replaced(column: pa.Array, places: NDArray[np.int64], by: list[bytes]) -> pa.Array:
    """Return the column with other elements at some places."""
    index = np.arange(len(column))
    index[places] = len(column) + np.arange(len(places))
    return pa.concat_arrays([column, bytes_column(by)]).take(pa.array(index))


def _list(values: bytes, side: int) -> bytes:
    """Return values, each behind its length, as Kafka's list of values with their side."""
    parts = []
    at = 0
    while at < len(values):
        (length,) = _LENGTH.unpack_from(values, at)
        at += 4
        parts += [_LENGTH.pack(length + 1), bytes([side]), values[at : at + length]]
        at += length
    return b"".join([_LIST, _LENGTH.pack(len(parts) // 3), *parts])


def _values(data: bytes) -> bytes:
    parts = []
    at = 5
    for _ in range(_LENGTH.unpack_from(data, 1)[0]):
        (length,) = _LENGTH.unpack_from(data, at)
        if not 1 <= length <= len(data) - at - 4:
            raise ValueError("a list of values that is cut short")
        parts += [_LENGTH.pack(length - 1), data[at + 5 : at + 4 + length]]
        at += 4 + length
    return b"".join(parts)


class VersionedFormat:
    """Key and value; the record's time is that of the version (``ChangeLoggingVersionedKeyValueBytesStore``)."""

    keeps_all = True
    reads_headers = False

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec

    def records(
        self,
        changes: pa.RecordBatch,  # noqa: ARG002
        meta: Mapping[str, int],  # noqa: ARG002
        written: Written = NOTHING_NOTED,  # noqa: ARG002
    ) -> pa.RecordBatch:
        """Raise an error: the records of a versioned store come from `of_puts`."""
        raise InvalidStateError(
            f"the changelog of versioned store {self._spec.name!r} is not made of its rows", hint="Use of_puts()."
        )

    @staticmethod
    def of_puts(puts: Sequence[Put]) -> pa.RecordBatch:
        """Return the records of a batch's puts, in their order."""
        times = np.array([time for _, _, time in puts], np.int64)
        keys, values = [key for key, _, _ in puts], [value for _, value, _ in puts]
        return records_of(times, bytes_column(keys), bytes_column(values))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        """Put all of them once more; a put that is too old by now changes nothing, as in Kafka."""
        changes = self._changes(records, MemoryMap(), -1)
        return changes.filter(changes.column(1).is_valid())

    def changes(self, records: pa.RecordBatch, held: ReadableMap, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Put all of them over the rows before, from their stream time on."""
        return self._changes(records, held, meta.get(f"{self._spec.name}/observed-stream-time", -1))

    def _changes(self, records: pa.RecordBatch, held: ReadableMap, observed: int) -> pa.RecordBatch:
        entries = Overlay(held)
        versions = Versions(entries, self._spec.history_ms, observed)
        keys: list[bytes] = to_bytes_list(records.column("key"))  # type: ignore[assignment]
        values, times = to_bytes_list(records.column("value")), records.column("timestamp").to_pylist()
        for key, value, time in zip(keys, values, times, strict=True):
            versions.put(key, value, time)
        changes = sorted(entries.changes.items())
        return changes_of(bytes_column([row for row, _ in changes]), bytes_column([data for _, data in changes]))


# Records of a batch or a commit

_NOTHING: Mapping[str, Written] = MappingProxyType({})


def records_of_changes(
    formats: Mapping[str, ChangelogFormat],
    topics: Mapping[str, str],
    changes: Iterable[tuple[str, pa.RecordBatch]],
    meta: Mapping[str, int],
    written: Mapping[str, Written] = _NOTHING,
) -> list[tuple[str, pa.RecordBatch]]:
    """Return (topic, records) of changes in their order; without stores that have no changelog, and versioned ones.

    Args:
        formats: Store -> the format of its changelog (`penstock.state.changelog.changelog_formats`).
        topics: Store -> its changelog topic.
        changes: Store and changes (``CHANGES_SCHEMA``) in the order of the keys' bytes.
        meta: The task's numbers after the changes.
        written: By store what was noted of the records that wrote its rows.
    """
    changelog_records = []
    for store, rows in changes:
        if store in topics and not isinstance(formats[store], VersionedFormat):
            records = formats[store].records(rows, meta, written.get(store, NOTHING_NOTED))
            if records.num_rows:
                changelog_records.append((topics[store], records))
    return changelog_records


def records_of_puts(
    topics: Mapping[str, str], puts: Iterable[tuple[str, Sequence[Put]]]
) -> list[tuple[str, pa.RecordBatch]]:
    """Return (topic, records) of the puts that versioned stores have noted, which their changes do not determine."""
    return [(topics[store], VersionedFormat.of_puts(noted)) for store, noted in puts if noted and store in topics]
