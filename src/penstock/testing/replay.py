"""The replay of records: their task as it was, and what each of them changes and writes.

It begins at a moment at which both the input and the state of the task are known:

- The last commit: the group's offsets and the ends of the changelogs.
- The commits that notes of the task speak of (`penstock.engines.threads.loop.commit`).
- The beginning, if the input is there from its first record: the stores were empty.

The rows at a commit are the changelog up to its end there. Compaction may have removed a record below this end because
of a newer one behind it. Whether it has been beyond the end shows in what is left: a key that is there twice below the
end has not been compacted since, and without a gap in the offsets nothing is missing. Markers of transactions and
aborted records are no gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import time_of
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.commit import MemberNotes, ReplayNote
from penstock.engines.threads.loop.global_state import MemoryGlobals
from penstock.engines.threads.replicas.restoring import newest_numbers, restored_places, source_topics
from penstock.errors import OffsetOutOfRangeError, StateError, TopologyError, UnknownTopicError
from penstock.log.base import HidesOffsets, TopicPartition
from penstock.log.embedded.records import concat
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.rows import TopicBatch
from penstock.runtime.sensor import Sensor
from penstock.runtime.task import StreamTask, TaskPart
from penstock.serde.plain_json import text_of
from penstock.state.changelog.changelog_restore import StoreRestorer
from penstock.state.maps import MemoryMap, TaskOverlay
from penstock.state.views import open_view

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.runtime.global_stores import GlobalViews
    from penstock.topology.plan.plan import TaskId

__all__ = [
    "CommitMoment",
    "Moments",
    "Output",
    "PartitionRecords",
    "Replay",
    "ReplayStep",
    "ShownChange",
    "StateGoneError",
    "replays_of",
]

_LOOKS = 20
Rows = Sequence[tuple[bytes, bytes]]


class StateGoneError(Exception):
    """The state of a moment is not in the log any more; the text says why."""


@dataclass(frozen=True)
class CommitMoment:
    """A commit of a task.

    Attributes:
        text: What it is, in words.
        positions: The positions in the input.
        ends: Store -> the end of its changelog; None: the stores are empty.
        numbers: The task's numbers.
        now_ms: The wall-clock time; None if it is not known.
        following_note: The first of the task's notes that says what came then.
    """

    text: str
    positions: Mapping[TopicPartition, int]
    ends: Mapping[str, int] | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    now_ms: int | None = None
    following_note: int = 0


class Moments:
    """The moments of one task.

    Args:
        app: The application.
        task: The task.
        log: Its log, which is only read.
    """

    def __init__(self, app: ThreadApp, task: TaskId, log: TopicLog) -> None:
        self._app = app
        self._task = task
        self._log = log
        self._sources = app.plan.sources(task)
        self._stores = app.subtopology(task).stores
        self.notes = self._read_notes() if self._stores or app.subtopology(task).keeps_state else []
        self.committed = self._last_commit()
        self.firsts = log.beginning_offsets(sorted({tp.topic for tp in self._sources}))

    def before(self, tp: TopicPartition, offset: int) -> Iterator[CommitMoment]:
        """Iterate over the moments at which a record was not processed yet, the latest first.

        Those are left out from which on records of the input have been deleted.
        """
        moments = [each for each in self._all() if each.positions.get(tp, 0) <= offset and self._is_kept(each)]
        yield from sorted(moments, key=lambda each: (sum(each.positions.values()), each.following_note), reverse=True)

    def lost_input(self) -> str:
        """Say from which offsets on the input is there, where that is not the first one; empty if all is."""
        lost = [tp for tp in self._sources if self.firsts.get(tp, 0) > 0]
        if not lost:
            return ""
        return ", ".join(f"{tp.topic}-{tp.partition} begins at offset {self.firsts[tp]}" for tp in lost)

    def rows(self, moment: CommitMoment) -> dict[str, Rows]:
        """Return the rows of the task's stores.

        Raises:
            StateGoneError: They are not there any more.
        """
        if moment.ends is None:
            return {}
        topics = source_topics(self._app, self._task)
        rows: dict[str, Rows] = {}
        for store in self._stores:
            if store in topics:
                tp = TopicPartition(topics[store], self._task.partition)
                rows[store] = self._rows_of(store, tp, moment.positions.get(tp, 0), moment)
            elif store in self._app.changelogs:
                tp = TopicPartition(self._app.changelogs[store], self._task.partition)
                rows[store] = self._rows_of(store, tp, moment.ends.get(store, 0), moment)
            elif sum(moment.positions.values()):
                raise StateGoneError(f"no topic has the rows of the store {store}, for which logging is off")
        return rows

    def _all(self) -> list[CommitMoment]:
        notes = [
            CommitMoment(
                f"the commit of {time_of(each.began_ms)}", each.before, each.ends, each.numbers, each.began_ms, number
            )
            for number, each in enumerate(self.notes)
        ]
        last = [self.committed] if self.committed is not None else []
        # Where it began to read later, the first note says so: the stores were empty there.
        earliest = min(self.notes, key=lambda each: sum(each.before.values()), default=None)
        began_later = earliest is not None and sum(earliest.before.values()) > 0 and not any(earliest.ends.values())
        start = CommitMoment("the beginning of its input", dict.fromkeys(self._sources, 0))
        first = [] if began_later or (notes and start.positions == notes[0].positions) else [start]
        return [*first, *notes, *last]

    def _is_kept(self, moment: CommitMoment) -> bool:
        return all(self.firsts.get(tp, 0) <= offset for tp, offset in moment.positions.items())

    def _read_notes(self) -> list[ReplayNote]:
        topic = self._app.numbers_topic
        if topic is None:
            return []
        partition = self._task.partition
        start, end = self._log.beginning_offset(topic, partition), self._log.end_offset(topic, partition)
        notes = []
        for records in self._log.iterate(topic, partition, start, end):
            pairs = zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
            for key, value in pairs:
                if value is not None and ReplayNote.is_key(key, str(self._task)):
                    note = ReplayNote.parse(value)
                    if note is not None and set(note.before) == set(self._sources):
                        notes.append(note)
        return notes

    def _last_commit(self) -> CommitMoment | None:
        """Look up offsets and ends of the same commit; None if commits come too fast to see both."""
        group = self._app.application_id
        places = restored_places(self._app, self._task)
        for _ in range(_LOOKS):
            before = self._log.group_offsets(group)
            ends = self._log.settled_ends(places) if places else {}
            after = self._log.group_offsets(group)
            positions = {tp: after[tp].offset for tp in self._sources if tp in after}
            if all(tp in before and before[tp].offset == at for tp, at in positions.items()):
                break
        else:
            return None
        if set(positions) != set(self._sources):
            return None
        stores = {
            store: ends.get(TopicPartition(topic, self._task.partition), 0)
            for store, topic in self._app.changelogs.items()
            if store in self._stores
        }
        numbers: dict[str, int] = {}
        topic = self._app.numbers_topic_of(self._task)
        if topic is not None and (tp := TopicPartition(topic, self._task.partition)) in ends:
            first = self._log.beginning_offset(topic, self._task.partition)
            newest = newest_numbers(self._log, tp, self._task, first, ends[tp])
            numbers |= {} if newest is None else newest.meta
        noted = MemberNotes().numbers(self._app, self._task, after)
        numbers |= {name: time for name, time in noted.items() if time > numbers.get(name, time - 1)}
        return CommitMoment("the last commit", positions, stores, numbers, following_note=len(self.notes))

    def _rows_of(self, store: str, tp: TopicPartition, end: int, moment: CommitMoment) -> Rows:
        start = self._log.beginning_offset(tp.topic, tp.partition)
        spec = self._app.topology.stores[store]
        restorer = StoreRestorer(spec)
        kept = _Kept(self._log, tp, start)
        for records in self._log.iterate(tp.topic, tp.partition, start, end) if start < end else ():
            kept.add(records)
            restorer.add(records)
        is_compacted = "compact" in self._log.topic(tp.topic).config.get("cleanup.policy", "delete")
        if is_compacted and not kept.is_whole(end):
            raise StateGoneError(f"{tp.topic}-{tp.partition} has been compacted since: rows of then may be missing")
        rows: Any = restorer.rows(moment.numbers)
        return list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


class _Kept:
    """The records read of a changelog, and whether compaction may have removed some of them for newer ones.

    Args:
        log: The log.
        tp: The partition.
        start: The first offset of the partition.
    """

    def __init__(self, log: TopicLog, tp: TopicPartition, start: int) -> None:
        self._log = log
        self._tp = tp
        self._start = self._next = start
        self._holes: list[range] = []
        self._keys: set[bytes | None] = set()
        self._has_twice = False

    def add(self, records: pa.RecordBatch) -> None:
        keys, offsets = records.column("key").to_pylist(), records.column("offset").to_pylist()
        for key, offset in zip(keys, offsets, strict=True):
            if offset > self._next:
                self._holes.append(range(self._next, offset))
            self._next = offset + 1
            self._has_twice = self._has_twice or key in self._keys
            self._keys.add(key)

    def is_whole(self, end: int) -> bool:
        """Return whether nothing below ``end`` has been removed because of a record behind it."""
        holes = [*self._holes, range(self._next, end)]
        if self._has_twice or self._are_hidden(holes, self._start, end):
            return True
        newest = self._log.end_offset(self._tp.topic, self._tp.partition)
        expected, behind = end, []
        for records in self._log.iterate(self._tp.topic, self._tp.partition, end, newest) if end < newest else ():
            pairs = zip(records.column("key").to_pylist(), records.column("offset").to_pylist(), strict=True)
            for key, offset in pairs:
                if key not in self._keys:
                    return False
                behind.append(range(expected, offset))
                expected = offset + 1
        return self._are_hidden([*behind, range(expected, newest)], end, newest)  # or one was the deletion of a row

    def _are_hidden(self, holes: Sequence[range], start: int, end: int) -> bool:
        """Return whether no record has been removed from these gaps between a start and an end."""
        gaps = [hole for hole in holes if hole]
        if not gaps or not isinstance(self._log, HidesOffsets):
            return not gaps
        hidden = self._log.hidden_offsets(self._tp.topic, self._tp.partition, start, end)
        return all(hidden.issuperset(gap) for gap in gaps)


_PIECE = 10_000
_MOST_TEXT = 200
Call = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Records of a partition.

    Attributes:
        topic: The topic, by its name in the log or in the topology.
        partition: The partition.
        first: The first offset.
        last: The last one.
    """

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A row of a store before and after a record, as text; empty: there was none."""

    store: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Output:
    """A record that was written; ``text`` shows its key and value."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    text: str = field(compare=False)


@dataclass(slots=True)
class ReplayStep:
    """One record that was processed again.

    Attributes:
        offset: Its offset.
        timestamp: Its time.
        key: Its key.
        value: Its value.
        changes: The rows that it has changed.
        outputs: What was written because of it.
        error: The error that it has raised.
    """

    offset: int
    timestamp: int
    key: str
    value: str
    changes: list[ShownChange] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    error: Exception | None = None


@dataclass(slots=True)
class Replay:
    """The replay of records in one task.

    Attributes:
        task: The task.
        span: The records.
        moment: The moment from which it began.
        before: How many records were processed to get from there to the first one.
        steps: The records.
        notes: What a reader should know.
        positions: The positions in the task's input after the last record.
        rows: Store -> its rows after the last record, as bytes.
    """

    task: str
    span: PartitionRecords
    moment: CommitMoment
    before: int = 0
    steps: list[ReplayStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    rows: Mapping[str, MemoryMap] = field(default_factory=dict)


def replays_of(
    app: ThreadApp, log: TopicLog, span: PartitionRecords, call: Call = lambda run: run()
) -> Iterator[Replay]:
    """Process records again in each task that reads them.

    Args:
        app: The application.
        log: Its log, which is only read.
        span: The records.
        call: Called with the function that processes each of them, such as to run it under a debugger.

    Raises:
        UnknownTopicError: There is no such topic or partition.
        OffsetOutOfRangeError: There is no such record.
        TopologyError: The application does not read the topic.
        StateError: The state of then is not there any more.
    """
    tp = _partition_of(app, log, span)
    tasks = [task for task in app.tasks() if tp in app.plan.sources(task)]
    _require_records(log, tp, span)
    for task in tasks:
        yield _Replayer(app, task, log, tp, span, call).run()


def _partition_of(app: ThreadApp, log: TopicLog, span: PartitionRecords) -> TopicPartition:
    names = {app.plan.physical_name(topic): topic for topic in app.plan.internal_topics}
    topic = next((name for name, logical in names.items() if span.topic in (name, logical)), span.topic)
    readable = sorted({tp.topic for task in app.tasks() for tp in app.plan.sources(task)})
    if topic in app.plan.global_topics and topic not in readable:
        raise TopologyError(
            f"{topic} fills a global store, which no task processes",
            hint="Replay a record that reads the store.",
            topic=topic,
        )
    if topic not in readable:
        log.topic(topic)  # raises an error that names similar ones
        raise TopologyError(
            f"the topology does not read {topic!r}",
            hint=did_you_mean(topic, readable) or f"It reads {', '.join(readable)}.",
            topic=topic,
        )
    count = log.partitions(topic)
    if not 0 <= span.partition < count:
        raise UnknownTopicError(
            f"{topic} has no partition {span.partition}, only {count}, from 0 on",
            hint="--at takes TOPIC:PARTITION:OFFSET.",
            topic=topic,
        )
    return TopicPartition(topic, span.partition)


def _require_records(log: TopicLog, tp: TopicPartition, span: PartitionRecords) -> None:
    first, end = log.beginning_offset(tp.topic, tp.partition), log.end_offset(tp.topic, tp.partition)
    name = f"{tp.topic}:{tp.partition}"
    where = f"{name} has the offsets {first} to {end - 1}." if first < end else f"{name} is empty."
    if span.first < first:
        if tp.topic.endswith("-repartition"):
            where += " Repartition topics are emptied as they are processed: replay the record that was there before."
        raise OffsetOutOfRangeError(f"{name}:{span.first} has been deleted", hint=where)
    if span.last >= end:
        raise OffsetOutOfRangeError(f"{name}:{span.last} is beyond the end", hint=where)
    records = log.iterate(tp.topic, tp.partition, span.first, span.last + 1)
    if not any(each.num_rows for each in records):
        last = f" to {span.last}" if span.last > span.first else ""
        raise OffsetOutOfRangeError(
            f"there is no record at {name}:{span.first}{last}",
            hint="Compaction has removed it, or the offset is that of a transaction's marker. Try the next one.",
        )


class _Cursor:
    """The records of one partition from a position on."""

    def __init__(self, log: TopicLog, tp: TopicPartition, start: int) -> None:
        self._log = log
        self._tp = tp
        self._end = log.end_offset(tp.topic, tp.partition)
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: list[pa.RecordBatch] = []
        self.position = start

    def take(self, count: int) -> pa.RecordBatch | None:
        """Return the next records, so many if there are."""
        return self._taken(lambda batch, have: min(batch.num_rows, count - have), count)

    def take_below(self, offset: int, most: int) -> pa.RecordBatch | None:
        """Return the next records below an offset."""

        def share(batch: pa.RecordBatch, have: int) -> int:
            return min(int(np.searchsorted(batch.column("offset").to_numpy(), offset)), most - have)

        return self._taken(share, most)

    def _taken(self, share: Callable[[pa.RecordBatch, int], int], most: int) -> pa.RecordBatch | None:
        parts: list[pa.RecordBatch] = []
        have = 0
        while have < most and (batch := self._next()) is not None:
            count = share(batch, have)
            if count:
                parts.append(batch.slice(0, count))
                have += count
            if count < batch.num_rows:
                self._rest.append(batch.slice(count))
                break
        if not parts:
            return None
        taken = concat(parts)
        self.position = int(taken.column("offset")[-1].as_py()) + 1
        return taken

    def _next(self) -> pa.RecordBatch | None:
        if self._rest:
            return self._rest.pop()
        if self._batches is None:
            self._batches = iter(self._log.iterate(self._tp.topic, self._tp.partition, self.position, self._end))
        return next((each for each in self._batches if each.num_rows), None)


class _Replayer:
    """One task, brought to the first of some records, and then on record by record."""

    def __init__(
        self, app: ThreadApp, task: TaskId, log: TopicLog, tp: TopicPartition, span: PartitionRecords, call: Call
    ) -> None:
        self._app = app
        self._task = task
        self._log = log
        self._tp = tp
        self._span = span
        self._call = call
        self._moments = Moments(app, task, log)
        self._logical = {each: app.logical(each.topic) for each in app.plan.sources(task)}
        self._has_ended = False

    def run(self) -> Replay:
        moment, rows = self._begin()
        self._replay = Replay(str(self._task), self._span, moment, positions=dict(moment.positions))
        self._open(moment, rows)
        self._cursors = {tp: _Cursor(self._log, tp, moment.positions[tp]) for tp in self._logical}
        self._approach()
        self._replay.rows = self._maps
        self._stream_task.close()
        return self._replay

    def _begin(self) -> tuple[CommitMoment, Mapping[str, Any]]:
        reasons = []
        for moment in self._moments.before(self._tp, self._span.first):
            try:
                return moment, self._moments.rows(moment)
            except StateGoneError as gone:
                reasons.append(f"at {moment.text}: {gone}")
        lost = self._moments.lost_input()
        raise StateError(
            f"the state of task {self._task} before {self._tp.topic}:{self._tp.partition}:{self._span.first} is not "
            f"there any more{''.join(f'; {each}' for each in reasons)}",
            hint=(f"To process its input again from the start is not possible either: {lost}. " if lost else "")
            + "Replay a newer record.",
            task=str(self._task),
        )

    def _open(self, moment: CommitMoment, rows: Mapping[str, Any]) -> None:
        app = self._app
        sub = app.subtopology(self._task)
        self._maps = {store: MemoryMap() for store in sub.stores}
        for store, kept in rows.items():
            if kept:
                self._maps[store].put_many([key for key, _ in kept], [value for _, value in kept])
        self._state = TaskOverlay(0, self._maps, moment.numbers)
        self._now_ms = moment.now_ms if moment.now_ms is not None else self._time_of_first()
        self._earlier_ms = self._now_ms
        part = TaskPart(str(self._task), app.plan.partitions, sub.nodes)
        environment = TaskEnvironment(wall_clock_ms=self._now_ms, global_stores=self._globals())
        self._stream_task = StreamTask(app.topology, app.config, part, self._state, environment)

    def _time_of_first(self) -> int:
        span = self._span
        records = next(iter(self._log.iterate(self._tp.topic, self._tp.partition, span.first, span.last + 1)))
        return max(0, int(records.column("timestamp")[0].as_py()))

    def _globals(self) -> GlobalViews | None:
        """Return the global stores as they are now."""
        app = self._app
        if not app.topology.global_stores:
            return None
        forgiving = replace(app, config=app.config.with_settings({"deserialization.exception.handler": "continue"}))
        with closing(MemoryGlobals(forgiving, Sensor(), lambda: self._now_ms)) as copy:
            copy.restore(self._log)
        names = ", ".join(sorted(app.topology.global_stores))
        self._replay.notes.append(f"the global store {names} is as it is now, not as it was then")
        return copy.views

    # The way to the records

    def _approach(self) -> None:
        """Process what the task has processed since the moment, as the notes say, up to the last record."""
        for note in self._moments.notes[self._replay.moment.following_note :]:
            self._go_to(note.before)
            if note.turns is not None and self._positions() == dict(note.before):
                for turn in note.turns:
                    if self._has_ended:
                        return
                    self._earlier_ms, self._now_ms = self._now_ms, turn.now_ms
                    taken = {tp: self._cursors[tp].take(count) for tp, count in turn.counts.items()}
                    self._process({tp: records for tp, records in taken.items() if records is not None})
                self._reach(note.after)
            self._go_to(note.after)
            if self._has_ended:
                return
        if self._moments.committed is not None:
            self._go_to(self._moments.committed.positions)
        if not self._has_ended:
            self._last(None)

    def _go_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """Process the records up to a commit, or up to the last record if that comes before."""
        present = self._positions()
        if self._has_ended or present == positions or any(positions[tp] < at for tp, at in present.items()):
            return
        if positions[self._tp] > self._span.first:
            self._last(positions)
        else:
            self._between(positions)
            self._reach(positions)

    def _positions(self) -> dict[TopicPartition, int]:
        return {tp: cursor.position for tp, cursor in self._cursors.items()}

    def _reach(self, positions: Mapping[TopicPartition, int]) -> None:
        """Take positions over that are those behind what was taken, behind a marker of a transaction."""
        for tp, cursor in self._cursors.items():
            cursor.position = max(cursor.position, positions[tp])

    def _between(self, following: Mapping[TopicPartition, int]) -> None:
        """Process all records up to a commit, of several partitions in the order of their times."""
        self._note_lack()
        if len(self._cursors) == 1:
            ((tp, cursor),) = self._cursors.items()
            while (records := cursor.take_below(following[tp], _PIECE)) is not None:
                self._process({tp: records})
            return
        taken = {tp: cursor.take_below(following[tp], 1 << 40) for tp, cursor in self._cursors.items()}
        self._process({tp: records for tp, records in taken.items() if records is not None})

    def _last(self, following: Mapping[TopicPartition, int] | None) -> None:
        """Process the records up to the last one, in the order of their times."""
        own = self._cursors[self._tp]
        self._note_lack()
        if len(self._cursors) == 1:
            while not self._has_ended and (records := own.take_below(self._span.last + 1, _PIECE)) is not None:
                self._process({self._tp: records})
            self._has_ended = True
            return
        mine = own.take_below(self._span.last + 1, 1 << 40)
        taken = {} if mine is None else {self._tp: mine}
        reached = -1 if mine is None else int(self._times(self._tp, mine).max(initial=-1))
        for tp, cursor in self._cursors.items():
            if tp != self._tp:
                until = cursor.position if following is None else following[tp]
                records = self._until(tp, cursor, reached, (1 << 62) if following is None else until)
                if records is not None:
                    taken[tp] = records
        self._process(taken)
        self._has_ended = True

    def _until(self, tp: TopicPartition, cursor: _Cursor, time_ms: int, below: int) -> pa.RecordBatch | None:
        """Return the next records that go before one of this time, or with it."""
        parts: list[pa.RecordBatch] = []
        while (records := cursor.take_below(below, _PIECE)) is not None:
            later = np.flatnonzero(self._times(tp, records) > time_ms)
            if len(later):
                parts.append(records.slice(0, int(later[0])))
                break
            parts.append(records)
        parts = [each for each in parts if each.num_rows]
        return concat(parts) if parts else None

    def _note_lack(self) -> None:
        """Note what nobody knows of the records that are processed next."""
        lacks = []
        if len(self._cursors) > 1:
            lacks.append("in which order records of several partitions were processed: that of their times is assumed")
        if self._app.subtopology(self._task).ticks:
            lacks.append("when punctuations by the clock ran: none is assumed")
        for text in (f"no note says {each}" for each in lacks):
            if text not in self._replay.notes:
                self._replay.notes.append(text)

    def _times(self, tp: TopicPartition, records: pa.RecordBatch) -> Any:
        return self._stream_task.times(TopicBatch(self._logical[tp], tp.partition, records))[0]

    # Processing

    def _process(self, taken: Mapping[TopicPartition, pa.RecordBatch]) -> None:
        """Process records together, as the task did; from the first one on that is shown, one after the other."""
        mine = taken.get(self._tp)
        offsets = np.empty(0, np.int64) if mine is None else mine.column("offset").to_numpy()
        if not len(offsets) or offsets[-1] < self._span.first:
            self._run(taken, self._now_ms)
            return
        order = self._merged(taken)
        waiting: dict[TopicPartition, list[int]] = {}
        for tp, row in order:
            offset = int(offsets[row]) if tp == self._tp else -1
            if tp != self._tp or offset < self._span.first:
                waiting.setdefault(tp, []).append(row)
                continue
            if offset > self._span.last:
                break
            if waiting:
                # Punctuations that the clock of this turn makes due run behind all of its records.
                now_ms = self._now_ms if self._stream_task.next_punctuation_ms is None else self._earlier_ms
                self._run({each: _part(taken[each], rows) for each, rows in waiting.items()}, now_ms)
                waiting = {}
            self._show(taken[tp].slice(row, 1))
            if self._has_ended:
                return
            if offset == self._span.last:
                break
        self._has_ended = int(offsets[-1]) >= self._span.last
        if waiting and not self._has_ended:  # behind the last record of this turn, and there are more turns
            self._run({each: _part(taken[each], rows) for each, rows in waiting.items()}, self._now_ms)

    def _merged(self, taken: Mapping[TopicPartition, pa.RecordBatch]) -> list[tuple[TopicPartition, int]]:
        """Return the rows in the order in which the task takes them (`TaskInput`)."""
        places = sorted(taken, key=lambda tp: (self._logical[tp], tp.partition))
        if len(places) == 1:
            return [(places[0], row) for row in range(taken[places[0]].num_rows)]
        maxima = [np.maximum.accumulate(self._times(tp, taken[tp])) for tp in places]
        ranks = np.repeat(np.arange(len(places)), [len(each) for each in maxima])
        rows = np.concatenate([np.arange(len(each)) for each in maxima])
        order = np.lexsort((ranks, np.concatenate(maxima)))
        return [(places[rank], int(row)) for rank, row in zip(ranks[order].tolist(), rows[order].tolist(), strict=True)]

    def _batches(self, taken: Mapping[TopicPartition, pa.RecordBatch]) -> list[TopicBatch]:
        return [TopicBatch(self._logical[tp], tp.partition, records) for tp, records in taken.items()]

    def _run(self, taken: Mapping[TopicPartition, pa.RecordBatch], now_ms: int) -> None:
        count = sum(records.num_rows for records in taken.values())
        self._replay.positions |= _following(taken)
        batches = self._batches(taken)
        self._stream_task.process(batches, now_ms, depth_first=count <= 1)
        self._replay.before += count if not self._replay.steps else 0
        self._move()

    def _move(self) -> dict[str, list[tuple[bytes, bytes | None, bytes | None]]]:
        """Write the changes into the rows; return (row, before, after) by store."""
        moved: dict[str, list[tuple[bytes, bytes | None, bytes | None]]] = {}
        for store, changes in self._state.sorted_changes().items():
            keys, values = changes.column(0).to_pylist(), changes.column(1).to_pylist()
            rows = self._maps[store]
            before = [rows.get(key) for key in keys]
            moved[store] = [each for each in zip(keys, before, values, strict=True) if each[1] != each[2]]
            rows.put_many(keys, values)
        self._state.rebase(0, self._maps, dict(self._state.meta))
        return moved

    def _show(self, record: pa.RecordBatch) -> None:
        row = record.to_pylist()[0]
        source = _serdes(self._app, self._logical[self._tp])
        step = ReplayStep(row["offset"], row["timestamp"], _text(source[0], row["key"]), _text(source[1], row["value"]))
        self._replay.steps.append(step)
        self._replay.positions |= _following({self._tp: record})
        batches = self._batches({self._tp: record})
        try:
            output = self._call(lambda: self._stream_task.process(batches, self._now_ms, depth_first=True))
        except Exception as error:  # noqa: BLE001 - it is shown
            step.error, self._has_ended = error, True
            return
        numbers = dict(self._state.meta)
        for store, rows in self._move().items():
            for key, *pair in rows:
                before, after = (self._row(store, key, value, numbers) for value in pair)
                step.changes.append(ShownChange(store, before, after))
        for topic, written in output.records.items():
            serdes = _serdes(self._app, topic)
            for each in written.to_pylist():
                name, key, value = self._app.plan.physical_name(topic), each["key"], each["value"]
                text = f"{_text(serdes[0], key)}: {_text(serdes[1], value)}"
                step.outputs.append(Output(name, each["partition"], each["timestamp"], key, value, text))

    def _row(self, store: str, key: bytes, value: bytes | None, numbers: Mapping[str, int]) -> str:
        """Return a row as its store shows it; as bytes if it is one of the store's own."""
        if value is None:
            return ""
        only = MemoryMap()
        only.put_many([key], [value])
        try:
            view: Any = open_view(self._app.topology.stores[store], only, dict(numbers))
            entries = [f"{entry_key!r}: {entry_value!r}" for entry_key, entry_value in view.all()]
        except Exception:  # noqa: BLE001 - of whatever kind: the bytes show it, too
            entries = []
        return _cut(", ".join(entries) or f"{text_of(key)!r}: {text_of(value)!r}")


def _following(taken: Mapping[TopicPartition, pa.RecordBatch]) -> dict[TopicPartition, int]:
    return {tp: int(records.column("offset")[-1].as_py()) + 1 for tp, records in taken.items()}


def _part(records: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    return records.slice(rows[0], len(rows))  # rows of a partition stay in their order


def _serdes(app: ThreadApp, topic: str) -> tuple[Any, Any]:
    for source in app.topology.sources:
        if source.reads(topic):
            return source.key_serde, source.value_serde
    for sink in app.topology.sinks:
        if sink.topic == topic:
            return sink.key_serde, sink.value_serde
    return None, None


def _text(serde: Any, data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return _cut(repr(serde.deserialize(data)))
    except Exception:  # noqa: BLE001 - of whatever kind: the bytes show it, too
        return _cut(repr(text_of(data)))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
