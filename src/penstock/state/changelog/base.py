"""The base of changelog formats, the notes of which record wrote a row, and the records of the tasks' numbers.

Where a row's bytes do not tell the time and headers of the record that wrote it, they are noted, as they go into the
changelog, as in Kafka. The record of a task in the topic of numbers has the position of its stores' changelogs: the key
is the task, ``<sub-topology>_<partition>``, the value JSON with batch and checksum of the segment, and the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StateError
from penstock.serde.column import bytes_column
from penstock.state.maps import CHANGES_SCHEMA, Overlay, ReadableMap, TaskOverlay

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
    "schema_read",
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
