"""The committed state of an application, read from its checkpoint.

It needs neither the driver nor a worker: the newest batch is in Spark's commit log, the tasks are in the checkpoint's
plan, and each task's state is a replica and segments.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.engines.committed_state.queryable_stores import GlobalReader, QueryableStores, typed_view
from penstock.engines.committed_state.task_state import AheadError, ReplicaFolders, TaskReader, TaskView
from penstock.engines.spark.spark_log import committed_batches
from penstock.errors import InvalidStateError, StateError
from penstock.query.placement import LagInfo
from penstock.query.position import Position
from penstock.query.source import StoreInfo, StoreSnapshot
from penstock.state.checkpoint import document_time_ms, local_directory, read_document
from penstock.topology.stores import StoreSpec

__all__ = ["BatchCommit", "CommitLog", "CommittedState", "QueriedStores"]

_PLAN = "plan.json"
_TRIES = 3
_PLAN_REFRESH_S = 1.0  # a restart may add stores, and topics may grow
_COMMITS = "spark/commits"
_OFFSETS = "spark/offsets"
_REMOTE_REFRESH_S = 0.2


@dataclass(frozen=True, slots=True)
class QueriedStores:
    """The stores of an application for queries.

    Attributes:
        specs: The stores by name, with serdes.
        global_names: The names of global stores.
        global_reader: The reader of global stores; None: they cannot be read.
    """

    specs: Mapping[str, StoreSpec]
    global_names: frozenset[str] = frozenset()
    global_reader: GlobalReader | None = None


@dataclass(frozen=True, slots=True)
class _Tasks:
    """A sub-topology of the plan."""

    number: int
    tasks: int
    runs: int
    stores: tuple[str, ...]
    topics: tuple[str, ...]
    is_direct: bool


class CommittedState(QueryableStores):
    """The `StateSource` of a checkpoint; thread-safe.

    Args:
        checkpoint: The application's checkpoint location.
        application_id: The ``application.id``.
        stores: Its stores.
        replicas: The directories of replicas.
        refresh_s: The longest age of the cached newest commit; see `CommitLog`.
    """

    def __init__(
        self,
        checkpoint: str,
        application_id: str,
        stores: QueriedStores,
        replicas: ReplicaFolders,
        *,
        refresh_s: float | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.application_id = application_id
        self.commits = CommitLog(checkpoint, refresh_s)
        super().__init__(stores.specs, stores.global_reader)
        self._replicas = replicas
        self._global_stores = stores.global_names
        self._lock = threading.Lock()
        self._plan: dict[str, _Tasks] = {}
        self._plan_written: int | None = None
        self._planned = float("-inf")
        self._readers: dict[str, TaskReader] = {}
        self._generation = 0
        self._closed = False

    def _info(self, name: str) -> StoreInfo | None:
        if name in self._global_stores:
            return StoreInfo(self._specs[name], 1, is_global=True)
        sub = self._tasks().get(name)
        return None if sub is None else StoreInfo(self._specs[name], sub.tasks, sub.topics, sub.is_direct)

    def stale(self) -> CommittedState:
        """Return this: all copies are read at the end of the newest batch."""
        return self

    def places(self, store: str, partition: int) -> None:
        """Return None: replicas of micro-batches are caches, and any process reads the segments."""

    def place(self) -> str:
        """Return nothing, see `places`."""
        return ""

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return by store and partition the number of batches; answers lack none of them."""
        commit = self.commits.newest()
        at = LagInfo(0, 0) if commit is None else LagInfo(commit.batch + 1, commit.batch + 1)
        return {name: dict.fromkeys(range(info.partitions), at) for name, info in self.stores().items()}

    @contextmanager
    def reading(self, store: str, partitions: Collection[int] | None = None) -> Iterator[StoreSnapshot]:
        """Open a store at the end of the newest committed batch."""
        info = self.store(store)
        numbers = sorted(range(info.partitions) if partitions is None else partitions)
        if info.is_global:
            newest = self.commits.newest()
            if newest is None:
                yield StoreSnapshot({})
                return
            with self._global_reading(
                store, newest.ends, newest.committed_ms, newest.position, newest.batch
            ) as snapshot:
                yield snapshot
            return
        commit, views = self._views(store, numbers)
        try:
            yield StoreSnapshot(
                {number: typed_view(self._specs[store], view) for number, view in views.items()},
                batch=-1 if commit is None else commit.batch,
                committed_ms=0 if commit is None else commit.committed_ms,
                position=Position() if commit is None else commit.position,
                sources={number: view.source for number, view in views.items()},
            )
        finally:
            for view in views.values():
                view.close()

    def _views(self, store: str, partitions: list[int]) -> tuple[BatchCommit | None, dict[int, TaskView]]:
        """Open the partitions, all at the end of the same batch."""
        stuck, before = 0, -1
        while True:
            commit = self.commits.newest(now=before >= 0)
            self._check_generation()
            if commit is None:
                return None, {}
            stuck, before = (0 if commit.batch > before else stuck + 1), commit.batch
            sub = self._tasks().get(store)
            if sub is None:
                return None, {}
            readers = {number: self._reader(sub, number) for number in partitions}
            target = commit.batch * sub.runs + sub.runs - 1
            with ExitStack() as opened:
                views: dict[int, TaskView] = {}
                try:
                    for number, reader in readers.items():
                        views[number] = reader.view(target, insist=stuck >= _TRIES)
                        opened.callback(views[number].close)
                except AheadError:  # a newer batch was committed, or a worker is in the second phase of a batch
                    continue
                opened.pop_all()
                return commit, views

    def _reader(self, sub: _Tasks, number: int) -> TaskReader:
        task_id = f"{sub.number}_{number}"
        with self._lock:
            if self._closed:
                raise InvalidStateError("these queries are closed", hint="Open them again.")
            reader = self._readers.get(task_id)
            if reader is None:
                reader = self._readers[task_id] = TaskReader(
                    self.checkpoint, self.application_id, task_id, sub.stores, self._replicas
                )
            return reader

    def _check_generation(self) -> None:
        """Forget everything if the checkpoint was deleted and created again."""
        with self._lock:
            if self.commits.generation == self._generation:
                return
            self._generation = self.commits.generation
            gone, self._readers, self._plan = list(self._readers.values()), {}, {}
            self._plan_written = None
        for reader in gone:
            reader.close()

    def _tasks(self) -> dict[str, _Tasks]:
        """Return the sub-topology of each store, by the plan in the checkpoint."""
        with self._lock:
            if time.monotonic() - self._planned > _PLAN_REFRESH_S or not self._plan:
                written = document_time_ms(self.checkpoint, _PLAN)
                if written != self._plan_written:
                    self._plan, self._plan_written = self._read_plan(), written
                self._planned = time.monotonic()
            return self._plan

    def _read_plan(self) -> dict[str, _Tasks]:
        text = read_document(self.checkpoint, _PLAN)
        document = json.loads(text)["plan"] if text else {"subtopologies": {}}
        if text and document["application"] != self.application_id:
            raise StateError(
                f"the checkpoint {self.checkpoint} is of application {document['application']!r}, "
                f"not of {self.application_id!r}",
                hint="Name that application's checkpoint, or this checkpoint's application.",
                checkpoint=self.checkpoint,
            )
        tasks_by_store: dict[str, _Tasks] = {}
        for number, sub in document["subtopologies"].items():
            stores, topics = tuple(sub["stores"]), tuple(sub["topics"])
            tasks = _Tasks(int(number), sub["tasks"], sub["runs"], stores, topics, not sub["internal_topics"])
            tasks_by_store |= dict.fromkeys(stores, tasks)
        return tasks_by_store

    def close(self) -> None:
        """Close all files; open snapshots keep theirs until they end."""
        with self._lock:
            self._closed = True
            readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            reader.close()
        if self._globals is not None:
            self._globals.close()

    def __del__(self) -> None:
        with suppress(Exception):  # it was never closed; the interpreter may be ending
            self.close()


@dataclass(frozen=True)
class BatchCommit:
    """A committed batch.

    Attributes:
        checkpoint: The checkpoint location.
        batch: Spark's number of the batch.
        committed_ms: The time of the commit.
    """

    checkpoint: str
    batch: int
    committed_ms: int

    @cached_property
    def ends(self) -> dict[str, dict[int, int]]:
        """The offset after the last record that the batch has read, by topic and partition."""
        text = read_document(self.checkpoint, f"{_OFFSETS}/{self.batch}")
        return {} if text is None else _ends(text)

    @cached_property
    def position(self) -> Position:
        """The last record of each topic partition in the state."""
        last_offsets = {t: {p: end - 1 for p, end in parts.items() if end > 0} for t, parts in self.ends.items()}
        return Position({topic: parts for topic, parts in last_offsets.items() if parts})


class CommitLog:
    """The commits of one checkpoint.

    Args:
        checkpoint: The application's checkpoint location.
        refresh_s: The longest age of a cached answer; by default 0 for a directory, 0.2 for an object store.
    """

    def __init__(self, checkpoint: str, refresh_s: float | None = None) -> None:
        self.checkpoint = checkpoint
        is_local = local_directory(checkpoint) is not None
        self._refresh_s = refresh_s if refresh_s is not None else (0.0 if is_local else _REMOTE_REFRESH_S)
        self._lock = threading.Lock()
        self._newest: BatchCommit | None = None
        self._looked = float("-inf")
        self.generation = 0  # grows when the checkpoint was deleted and created again

    def newest(self, *, now: bool = False) -> BatchCommit | None:
        """Return the newest committed batch; None before the first.

        Args:
            now: Read the log even if the cached answer is recent.
        """
        with self._lock:
            if now or time.monotonic() - self._looked >= self._refresh_s:
                self._newest = self._look(self._newest)
                self._looked = time.monotonic()
            return self._newest

    def _look(self, newest: BatchCommit | None) -> BatchCommit | None:
        if newest is None or self._time(newest.batch) != newest.committed_ms:  # the first look, or a reset
            self.generation += newest is not None
            return self._listed()
        while (committed := self._time(newest.batch + 1)) is not None:
            newest = BatchCommit(self.checkpoint, newest.batch + 1, committed)
        return newest

    def _listed(self) -> BatchCommit | None:
        for batch in reversed(committed_batches(self.checkpoint)):
            committed = self._time(batch)
            if committed is not None:
                return BatchCommit(self.checkpoint, batch, committed)
        return None

    def _time(self, batch: int) -> int | None:
        return document_time_ms(self.checkpoint, f"{_COMMITS}/{batch}")


def _ends(text: str) -> dict[str, dict[int, int]]:
    """Parse a file of Spark's offset log: a version, a line about the batch, one line per source."""
    ends: dict[str, dict[int, int]] = {}
    for line in text.splitlines()[2:]:
        document: Any = json.loads(line) if line.startswith("{") else {}
        topics = document.get("topics", document)
        for topic, parts in topics.items():
            if isinstance(parts, dict):
                ends.setdefault(topic, {}).update({int(p): int(offset) for p, offset in parts.items()})
    return ends
