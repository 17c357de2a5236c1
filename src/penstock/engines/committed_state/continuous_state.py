"""The committed state of an application in continuous mode and of its tasks: its log, and replicas that follow it.

The thread that runs the task on this machine moves its replica on right after the log's commit, so a query reads that
replica, without blocking the thread. If it is not there, is being restored, or does not follow the log (the thread has
ended, or has moved to another machine), the process keeps a replica of its own, which is restored from the changelogs
as a thread's is. Both hold committed records only.

It needs neither the driver nor a thread: what counts is in the group's offsets and the changelogs, and each task's
state is a replica of a thread on this machine, or one of this process.

The newest commit of an application in continuous mode: the offsets of its group, and the ends of its changelogs.

The offsets are fetched before the ends, so a store that holds its changelog up to the end includes all input below the
offsets. Kafka makes a transaction visible partition by partition, though: for some milliseconds the group's offsets may
be there before the changelog's records are. So over Kafka an offset counts once two looks have found it.

A store behind a repartition topic includes an input record once that topic has been read up to where it ended when the
record had been processed. Its position is found by rounds: the committed offsets are noted with the ends of the
repartition topics, and when those ends have been consumed, as often as there are topics in a row, all stores include
the noted offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.engines.committed_state.queryable_stores import GlobalReader, QueryableStores, typed_view
from penstock.engines.committed_state.task_state import SharedReplica
from penstock.engines.threads.replicas.replica_folders import continuous_place, known_place
from penstock.engines.threads.replicas.restoring import (
    Restorer,
    TaskPosition,
    layout_of,
    source_topics,
    unlogged_stores,
)
from penstock.errors import InvalidStateError, LogUnavailableError, OffsetOutOfRangeError, StateError
from penstock.log.base import TopicPartition
from penstock.log.url import kafka_servers
from penstock.query.placement import LagInfo, Placements, TaskPlaces
from penstock.query.position import Position
from penstock.query.source import StoreInfo, StoreSnapshot
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.lmdb_replicas.other_process import watch_replicas
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog
    from penstock.state.maps import ReadableMap, ReplicaPosition
    from penstock.topology.stores import StoreSpec

__all__ = ["LogCommits", "ReplicatedState", "ReplicatedStores", "StaleReads"]

_log = own_logger(__name__)
_REFRESH_S = 0.1
_SETTLE_S = 0.02
_AFTER_FAILURE_S = 5.0

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class LogCommit:
    """The commits of an application that a look into its log has found.

    Attributes:
        number: The number of the look; a later one has a larger number.
        seen_ms: The time of the look.
        offsets: The group's offsets.
        included: Those whose changelog records are visible too.
        changelog_ends: The ends of the changelogs' and global topics' committed records.
        topic_ids: The ids of those topics.
        settled: Offsets of input topics that every store includes.
    """

    number: int
    seen_ms: int
    offsets: Offsets
    included: Offsets
    changelog_ends: Offsets
    topic_ids: Mapping[str, str]
    settled: Offsets = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """-1, as there are no batches."""
        return -1

    @property
    def committed_ms(self) -> int:
        """The time at which nothing newer was committed."""
        return self.seen_ms

    @cached_property
    def ends(self) -> dict[str, dict[int, int]]:
        """The offset after the last record of the input that every store includes, by topic and partition."""
        ends_by_topic: dict[str, dict[int, int]] = {}
        for tp, offset in self.settled.items():
            ends_by_topic.setdefault(tp.topic, {})[tp.partition] = offset
        return ends_by_topic

    @cached_property
    def position(self) -> Position:
        """The last record of each input partition that every store includes."""
        return position_at(self.settled)


def position_at(offsets: Offsets) -> Position:
    """Return the position of a state that includes all records below these offsets.

    >>> position_at({TopicPartition("in", 0): 3, TopicPartition("in", 1): 0}).to_json()
    {'in': {'0': 2}}
    """
    last_offsets: dict[str, dict[int, int]] = {}
    for tp, offset in offsets.items():
        if offset > 0:
            last_offsets.setdefault(tp.topic, {})[tp.partition] = offset - 1
    return Position(last_offsets)


class LogCommits:
    """The commits of an application, looked up in its log; thread-safe.

    Args:
        app: The application.
        log: Its log.
        refresh_s: The longest age of a cached answer.
    """

    def __init__(self, app: ThreadApp, log: TopicLog, refresh_s: float | None = None) -> None:
        self._app = app
        self._log = log
        self._refresh_s = _REFRESH_S if refresh_s is None else refresh_s
        numbers = [app.numbers_topic] if app.numbers_topic else []
        self._topics = list(dict.fromkeys([*app.changelogs.values(), *numbers, *app.plan.global_topics]))
        self._is_atomic = kafka_servers(log.url) is None
        self._rounds = _Rounds(app)
        self._lock = threading.Lock()
        self._newest: LogCommit | None = None
        self._looks = 0
        self._due = float("-inf")

    def newest(self) -> LogCommit:
        """Return the newest commit.

        Raises:
            LogUnavailableError: The log does not answer, and never has.
        """
        asked = time.monotonic()
        with self._lock:
            if self._newest is None or self._due <= asked:  # callers that have waited for this look share it
                try:
                    self._newest = self._look(self._newest)
                    self._due = time.monotonic() + self._refresh_s
                except LogUnavailableError as error:
                    if self._newest is None:
                        raise
                    _log.info("Queries continue with the state as it was: %s", error)
                    self._due = time.monotonic() + _AFTER_FAILURE_S
            return self._newest

    def _look(self, before: LogCommit | None) -> LogCommit:
        if before is None and not self._is_atomic:
            before = self._looked({})
            time.sleep(_SETTLE_S)
        return self._looked({} if before is None else before.offsets)

    def _looked(self, before: Offsets) -> LogCommit:
        self._looks += 1
        seen_ms = unix_ms()
        offsets = self._log.committed_offsets(self._app.application_id)
        repartition = self._app.repartition_topics
        ends = self._log.end_offsets([*self._topics, *repartition])
        included = {
            tp: offset if self._is_atomic or before.get(tp) == offset else before[tp]
            for tp, offset in offsets.items()
            if self._is_atomic or tp in before
        }
        between = {tp: end for tp, end in ends.items() if tp.topic in repartition}
        settled = self._rounds.settled(included, between)
        ids = self._log.topic_ids(self._topics)
        return LogCommit(self._looks, seen_ms, offsets, included, ends, ids, settled)


class _Rounds:
    """The rounds after which every store includes the input that was committed at their beginning.

    Args:
        app: The application.
    """

    def __init__(self, app: ThreadApp) -> None:
        self._inputs = frozenset(app.plan.external_topics)
        self._rounds = max(0, app.plan.levels - 1) if app.repartition_topics else 0
        self._left = 0
        self._noted: Offsets = {}
        self._goal: Offsets | None = None
        self._settled: Offsets = {}

    def settled(self, included: Offsets, between: Offsets) -> Offsets:
        """Return offsets of input topics that every store includes.

        Args:
            included: The committed offsets.
            between: The ends of the repartition topics, looked up after these.
        """
        inputs = {tp: offset for tp, offset in included.items() if tp.topic in self._inputs}
        if not self._rounds or all(included.get(tp, 0) >= end for tp, end in between.items()):
            self._goal, self._settled = None, inputs
            return inputs
        if self._goal is not None and all(included.get(tp, 0) >= end for tp, end in self._goal.items()):
            self._left -= 1
            self._goal = between if self._left else None
            if not self._left:
                self._settled = self._noted
        if self._goal is None:
            self._noted, self._goal, self._left = inputs, between, self._rounds
        return self._settled


# One task

_logger = own_logger(__name__)
_MAP_BYTES = 1 << 38  # address space only: LMDB could not resize the map while queries read it
_LOOK_FOR_WORKERS_S = 1.0
_PATIENCE_S = 0.1  # for a thread's replica to follow a commit that is in the log
_POLL_S = 0.004
_STALLED_S = 1.0  # from then on a replica that does not follow the log is not read
_MOST_MARKERS = 1000  # offsets without records, of ends of transactions
_TRIES = 3


class RetiredError(Exception):
    """The reader of a task has been closed, as the application was planned anew; internal to this package."""


@dataclass(slots=True)
class ReplicatedView:
    """One task's stores at the end of a commit; close it.

    Attributes:
        below: The replica.
        reader: The consistent view of the replica.
        meta: The task's numbers.
        inputs: The offsets of the task's input below which all records are included.
        held_ms: The time at which this was all that was committed.
        is_current: Whether it holds all that a look into the log has found.
    """

    below: SharedReplica
    reader: Any
    meta: Mapping[str, int]
    inputs: Mapping[TopicPartition, int]
    held_ms: int
    is_current: bool

    @property
    def source(self) -> str:
        """The owner of the replica: "worker" or "own"."""
        return self.below.source

    def map(self, store: str) -> ReadableMap:
        """Return the rows of one store."""
        rows: ReadableMap = self.reader.map(store)
        return rows

    def close(self) -> None:
        self.below.release(self.reader)


class ReplicatedTask:
    """A reader of one task's state; thread-safe.

    Args:
        app: The application; its folder of replicas is that of the machine's stream threads.
        task: The task.
        log: The log.
        own_root: The directory of this process's replicas.
    """

    def __init__(self, app: ThreadApp, task: TaskId, log: TopicLog, own_root: str | Path) -> None:
        self._app = app
        self._task = task
        self._log = log
        self._stores = app.subtopology(task).stores
        self._inputs = app.plan.sources(task)
        of_task = (app.application_id, app.identity, str(task))
        self._workers = None if app.replica_root is None else continuous_place(app.replica_root, *of_task)
        self._identity, self._own_directory = continuous_place(own_root, *of_task)
        self._sources = {store: app.changelogs.get(store, "") for store in self._stores} | source_topics(app, task)
        self._unlogged = frozenset(unlogged_stores(app, task))
        self._most_lag = int(app.config["acceptable.recovery.lag"])
        self._worker: list[SharedReplica] = []
        self._own: SharedReplica | None = None
        self._own_commit: LogCommit | None = None
        self._looked = float("-inf")
        self._stalled: tuple[int, float] = (0, 0.0)  # what the replica notes, and since when it has not moved
        self._empty: dict[str, tuple[int, int]] = {}  # store -> offsets of its changelog without a record between
        self._closed = False
        self._lock = threading.Lock()  # over the list of threads' replicas; nothing slow is done under it
        self._own_lock = threading.Lock()  # over the replica of this process, which a restore may hold for long

    def view(self, store: str, commit: LogCommit) -> ReplicatedView:
        """Open the state at a commit, or a later one.

        Args:
            store: The store that will be read.
            commit: The newest commit.

        Raises:
            RetiredError: It is closed.
            StateError: The state cannot be restored: no topic holds the store, or a changelog does not fit it.
        """
        self._check_open()
        worker_view = self._of_worker(store, commit)
        return self._of_own(store, commit) if worker_view is None else worker_view

    def nearest(self, store: str, commit: LogCommit) -> ReplicatedView:
        """Open the newest copy on this machine, however far it is behind; without one, as `view`."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            self._check_open()
            self._look_for_workers()
            workers = list(self._worker)
            opened = [self._opened(each, store, commit) for each in workers]
            views = [(position.noted_ms, view) for view, position in opened if view is not None]
            views.sort(key=lambda each: each[0])
            for _, view in views[:-1]:
                view.close()
            if views:
                return views[-1][1]
            if not workers or time.monotonic() > deadline:  # it applies the records of a commit just now
                return self._of_own(store, commit)
            time.sleep(_POLL_S)

    def lag(self, store: str, commit: LogCommit) -> LagInfo | None:
        """Return how far the newest copy on this machine is behind the changelog; None if there is none."""
        topic = self._sources[store]
        end = self._end(store, commit)
        self._look_for_workers()
        lags = [self._lag_of(each, store, topic, end, commit) for each in list(self._worker)]
        if self._own_lock.acquire(blocking=False):  # else it is being restored
            try:
                if self._own is not None:
                    lags.append(self._lag_of(self._own, store, topic, end, commit))
            finally:
                self._own_lock.release()
        return min((each for each in lags if each is not None), key=lambda each: each.offset_lag, default=None)

    def _lag_of(self, each: SharedReplica, store: str, topic: str, end: int, commit: LogCommit) -> LagInfo | None:
        """Return how far a replica is behind the changelog; None if it does not say."""
        try:
            reader, noted = each.reader()
        except (lmdb.Error, OSError, ValueError):
            return None
        each.release(reader)
        position = _position(noted)
        at = position.stores.get(store)
        if not topic or at is None or at.topic != topic:
            return None
        is_current = self._is_sound(store, position, commit) and self._is_current(store, position, commit)
        return LagInfo(end if is_current else at.following, end)

    def close(self) -> None:
        """Close the files after the last view is closed; a restore that is under way ends after its present piece."""
        with self._lock:
            self._closed = True
            workers, self._worker = self._worker, []
        for each in workers:
            each.retire()
        with self._own_lock:
            self._retire_own()

    def _check_open(self) -> None:
        if self._closed:
            raise RetiredError

    # The replica of a stream thread on this machine

    def _of_worker(self, store: str, commit: LogCommit) -> ReplicatedView | None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            self._check_open()
            if not self._worker:
                self._look_for_workers()
            best, noted_ms = None, 0
            for each in list(self._worker):
                view, position = self._opened(each, store, commit)
                if view is None:
                    continue
                if view.is_current:
                    if best is not None:
                        best.close()
                    return view
                if best is None or position.noted_ms > noted_ms:
                    best, view, noted_ms = view, best, position.noted_ms
                if view is not None:
                    view.close()
            if self._look_for_workers():
                if best is not None:
                    best.close()
                continue
            if best is None:
                return None
            now = time.monotonic()
            if self._stalled[0] != noted_ms:
                self._stalled = (noted_ms, now)
            elif now - self._stalled[1] >= _PATIENCE_S:
                deadline = now  # it has been waited for already
            if now >= deadline:
                is_stalled = now - self._stalled[1] > _STALLED_S
                if is_stalled or self._lag(store, best, commit) > self._most_lag:
                    best.close()
                    return None
                return best
            best.close()
            time.sleep(_POLL_S)

    def _look_for_workers(self) -> bool:
        """Open the replicas that have come, and forget those that are gone; return whether one has come."""
        with self._lock:
            if self._closed:
                return False
            for gone in [each for each in self._worker if not _is_there(each)]:
                self._worker.remove(gone)
                gone.retire()
            now = time.monotonic()
            if self._workers is None or now - self._looked < _LOOK_FOR_WORKERS_S:
                return False
            self._looked = now
            identity, directory = self._workers
            # Those that are open already cannot be opened again, and so are not among these.
            replicas = [SharedReplica(each) for each in watch_replicas(directory, identity, self._stores)]
            self._worker += replicas
            return bool(replicas)

    def _opened(
        self, worker: SharedReplica, store: str, commit: LogCommit
    ) -> tuple[ReplicatedView | None, TaskPosition]:
        """Open a thread's replica; None if its rows are not those of a commit."""
        try:
            reader, noted = worker.reader()
        except (lmdb.Error, OSError, ValueError) as error:
            _logger.debug("The replica of a thread cannot be read: %s", error)
            return None, TaskPosition()
        position = _position(noted)
        if position.inputs is None or not _is_there(worker) or not self._is_sound(store, position, commit):
            worker.release(reader)
            return None, position
        is_current = self._is_current(store, position, commit)
        inputs = dict(position.inputs)
        if is_current:
            inputs = _larger(inputs, self._included(commit))
        held_ms = commit.seen_ms if is_current else position.noted_ms
        return ReplicatedView(worker, reader, position.meta, inputs, held_ms, is_current), position

    def _is_sound(self, store: str, position: TaskPosition, commit: LogCommit) -> bool:
        """Return whether the rows are those of a commit, of this store and its present topic."""
        topic = self._sources[store]
        if not topic:
            return True
        at = position.stores.get(store)
        return (
            at is not None
            and (at.topic, at.layout) == (topic, layout_of(self._app.topology.stores[store]))
            and at.topic_id == commit.topic_ids.get(topic, at.topic_id)
        )

    def _is_current(self, store: str, position: TaskPosition, commit: LogCommit) -> bool:
        """Return whether the rows hold everything that had been committed at the look."""
        topic = self._sources[store]
        if not topic:
            held = position.inputs or {}
            return all(held.get(tp, 0) >= offset for tp, offset in self._included(commit).items())
        at, end = position.stores[store].following, self._end(store, commit)
        if at >= end:
            return True
        if store not in self._app.changelogs or end - at > _MOST_MARKERS:
            return False
        if self._empty.get(store) != (at, end):
            records = self._log.iterate(topic, self._task.partition, at, end)
            if any(each.num_rows for each in records):
                return False
            self._empty[store] = (at, end)
        return True

    def _end(self, store: str, commit: LogCommit) -> int:
        tp = TopicPartition(self._sources[store], self._task.partition)
        return (commit.changelog_ends if store in self._app.changelogs else commit.included).get(tp, 0)

    def _lag(self, store: str, view: ReplicatedView, commit: LogCommit) -> int:
        """Return the number of records that a replica lacks, at most."""
        if not self._sources[store]:
            return 0
        noted = _position_of(view)
        return self._end(store, commit) - noted.stores[store].following if store in noted.stores else self._most_lag + 1

    def _included(self, commit: LogCommit) -> dict[TopicPartition, int]:
        return {tp: commit.included[tp] for tp in self._inputs if tp in commit.included}

    # The replica of this process

    def _of_own(self, store: str, commit: LogCommit) -> ReplicatedView:
        if store in self._unlogged:
            raise StateError(
                f"store {store!r} has no changelog, and no thread on this machine has the state of task {self._task}, "
                "or not yet",
                hint="Ask on the machine of that thread, later; or turn logging on for the store.",
                store=store,
                code="STORE_NOT_READY",
                status=503,
            )
        with self._own_lock:
            self._check_open()
            for attempt in range(_TRIES):
                try:
                    own = self._caught_up(commit)
                    reader, noted = own.reader()
                except (lmdb.Error, OSError, OffsetOutOfRangeError) as error:
                    if attempt == _TRIES - 1:
                        raise
                    _logger.info("The query replica of task %s is opened again: %s", self._task, error)
                    self._retire_own()
                else:
                    held = self._own_commit or commit  # which may be a later one
                    return ReplicatedView(own, reader, noted.meta, self._included(held), held.seen_ms, is_current=True)
        raise AssertionError  # the last try has raised

    def _caught_up(self, commit: LogCommit) -> SharedReplica:
        own = self._own
        if own is not None and not _is_there(own):
            self._retire_own()
            own = None
        if own is None:
            own = self._own = SharedReplica(
                LmdbReplica(self._own_directory, self._identity, self._stores, map_bytes=_MAP_BYTES)
            )
        if self._own_commit is None or self._own_commit.number < commit.number:
            replica = own.replica
            assert isinstance(replica, LmdbReplica)  # noqa: S101 - there is no worker's
            restorer = Restorer(self._app, self._task, replica, self._log, lambda _: self._check_open())
            try:
                restorer.run(commit.offsets)
            except lmdb.Error as error:
                _logger.info("The query replica %s is rebuilt: %s", replica.directory, error)
                replica.reset()
                restorer.run(commit.offsets)
            self._own_commit = commit
        return own

    def _retire_own(self) -> None:
        if self._own is not None:
            self._own.retire()
        self._own = self._own_commit = None


def _is_there(shared: SharedReplica) -> bool:
    return bool(shared.replica.is_there())


def _position(noted: ReplicaPosition) -> TaskPosition:
    try:
        return TaskPosition.of(noted)
    except (LookupError, TypeError, ValueError):
        return TaskPosition()


def _position_of(view: ReplicatedView) -> TaskPosition:
    return _position(view.reader.position)


def _larger(one: Mapping[TopicPartition, int], other: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {tp: max(one.get(tp, 0), other.get(tp, 0)) for tp in {*one, *other}}


# The application

_PLAN_REFRESH_S = 5.0  # topics may grow, and a restart may add stores


@dataclass(frozen=True, slots=True)
class ReplicatedStores:
    """The stores of an application in continuous mode, for queries.

    Attributes:
        application_id: The ``application.id``.
        checkpoint: The checkpoint location, where instances are noted.
        own: The directory for replicas of this process.
        specs: The stores by name, with serdes.
        global_reader: The reader of global stores; None: they cannot be read.
        replica_root: The folder of the threads' replicas on this machine.
    """

    application_id: str
    checkpoint: str
    own: str | Path
    specs: Mapping[str, StoreSpec]
    global_reader: GlobalReader | None = None
    replica_root: str | None = None


class _Application:
    """The application as planned over the present topics, with its tasks' readers."""

    def __init__(self, app: ThreadApp, log: TopicLog, own: str | Path, refresh_s: float | None) -> None:
        self.app = app
        self.commits = LogCommits(app, log, refresh_s)
        self.subs = {store: sub for sub in app.plan.subtopologies for store in sub.stores}
        self._log = log
        self._own = own
        self._tasks: dict[TaskId, ReplicatedTask] = {}
        self._lock = threading.Lock()
        self._closed = False

    def task(self, store: str, partition: int) -> ReplicatedTask:
        """Return the reader of a store's task, opened once."""
        number = TaskId(self.subs[store].id, partition)
        with self._lock:
            if self._closed:
                raise RetiredError
            if number not in self._tasks:
                self._tasks[number] = ReplicatedTask(self.app, number, self._log, self._own)
            return self._tasks[number]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.close()


class ReplicatedState(QueryableStores):
    """The `StateSource` of an application in continuous mode; thread-safe.

    Args:
        stores: Its stores.
        plan: Returns the application as planned over the present topics; None before its first start.
        log: Its log, which is closed at the end.
        refresh_s: The longest age of the cached newest commit; by default 0.1.
    """

    def __init__(
        self,
        stores: ReplicatedStores,
        plan: Callable[[], ThreadApp | None],
        log: TopicLog,
        refresh_s: float | None = None,
    ) -> None:
        self.checkpoint = stores.checkpoint
        self.application_id = stores.application_id
        super().__init__(stores.specs, stores.global_reader)
        self._find = plan
        self._log = log
        self._own = stores.own
        self._refresh_s = refresh_s
        self._lock = threading.RLock()
        self._planned: _Application | None = None
        self._looked = float("-inf")
        self._closed = False
        self._replica_root = stores.replica_root
        self._placements = Placements(stores.checkpoint)

    @property
    def commits(self) -> ReplicatedState:
        """The application's commits, of which `newest` is the newest."""
        return self

    def newest(self) -> LogCommit | None:
        """Return the newest commit; None before the first."""
        application = self._application()
        commit = None if application is None else application.commits.newest()
        return commit if commit is not None and commit.offsets else None

    def _info(self, name: str) -> StoreInfo | None:
        application = self._application()
        if application is None:
            return None
        if name in application.app.topology.global_stores:
            return StoreInfo(self._specs[name], 1, is_global=True)
        sub = application.subs.get(name)
        if sub is None:
            return None
        return StoreInfo(self._specs[name], sub.tasks, sub.external_topics, not sub.internal_topics)

    def stale(self) -> StaleReads:
        """Return the same state, read from the nearest copy however far it is behind."""
        return StaleReads(self)

    def places(self, store: str, partition: int) -> TaskPlaces | None:
        """Return the places with the state of a partition; None if they are not known."""
        application = self._application()
        sub = None if application is None else application.subs.get(store)
        return None if sub is None else self._placements.of(str(TaskId(sub.id, partition)))

    def place(self) -> str:
        """Return the identity of the folder of replicas on this machine."""
        return known_place(self._replica_root)

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return by store and partition how far the copy on this machine is behind the changelog."""
        application = self._application()
        commit = None if application is None else application.commits.newest()
        if application is None or commit is None:
            return {}
        lags: dict[str, dict[int, LagInfo]] = {}
        for store, sub in application.subs.items():
            for partition in range(sub.tasks) if store in self._specs else ():
                lag = application.task(store, partition).lag(store, commit)
                if lag is not None:
                    lags.setdefault(store, {})[partition] = lag
        return lags

    def reading(self, store: str, partitions: Collection[int] | None = None) -> AbstractContextManager[StoreSnapshot]:
        """Open a store at the newest commit of each partition."""
        return self.opened(store, partitions, ReplicatedTask.view)

    @contextmanager
    def opened(
        self,
        store: str,
        partitions: Collection[int] | None,
        view: Callable[[ReplicatedTask, str, LogCommit], ReplicatedView],
    ) -> Iterator[StoreSnapshot]:
        """Open a store; ``view`` opens the state of each task."""
        info = self.store(store)
        with ExitStack() as opened:
            while True:
                planned = self._application()
                commit = None if planned is None else planned.commits.newest()
                if planned is None or commit is None or not commit.offsets:
                    yield StoreSnapshot({})
                    return
                if info.is_global:
                    topics = set(planned.app.plan.global_topics)
                    at = position_at({tp: end for tp, end in commit.changelog_ends.items() if tp.topic in topics})
                    yield opened.enter_context(self._global_reading(store, None, commit.seen_ms, at))
                    return
                numbers = sorted(range(info.partitions) if partitions is None else partitions)
                views: dict[int, ReplicatedView] = {}
                try:
                    for number in numbers:
                        views[number] = view(planned.task(store, number), store, commit)
                        opened.callback(views[number].close)
                except RetiredError:  # planned anew meanwhile
                    opened.close()
                else:
                    break
            position = position_at({tp: at for each in views.values() for tp, at in each.inputs.items()})
            if not info.is_direct and all(each.is_current for each in views.values()):
                position = position.merge(commit.position)
            yield StoreSnapshot(
                {number: typed_view(self._specs[store], each) for number, each in views.items()},
                committed_ms=min((each.held_ms for each in views.values()), default=0),
                position=position,
                sources={number: self._source(planned, store, number, each) for number, each in views.items()},
            )

    def _source(self, planned: _Application, store: str, number: int, view: ReplicatedView) -> str:
        places = self._placements.of(str(TaskId(planned.subs[store].id, number)))
        is_standby = view.source == "worker" and places is not None and places.is_standby_at(self.place())
        return "standby" if is_standby else view.source

    def _application(self) -> _Application | None:
        """Return the application as planned over the present topics; None before its first start."""
        with self._lock:
            if self._closed:
                raise InvalidStateError("these queries are closed", hint="Open them again.")
            application = self._planned
            if time.monotonic() - self._looked < (_PLAN_REFRESH_S if application is not None else 0.0):
                return application
            app = self._find()
            self._looked = time.monotonic()
            if application is not None and app is not None and app.plan == application.app.plan:
                return application
            self._planned = None if app is None else _Application(app, self._log, self._own, self._refresh_s)
        if application is not None:
            application.close()
        return self._planned

    def close(self) -> None:
        """Close all files; open snapshots keep theirs until they end."""
        with self._lock:
            closed, self._closed = self._closed, True
            planned, self._planned = self._planned, None
        if closed:
            return
        if planned is not None:
            planned.close()
        if self._globals is not None:
            self._globals.close()
        self._log.close()

    def __del__(self) -> None:
        with suppress(Exception):  # it was never closed; the interpreter may be ending
            self.close()


class StaleReads:
    """The `CommittedStores` of `ReplicatedState.stale`: the same state, read from the nearest copy.

    Args:
        state: The state.
    """

    def __init__(self, state: ReplicatedState) -> None:
        self._state = state
        self.checkpoint = state.checkpoint
        self.application_id = state.application_id
        self.commits = state.commits
        self.stores = state.stores
        self.store = state.store
        self.places = state.places
        self.place = state.place
        self.lags = state.lags
        self.close = state.close

    def stale(self) -> StaleReads:
        """Return this."""
        return self

    def reading(self, store: str, partitions: Collection[int] | None = None) -> AbstractContextManager[StoreSnapshot]:
        """Open a store in the copies of this machine, however far they are behind."""
        return self._state.opened(store, partitions, ReplicatedTask.nearest)
