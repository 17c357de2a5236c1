"""The committed state of an application in continuous mode: its log, and replicas that follow it.

It needs neither the driver nor a thread: what counts is in the group's offsets and the changelogs, and each task's
state is a replica of a thread on this machine, or one of this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engines.committed.log_commits import LogCommits, position_at
from penstock.engines.committed.queryable_stores import GlobalReader, QueryableStores, typed_view
from penstock.engines.committed.replicated_task import ReplicatedTask, ReplicatedView, RetiredError
from penstock.engines.threads.replicas.replica_folders import known_place
from penstock.errors import InvalidStateError
from penstock.query.placement import LagInfo, Placements, TaskPlaces
from penstock.query.source import StoreInfo, StoreSnapshot
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.committed.log_commits import LogCommit
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog
    from penstock.topology.stores import StoreSpec

__all__ = ["ReplicatedState", "ReplicatedStores", "StaleReads"]

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
