"""Records that several processes may write, each changed by compare-and-set: leases, journals, notes of applications.

A holder reads a record with its version, and replaces it if nobody else has meanwhile. Both logs have this one way:

- Embedded: one SQLite transaction compares the version and writes (``WHERE version = ?``).
- Kafka: a record has a transactional id of its own. The writer initialises it, which fences all earlier writers and
  ends their transactions, and only then reads and compares. So what it has compared stays true until it is fenced.

After an error that may have written, the record is read again and compared: each attempt has an id, which is stored
beside the value. A fenced writer compares before it does anything else. If the record has changed, or another holder
has the lease that guards it, it writes no more. If neither, another process has only claimed the record and has not
written: it was refused, or died. Then the writer claims the record anew and compares once more.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.backoff import Backoff
from penstock.errors import FencedError

__all__ = [
    "ATTEMPT",
    "OFFSETS_KEY",
    "OFFSETS_WRITER",
    "SHARING_KEY",
    "SHARING_WRITER",
    "WRITERS",
    "FencedRecord",
    "RecordName",
    "RecordSource",
    "StoredRecord",
    "change_record",
    "newest_in",
    "newest_record",
    "overtaken",
]

ATTEMPT = "penstock-attempt"  # the header with the id of the attempt that has written a record
# Of leases, applications' notes, SQL statements, planned batches, the offsets of groups that are made anew, and offers
# to share tasks.
WRITERS = ("driver", "note", "journal", "planned", "offsets", "sharing")
OFFSETS_WRITER, OFFSETS_KEY = WRITERS[4], b"offsets"
# Readers of the topic of leases know keys of this form from earlier versions, and pass over them.
SHARING_WRITER, SHARING_KEY = WRITERS[5], b"notes/sharing"
_FIRST_STEP = 4096  # offsets
_MOST_TRIES = 12
_BACKOFF = Backoff(0.015, 0.45, jitter=2 / 3)  # so that two processes stop meeting each other


@dataclass(frozen=True, slots=True)
class RecordName:
    """The name of a record that only one writer at a time may change.

    Attributes:
        application: The application, or SQL service, that it belongs to.
        writer: The name of the writer; on Kafka the transactional id is ``<application>-<writer>``.
        topic: The topic that it is in: the last record of its key in partition 0 counts.
        key: The key.
        is_in_topic: Whether an embedded log has it in the topic too, beside its table of such records.
    """

    application: str
    writer: str
    topic: str
    key: bytes
    is_in_topic: bool = True


class StoredRecord(NamedTuple):
    """A value with its version; each change makes a higher version. Before the first one: None and -1."""

    value: bytes | None
    version: int
    attempt: str = ""


class FencedRecord(Protocol):
    """One record, for one process. Safe to use from several threads."""

    def read(self) -> StoredRecord:
        """Read the newest value; no writer is disturbed."""
        ...

    def take(self) -> StoredRecord:
        """Fence all earlier writers, and read.

        Raises:
            FencedError: A newer instance has the lease.
        """
        ...

    def held(self) -> StoredRecord:
        """Return the value as this writer has read or written it last; the first time it takes the record."""
        ...

    def replace(self, value: bytes, version: int) -> StoredRecord:
        """Replace the value of this version; it is durable when this returns.

        Raises:
            FencedError: Another writer has changed it since, or a newer instance has the lease. Nothing is written.
            LogUnavailableError: It could not be found out whether it was written; the next call finds out.
        """
        ...


def change_record(record: FencedRecord, change: Callable[[StoredRecord], bytes | None]) -> StoredRecord:
    """Read a record, and write what follows from it; once more if another process was faster.

    Args:
        record: The record.
        change: Returns the new value of the record; None: it stays as it is. It may be called several times.

    Returns:
        The record as it was written, or as it stays.

    Raises:
        FencedError: Others were faster each time, or a newer instance has the lease that guards the record.
    """
    for tries in itertools.count(1):
        stored = record.read()
        value = change(stored)
        if value is None:
            return stored
        try:
            return record.replace(value, stored.version)
        except FencedError as error:
            if tries == _MOST_TRIES or "epoch" in error.facts:
                raise
        time.sleep(_BACKOFF.pause_s(tries))
    raise AssertionError  # pragma: no cover


class RecordSource(Protocol):
    """A log, as far as reading backwards needs it."""

    def beginning_offset(self, topic: str, partition: int) -> int: ...
    def end_offset(self, topic: str, partition: int) -> int: ...
    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterable[pa.RecordBatch]: ...


def newest_record(
    log: RecordSource, topic: str, key: bytes, end: int | None = None, *, partition: int = 0, start: int | None = None
) -> StoredRecord:
    """Find the last record of a key in a partition; its version is its offset, -1 if there is none.

    The search goes backwards, as a topic may hold many records of other keys until it is compacted.

    Args:
        log: The log.
        topic: The topic.
        key: The key.
        end: The offset before which to search; by default the end of the partition.
        partition: The partition.
        start: The offset from which to search; by default the start of the partition.
    """
    key_scalar, step = pa.scalar(key, pa.large_binary()), _FIRST_STEP
    first = log.beginning_offset(topic, partition) if start is None else start
    high = log.end_offset(topic, partition) if end is None else end
    while high > first:
        low = max(first, high - step)
        newest = StoredRecord(None, -1)
        for records in log.iterate(topic, partition, low, high):
            newest = newest_in(records, key_scalar, newest)
        if newest.version >= 0:
            return newest
        high, step = low, step * 4
    return StoredRecord(None, -1)


def newest_in(records: pa.RecordBatch, key: pa.Scalar, before: StoredRecord) -> StoredRecord:
    """Return the last record of a key in a batch; ``before`` if there is none."""
    rows = pc.indices_nonzero(pc.equal(records.column("key"), key))
    if not len(rows):
        return before
    row = rows[-1].as_py()
    headers = records.column("headers")[row].as_py() or () if "headers" in records.schema.names else ()
    attempt = next((each["value"] for each in headers if each["key"] == ATTEMPT), b"")
    offset = records.column("offset")[row].as_py()
    return StoredRecord(records.column("value")[row].as_py(), offset, (attempt or b"").decode())


def overtaken(name: RecordName) -> FencedError:
    """Return the error for a writer whose record another one has changed."""
    return FencedError(
        f"{name.key.decode()} of {name.application!r} in {name.topic} was changed by another instance; "
        "nothing was overwritten",
        hint="Stop this instance if the other one is to continue; else stop that one, and start this one again.",
        application=name.application,
        topic=name.topic,
    )
