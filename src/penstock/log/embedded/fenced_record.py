"""Records of the embedded log that change by compare-and-set: each change is one SQLite transaction."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import FencedError, LogError
from penstock.log.embedded.record_rows import RecordChange, read_row
from penstock.log.fenced_record import RecordName, StoredRecord, newest_record

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["EmbeddedFencedRecord"]


class _Transaction(Protocol):
    def require_lease(self, application: str, epoch: int) -> None: ...
    def change_record(self, change: RecordChange) -> None: ...
    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None: ...


class _Log(Protocol):
    def reading(self) -> AbstractContextManager[sqlite3.Connection]: ...
    def transaction(self, transactional_id: str, epoch: int | None = None) -> AbstractContextManager[_Transaction]: ...


class EmbeddedFencedRecord:
    """The `FencedRecord` of the embedded log.

    Args:
        log: The log.
        name: The name of the record.
        lease: The application and the epoch of the lease that guards the record; None: none does.
    """

    def __init__(self, log: _Log, name: RecordName, lease: tuple[str, int] | None = None) -> None:
        self._log = log
        self._name = name
        self._lease = lease
        self._held: StoredRecord | None = None

    def read(self) -> StoredRecord:
        """Read the newest value; no writer is disturbed."""
        with self._log.reading() as connection:
            found = read_row(connection, self._name.application, self._name.writer)
            if not self._name.is_in_topic:
                return found
            return found._replace(value=_in_topic(self._log, self._name))  # type: ignore[arg-type] # the log

    def take(self) -> StoredRecord:
        """Fence all earlier writers, by a new version of the same value.

        Raises:
            FencedError: A newer instance has the lease.
        """
        while True:
            found = self.read()
            try:
                found = self._replace(found.value, found.version, is_change=False)
            except FencedError as error:
                if "epoch" in error.facts:
                    raise
                continue  # changed between; each round, one writer succeeds
            self._held = found
            return found

    def held(self) -> StoredRecord:
        """Return the value as this writer has read or written it last; the first time it takes the record."""
        return self._held if self._held is not None else self.take()

    def replace(self, value: bytes, version: int) -> StoredRecord:
        """Replace the value of this version; it is durable when this returns.

        Raises:
            FencedError: Another writer has changed it since, or a newer instance has the lease. Nothing is written.
        """
        self._held = self._replace(value, version, is_change=True)
        return self._held

    def _replace(self, value: bytes | None, version: int, *, is_change: bool) -> StoredRecord:
        change = RecordChange(self._name, version, value)
        try:
            with self._log.transaction("") as transaction:
                if self._lease is not None:
                    transaction.require_lease(*self._lease)
                transaction.change_record(change)
                if is_change and self._name.is_in_topic:
                    transaction.append(self._name.topic, 0, _record(self._name.key, value))
        except FencedError:
            raise
        except LogError:
            if self.read().attempt != change.attempt:
                raise
        return change.done()


def _in_topic(log: TopicLog, name: RecordName) -> bytes | None:
    if name.topic not in {each.name for each in log.topics()}:
        return None
    return newest_record(log, name.topic, name.key).value


def _record(key: bytes, value: bytes | None) -> pa.RecordBatch:
    columns = {
        "timestamp": pa.array([unix_ms()], pa.int64()),
        "key": pa.array([key], pa.large_binary()),
        "value": pa.array([value], pa.large_binary()),
    }
    return pa.RecordBatch.from_pydict(columns)
