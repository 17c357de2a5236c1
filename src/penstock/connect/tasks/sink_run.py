"""Running a sink's task: read, convert, transform, put; commit offsets behind what the task has taken."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence

from penstock.connect.api import ErrantRecordReporter, SinkTask
from penstock.connect.converters import Converter
from penstock.connect.data import Header, Headers, RetriableError, SinkRecord
from penstock.connect.plugins import transformation_chain
from penstock.connect.tasks.dead_letters import dead_letters
from penstock.connect.tasks.errors import ErrantRecords, ErrorHandler, Tolerance
from penstock.connect.tasks.failed_puts import FailedPut, put_by_record
from penstock.connect.tasks.parts import TaskLink, TaskParts
from penstock.errors import ConnectError
from penstock.java_text.regex import compile_java
from penstock.log import Consumer, ConsumerRecord, RebalanceListener, TopicPartition

__all__ = ["SinkRun"]

_POLL_S = 0.2
_RETRY_MS = 1000
_FINISHED = "Exiting WorkerSinkTask due to unrecoverable exception."


class _Context:
    """The `SinkTaskContext` of a task."""

    def __init__(self, settings: Mapping[str, str], run: SinkRun) -> None:
        self.settings = settings
        self._run = run
        self.timeout_ms: int | None = None
        self.commit_requested = False

    @property
    def assignment(self) -> Collection[TopicPartition]:
        """The partitions that the task reads."""
        return self._run.assignment()

    @property
    def log_identity(self) -> str:
        """The id of the log that the records come from."""
        return self._run.log_identity

    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Takes records that cannot be written."""
        return self._run.reporter

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        self._run.seek(offsets)

    def timeout(self, timeout_ms: int) -> None:
        """Wait so long before the next try."""
        self.timeout_ms = timeout_ms

    def pause(self, *places: TopicPartition) -> None:
        """Read these partitions no further until `resume`."""
        self._run.pause(places)

    def resume(self, *places: TopicPartition) -> None:
        """Read these partitions again."""
        self._run.resume(places)

    def request_commit(self) -> None:
        """Commit offsets soon."""
        self.commit_requested = True


class _Rebalance(RebalanceListener):
    """Tells the task which partitions come and go."""

    def __init__(self, run: SinkRun) -> None:
        self._run = run

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._run.assigned(partitions)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._run.revoked(partitions, lost=False)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._run.revoked(partitions, lost=True)


class SinkRun:
    """A sink's task while it runs."""

    def __init__(self, parts: TaskParts, link: TaskLink) -> None:
        self._parts = parts
        self._link = link
        self._task: SinkTask = parts.plugin.make().task_class()
        self._key, self._value, self._header = (
            parts.converter(f"{role}.converter") for role in ("key", "value", "header")
        )
        self._chain = transformation_chain(parts.connector, parts.plugins)
        self._letters = dead_letters(parts)
        tolerance = Tolerance.of(parts.connector)
        self._errors = ErrorHandler(tolerance, link.wait, self._letters)
        self._originals: dict[tuple[str | None, int | None, int | None], ConsumerRecord] = {}
        reports = self._letters is not None or tolerance.logs or tolerance.all
        self.reporter = ErrantRecords(self._errors, self._originals) if reports else None
        self._context = _Context(parts.config, self)
        self._task.context = self._context
        self._log = parts.open_log("consumer")
        self._consumer: Consumer | None = None
        self._open: set[TopicPartition] = set()
        self._seeks: dict[TopicPartition, int] = {}
        self._batch: list[SinkRecord] = []
        self._read: dict[TopicPartition, int] = {}
        self._delivered: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._failure: BaseException | None = None
        self._interval_s = parts.worker["offset.flush.interval.ms"] / 1000
        self._next_commit = time.monotonic() + self._interval_s

    def start(self) -> None:
        """Start the task, and join the connector's group."""
        parts = self._parts
        self._task.start(parts.config)
        reset = (parts.client_override("consumer", "auto.offset.reset") or "earliest").lower()
        self._consumer = Consumer(
            self._log,
            group=parts.client_override("consumer", "group.id") or f"connect-{parts.name}",
            auto_offset_reset="latest" if reset == "latest" else "none" if reset == "none" else "earliest",
            client_id=f"connector-consumer-{parts.name}-{parts.spec.task[1]}",
            assignors=("cooperative-sticky",),
        )
        pattern = (parts.connector.get("topics.regex") or "").strip()
        if pattern:
            compile_java(pattern)
            self._consumer.subscribe(re.compile(pattern), listener=_Rebalance(self))
        else:
            topics = [name.strip() for name in (parts.connector.get("topics") or "").split(",") if name.strip()]
            self._consumer.subscribe(topics, listener=_Rebalance(self))

    def step(self) -> None:
        """Read and put one batch, and commit if it is time.

        Raises:
            ConnectError: The task fails.
        """
        consumer = self._consumer
        assert consumer is not None  # noqa: S101 - start comes first
        if self._context.commit_requested or time.monotonic() >= self._next_commit:
            self.commit()
        if not self._batch:
            most = int(self._parts.client_override("consumer", "max.poll.records") or 500)
            for record in consumer.poll(timeout_s=min(_POLL_S, self._interval_s), max_records=most):
                self._take(record)
            self._raise_failure()
        else:
            consumer.pause(consumer.assignment())
            consumer.poll(timeout_s=0)  # the group sees that it lives
            consumer.resume(consumer.assignment())
            self._raise_failure()
        self._put()

    def idle(self) -> None:
        """Stay in the group while the task is paused."""
        consumer = self._consumer
        assert consumer is not None  # noqa: S101 - start comes first
        places = consumer.assignment()
        consumer.pause(places)
        consumer.poll(timeout_s=_POLL_S)
        self._raise_failure()

    def wake(self) -> None:
        """Read on after a pause."""
        if self._consumer is not None:
            self._consumer.resume(self._consumer.assignment())

    def finish(self, *, failed: bool) -> None:
        """Commit what was delivered, leave the group, and stop the task."""
        self._batch.clear()
        try:
            if self._open and not (failed and self._failure is not None):
                self.revoked(tuple(self._open), lost=False)
        finally:
            try:
                self._task.stop()
            finally:
                if self._consumer is not None:
                    self._consumer.close()
                if self._letters is not None:
                    self._letters.close()
                self._chain.close()

    # Called by the context and the group

    @property
    def log_identity(self) -> str:
        """The id of the log that the records come from."""
        return self._log.identity()

    def assignment(self) -> Collection[TopicPartition]:
        """The partitions that the task reads."""
        return set(self._open)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        self._seeks.update(offsets)
        self._seek()

    def pause(self, places: Collection[TopicPartition]) -> None:
        """Read these partitions no further."""
        if self._consumer is not None:
            self._consumer.pause(places)

    def resume(self, places: Collection[TopicPartition]) -> None:
        """Read these partitions again."""
        if self._consumer is not None:
            self._consumer.resume(places)

    def assigned(self, places: Collection[TopicPartition]) -> None:
        """Open partitions that the group has assigned."""
        try:
            self._open |= set(places)
            self._task.open(list(places))
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self._failure = error

    def revoked(self, places: Collection[TopicPartition], *, lost: bool) -> None:
        """Commit and close partitions that the group takes away."""
        gone = [place for place in places if place in self._open]
        try:
            if not lost:
                self.commit(gone)
            self._task.close(gone)
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self._failure = error
        self._open -= set(gone)
        self._batch = [record for record in self._batch if _place(record) not in gone]
        for place in gone:
            for table in (self._read, self._delivered, self._committed, self._seeks):
                table.pop(place, None)

    def commit(self, places: Collection[TopicPartition] | None = None) -> None:
        """Commit the offsets that the task agrees to, of these partitions or of all."""
        self._context.commit_requested = False
        self._next_commit = time.monotonic() + self._interval_s
        chosen = {p: o for p, o in self._delivered.items() if places is None or p in places}
        if not chosen or self._consumer is None:
            return
        agreed = self._task.pre_commit(dict(chosen))
        safe = {p: min(o, self._read.get(p, o)) for p, o in agreed.items() if p in self._open}
        new = {place: offset for place, offset in safe.items() if self._committed.get(place) != offset}
        if new:
            self._consumer.commit(new)
            self._committed.update(new)

    # Records

    def _seek(self) -> None:
        if self._consumer is None:
            return
        for place in [place for place in self._seeks if place in self._consumer.assignment()]:
            offset = self._seeks.pop(place)
            self._consumer.seek(place, offset)
            self._read[place] = self._delivered[place] = offset

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure is not None:
            raise failure

    def _take(self, record: ConsumerRecord) -> None:
        """Convert and transform a record; the offset behind it is committed also if it is dropped."""
        place = TopicPartition(record.topic, record.partition)
        self._read[place] = record.offset + 1
        self._originals[record.topic, record.partition, record.offset] = record
        self._link.uses(record.topic)
        made = self._transformed(record)
        if made is not None:
            self._batch.append(made)

    def _transformed(self, record: ConsumerRecord) -> SinkRecord | None:
        topic = record.topic
        passed, key = self._errors.run(
            ("KEY_CONVERTER", _class(self._key)), lambda: self._key.to_connect(topic, record.key), record
        )
        if not passed or key is None:
            return None
        passed, value = self._errors.run(
            ("VALUE_CONVERTER", _class(self._value)), lambda: self._value.to_connect(topic, record.value), record
        )
        if not passed or value is None:
            return None
        passed, headers = self._errors.run(
            ("HEADER_CONVERTER", _class(self._header)), lambda: self._headers(record), record
        )
        if not passed or headers is None:
            return None
        current: SinkRecord | None = SinkRecord(
            topic=topic, partition=record.partition, offset=record.offset, timestamp=record.timestamp,
            timestamp_type="CreateTime", key=key.value, key_schema=key.schema, value=value.value,
            value_schema=value.schema, headers=headers,
        )  # fmt: skip
        for stage in self._chain.stages:
            now = current
            if now is None:
                return None
            step = ("TRANSFORMATION", type(stage.transformation).java_class)
            passed, current = self._errors.run(step, lambda stage=stage, now=now: stage.apply(now), record)  # type: ignore[misc]
            if not passed:
                return None
        return current

    def _headers(self, record: ConsumerRecord) -> Headers:
        found = []
        for name, value in record.headers:
            made = self._header.to_connect(record.topic, value)
            found.append(Header(name, made.value, made.schema))
        return Headers(found)

    def _put(self) -> None:
        """Give the batch to the task; after a RetriableError it waits and comes again."""
        self._seek()
        try:
            failed = self._put_batch()
        except RetriableError as error:
            wait_ms = self._context.timeout_ms if self._context.timeout_ms is not None else _RETRY_MS
            self._context.timeout_ms = None
            self._link.count(0, str(error))
            self._link.wait(wait_ms / 1000)
            return
        for each in failed:
            self._link.count(-1, f"a record could not be put: {each.error}")
        self._link.count(len(self._batch))
        self._batch.clear()
        self._originals.clear()
        self._delivered.update(self._read)

    def _put_batch(self) -> Sequence[FailedPut]:
        """Put the batch; if errors are tolerated, record by record after a failure. Those that fail are reported."""
        try:
            self._task.put(list(self._batch))
        except RetriableError:
            raise
        except Exception as error:
            tolerant = self.reporter if self._errors.tolerance.all else None
            failed = put_by_record(self._task.put, self._batch, error) if tolerant is not None else None
            if failed is None or tolerant is None:
                raise ConnectError(_FINISHED) from error
            for each in failed:
                tolerant.report(each.record, each.error)
            return failed
        return ()


def _place(record: SinkRecord) -> TopicPartition:
    return TopicPartition(str(record.original_topic), int(record.original_partition or 0))


def _class(converter: Converter) -> str:
    return type(converter).java_class
