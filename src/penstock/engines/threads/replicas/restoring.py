"""The restore of a task's replica to the committed end of its changelogs.

Each store goes on from the position that the replica notes, if that is sound: the topic is the same one, its records
from there on are still there, and the rows have the layout of today. All kinds of stores are moved on exactly, also
those with an index (least recently used, time to live, suppress), whose old rows are looked up, and versioned ones,
whose puts are repeated. A store without a sound position is emptied and read from the beginning of its changelog,
through the same code. Records are applied in pieces of a bounded size, and each piece notes its position, so a restore
that is interrupted goes on there.

A replica that has been away for longer than deletions are kept in a compacted topic (``delete.retention.ms``) may have
missed some, so its stores with new records are read from the beginning too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.threads.replicas.changelog_sources import (
    StoreSource,
    newest_numbers,
    store_sources,
    unlogged_stores,
)
from penstock.engines.threads.replicas.positions import NUMBERS, StorePosition, TaskPosition
from penstock.log.base import TopicPartition
from penstock.log.deletions import may_miss_deletions
from penstock.serde.column import to_bytes_list
from penstock.state.changelog.following import StoreFollower
from penstock.state.restores.progress import RestoreProgress

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog
    from penstock.state.replicas.replica import Replica
    from penstock.topology.plan.plan import TaskId

__all__ = ["OnProgress", "Restorer"]

OnProgress = Callable[[RestoreProgress], None]
_log = own_logger(__name__)
_PIECE_BYTES = 160 << 20  # of times, keys and values: what is sorted at a time
_LIST_ROWS = 50_000  # rows that are Python objects at a time


class Restorer:
    """The restore of one task.

    Args:
        app: The application.
        task: The task.
        replica: Its replica; no reader of it is open.
        log: The log.
        on_progress: Called at the start of each store that has records to apply, after each piece, and at its end.
    """

    def __init__(
        self, app: ThreadApp, task: TaskId, replica: Replica, log: TopicLog, on_progress: OnProgress | None
    ) -> None:
        self._app = app
        self._task = task
        self._replica = replica
        self._log = log
        self._on_progress = on_progress or (lambda _: None)

    def run(self, committed: Mapping[TopicPartition, int]) -> TaskPosition:
        """Bring the rows to the committed end; return their position.

        Args:
            committed: The group's committed offsets.

        Raises:
            StateError: A changelog has records that do not fit its store.
        """
        noted = self._noted()
        sources, numbers_end, numbers_id = store_sources(self._app, self._task, self._log, committed)
        inputs = {tp: committed[tp] for tp in self._app.plan.sources(self._task) if tp in committed}
        numbers = StorePosition(self._app.numbers_topic_of(self._task) or "", numbers_id, numbers_end)
        meta, is_current = self._numbers(noted, numbers)
        if meta is None:
            noted, meta = TaskPosition(), {}
        sound = {each.spec.name for each in sources if self._is_sound(each, noted)}
        position = self._emptied(noted, sources, sound, is_kept=is_current and noted.inputs == inputs)
        for source in sources:
            position = self._follow(source, position, meta)
        stores = {**position.stores, NUMBERS: numbers}
        position = replace(position, stores=stores, inputs=inputs, meta=meta, epoch=self._app.epoch)
        self._replica.apply([], lambda _: (), position.note())
        return position

    def _noted(self) -> TaskPosition:
        try:
            return TaskPosition.of(self._replica.position)
        except (LookupError, TypeError, ValueError):
            return TaskPosition()

    def _numbers(self, noted: TaskPosition, now: StorePosition) -> tuple[Mapping[str, int] | None, bool]:
        """Return the task's numbers at the end, and whether they are those of the replica.

        None in place of the numbers: the replica is not of this log, and there are none.
        """
        if not now.topic:
            return noted.meta, True
        at, tp = noted.stores.get(NUMBERS), TopicPartition(now.topic, self._task.partition)
        beginning = self._log.beginning_offset(tp.topic, tp.partition)
        is_sound = at is not None and (at.topic, at.topic_id) == (now.topic, now.topic_id)
        is_sound = is_sound and at is not None and at.following <= now.following
        start = max(beginning, at.following) if is_sound and at is not None else beginning
        numbers = newest_numbers(self._log, tp, self._task, start, now.following)
        if numbers is not None:
            return numbers.meta, False
        return (noted.meta, True) if is_sound else (None, False)

    def _is_sound(self, source: StoreSource, noted: TaskPosition) -> bool:
        at = noted.stores.get(source.spec.name)
        if at is None or (at.topic, at.topic_id, at.layout) != (source.topic, source.topic_id, source.layout):
            return False
        if at.following >= source.end:
            return at.following == source.end
        if at.following < self._log.beginning_offset(source.topic, self._task.partition):
            return False
        tp = TopicPartition(source.topic, self._task.partition)
        config = self._log.topic(source.topic).config
        return not may_miss_deletions(self._log, tp, config, at.following, source.end, noted.away_ms())

    def _emptied(
        self, noted: TaskPosition, sources: Iterable[StoreSource], sound: set[str], *, is_kept: bool
    ) -> TaskPosition:
        """Empty the stores whose rows are not sound; return the position of the others.

        Args:
            noted: The position of the replica.
            sources: The stores that a topic restores.
            sound: Those of them that go on from their position.
            is_kept: Whether the replica stands at the committed positions, so that stores that no topic restores count.
        """
        unlogged = [] if is_kept else unlogged_stores(self._app, self._task)
        gone = [*unlogged, *(each.spec.name for each in sources if each.spec.name not in sound)]
        stores = {name: at for name, at in noted.stores.items() if name in sound}
        position = TaskPosition(stores, None, {name: noted.meta[name] for name in noted.meta})
        reader = self._replica.reader()
        try:
            lost = [store for store in unlogged if len(reader.map(store))]
            filled = [store for store in gone if len(reader.map(store))]
        finally:
            reader.close()
        if lost:
            _log.warning(
                "Task %s: %s had to be emptied: no changelog restores %s, and the local rows are not those of the "
                "committed positions. Turn logging on for what must not be lost",
                self._task,
                ", ".join(lost),
                "it" if len(lost) == 1 else "them",
            )
        if filled and not sound and (not is_kept or not unlogged_stores(self._app, self._task)):
            self._replica.reset()
        elif filled:
            self._replica.clear(filled, position.note())
        return position

    def _follow(self, source: StoreSource, position: TaskPosition, meta: Mapping[str, int]) -> TaskPosition:
        """Apply the records of a store from its position on; return the position afterwards."""
        name, partition = source.spec.name, self._task.partition
        at, end = position.stores.get(name), source.end
        start = self._log.beginning_offset(source.topic, partition) if at is None else at.following
        if start >= end:
            return _moved(position, source, max(end, 0))
        started, restored = time.perf_counter(), 0

        def report(offset: int) -> None:
            seconds = time.perf_counter() - started
            self._on_progress(RestoreProgress(name, source.topic, partition, start, offset, end, restored, seconds))

        report(start)
        follower = StoreFollower(source.spec, position.meta if at else {}, meta)
        stored = (batch.select(follower.columns) for batch in self._log.iterate(source.topic, partition, start, end))
        for pieces, following in _pieces(stored, end):
            position = _moved(position, source, following)
            restored += self._apply(name, follower, pieces, position)
            position = replace(position, meta={**position.meta, **follower.numbers})
            if following < end:
                report(following)
        report(end)
        return _moved(position, source, end)

    def _apply(self, store: str, follower: StoreFollower, pieces: list[pa.RecordBatch], position: TaskPosition) -> int:
        """Apply the next records of a store; return how many they were."""
        reader = self._replica.reader()
        try:
            held = reader.map(store)
            changes, count = follower.changes(pieces, held)
            is_first = not len(held)
        finally:
            reader.close()
        note = replace(position, meta={**position.meta, **follower.numbers}).note()
        self._replica.apply([store], lambda _: chain.from_iterable(map(_lists, changes)), note, fresh=is_first)
        return count


def _moved(position: TaskPosition, source: StoreSource, following: int) -> TaskPosition:
    at = StorePosition(source.topic, source.topic_id, following, source.layout)
    return replace(position, stores={**position.stores, source.spec.name: at})


def _pieces(batches: Iterator[pa.RecordBatch], end: int) -> Iterator[tuple[list[pa.RecordBatch], int]]:
    """Yield consecutive records of a bounded size, and the offset after each piece."""
    piece: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for part in _parts(batch):
            if size >= _PIECE_BYTES:
                yield piece, part.column("offset")[0].as_py()
                piece, size = [], 0
            piece.append(part)
            size += part.nbytes
    if piece:
        yield piece, end


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = -(-batch.num_rows // max(1, batch.nbytes // _PIECE_BYTES))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows or 1))


def _lists(changes: pa.RecordBatch) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
    for start in range(0, changes.num_rows, _LIST_ROWS):
        piece = changes.slice(start, _LIST_ROWS)
        yield to_bytes_list(piece.column(0)), to_bytes_list(piece.column(1))  # type: ignore[misc]
