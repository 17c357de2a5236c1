"""Running a source's task: poll, transform, convert, and write records with their offsets in one transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.connect.api import SourceTask
from penstock.connect.converters import Converter
from penstock.connect.data import RetriableError, SourceRecord
from penstock.connect.plugins import transformation_chain
from penstock.connect.storage.offset_store import ConnectorOffsets, OffsetStore, offset_change
from penstock.connect.storage.topic_table import TopicTable
from penstock.connect.tasks.boundaries import Boundary, boundary_of
from penstock.connect.tasks.dead_letters import dead_letters
from penstock.connect.tasks.errors import ErrorHandler, Tolerance
from penstock.connect.tasks.parts import TaskLink, TaskParts
from penstock.connect.tasks.topic_creation import TopicCreation
from penstock.errors import ConnectError, LogUnavailableError, PenstockError
from penstock.log import Delivery, Producer
from penstock.log.base import TopicLog

__all__ = ["SourceRun"]

_log = logging.getLogger(__name__)
T = TypeVar("T")
_IDLE_S = 0.1
_RETRY_S = 1.0
_OPEN_S = 120.0
_MAX_REQUEST_BYTES = 1_048_576
_BATCH_OVERHEAD, _RECORD_OVERHEAD = 61, 21


class _Context:
    """The `SourceTaskContext` of a task."""

    def __init__(self, settings: Mapping[str, str], offsets: ConnectorOffsets, boundary: Boundary) -> None:
        self.settings = settings
        self.offset_reader = offsets
        self.transaction_context = boundary.context


class SourceRun:
    """A source's task while it runs."""

    def __init__(self, parts: TaskParts, link: TaskLink) -> None:
        self._parts = parts
        self._link = link
        self._task: SourceTask = parts.plugin.make().task_class()
        self._key, self._value, self._header = (
            parts.converter(f"{role}.converter") for role in ("key", "value", "header")
        )
        self._chain = transformation_chain(parts.connector, parts.plugins)
        self._letters = dead_letters(parts)
        self._errors = ErrorHandler(Tolerance.of(parts.connector), link.wait, self._letters)
        self._boundary = boundary_of(parts.connector, parts.worker)
        self._pending: list[tuple[SourceRecord, _Written | None]] = []
        self._most_bytes = int(parts.client_override("producer", "max.request.size") or _MAX_REQUEST_BYTES)
        self._log: TopicLog = parts.open_log("producer")
        self._creation = TopicCreation(self._log, parts.connector, enabled=parts.worker["topic.creation.enable"])
        self._acknowledges = type(self._task).commit_record is not SourceTask.commit_record
        self._producer: Producer | None = None

    def start(self) -> None:
        """Fence earlier runs of this task, read the offsets that they have stored, and start the task."""
        parts = self._parts
        if parts.worker["delivery.guarantee"] == "exactly_once":
            self._producer = Producer(self._log, transactional_id=parts.transactional_id)
        else:
            self._producer = Producer(self._log)
        store = OffsetStore(TopicTable(self._log, parts.spec.offsets_topic, 1))
        self._catch_up(store)
        offsets = ConnectorOffsets(store, parts.name)
        self._task.context = _Context(parts.config, offsets, self._boundary)
        self._task.start(parts.config)

    def _catch_up(self, store: OffsetStore) -> None:
        """Read all stored offsets; those behind the open transaction of another task show when that one ends.

        Raises:
            LogUnavailableError: It stays open for longer than brokers let any.
        """
        deadline = time.monotonic() + _OPEN_S
        while True:
            try:
                store.catch_up()
            except LogUnavailableError:
                if self._link.target == "STOPPED" or time.monotonic() >= deadline:
                    raise
                _log.warning("task %s-%d waits for another task's transaction to end", *self._parts.spec.task)
            else:
                return

    def step(self) -> None:
        """Poll once, and deliver what comes.

        Raises:
            ConnectError: The task, a transformation, a converter or the log fails.
        """
        try:
            records = self._task.poll()
        except RetriableError:
            self._link.wait(_RETRY_S)
            return
        if records:
            self._take(records)
        if self._pending and self._boundary.is_due(polled=bool(records)):
            self._commit()
        if not records:
            self._link.wait(_IDLE_S)

    def finish(self, *, failed: bool) -> None:
        """Deliver what is pending, and stop the task."""
        try:
            if self._pending and not failed and self._boundary.commits_at_end:
                self._commit()
        finally:
            self._task.stop()
            self._chain.close()
            if self._letters is not None:
                self._letters.close()
            if self._producer is not None:
                self._producer.close()

    def _take(self, records: Sequence[SourceRecord]) -> None:
        for record in records:
            try:
                written = self._written(record)
            except ConnectError:
                if self._pending and self._boundary.commits_at_end:
                    self._commit()  # what stands before the record that fails
                raise
            self._pending.append((record, written))
            ending = self._boundary.after(record)
            if ending == "commit":
                self._commit()
            elif ending == "abort":
                self._pending.clear()
        ending = self._boundary.after_batch()
        if ending == "commit":
            self._commit()
        elif ending == "abort":
            self._pending.clear()

    def _written(self, record: SourceRecord) -> _Written | None:
        """The record as bytes; None if it is dropped."""
        current: SourceRecord | None = record
        for stage in self._chain.stages:
            now = current
            if now is None:
                return None
            step = ("TRANSFORMATION", type(stage.transformation).java_class)
            passed, current = self._run(step, lambda stage=stage, now=now: stage.apply(now), record)  # type: ignore[misc]
            if not passed:
                return None
        if current is None:
            return None
        return self._converted(current)

    def _converted(self, record: SourceRecord) -> _Written | None:
        topic = record.topic
        if topic is None:
            raise ConnectError("A record of a source has no topic", hint="Set the topic of each record.")

        def headers() -> list[tuple[str, bytes | None]]:
            return [(h.key, self._header.from_connect(topic, h.schema, h.value)) for h in record.headers]

        passed, packed = self._run(("HEADER_CONVERTER", _class(self._header)), headers, record)
        if not passed:
            return None
        passed, key = self._run(
            ("KEY_CONVERTER", _class(self._key)),
            lambda: self._key.from_connect(topic, record.key_schema, record.key), record,
        )  # fmt: skip
        if not passed:
            return None
        passed, value = self._run(
            ("VALUE_CONVERTER", _class(self._value)),
            lambda: self._value.from_connect(topic, record.value_schema, record.value), record,
        )  # fmt: skip
        if not passed:
            return None
        made = _Written(topic, record.partition, key, value, packed or [], record.timestamp)
        if self._fits(made):
            return made
        self._note_skipped()
        return None

    def _fits(self, written: _Written) -> bool:
        size = written.size()
        if size <= self._most_bytes:
            return True
        error = ConnectError(
            f"The message is {size} bytes when serialized which is larger than {self._most_bytes}, which is the value "
            "of the max.request.size configuration."
        )
        if self._errors.tolerance.all:
            return False
        raise ConnectError("Unrecoverable exception from producer send callback") from error

    def _run(self, step: tuple[str, str], operation: Callable[[], T], record: SourceRecord) -> tuple[bool, T | None]:
        """Run a step of a record; note a failure that is tolerated."""
        passed, result = self._errors.run(step, operation, None, record)
        if not passed:
            self._note_skipped()
        return passed, result

    def _note_skipped(self) -> None:
        self._link.count(0, "a record was skipped")

    def _commit(self) -> None:
        """Write what is pending, with the offsets behind it, in one transaction."""
        pending, self._pending = self._pending, []
        kept = [(record, written) for record, written in pending if written is not None]
        self._boundary.committed()
        deliveries: dict[int, Delivery] = {}
        if kept:
            for topic in dict.fromkeys(written.topic for _, written in kept):
                self._creation.ensure(topic)
            self._write(kept, deliveries)
        if self._acknowledges:
            for record, written in pending:
                self._task.commit_record(record, deliveries.get(id(written)))
        self._task.commit()
        for topic in dict.fromkeys(written.topic for _, written in kept):
            self._link.uses(topic)
        if kept:
            self._link.count(len(kept))

    def _write(self, kept: list[tuple[SourceRecord, _Written]], deliveries: dict[int, Delivery]) -> None:
        producer = self._producer
        assert producer is not None  # noqa: S101 - start comes first
        name, topic = self._parts.name, self._parts.spec.offsets_topic
        changes = dict(offset_change(name, partition, offset) for partition, offset in _last_offsets(kept))

        def send(producer: Producer) -> None:
            for _, written in kept:
                written.send(producer, deliveries if self._acknowledges else None)

        try:
            if self._parts.worker["delivery.guarantee"] == "exactly_once":
                with producer.transaction():
                    send(producer)
                    for key, value in changes.items():
                        producer.send(topic, value, key=key)
            else:
                send(producer)
                producer.flush()
                for key, value in changes.items():
                    producer.send(topic, value, key=key)
                producer.flush()
        except PenstockError as error:
            raise ConnectError("Unrecoverable exception from producer send callback") from error


class _Written:
    """A record as bytes."""

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    def __init__(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        timestamp: int | None,
    ) -> None:
        self.topic, self.partition, self.key, self.value = topic, partition, key, value
        self.headers = headers
        self.timestamp = timestamp

    def send(self, producer: Producer, deliveries: dict[int, Delivery] | None) -> None:
        """Give it to the producer; its delivery is kept by its id."""

        def note(delivery: Delivery | None, error: Exception | None) -> None:  # noqa: ARG001 - the commit raises it
            if delivery is not None and deliveries is not None:
                deliveries[id(self)] = delivery

        producer.send(
            self.topic, self.value, key=self.key, timestamp=self.timestamp, partition=self.partition,
            headers=self.headers or None, on_delivery=None if deliveries is None else note,
        )  # fmt: skip

    def size(self) -> int:
        """The size in a batch of its own, as Kafka's producer estimates it."""
        fields = [self.key, self.value]
        size = _BATCH_OVERHEAD + _RECORD_OVERHEAD + sum(_field_size(each) for each in fields)
        size += _varint_size(len(self.headers))
        for name, value in self.headers:
            size += _field_size(name.encode()) + _field_size(value)
        return size


def _field_size(data: bytes | None) -> int:
    return 1 if data is None else _varint_size(len(data)) + len(data)


def _varint_size(number: int) -> int:
    return max(1, ((number << 1).bit_length() + 6) // 7)


def _last_offsets(
    kept: Iterable[tuple[SourceRecord, Any]],
) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    for record, _ in kept:
        if record.source_partition is not None:
            yield record.source_partition, record.source_offset


def _class(converter: Converter) -> str:
    return type(converter).java_class
