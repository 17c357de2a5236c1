"""The commits of a stream thread: outputs as parts, what the open one holds, and when the next is due.

``commit.interval.ms`` decides that; what becomes of records that the log refuses, ``production.exception.handler``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.errors import ProductionError
from penstock.log.base import HEADERS_TYPE
from penstock.log.client_counts import count as count_records
from penstock.runtime.exception_handlers import ErrorContext, TopicRecord, handler_of
from penstock.serde.partitioner import partition_for

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import OffsetAndMetadata, TopicPartition
    from penstock.log.thread_clients import CommitProducer, Part
    from penstock.runtime.exception_handlers import DeadLetter
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["Commit", "CommitSchedule", "RefusedRecords", "by_partition", "parts_of_output"]

_log = own_logger(__name__)


@dataclass(frozen=True)
class RefusedRecords:
    """The application's answer to records that the log refuses.

    Attributes:
        topology: The topology, whose sinks are named to the handler.
        config: The settings, with ``production.exception.handler``.
        plan: The plan, which knows the partitions of dead letter topics.
        changelogs: The topics of changes, from which nothing may be left out: a store could not be rebuilt.
    """

    topology: Topology
    config: StreamsConfig
    plan: PhysicalPlan
    changelogs: Collection[str | None]

    @classmethod
    def of(cls, app: ThreadApp) -> Self:
        """Return the answer of an application."""
        return cls(app.topology, app.config, app.plan, {*app.changelogs.values(), app.numbers_topic})

    def without(
        self, parts: Sequence[Part], tasks: Sequence[str], error: ProductionError
    ) -> tuple[list[Part], list[str]]:
        """Call the handler for each refused record; return the other records, and the dead letters that it asks for.

        Args:
            parts: The parts that were to be written.
            tasks: The task of each part.
            error: The error, whose ``facts["refused"]`` has the rows by number of part.

        Returns:
            The parts that are left, and the task of each.

        Raises:
            ProductionError: The error itself: it names no records, or some of a changelog, or the handler says fail.
        """
        refused = error.facts.get("refused")
        if not isinstance(refused, dict) or not refused:
            raise error
        if any(parts[number][0] in self.changelogs for number in refused):
            raise error
        name = "production.exception.handler"
        handle = handler_of(
            self.config[name], name, self.config.get("errors.dead.letter.queue.topic.name"), self.config
        )
        nodes = {sink.topic: sink.name for sink in self.topology.sinks}
        letters: list[DeadLetter] = []
        kept: list[Part] = []
        kept_of: list[str] = []
        letters_of: list[str] = []
        for number, ((topic, partition, rows), task) in enumerate(zip(parts, tasks, strict=True)):
            out = refused.get(number, ())
            logical = topic.removeprefix(f"{self.plan.application_id}-")
            node = nodes.get(topic) or (nodes.get(logical) if logical in self.plan.internal_topics else None) or topic
            for row in out:
                response = handle(*_context(task, node, topic, rows.slice(row, 1)), error)
                if response.action != "continue":  # what is refused for good need not be tried again
                    raise error
                letters += response.dead_letters
                letters_of += [task] * len(response.dead_letters)
            if out:
                count_records("producer", "failed-records", len(out), topic=topic)
                _log.warning("%d record(s) for %s-%d are left out: %s", len(out), topic, partition, error.message)
            left = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), out))) if out else rows
            if left.num_rows:
                kept.append((topic, partition, left))
                kept_of.append(task)
        return [*kept, *(self._part(letter) for letter in letters)], kept_of + letters_of

    def _part(self, letter: DeadLetter) -> Part:
        count = self.plan.partitions.get(letter.topic, 1)
        headers = [[{"key": key, "value": value} for key, value in letter.headers]]
        columns = {
            "timestamp": pa.array([unix_ms() if letter.timestamp is None else letter.timestamp], pa.int64()),
            "key": pa.array([letter.key], pa.large_binary()),
            "value": pa.array([letter.value], pa.large_binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
        partition = 0 if letter.key is None else partition_for(letter.key, count)
        return letter.topic, partition, pa.RecordBatch.from_pydict(columns)


def _context(task: str, node: str, topic: str, row: pa.RecordBatch) -> tuple[ErrorContext, TopicRecord]:
    record = row.to_pylist()[0]
    headers = tuple((each["key"], each["value"]) for each in record.get("headers") or ())
    key, value, timestamp = record["key"], record["value"], record["timestamp"]
    context = ErrorContext(task, node, None, -1, -1, timestamp, headers, None, None)  # Kafka has let go of the bytes
    return context, TopicRecord(topic, key, value, timestamp, headers)


def parts_of_output(app: ThreadApp, records: Mapping[str, pa.RecordBatch]) -> list[Part]:
    """Return what a task has written (`TaskOutput.records`) as parts; internal topics get their names in the log.

    Records for a topic whose partitions are not known go to partition 0.
    """
    return [
        (app.plan.physical_name(topic), max(partition, 0), part)
        for topic, rows in records.items()
        for partition, part in by_partition(rows)
    ]


def by_partition(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split rows by their column ``partition``, which is left out, in order of the partitions."""
    if not rows.num_rows:
        return
    partitions = rows.column("partition").to_numpy()
    rows = rows.drop_columns(["partition"])
    first = partitions[0]
    if (partitions == first).all():
        yield int(first), rows
        return
    numbers = np.unique(partitions)
    order = np.argsort(partitions, kind="stable")
    starts = np.searchsorted(partitions[order], numbers)
    for partition, start, end in zip(numbers, starts, [*starts[1:], len(order)], strict=True):
        yield int(partition), rows.take(pa.array(order[start:end]))


_LONGEST_S = 1.0  # an interval that is longer than this is not shifted: commits rarely meet then
_EXACT = 0.01  # a part of an interval: a commit that comes so early has come in time
_GOLDEN = 0.618034  # multiples of it, modulo one, lie far apart, however many there are


class Commit:
    """The open commit of a thread, and then the next: the records of its tasks, and the answer to those refused.

    Args:
        producer: The thread's producer.
        refused: The application's answer to refused records.
    """

    def __init__(self, producer: CommitProducer, refused: RefusedRecords) -> None:
        self._producer = producer
        self._refused = refused
        self._sent_by: list[str] = []  # the task of each part that waits in the producer

    @property
    def pending_bytes(self) -> int:
        """The size of the records that wait for a commit."""
        return self._producer.pending_bytes

    def send(self, parts: Sequence[Part], tasks: Sequence[str]) -> None:
        """Send outputs, each part with the name of its task: exactly once with the next commit, at least once at once.

        Raises:
            ProductionError: The log refuses records, and production.exception.handler says fail.
            FencedError: A newer thread or instance has taken over.
        """
        while True:
            try:
                self._producer.send(parts)
            except ProductionError as error:
                parts, tasks = [*self._producer.collected(), *parts], [*self._sent_by, *tasks]
                parts, tasks = self._refused.without(parts, tasks, error)
                self._producer.replace(())
                self._sent_by = []
            else:
                waiting = len(self._producer.collected())
                self._sent_by = [*self._sent_by, *tasks][-waiting:] if waiting else []
                return

    def flush(self) -> None:
        """At least once: wait until the log has taken all outputs; see `send`."""
        while self._producer.collected():
            self.send((), ())

    def collect(self, parts: Sequence[Part], task: str) -> None:
        """Send changelog records of a task with the next commit."""
        self._sent_by += [task] * self._producer.collect(parts)

    def complete(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        """Commit what has been sent, with these offsets; return the offset after the last record of each partition.

        Raises:
            ProductionError: The log refuses records, and production.exception.handler says fail.
            FencedError: A newer thread or instance has taken over.
        """
        while True:
            try:
                following = self._producer.commit(offsets)
            except ProductionError as error:
                parts, self._sent_by = self._refused.without(self._producer.collected(), self._sent_by, error)
                self._producer.replace(parts)
            else:
                self._sent_by = []
                return following


class CommitSchedule:
    """Times at a distance of one commit interval, other ones for each thread of a machine.

    Threads that commit at the same moment wait for each other: for a core, for the broker, for the lock of an embedded
    log. They would go on to do so, as every interval begins where the one before has ended. So each takes its turn.

    Args:
        interval_s: The commit interval.
        thread: The name of the thread, which ends with its number.

    Example:
        >>> first, second = CommitSchedule(0.1, "thread-0"), CommitSchedule(0.1, "thread-1")
        >>> [round(each.since(7.33), 3) for each in (first, second)]
        [7.3, 7.296]
    """

    def __init__(self, interval_s: float, thread: str) -> None:
        number = thread.rpartition("-")[2]
        self._interval_s = interval_s if interval_s <= _LONGEST_S else 0.0
        self._first_s = (int(number) * _GOLDEN % 1 if number.isdecimal() else 0.0) * interval_s

    def since(self, now_s: float) -> float:
        """Return the time, by the monotonic clock, from which the interval after a commit at ``now_s`` counts.

        It ends with the thread's next turn. If that is less than half an interval away, as after a silence or a late
        commit, it ends half-way to the turn after that one, so that no interval is longer than it should be.
        """
        if not self._interval_s:
            return now_s
        late_s = (now_s - self._first_s) % self._interval_s
        early_s = self._interval_s - late_s
        if early_s < _EXACT * self._interval_s:
            return now_s + early_s
        return now_s - (late_s if late_s <= self._interval_s / 2 else late_s / 2)
