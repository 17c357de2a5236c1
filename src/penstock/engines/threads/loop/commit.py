"""The commits of a stream thread: outputs as parts, what the open one holds, and what it notes.

`StreamThread` decides when a commit is due (``commit.interval.ms``); `CommitSchedule` says from when the interval
counts. ``production.exception.handler`` decides what becomes of records that the log refuses.

**The text of an offset.** With a lease it is a note of the lease's epoch, by which offsets that have gone back are
recognised. A member of a streams group commits what Kafka Streams does: a task that moves to another member, also to
one in Java, goes on with the times of its partitions, and with the time up to which closed windows were sent.

**Notes for replays**, of what a task has processed: with them `penstock replay` finds the state of a moment that has
passed. The changelogs of a task have its state as of any commit, as long as they are not compacted beyond it; but they
do not say which input it belongs to. So a commit carries from time to time, in the topic of the tasks' numbers, a note:
where the task stood at an earlier commit, in its input and in its changelogs, and how it has got from there to this
one. A note says nothing that a restore needs, and readers of the topic pass over it.

Notes become rarer with age: a number of them is kept of each power of two of the distance between two, and compaction
removes the others, so that the topic does not grow. A commit of very many turns carries none, as a record that the log
refuses would end the thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.errors import LogUnavailableError, PenstockError, ProductionError
from penstock.log.base import HEADERS_TYPE, TopicPartition
from penstock.log.client_counts import count as count_records
from penstock.log.groups.offset_regressions import epoch_note
from penstock.log.partitioner import partition_for
from penstock.log.streams_groups.offset_metadata import OffsetMetadata
from penstock.runtime.aggregate.windows import last_emit_meta
from penstock.runtime.context import STREAM_TIME, partition_time_meta
from penstock.runtime.dead_letters import ErrorContext
from penstock.runtime.exception_handlers import TopicRecord, handler_of
from penstock.serde.column import bytes_column
from penstock.state.changelog.formats import NOTE, records_of

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.replicas.task_replica import TaskReplica
    from penstock.log.base import OffsetAndMetadata, TopicLog
    from penstock.log.thread_clients import CommitProducer, Part, Writer
    from penstock.runtime.dead_letters import DeadLetter
    from penstock.topology.plan.plan import PhysicalPlan, TaskId
    from penstock.topology.topology import Topology

    _Numbers = dict[str, int]
    _GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata]

__all__ = [
    "Commit",
    "CommitSchedule",
    "Purger",
    "RefusedRecords",
    "ReplayNote",
    "ReplayNotes",
    "by_partition",
    "notes_of",
    "parts_of_output",
]

_log = own_logger(__name__)
_CLOSE_S = 2.0


class Purger:
    """The deletion of records behind the committed positions, beside the thread's loop.

    Args:
        log: The log.
        topics: The repartition topics, by their names in the log.
        interval_ms: ``repartition.purge.interval.ms``.
        clock_s: A clock that only goes forward.
    """

    def __init__(
        self,
        log: TopicLog,
        topics: Collection[str],
        interval_ms: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._topics = frozenset(topics)
        self._interval_s = interval_ms / 1000
        self._clock_s = clock_s
        self._last_s = clock_s()
        self._behind: dict[TopicPartition, int] = {}  # records below these offsets are not needed any more
        self._failed: Mapping[TopicPartition, int] = {}  # those of the last deletion, if it failed
        self._said = ""  # about that failure
        self._working: threading.Thread | None = None
        self._is_closed = False

    def note(self, committed: Mapping[TopicPartition, int]) -> None:
        """Note committed positions; `begin_if_due` deletes what is behind them."""
        self._behind |= {tp: offset for tp, offset in committed.items() if tp.topic in self._topics}

    def begin_if_due(self) -> None:
        """Begin to delete behind all that has been noted, and what a deletion before could not, if it is time.

        A thread without new records calls it too: what its last commit left behind is deleted as well.
        """
        if not (self._behind or self._failed) or self._clock_s() - self._last_s < self._interval_s:
            return
        if self._working is not None and self._working.is_alive():
            return
        self._last_s = self._clock_s()
        behind, self._behind, self._failed = {**self._failed, **self._behind}, {}, {}
        self._working = threading.Thread(target=self._purge, args=(behind,), name="repartition-purge", daemon=True)
        self._working.start()

    def close(self) -> None:
        """Give a deletion that is under way a moment; then leave it behind, as no result depends on it."""
        self._is_closed = True
        if self._working is not None:
            self._working.join(_CLOSE_S)

    def _purge(self, behind: Mapping[TopicPartition, int]) -> None:
        try:
            self._log.purge(behind)
        except PenstockError as error:
            if self._is_closed:
                return
            self._failed = behind
            if str(error) == self._said:
                return
            self._said = str(error)
            passes = isinstance(error, LogUnavailableError)
            _log.log(
                logging.INFO if passes else logging.WARNING,
                "Records of %s below the committed offsets stay for now: %s",
                ", ".join(sorted({tp.topic for tp in behind})),
                error,
            )
        else:
            self._said = ""


# Texts of offsets


class OffsetNotes(Protocol):
    """The texts of a thread's commits."""

    keeps_partition_times: bool
    """Whether tasks keep the time of each of their partitions."""

    are_fenced: bool
    """Whether the group fences a commit by its offsets, so that each task that has changed commits some."""

    def text(self, app: ThreadApp, task: TaskId, meta: Mapping[str, int], tp: TopicPartition) -> str:
        """Return the text for the offset of a partition.

        Args:
            app: The application.
            task: The task that reads the partition.
            meta: Its numbers.
            tp: The partition.
        """
        ...

    def numbers(self, app: ThreadApp, task: TaskId, group: _GroupOffsets) -> _Numbers:
        """Return the numbers with which a task goes on, as far as the group's offsets have them."""
        ...


def notes_of(writer: Writer) -> OffsetNotes:
    """Return the notes of a thread: without a lease it is a member of a streams group."""
    return MemberNotes() if writer.epoch is None else EpochNotes(writer.thread, writer.epoch)


class EpochNotes:
    """Notes of the epoch of a lease."""

    keeps_partition_times = are_fenced = False

    def __init__(self, thread: str, epoch: int) -> None:
        self._text = epoch_note(f"stream-thread {thread}", epoch)

    def text(self, app: ThreadApp, task: TaskId, meta: Mapping[str, int], tp: TopicPartition) -> str:  # noqa: ARG002
        """Return the note."""
        return self._text

    def numbers(self, app: ThreadApp, task: TaskId, group: _GroupOffsets) -> _Numbers:  # noqa: ARG002
        """Return nothing: the topic of the tasks' numbers has them all."""
        return {}


class MemberNotes:
    """Kafka Streams' ``TopicPartitionMetadata``."""

    keeps_partition_times = are_fenced = True

    def text(self, app: ThreadApp, task: TaskId, meta: Mapping[str, int], tp: TopicPartition) -> str:
        """Return the time of a partition, and the numbers of the task's processors."""
        sent = {store: meta[name] for store in app.subtopology(task).stores if (name := last_emit_meta(store)) in meta}
        time_ms = meta.get(partition_time_meta(app.logical(tp.topic), tp.partition), -1)
        return OffsetMetadata(time_ms, sent).encode()

    def numbers(self, app: ThreadApp, task: TaskId, group: _GroupOffsets) -> _Numbers:
        """Return the times of the task's partitions, their maximum as its stream time, and its processors' numbers."""
        numbers: dict[str, int] = {}
        for tp in app.plan.sources(task):
            noted = OffsetMetadata.decode(group[tp].metadata if tp in group else "")
            times = {STREAM_TIME: noted.partition_time_ms}
            times[partition_time_meta(app.logical(tp.topic), tp.partition)] = noted.partition_time_ms
            times |= {last_emit_meta(store): time for store, time in noted.numbers.items()}
            for name, time_ms in times.items():
                if time_ms >= 0:
                    numbers[name] = max(time_ms, numbers.get(name, time_ms))
        return numbers


# Notes for replays

_INTERVAL_MS = 10_000
_MOST_TURNS = 1_000  # after which a note is due, too
_MOST_NUMBERS = 50_000  # in the turns of a note: half a megabyte, where brokers take records of one
_LEVELS, _KEPT = 13, 16


@dataclass(frozen=True, slots=True)
class Turn:
    """Records that a task has processed together.

    Attributes:
        now_ms: The wall-clock time.
        counts: How many of each partition.
    """

    now_ms: int
    counts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ReplayNote:
    """The work of a task between two commits.

    Attributes:
        noted_ms: The wall-clock time of the second one.
        began_ms: That of the first one, or of the task's start.
        before: The positions in the input at the first one.
        after: Those at the second one.
        ends: Store -> the offset after its last changelog record at the first one.
        numbers: The task's numbers at the first one.
        turns: What was processed, in order; None if the order of the input follows from the positions.
    """

    noted_ms: int
    began_ms: int
    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]
    ends: Mapping[str, int]
    numbers: Mapping[str, int]
    turns: Sequence[Turn] | None = None

    def record(self, task: str) -> pa.RecordBatch:
        """Return the note as a record of the topic of the tasks' numbers.

        >>> tp = TopicPartition("in", 1)
        >>> note = ReplayNote(7, 5, {tp: 2}, {tp: 5}, {"counts": 9}, {"stream_time": 4}, [Turn(6, {tp: 3})])
        >>> record = note.record("0_1")
        >>> ReplayNote.is_key(record.column("key")[0].as_py(), "0_1")
        True
        >>> ReplayNote.parse(record.column("value")[0].as_py()) == note
        True
        """
        places = list(self.before)
        turns = None
        if self.turns is not None:
            turns = [[turn.now_ms, *(turn.counts.get(tp, 0) for tp in places)] for turn in self.turns]
        facts = {
            "noted": self.noted_ms,
            "began": self.began_ms,
            "input": [[tp.topic, tp.partition, self.before[tp], self.after[tp]] for tp in places],
            "ends": dict(self.ends),
            "meta": dict(self.numbers),
            "turns": turns,
        }
        value = json.dumps(facts, separators=(",", ":")).encode()
        return records_of(self.noted_ms, bytes_column([_key(task, self.noted_ms)]), bytes_column([value]))

    @classmethod
    def is_key(cls, key: bytes | None, task: str | None = None) -> bool:
        """Return whether a record with this key is a note, of that task if one is named."""
        of_task, separator, _ = (key or b"").partition(NOTE)
        return bool(separator) and (task is None or of_task == task.encode())

    @classmethod
    def parse(cls, value: bytes) -> ReplayNote | None:
        """Parse a record's value; None if it is no such note."""
        try:
            facts = json.loads(value)
            places = [TopicPartition(str(topic), int(partition)) for topic, partition, _, _ in facts["input"]]
            before, after = ([int(each[at]) for each in facts["input"]] for at in (2, 3))
            turns = facts["turns"]
            return cls(
                int(facts["noted"]),
                int(facts["began"]),
                dict(zip(places, before, strict=True)),
                dict(zip(places, after, strict=True)),
                {str(store): int(end) for store, end in facts["ends"].items()},
                {str(name): int(number) for name, number in facts["meta"].items()},
                None if turns is None else [_turn(each, places) for each in turns],
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None


def _turn(numbers: Sequence[int], places: Sequence[TopicPartition]) -> Turn:
    now_ms, *counts = map(int, numbers)
    return Turn(now_ms, {tp: count for tp, count in zip(places, counts, strict=True) if count})


def _key(task: str, noted_ms: int) -> bytes:
    """Return the key of a note; a later note with the same one takes its place.

    >>> len({_key("0_0", number * 10_000) for number in range(1, 100_000)}) <= 13 * 16
    True
    """
    number = max(1, noted_ms // _INTERVAL_MS)
    level = min((number & -number).bit_length() - 1, _LEVELS - 1)
    return f"{task}{NOTE.decode()}{level}.{(number >> level + 1) % _KEPT}".encode()


class ReplayNotes:
    """The notes of one task of a stream thread.

    Args:
        app: The application.
        task: The task.
        replica: Its state, restored.
        positions: Its positions in the input.
        now_ms: The wall-clock time.
    """

    def __init__(
        self, app: ThreadApp, task: TaskId, replica: TaskReplica, positions: Mapping[TopicPartition, int], now_ms: int
    ) -> None:
        sub = app.subtopology(task)
        self._task = task
        self._replica = replica
        self._topic = app.numbers_topic if sub.stores or sub.keeps_state else None
        self._keeps_turns = len(positions) > 1 or sub.ticks
        self._turns: list[Turn] = []
        self._due_ms = self._noted_ms = now_ms
        self._begin(positions)

    def took(self, now_ms: int, counts: Mapping[TopicPartition, int]) -> None:
        """Note that these records are processed now."""
        if self._keeps_turns and self._topic is not None and not self._is_too_long:
            self._turns.append(Turn(now_ms, counts))

    @property
    def has_turns(self) -> bool:
        """Whether something was processed whose order no note says yet."""
        return bool(self._turns) and not self._is_too_long

    @property
    def _is_too_long(self) -> bool:
        return len(self._turns) * (1 + len(self._before)) > _MOST_NUMBERS

    def part(self, now_ms: int, positions: Mapping[TopicPartition, int], *, is_last: bool = False) -> list[Part]:
        """Return the note that the next commit carries, if one is due.

        Args:
            now_ms: The wall-clock time.
            positions: The positions that are committed.
            is_last: Whether the task leaves the thread with this commit.
        """
        is_due = (is_last and self.has_turns) or not now_ms < self._due_ms <= now_ms + _INTERVAL_MS
        is_due = is_due or len(self._turns) >= _MOST_TURNS
        if self._topic is None or not is_due:
            return []
        if self._is_too_long:
            self._noted_ms, self._is_out = now_ms, True
            return []
        turns = self._turns if self._keeps_turns else None
        note = ReplayNote(now_ms, self._began_ms, self._before, positions, self._ends, self._numbers, turns)
        self._due_ms, self._noted_ms, self._is_out = now_ms + _INTERVAL_MS, now_ms, True
        return [(self._topic, self._task.partition, note.record(str(self._task)))]

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Begin the next note, if the commit has carried one, or was to carry one that is too long."""
        if self._is_out:
            self._begin(positions)

    def _begin(self, positions: Mapping[TopicPartition, int]) -> None:
        self._before, self._began_ms = dict(positions), self._noted_ms
        self._ends = self._replica.changelog_ends()
        self._numbers = dict(self._replica.state.meta)
        self._turns, self._is_out = [], False


# Refused records and parts of outputs


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


# Commits, and when they are due

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
