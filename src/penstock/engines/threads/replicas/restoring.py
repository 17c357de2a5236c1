"""The restore of a task's replica: the position of its rows, its topics, and the way to their committed end.

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
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.base.log_lines import own_logger
from penstock.log.base import TopicPartition
from penstock.log.fenced_record import newest_record
from penstock.log.topic_settings import may_miss_deletions
from penstock.serde.column import to_bytes_list
from penstock.state.changelog.changelog_restore import StoreFollower
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.maps import ReplicaPosition, time_notes, time_since
from penstock.state.restores.restore_progress import RestoreProgress
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog
    from penstock.state.maps import Replica
    from penstock.topology.plan.plan import TaskId

__all__ = [
    "NUMBERS",
    "OnProgress",
    "Restorer",
    "StorePosition",
    "TaskPosition",
    "layout_of",
    "newest_numbers",
    "restored_places",
    "source_topics",
    "unlogged_stores",
]

NUMBERS = ""  # in place of a store's name: the topic of the tasks' numbers
_LAYOUT = ("kind", "timestamped", "window_size_ms", "retention_ms", "retain_duplicates", "history_ms", "ttl_ms",
           "persistent", "time_ordered")  # fmt: skip


@dataclass(frozen=True, slots=True)
class StorePosition:
    """The position of a store in its changelog.

    Attributes:
        topic: The topic.
        topic_id: The id of the topic; empty where the log has none.
        following: The offset after the last record that is in the rows.
        layout: The facts that the bytes of the rows depend on (`layout_of`).
    """

    topic: str
    topic_id: str
    following: int
    layout: str = ""


@dataclass(frozen=True, slots=True)
class TaskPosition:
    """The position of a task's replica.

    Attributes:
        stores: Store -> its position, and that in the numbers topic under `NUMBERS`. Stores that are missing have no
            sound rows.
        inputs: The committed positions in the task's input that the rows belong to; None: unknown.
        meta: The task's numbers.
        noted_ms: The wall-clock time of the note.
        boot: The id of the machine's start at the note, and the milliseconds since that start.
        epoch: The epoch in which ``inputs`` were committed.
    """

    stores: Mapping[str, StorePosition] = field(default_factory=dict)
    inputs: Mapping[TopicPartition, int] | None = None
    meta: Mapping[str, int] = field(default_factory=dict)
    noted_ms: int = 0
    boot: tuple[str, int] = ("", 0)
    epoch: int = 0

    def away_ms(self) -> int | None:
        """Return the time since the note; None if it is not known, as the machine's clock was set back."""
        return time_since(self.noted_ms, self.boot)

    def note(self) -> ReplicaPosition:
        """Return it as a replica holds it."""
        inputs = None if self.inputs is None else [[tp.topic, tp.partition, at] for tp, at in self.inputs.items()]
        stores = {name: [at.topic, at.topic_id, at.following, at.layout] for name, at in self.stores.items()}
        notes: dict[str, Any] = {"stores": stores, "inputs": inputs, **time_notes(), "epoch": self.epoch}
        return ReplicaPosition(meta=dict(self.meta), notes=notes)

    @classmethod
    def of(cls, noted: ReplicaPosition) -> TaskPosition:
        """Return the position that a replica holds; the beginning for an empty replica.

        >>> at = TaskPosition({"s": StorePosition("t", "id", 7)}, {TopicPartition("in", 0): 3}, {"stream_time": 5})
        >>> TaskPosition.of(at.note()).stores["s"].following
        7
        """
        notes = noted.notes
        if not notes:
            return cls()
        inputs = notes["inputs"]
        return cls(
            {name: StorePosition(*at) for name, at in notes["stores"].items()},
            None if inputs is None else {TopicPartition(topic, partition): at for topic, partition, at in inputs},
            noted.meta,
            notes["noted_ms"],
            tuple(notes.get("boot", ("", 0))),
            notes.get("epoch", 0),
        )


def layout_of(spec: StoreSpec) -> str:
    """Return the facts that the bytes of a store's rows depend on; rows of another layout are not used.

    >>> layout_of(StoreSpec("s", "lru", None, None)) == layout_of(StoreSpec("s", "timestamped", None, None))
    False
    """
    layout = " ".join(str(getattr(spec, name)) for name in _LAYOUT)
    return f"{layout} keeps_headers" if spec.keeps_headers else layout


class StoreSource(NamedTuple):
    """The topic of a store.

    Attributes:
        spec: The store.
        topic: The topic.
        topic_id: Its id; empty where the log has none.
        end: The end of its committed records.
        layout: The layout of the store's rows (`layout_of`).
    """

    spec: StoreSpec
    topic: str
    topic_id: str
    end: int
    layout: str


def source_topics(app: ThreadApp, task: TaskId) -> dict[str, str]:
    """Return the stores of a task for which a source topic serves as changelog, with that topic's name in the log."""
    specs = {store: app.topology.stores[store] for store in app.subtopology(task).stores if store not in app.changelogs}
    return {
        store: app.plan.physical_name(spec.changelog_topic) for store, spec in specs.items() if spec.changelog_topic
    }


def unlogged_stores(app: ThreadApp, task: TaskId) -> list[str]:
    """List the stores of a task that no topic restores."""
    sources = source_topics(app, task)
    return [store for store in app.subtopology(task).stores if store not in app.changelogs and store not in sources]


def restored_places(app: ThreadApp, task: TaskId) -> list[TopicPartition]:
    """List the partitions that a thread writes for a task's state: of changelogs, and of the tasks' numbers."""
    sub = app.subtopology(task)
    topics = [app.changelogs[store] for store in sub.stores if store in app.changelogs]
    numbers = app.numbers_topic_of(task)
    if numbers is not None and sub.keeps_state:
        topics.append(numbers)
    return [TopicPartition(topic, task.partition) for topic in dict.fromkeys(topics)]


def store_sources(
    app: ThreadApp, task: TaskId, log: TopicLog, committed: Mapping[TopicPartition, int]
) -> tuple[list[StoreSource], int, str]:
    """Return the stores of a task that a topic restores, and end and id of the numbers topic.

    Args:
        app: The application.
        task: The task.
        log: The log.
        committed: The group's committed offsets.
    """
    logged = {store: app.changelogs[store] for store in app.subtopology(task).stores if store in app.changelogs}
    sources = source_topics(app, task)
    numbers = app.numbers_topic_of(task) or ""
    changelogs = [*dict.fromkeys(logged.values()), *([numbers] if numbers else [])]
    ids = log.topic_ids([*changelogs, *sources.values()])
    ends = log.end_offsets(changelogs) if changelogs else {}
    stores = []
    for store, topic in (logged | sources).items():
        spec, tp = app.topology.stores[store], TopicPartition(topic, task.partition)
        end = ends[tp] if store in logged else committed.get(tp, -1)
        stores.append(StoreSource(spec, topic, ids.get(topic, ""), end, layout_of(spec)))
    return stores, ends.get(TopicPartition(numbers, task.partition), 0), ids.get(numbers, "")


def newest_numbers(log: TopicLog, tp: TopicPartition, task: TaskId, start: int, end: int) -> TaskNumbers | None:
    """Find the newest numbers of a task from ``start`` to before ``end``; None if there are none."""
    newest = newest_record(log, tp.topic, str(task).encode(), end, partition=tp.partition, start=start).value
    return None if newest is None else TaskNumbers.parse(newest)


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
