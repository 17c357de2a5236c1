"""Delivery of a source's task: poll, transform, convert, write with offsets; where its transactions end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from penstock.base.clock import unix_ms
from penstock.connect.api import OffsetReader, SourceTask, TransactionContext
from penstock.connect.data import SourceBatch, SourceRecord
from penstock.connect.data.stored_offsets import OffsetRecord, offset_record
from penstock.connect.delivery.pipeline import OnStep, Step
from penstock.connect.delivery.record_errors import NOT_SENT
from penstock.connect.delivery.source_encoding import Converted, CopiedBatch, Copy, SourceSteps
from penstock.connect.delivery.source_writer import RecordWriter, Write
from penstock.connect.delivery.topic_creation import TopicCreation
from penstock.errors import ConnectError, PenstockError
from penstock.log import Delivery

__all__ = ["Boundary", "SourceContext", "SourceDelivery", "Unwatched", "Watcher", "boundary_of"]

Ending = Literal["commit", "abort"] | None
_MOST_PENDING = 16_000


class Boundary:
    """A transaction at each poll: ``transaction.boundary=poll``."""

    context: _Transactions | None = None
    commits_at_end = True

    def is_due(self, *, more: bool, pending: int) -> bool:  # noqa: ARG002 - at any time
        """Return whether what is pending is to be committed now.

        Args:
            more: The next poll returns records at once.
            pending: The number of records that are pending.
        """
        return True

    def after(self, record: SourceRecord) -> Ending:  # noqa: ARG002 - no matter which
        """Return what follows a record."""
        return None

    def after_batch(self) -> Ending:
        """Return what follows a batch."""
        return None

    def committed(self) -> None:
        """Note a commit."""


class _Drained(Boundary):
    """A transaction at each poll, or at the last of some that follow each other without a pause: the default."""

    def is_due(self, *, more: bool, pending: int) -> bool:
        return not more or pending >= _MOST_PENDING


class _Interval(Boundary):
    """A transaction after each interval: ``transaction.boundary=interval``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds

    def is_due(self, *, more: bool, pending: int) -> bool:  # noqa: ARG002 - the time alone counts
        return time.monotonic() >= self._due

    def committed(self) -> None:
        self._due = time.monotonic() + self._seconds


class _Transactions:
    """The `TransactionContext` of a task."""

    def __init__(self) -> None:
        self._records: dict[int, Literal["commit", "abort"]] = {}
        self._batch: Ending = None

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """End the transaction after this record, or after the next batch."""
        self._note(record, "commit")

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Discard the transaction with this record, or with the next batch."""
        self._note(record, "abort")

    def take(self, record: SourceRecord) -> Ending:
        """Return what was asked for after a record."""
        return self._records.pop(id(record), None)

    def take_batch(self) -> Ending:
        """Return what was asked for after the batch."""
        ending, self._batch = self._batch, None
        return ending

    def _note(self, record: SourceRecord | None, ending: Literal["commit", "abort"]) -> None:
        if record is None:
            if self._batch not in (None, ending):
                raise ConnectError("The batch is to be committed and to be aborted", hint="Ask for one of the two.")
            self._batch = ending
        else:
            if self._records.get(id(record), ending) != ending:
                raise ConnectError("A record is to be committed and to be aborted", hint="Ask for one of the two.")
            self._records[id(record)] = ending


class _ByConnector(Boundary):
    """Transactions as the connector says: ``transaction.boundary=connector``."""

    commits_at_end = False

    def __init__(self) -> None:
        self._transactions = _Transactions()
        self.context = self._transactions

    def is_due(self, *, more: bool, pending: int) -> bool:  # noqa: ARG002 - the connector alone decides
        return False

    def after(self, record: SourceRecord) -> Ending:
        return self._transactions.take(record)

    def after_batch(self) -> Ending:
        return self._transactions.take_batch()


def boundary_of(config: Mapping[str, str | None], flush_ms: int = 60_000) -> Boundary:
    """Return the boundary that a connector's config asks for.

    Args:
        config: The connector's config.
        flush_ms: The interval of commits unless the config has one (``offset.flush.interval.ms``).
    """
    match (config.get("transaction.boundary") or "").strip().lower():
        case "interval":
            return _Interval(int(config.get("transaction.boundary.interval.ms") or flush_ms) / 1000)
        case "connector":
            return _ByConnector()
        case "poll":
            return Boundary()
    return _Drained()


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The `SourceTaskContext` of a task, whose attributes it has."""

    settings: Mapping[str, str]
    offset_reader: OffsetReader
    transaction_context: TransactionContext | None = None
    copies: bool = False


class Watcher(Protocol):
    """An observer of a task's progress."""

    def uses(self, topic: str) -> None:
        """Note that the task reads or writes a topic."""
        ...

    def count(self, records: int, error: str | None = None) -> None:
        """Count records that were delivered, or an error that was tolerated."""
        ...


class Unwatched:
    """A `Watcher` that counts records.

    Attributes:
        records: The number of records that were delivered.
    """

    def __init__(self) -> None:
        self.records = 0

    def uses(self, topic: str) -> None:
        """Nobody asks."""

    def count(self, records: int, error: str | None = None) -> None:  # noqa: ARG002 - errors are tolerated
        """Count records."""
        self.records += max(records, 0)


class SourceDelivery:
    """A source's task, and what carries its records to topics: in a worker, in a process of its own, in tests.

    Args:
        connector: The connector's name, under which its offsets are stored.
        task: The task, which has a context.
        steps: Transformations and converters.
        writer: Writes records and offsets.
        creation: Creates topics.
        boundary: The ends of transactions.
        watcher: Called with progress.
        on_step: Called after each step; tests raise in it what kills the task.
    """

    def __init__(
        self,
        connector: str,
        task: SourceTask,
        steps: SourceSteps,
        writer: RecordWriter,
        creation: TopicCreation,
        *,
        boundary: Boundary | None = None,
        watcher: Watcher | None = None,
        on_step: OnStep = lambda _step: None,
    ) -> None:
        self.task = task
        self._connector = connector
        self._steps, self._writer, self._creation = steps, writer, creation
        self._boundary = boundary or Boundary()
        self._watcher: Watcher = watcher or Unwatched()
        self._on_step = on_step
        self._moves = type(task).moved_offsets is not SourceTask.moved_offsets
        self._acknowledges = type(task).commit_record is not SourceTask.commit_record
        self._pending: list[Converted] = []

    def deliver(self) -> Sequence[SourceRecord]:
        """Poll once, and write what is due; returns what the task returned.

        Raises:
            RetriableError: The task has nothing for now.
            ConnectError: The task, a transformation, a converter or the log fails; what was complete is written.
        """
        records = self.task.poll()
        self._on_step(Step.POLLED)
        if records:
            self._take(records)
        more = isinstance(records, (SourceBatch, CopiedBatch)) and records.more
        if not records and not self._pending and self._moves:
            self._store_moved()
        if self._pending and self._boundary.is_due(more=more, pending=sum(len(p.records) for p in self._pending)):
            self.commit()
        return records or ()

    def finish(self) -> None:
        """Write what is pending, at a clean end."""
        if self._pending and self._boundary.commits_at_end:
            self.commit()

    def commit(self) -> None:
        """Write what is pending, with the offsets behind it.

        Raises:
            ConnectError: It cannot be written.
        """
        pending, self._pending = self._pending, []
        self._boundary.committed()
        outgoing = [each for converted in pending for each in converted.outgoing]
        copies = [each for converted in pending for each in converted.copies]
        topics = list(dict.fromkeys([*(each.topic for each in outgoing), *(each.topic for each in copies)]))
        count = sum(converted.written for converted in pending)
        written: Write | None = None
        if count:
            for topic in topics:
                self._creation.ensure(topic)
            try:
                written = self._writer.prepare(outgoing, list(self._offsets(pending).values()), copies)
                self._writer.write(written, lambda: self._on_step(Step.WRITTEN))
            except PenstockError as error:
                raise ConnectError(NOT_SENT) from error
        self._on_step(Step.COMMITTED)
        for copied in () if written is None else written.copies:
            copied.copy.written(copied.first)
        if self._acknowledges:
            for converted in pending:
                if not converted.copies:
                    self._acknowledge(converted, written)
        if self._moves:
            self._store(self.task.moved_offsets())
        self.task.commit()
        for topic in topics:
            self._watcher.uses(topic)
        if count:
            self._watcher.count(count)

    def _store_moved(self) -> None:
        """Write offsets that have moved without a record."""
        if self._store(self.task.moved_offsets()):
            self.task.commit()

    def _store(self, moved: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> bool:
        if not moved:
            return False
        offsets = [offset_record(self._connector, partition, offset) for partition, offset in moved]
        try:
            written = self._writer.prepare((), offsets)
            self._writer.write(written, lambda: self._on_step(Step.WRITTEN))
        except PenstockError as error:
            raise ConnectError(NOT_SENT) from error
        self._on_step(Step.COMMITTED)
        return True

    def _take(self, records: Sequence[SourceRecord]) -> None:
        if self._boundary.context is None:
            self._add(records)
            return
        for record in records:
            self._add([record])
            self._end(self._boundary.after(record))
        self._end(self._boundary.after_batch())

    def _end(self, ending: str | None) -> None:
        if ending == "commit":
            self.commit()
        elif ending == "abort":
            self._pending.clear()

    def _add(self, records: Sequence[SourceRecord]) -> None:
        converted = self._steps.convert(records)
        for _ in range(converted.skipped):
            self._watcher.count(0, "a record was skipped")
        if converted.records:
            self._pending.append(converted)
        if converted.failure is not None:
            self.finish()  # what stands before the record that fails
            raise converted.failure
        self._on_step(Step.CONVERTED)

    def _offsets(self, pending: Sequence[Converted]) -> dict[bytes, OffsetRecord]:
        """Return the last offset of each source partition, of the records that are written, as the topic holds it."""
        last: dict[int, SourceRecord | Copy] = {}
        for converted in pending:
            for record in converted.copies or _last_records(converted):
                last.pop(id(record.source_partition), None)
                last[id(record.source_partition)] = record
        records = (
            offset_record(self._connector, record.source_partition, record.source_offset)
            for record in last.values()
            if record.source_partition is not None
        )
        return {each.key: each for each in records}

    def _acknowledge(self, converted: Converted, written: Write | None) -> None:
        now_ms = unix_ms()
        deliveries: dict[str, Iterator[Delivery]] = {}
        if written is not None:
            deliveries = {each.topic: iter(written.deliveries(each, now_ms)) for each in converted.outgoing}
        dropped = set(converted.dropped)
        topics = iter(converted.topics) if converted.topics else None
        only = next(iter(deliveries.values()), None)
        for row, record in enumerate(converted.records):
            delivery: Delivery | None = None
            if row not in dropped:
                chosen = only if topics is None else deliveries.get(next(topics))
                delivery = None if chosen is None else next(chosen)
            self.task.commit_record(record, delivery)


def _last_records(converted: Converted) -> Iterator[SourceRecord]:
    """Yield the records of which one may be the last of its source partition."""
    if isinstance(converted.records, SourceBatch) and not converted.dropped:
        yield converted.records[-1]
        return
    dropped = set(converted.dropped)
    for row, record in enumerate(converted.records):
        if row not in dropped:
            yield record
