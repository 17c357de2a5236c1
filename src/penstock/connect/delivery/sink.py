"""Delivery of a sink's task: read columns or records, convert, transform, put; commit offsets behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.base.log_lines import own_logger
from penstock.connect.api import ErrantRecordReporter, SinkTask
from penstock.connect.converters import Converter
from penstock.connect.data import DataError, Header, Headers, RetriableError, Schema, SinkBatch, SinkColumns, SinkRecord
from penstock.connect.delivery.pipeline import OnStep, Pipeline, Step
from penstock.connect.delivery.record_errors import NOT_PUT, ErrantRecords
from penstock.connect.delivery.source import Unwatched, Watcher
from penstock.errors import ConnectError, FencedError
from penstock.log import Consumer, ConsumerRecord, RebalanceListener, TopicPartition
from penstock.log.base import TopicLog
from penstock.log.client_interfaces import records_of

__all__ = ["SinkDelivery", "put_by_record"]

_log = own_logger(__name__)

# Steps of records

Incoming = list[SinkColumns | SinkRecord]


class Originals:
    """The records of the current batch as they were read, by their place."""

    def __init__(self) -> None:
        self._batches: list[tuple[TopicPartition, pa.RecordBatch]] = []

    def add(self, tp: TopicPartition, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        self._batches.append((tp, batch))

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()

    def get(self, where: tuple[str | None, int | None, int | None]) -> ConsumerRecord | None:
        """Return the record of a topic, partition and offset."""
        topic, number, offset = where
        for tp, batch in self._batches:
            if (tp.topic, tp.partition) != (topic, number):
                continue
            offsets = batch.column("offset").to_numpy()
            row = int(offsets.searchsorted(offset))
            if row < len(offsets) and offsets[row] == offset:
                return next(records_of(tp, batch.slice(row, 1)))
        return None


class SinkSteps:
    """The conversions and transformations of what was read from topics.

    Args:
        pipeline: Converters, transformations and the handling of errors.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def convert(self, tp: TopicPartition, batch: pa.RecordBatch) -> Incoming:
        """Return the records of a batch (RECORD_SCHEMA) of a partition, without those that are dropped or skipped.

        Raises:
            ConnectError: A record has failed, and errors are not tolerated.
        """
        columns = self._columns(tp, batch)
        if columns is None:
            return self._rows(tp, batch)
        columns, left = self._pipeline.columns(columns)
        if not left:
            return [columns]
        incoming: Incoming = []
        for row, record in enumerate(columns.records()):
            original = partial(_original, tp, batch, row)
            _, kept = self._pipeline.transformed(record, original, stages=left)
            if kept is not None:
                incoming.append(kept)
        return incoming

    def _columns(self, tp: TopicPartition, batch: pa.RecordBatch) -> SinkColumns | None:
        headers = batch.column("headers")
        if headers.null_count < len(headers):
            return None
        converters = self._pipeline.converters
        try:
            keys = _decoded(converters.key, tp.topic, batch.column("key"))
            values = _decoded(converters.value, tp.topic, batch.column("value"))
        except Exception:  # noqa: BLE001 - record by record it is known which one has failed
            return None
        if keys is None or values is None:
            return None
        offsets, times = batch.column("offset").to_pylist(), batch.column("timestamp").to_pylist()
        return SinkColumns(tp.topic, tp.partition, offsets, times, keys[1], keys[0], values[1], values[0])

    def _rows(self, tp: TopicPartition, batch: pa.RecordBatch) -> Incoming:
        incoming: Incoming = []
        for original in records_of(tp, batch):
            record = self._converted(original)
            if record is None:
                continue
            _, kept = self._pipeline.transformed(record, lambda original=original: original)  # type: ignore[misc]
            if kept is not None:
                incoming.append(kept)
        return incoming

    def _converted(self, original: ConsumerRecord) -> SinkRecord | None:
        topic, converters = original.topic, self._pipeline.converters

        def headers() -> Headers:
            converted = ((name, converters.header.to_connect(topic, data)) for name, data in original.headers)
            return Headers(Header(name, each.value, each.schema) for name, each in converted)

        steps: list[tuple[str, Converter, Callable[[], Any]]] = [
            ("KEY_CONVERTER", converters.key, lambda: converters.key.to_connect(topic, original.key)),
            ("VALUE_CONVERTER", converters.value, lambda: converters.value.to_connect(topic, original.value)),
            ("HEADER_CONVERTER", converters.header, headers),
        ]
        parts: list[Any] = []
        for stage, converter, operation in steps:
            passed, result = self._pipeline.errors.run((stage, type(converter).java_class), operation, original)
            if not passed:
                return None
            parts.append(result)
        key, value, packed = parts
        return SinkRecord(
            topic=topic, partition=original.partition, offset=original.offset, timestamp=original.timestamp,
            timestamp_type="CreateTime", key=key.value, key_schema=key.schema, value=value.value,
            value_schema=value.schema, headers=packed,
        )  # fmt: skip


def _decoded(converter: Converter, topic: str, column: pa.Array) -> tuple[Schema | None, Sequence[Any]] | None:
    if column.null_count == len(column):
        none = converter.to_connect(topic, None)
        return none.schema, [none.value] * len(column)
    return converter.all_to_connect(topic, column.to_pylist())


def _original(tp: TopicPartition, batch: pa.RecordBatch, row: int) -> ConsumerRecord:
    return next(records_of(tp, batch.slice(row, 1)))


# The delivery


class SinkDelivery(RebalanceListener):
    """A sink's task, and what carries records from topics to it: in a worker, in a process of its own, in tests.

    At least once; exactly once if the task keeps offsets. Partitions come by the group of the consumer (the delivery
    is its listener), or by `assign`.

    Args:
        log: The log that is read.
        consumer: The consumer.
        task: The task, not started yet.
        settings: Its config.
        pipeline: Converters, transformations and the handling of errors.
        watcher: Called with progress.
        on_step: Called after each step; tests raise in it what kills the task.
    """

    def __init__(
        self,
        log: TopicLog,
        consumer: Consumer,
        task: SinkTask,
        settings: Mapping[str, str],
        pipeline: Pipeline,
        *,
        watcher: Watcher | None = None,
        on_step: OnStep = lambda _step: None,
    ) -> None:
        self.task, self._settings = task, settings
        self._consumer, self._pipeline = consumer, pipeline
        self._steps = SinkSteps(pipeline)
        self._watcher: Watcher = watcher or Unwatched()
        self._on_step = on_step
        self._originals = Originals()
        tolerance = pipeline.errors.tolerance
        reports = pipeline.errors.reporter is not None or tolerance.logs or tolerance.all
        self._reporter = ErrantRecords(pipeline.errors, self._originals) if reports else None
        self.context = SinkContext(settings, self, log.identity(), self._reporter)
        self._open: set[TopicPartition] = set()
        self._unopened: set[TopicPartition] = set()  # of those, where the task was not ready
        self._seeks: dict[TopicPartition, int] = {}
        self._keeps_offsets = False  # the task has them with its data
        self._batch = SinkBatch()
        self._waits = False  # the batch comes again
        self._read: dict[TopicPartition, int] = {}
        self._delivered: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._failure: BaseException | None = None
        self._by_hand = False
        self._has_begun = False

    def start(self) -> None:
        """Start the task, without partitions."""
        self.task.context = self.context
        self._has_begun = True
        self.task.start(self._settings)

    def deliver(self, most: int = 500, timeout_s: float = 0.0) -> Sequence[SinkRecord]:
        """Read the next records and put them; returns what the task was given.

        Args:
            most: The number of records, at most.
            timeout_s: The time to wait for records if there are none.

        Raises:
            RetriableError: The task will take the same records again later.
            ConnectError: A converter, a transformation or the task fails.
        """
        if self._unopened:
            self.stay()
            self._open_rest()
        if self._waits:
            self.stay()
        else:
            self._seek()
            incoming: Incoming = []
            for tp, batch in self._poll(timeout_s, most):
                if tp in self._unopened:
                    self._seeks.setdefault(tp, batch.column("offset")[0].as_py())
                if tp in self._seeks or tp not in self._open:
                    continue  # it goes on elsewhere
                self._check_place(tp, batch.column("offset")[0].as_py())
                self._read[tp] = batch.column("offset")[-1].as_py() + 1
                self._originals.add(tp, batch)
                self._watcher.uses(tp.topic)
                incoming += self._steps.convert(tp, batch)
            self._batch = SinkBatch(incoming)
            self._on_step(Step.READ)
        self._raise_failure()
        return self._put()

    def idle(self, timeout_s: float) -> None:
        """Stay in the group while the task is paused."""
        self._consumer.pause(self._consumer.assignment())
        self._poll_nothing(timeout_s)
        self._raise_failure()

    def wake(self) -> None:
        """Read on after a pause."""
        self._consumer.resume(self._consumer.assignment())

    def commit(self, places: Collection[TopicPartition] | None = None) -> Mapping[TopicPartition, int]:
        """Commit the offsets that the task agrees to, of these partitions or of all; returns them."""
        self.context.commit_requested = False
        chosen = {p: o for p, o in self._delivered.items() if places is None or p in places}
        if not chosen:
            return {}
        agreed = self.task.pre_commit(dict(chosen))
        self._on_step(Step.FLUSHED)
        safe = {p: min(o, self._read.get(p, o)) for p, o in agreed.items() if p in self._open}
        new = {tp: offset for tp, offset in safe.items() if self._committed.get(tp) != offset}
        if new:
            try:
                self._consumer.commit(new)
            except FencedError as error:
                if self._by_hand:
                    raise  # it is no member: others have its group, and no poll changes that
                # The group goes on without this member. The next poll joins it again and reads these records once more.
                _log.warning("offsets are not committed: %s", error.message)
                self._watcher.count(0, str(error))
                return {}
            self._committed.update(new)
        self._on_step(Step.COMMITTED)
        return new

    def stop(self, *, failed: bool = False) -> None:
        """Commit what was delivered, unless a partition could not be opened; stop the task; leave the group."""
        self._batch, self._waits = SinkBatch(), False
        try:
            if self._open and not (failed and self._failure is not None):
                self._give_up(tuple(self._open), lost=False)
                if not failed:
                    self._raise_failure()
        finally:
            try:
                if self._has_begun:
                    self.task.stop()
            finally:
                self._consumer.close()
                self._pipeline.close()

    def behind(self) -> int:
        """Return the number of offsets that are not read yet."""
        ends = self._consumer.end_offsets(self._open) if self._open else {}
        left = sum(max(end - self._consumer.position(tp), 0) for tp, end in ends.items())
        return left + (len(self._batch) if self._waits else 0)

    # Partitions

    @property
    def assignment(self) -> Collection[TopicPartition]:
        """The partitions that the task reads."""
        return sorted(self._open)

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Give the task other partitions: those that go are committed and closed, those that come are opened."""
        self._by_hand = True
        target = set(places)
        self._give_up(self._open - target, lost=False)
        self._raise_failure()
        kept = {tp: self._consumer.position(tp) for tp in self._open}
        come = sorted(target - self._open)
        if come or len(kept) < len(self._consumer.assignment()):
            committed = self._consumer.committed(come)
            first = self._consumer.beginning_offsets(come) if come else {}
            self._consumer.assign({**kept, **{tp: committed.get(tp, first[tp]) for tp in come}})
        if come:
            self.on_assigned(come)
            self._raise_failure()

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Open partitions that the group has assigned."""
        self._open |= set(partitions)
        self._unopened |= set(partitions)
        try:
            self._open_rest()
        except RetriableError:
            return  # the next step tries again
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self._failure = error

    def _open_rest(self) -> None:
        """Open the partitions that are not open yet."""
        self.task.open(sorted(self._unopened))
        self._unopened.clear()

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit and close partitions that the group takes away."""
        self._give_up(partitions, lost=False)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Close partitions that another member has by now."""
        self._give_up(partitions, lost=True)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on, from the next poll."""
        self._keeps_offsets = True
        self._seeks.update(offsets)

    def _check_place(self, tp: TopicPartition, first: int) -> None:
        """Refuse records before the place of a task that keeps offsets: it would take them for ones that it has."""
        next_offset = self._read.get(tp, first)
        if self._keeps_offsets and first < next_offset:
            raise ConnectError(
                f"{tp.topic}-{tp.partition} goes on at offset {first}, but what was read of it ended at {next_offset}: "
                "the topic was deleted and made again, or has lost records",
                hint="The target keeps the offsets of what it has, and would leave the new records out: give the "
                "connector another name or another target, or remove what the target keeps of that topic.",
            )

    def pause(self, places: Collection[TopicPartition]) -> None:
        """Read these partitions no further."""
        self._consumer.pause(places)

    def resume(self, places: Collection[TopicPartition]) -> None:
        """Read these partitions again."""
        self._consumer.resume(places)

    def _give_up(self, places: Collection[TopicPartition], *, lost: bool) -> None:
        gone = [tp for tp in sorted(places) if tp in self._open]
        if not gone:
            return
        try:
            if not lost:
                self._commit_if_possible(gone)
            opened = [tp for tp in gone if tp not in self._unopened]
            if opened:
                self.task.close(opened)
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self._failure = error
        self._open -= set(gone)
        self._unopened -= set(gone)
        self._batch = self._batch.without([(tp.topic, tp.partition) for tp in gone])
        for tp in gone:
            for table in (self._read, self._delivered, self._committed, self._seeks):
                table.pop(tp, None)

    def _commit_if_possible(self, places: Collection[TopicPartition]) -> None:
        """Commit; what the task cannot keep now is not committed, and read again by whoever goes on."""
        try:
            self.commit(places)
        except RetriableError as error:
            self._watcher.count(0, str(error))

    def _seek(self) -> None:
        for tp in [tp for tp in self._seeks if tp in self._consumer.assignment()]:
            offset = self._seeks.pop(tp)
            self._consumer.seek(tp, offset)
            self._read[tp] = self._delivered[tp] = offset

    def stay(self) -> None:
        """Let the group see that the member lives, while the task is to take the same records again."""
        places = self._consumer.assignment() - self._consumer.paused()
        self._consumer.pause(places)
        self._poll_nothing(0)
        self._consumer.resume(places & self._consumer.assignment())

    def _poll(self, timeout_s: float, most: int) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        if self._by_hand and not self._open:
            return []
        return self._consumer.poll_batches(timeout_s, most)

    def _poll_nothing(self, timeout_s: float) -> None:
        """Poll while all is paused; what was on its way all the same is read again."""
        for tp, batch in self._poll(timeout_s, 500):
            self._seeks.setdefault(tp, batch.column("offset")[0].as_py())

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure is not None:
            raise failure

    # Records

    def _put(self) -> Sequence[SinkRecord]:
        try:
            failed = self._put_batch()
        except Exception:
            self._waits = True  # nothing of it counts as delivered: whoever goes on puts it again
            raise
        self._on_step(Step.PUT)
        for each in failed:
            self._watcher.count(-1, f"a record could not be put: {each.error}")
        done, self._batch, self._waits = self._batch, SinkBatch(), False
        self._watcher.count(len(done))
        self._originals.clear()
        self._delivered.update(self._read)
        return done

    def _put_batch(self) -> Sequence[FailedPut]:
        """Put the batch; if errors are tolerated, record by record after a failure. Those that fail are reported."""
        try:
            self.task.put(self._batch)
        except RetriableError:
            raise
        except Exception as error:
            tolerant = self._reporter if self._pipeline.errors.tolerance.all else None
            failed = put_by_record(self.task.put, self._batch, error) if tolerant is not None else None
            if failed is None or tolerant is None:
                raise ConnectError(NOT_PUT) from error
            for each in failed:
                tolerant.report(each.record, each.error)
            return failed
        return ()


@dataclass(frozen=True, slots=True)
class FailedPut:
    """A record that a sink refuses.

    Attributes:
        record: The record.
        error: The error of the sink.
    """

    record: SinkRecord
    error: Exception


def put_by_record(
    put: Callable[[Sequence[SinkRecord]], None], batch: Sequence[SinkRecord], error: Exception
) -> Sequence[FailedPut] | None:
    """Put each record of a batch that has failed by itself.

    Args:
        put: Puts records.
        batch: The batch.
        error: The error of the batch.

    Returns:
        The records that fail; None if the target is at fault and not the records: all of them fail, and not one with
        an error of data.

    Raises:
        RetriableError: The target is away for now.

    Example:
        >>> def put(records):
        ...     if any(record.value == "bad" for record in records):
        ...         raise DataError("bad")
        >>> batch = [SinkRecord(topic="t", offset=at, value=value) for at, value in enumerate(["a", "bad", "c"])]
        >>> [each.record.offset for each in put_by_record(put, batch, DataError("bad"))]
        [1]
    """
    if len(batch) <= 1:
        return [FailedPut(batch[0], error)] if batch and isinstance(error, DataError) else None
    failed: list[FailedPut] = []
    for record in batch:
        try:
            put([record])
        except RetriableError:
            raise
        except Exception as single:  # noqa: BLE001 - whatever the sink raises is reported
            failed.append(FailedPut(record, single))
            if len(failed) == len(batch) and not any(isinstance(each.error, DataError) for each in failed):
                return None
    return failed


class SinkContext:
    """The `SinkTaskContext` of a task.

    Args:
        settings: The task's config.
        control: The delivery.
        log_identity: The id of the log that the records come from.
        reporter: Takes records that cannot be written.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        control: SinkDelivery,
        log_identity: str,
        reporter: ErrantRecordReporter | None,
    ) -> None:
        self.settings = settings
        self.log_identity = log_identity
        self.errant_record_reporter = reporter
        self._control = control
        self._timeout_ms: int | None = None
        self.commit_requested = False

    @property
    def assignment(self) -> Collection[TopicPartition]:
        """The partitions that the task reads."""
        return self._control.assignment

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        self._control.seek(offsets)

    def timeout(self, timeout_ms: int) -> None:
        """Wait so long before the next try."""
        self._timeout_ms = timeout_ms

    def take_timeout_ms(self, default: int) -> int:
        """Return the time to wait that was asked for last, once."""
        timeout_ms, self._timeout_ms = self._timeout_ms, None
        return default if timeout_ms is None else timeout_ms

    def pause(self, *places: TopicPartition) -> None:
        """Read these partitions no further until `resume`."""
        self._control.pause(places)

    def resume(self, *places: TopicPartition) -> None:
        """Read these partitions again."""
        self._control.resume(places)

    def request_commit(self) -> None:
        """Commit offsets soon."""
        self.commit_requested = True
