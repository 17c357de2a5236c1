"""Moments at which both the input and the state of a task are known, and the rows of its stores at such a moment.

- The last commit: the group's offsets and the ends of the changelogs.
- The commits that notes of the task speak of (`penstock.engines.threads.loop.commit`).
- The beginning, if the input is there from its first record: the stores were empty.

The rows at a commit are the changelog up to its end there. Compaction may have removed a record below this end because
of a newer one behind it. Whether it has been beyond the end shows in what is left: a key that is there twice below the
end has not been compacted since, and without a gap in the offsets nothing is missing. Markers of transactions and
aborted records are no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.terminal.human_numbers import time_of
from penstock.engines.threads.loop.commit import MemberNotes, ReplayNote
from penstock.engines.threads.replicas.restoring import newest_numbers, restored_places, source_topics
from penstock.log.base import HidesOffsets, TopicPartition
from penstock.state.changelog.changelog_restore import StoreRestorer

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog
    from penstock.topology.plan.plan import TaskId

__all__ = ["CommitMoment", "Moments", "StateGoneError"]

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
