"""The state of a task: committed rows with the position that they stand for, and the writes since the last commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import lmdb

from penstock.base.log_lines import own_logger
from penstock.engines.threads.replicas.replica_folders import open_replica, positions_of_others
from penstock.engines.threads.replicas.restoring import (
    NUMBERS,
    OnProgress,
    Restorer,
    TaskPosition,
    source_topics,
    unlogged_stores,
)
from penstock.errors import InvalidStateError
from penstock.log.base import TopicPartition
from penstock.log.groups.offset_regressions import KnownOffset
from penstock.serde.column import to_bytes_list
from penstock.state.changelog import records_of_changes, records_of_puts
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.free_memory import release_memory
from penstock.state.maps import NO_BATCH, TaskOverlay
from penstock.state.stored_bytes import stored_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog
    from penstock.log.thread_clients import Part
    from penstock.state.maps import ReadableMap, Replica, ReplicaPosition, ReplicaRows
    from penstock.topology.plan.plan import TaskId

__all__ = ["TaskReplica", "changelog_parts"]

_logger = own_logger(__name__)


class TaskReplica:
    """The state of one task of a stream thread. Made by `TaskReplica.open`; then comes `restore`.

    The life of an interval: the task writes to ``state``; `changes` returns the changelog records; the thread commits
    them with its outputs and offsets; `commit` moves the rows on. Between `changes` and `commit` nothing is written to
    ``state``. A view or task that was opened on ``state`` stays valid all the time.

    Attributes:
        state: The stores and numbers as the task sees them.
    """

    def __init__(self, app: ThreadApp, task: TaskId, replica: Replica) -> None:
        sub = app.subtopology(task)
        self._app = app
        self._task = task
        self._replica = replica
        self._stores = sub.stores
        self._keeps_state = sub.keeps_state
        self._sources = {TopicPartition(t, task.partition): s for s, t in source_topics(app, task).items()}
        self._needs_inputs = bool(self._sources or unlogged_stores(app, task))
        self._by_topic = {app.changelogs[store]: store for store in sub.stores if store in app.changelogs}
        if (numbers := app.numbers_topic_of(task)) is not None:
            self._by_topic[numbers] = NUMBERS
        self._position = TaskPosition()
        self._pending: dict[str, pa.RecordBatch] | None = None
        self._rows: ReplicaRows | None = replica.reader()
        self.state = TaskOverlay(NO_BATCH, self._maps(self._rows), {})

    @classmethod
    def open(cls, app: ThreadApp, task: TaskId) -> TaskReplica:
        """Open the replica of a task.

        It is kept under ``app.replica_root``; in memory if that is None, or if the task keeps no state.

        Raises:
            StateError: The folder cannot be used.
        """
        return cls(app, task, open_replica(app, task))

    def restore(
        self,
        log: TopicLog,
        committed: Mapping[TopicPartition, int],
        on_progress: OnProgress | None = None,
        numbers: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Bring the stores to the committed end of their changelogs, see `penstock.engines.threads.replicas.restoring`.

        A damaged replica is made anew. Stores without a changelog keep their rows if the replica stands exactly at the
        committed positions, as in Kafka with exactly-once; else they are emptied, with a warning. Stores for which a
        source topic serves as changelog are restored from it up to the committed offset.

        Args:
            log: The log.
            committed: The group's committed offsets; those of other tasks do not matter.
            on_progress: Called with the progress of each store.
            numbers: Times that the task has reached, which are known otherwise than by its topic of numbers.

        Raises:
            StateError: A changelog has records that do not fit its store, or the replica cannot be written.
            UnknownTopicError: A changelog topic does not exist.
        """
        self._pending = None
        self._end()
        if self._keeps_state:
            restorer = Restorer(self._app, self._task, self._replica, log, on_progress)
            try:
                self._position = restorer.run(committed)
                if self._replica.give_back():
                    release_memory()
            except lmdb.Error as error:
                _logger.warning("The replica of task %s is damaged (%s) and is rebuilt", self._task, error)
                self._replica.reset()
                self._position = restorer.run(committed)
        if numbers:
            meta = self._position.meta
            later = {name: number for name, number in numbers.items() if number > meta.get(name, number - 1)}
            self._position = replace(self._position, meta={**meta, **later})
        self._begin(self._position.meta)

    def changes(self) -> list[Part]:
        """Return the changelog records and the task's numbers since the last commit; nothing if nothing changed."""
        if not self._keeps_state or not self.state.is_changed:
            return []
        self._pending = self.state.sorted_changes()
        return changelog_parts(self._app, self._task, self.state, self._pending)

    def commit(self, following: Mapping[TopicPartition, int], inputs: Mapping[TopicPartition, int]) -> None:
        """Move the rows on, after the log's commit of `changes`; views stay valid.

        Args:
            following: The offset after the last record of the commit, by partition; those of other tasks do not matter.
            inputs: The committed offsets of the task's input; partitions that have not moved may be missing.

        Raises:
            StateError: The replica cannot be written. The log has the changes: the next `restore` applies them.
        """
        changes, self._pending = self._pending, None
        if not self._keeps_state:
            self._position = TaskPosition(meta=dict(self.state.meta))
            self.state.rebase(NO_BATCH, {}, self._position.meta)
            return
        if changes is None and self.state.is_changed:
            raise InvalidStateError(
                f"task {self._task} has changes that are in no changelog yet", hint="Call changes() before commit()."
            )
        if changes is None and not (self._needs_inputs and inputs):
            return
        meta = dict(self.state.meta)
        self._position = self._moved(following, inputs, meta)
        self._end()
        rows = changes or {}
        note = self._position.note()
        self._replica.apply(list(rows), lambda store: [_lists(rows[store])], note)
        self._begin(meta)

    @property
    def pending(self) -> Mapping[str, pa.RecordBatch]:
        """The changes of each store that `changes` has returned and no commit has moved on yet."""
        return self._pending or {}

    def entries(self) -> dict[str, int]:
        """Return how many rows each store has, as of the last commit."""
        return {store: len(overlay.base) for store, overlay in self.state.maps.items()}

    def store_bytes(self) -> dict[str, int]:
        """Return the bytes on disk of each store, as of the last commit; those in memory are left out."""
        return stored_bytes(self.state.maps)

    def changelog_ends(self) -> dict[str, int]:
        """Return the offset after the last record of each store's changelog, as of the last commit."""
        return {store: at.following for store, at in self._position.stores.items() if store in self._app.changelogs}

    def following(self) -> dict[TopicPartition, int]:
        """Return the offset after the last record that each store holds of its topic, also before `restore`."""
        try:
            position = TaskPosition.of(self._replica.position)
        except (LookupError, TypeError, ValueError):
            return {}
        stores = [at for name, at in position.stores.items() if name != NUMBERS]
        return {TopicPartition(at.topic, self._task.partition): at.following for at in stores}

    def known_inputs(self, log: TopicLog) -> dict[TopicPartition, KnownOffset]:
        """Return the committed offsets of the task's input that rows on this machine belong to, also before `restore`.

        Those of replicas of other processes count, too: the thread before may live, and hold its replica. They count
        only if a changelog that was written in the same commits is there, at least as far as the rows are.
        """
        offsets: dict[TopicPartition, KnownOffset] = {}
        for position in (self._replica.position, *positions_of_others(self._app, self._task)):
            for tp, at in self._known(position, log).items():
                if tp not in offsets or (offsets[tp].epoch, offsets[tp].offset) < (at.epoch, at.offset):
                    offsets[tp] = at
        return offsets

    def _known(self, position: ReplicaPosition, log: TopicLog) -> dict[TopicPartition, KnownOffset]:
        try:
            noted = TaskPosition.of(position)
        except (LookupError, TypeError, ValueError):
            return {}
        logged = {name: at for name, at in noted.stores.items() if self._app.changelogs.get(name) == at.topic}
        if not noted.inputs or not logged:
            return {}
        topics = sorted({at.topic for at in logged.values()})
        ids, ends = log.topic_ids(topics), log.end_offsets(topics)
        for at in logged.values():
            end = ends.get(TopicPartition(at.topic, self._task.partition), -1)
            if ids.get(at.topic, "") == at.topic_id and at.following <= end:
                return {tp: KnownOffset(offset, noted.epoch) for tp, offset in noted.inputs.items()}
        return {}

    def discard(self) -> None:
        """Forget the writes since the last commit."""
        self._pending = None
        self._end()
        self._begin(self._position.meta)

    def close(self) -> None:
        """Let go of the replica; writes since the last commit are forgotten."""
        self._pending = None
        self._end()
        self._replica.close()

    def _moved(
        self, following: Mapping[TopicPartition, int], inputs: Mapping[TopicPartition, int], meta: Mapping[str, int]
    ) -> TaskPosition:
        """Return the position after a commit."""
        at = self._position
        stores = dict(at.stores)
        for topic, store in self._by_topic.items():
            end = following.get(TopicPartition(topic, self._task.partition))
            if end is not None and store in stores:
                stores[store] = replace(stores[store], following=end)
        for tp, store in self._sources.items():
            if tp in inputs and store in stores:
                stores[store] = replace(stores[store], following=inputs[tp])
        return TaskPosition(stores, {**(at.inputs or {}), **inputs}, meta, epoch=self._app.epoch)

    def _end(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _begin(self, meta: Mapping[str, int]) -> None:
        """Continue over the present rows."""
        self._rows = self._replica.reader()
        self.state.rebase(NO_BATCH, self._maps(self._rows), meta)

    def _maps(self, rows: ReplicaRows) -> dict[str, ReadableMap]:
        return {store: rows.map(store) for store in self._stores}


def _lists(changes: pa.RecordBatch) -> tuple[list[bytes], list[bytes | None]]:
    return to_bytes_list(changes.column(0)), to_bytes_list(changes.column(1))  # type: ignore[return-value]


def changelog_parts(
    app: ThreadApp, task: TaskId, state: TaskOverlay, changes: Mapping[str, pa.RecordBatch]
) -> list[Part]:
    """Return the records of a task's changes since the last commit, and of its numbers if anything reads them.

    Args:
        app: The application.
        task: The task.
        state: Its state, before it is moved on.
        changes: The changes of its stores (`TaskOverlay.sorted_changes`).
    """
    stores = app.subtopology(task).stores
    puts = records_of_puts(app.changelogs, ((store, state.puts(store)) for store in stores))
    change_records = records_of_changes(app.changelog_formats, app.changelogs, changes.items(), state.meta)
    written = [(topic, task.partition, records) for topic, records in (*puts, *change_records)]
    if (topic := app.numbers_topic_of(task)) is not None:
        written.append((topic, task.partition, TaskNumbers(NO_BATCH, "", dict(state.meta)).record(str(task))))
    return written
