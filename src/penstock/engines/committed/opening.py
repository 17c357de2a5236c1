"""Opening of an application's committed state from its topology and settings, in any process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engines.application.app_log import open_app_log
from penstock.engines.application.application_note import read_application
from penstock.engines.application.locations import Locations
from penstock.engines.application.modes import CONTINUOUS, in_own_mode, mode_of_state
from penstock.engines.application.planning import plan_for
from penstock.engines.committed.group_instances import GroupInstances
from penstock.engines.committed.replicated import ReplicatedState, ReplicatedStores
from penstock.engines.committed.state import CommittedState, QueriedStores
from penstock.engines.committed.tasks import ReplicaFolders
from penstock.engines.global_copy import GlobalStores
from penstock.engines.threads.app import ThreadApp
from penstock.errors import CoPartitionError, LogUnavailableError, UnknownTopicError
from penstock.log.base import TopicPartition
from penstock.query.metadata import Instances
from penstock.query.source import ReplicaLagWatch
from penstock.state.checkpoint import read_plan
from penstock.topology.configured.apply import with_settings
from penstock.topology.configured.serdes import with_serdes
from penstock.topology.plan.changelogs import changelogs_of
from penstock.topology.plan.stored import StoredPlan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.query.source import CommittedStores, Ends
    from penstock.topology.topology import Topology

__all__ = ["ThreadsPlanner", "instances_of", "lag_of", "open_committed"]


_Opener = Callable[["Topology", "StreamsConfig", "float | None"], "CommittedStores"]
_PATIENCE_MS = 5_000  # for a log that does not answer, as a query waits


def open_committed(topology: Topology, config: StreamsConfig, *, refresh_s: float | None = None) -> CommittedStores:
    """Open the committed state of an application, running or not, in the processing mode that it runs in.

    Args:
        topology: Its topology.
        config: Its settings; ``state.dir`` and ``penstock.checkpoint.location`` say where the state is.
        refresh_s: The greatest age of the knowledge of the newest commit, in seconds.
    """
    mode = mode_of_state(config, Locations.of(config).checkpoint) or _mode_by_log(config)
    return _OPENED_BY[mode](topology, config, refresh_s)


def _mode_by_log(config: StreamsConfig) -> str:
    """Return the mode of an application without a checkpoint here, by what it has left in its log."""
    with suppress(LogUnavailableError), _answering_soon(config) as log:
        return str(in_own_mode(config, log)["processing.mode"])
    return str(config["processing.mode"])


def _answering_soon(config: StreamsConfig) -> TopicLog:
    """Open the log for a query, which does not wait for it as long as an application does."""
    timeout_ms = int(config["task.timeout.ms"])
    return open_app_log(config.with_settings({"task.timeout.ms": min(timeout_ms, _PATIENCE_MS)}))


def _of_segments(topology: Topology, config: StreamsConfig, refresh_s: float | None) -> CommittedState:
    typed = with_serdes(topology, config)
    places = Locations.of(config)
    reader = _GlobalReader(typed, config) if typed.global_stores else None
    stores = QueriedStores(typed.stores, frozenset(typed.global_stores), reader)
    replicas = ReplicaFolders(places.queries, places.replicas)
    return CommittedState(places.checkpoint, config["application.id"], stores, replicas, refresh_s=refresh_s)


def _of_changelogs(topology: Topology, config: StreamsConfig, refresh_s: float | None) -> ReplicatedState:
    typed = with_settings(topology, config)
    log = _answering_soon(config)
    places = Locations.of(config, log)
    reader = _GlobalReader(typed, config) if typed.global_stores else None
    stores = ReplicatedStores(
        config["application.id"], places.checkpoint, places.queries, typed.stores, reader, places.replicas
    )
    planner = ThreadsPlanner(typed, config, log, places)
    return ReplicatedState(stores, planner.planned, log, refresh_s)


_OPENED_BY: Mapping[str, _Opener] = {
    "micro_batch": _of_segments,
    "continuous": _of_changelogs,
}


def instances_of(topology: Topology, config: StreamsConfig, state: CommittedStores) -> Instances:
    """Return the instances of an application: those of its group, if they share its tasks.

    Args:
        topology: Its topology.
        config: Its settings.
        state: Its committed state.
    """
    if config["group.protocol"] == "classic" or mode_of_state(config, state.checkpoint) != CONTINUOUS:
        return Instances(state.checkpoint)
    return GroupInstances(state.checkpoint, topology, config["application.id"], partial(open_app_log, config))


class ThreadsPlanner:
    """The plan of an application in continuous mode over the present topics, as its threads have it."""

    def __init__(self, topology: Topology, config: StreamsConfig, log: TopicLog, places: Locations) -> None:
        self._topology = topology
        self._config = config
        self._log = log
        self._places = places

    def planned(self) -> ThreadApp | None:
        """Return the planned application; None as long as its topics are not there."""
        stored = None
        if read_plan(self._places.checkpoint) is None:  # it runs on other machines
            noted = read_application(self._log, self._config["application.id"])
            stored = None if noted is None or "plan" not in noted else StoredPlan.of(noted)
        try:
            plan = plan_for(self._topology, self._config, self._log, stored)
        except (CoPartitionError, UnknownTopicError):
            return None
        changelogs = changelogs_of(self._topology, plan, self._config)
        partitions = {each.name: each.partitions for each in self._log.topics()}
        if any(partitions.get(each.topic, 0) < each.partitions for each in changelogs):
            return None  # before its first start, or not started with these stores, or this many tasks
        return ThreadApp(
            self._topology,
            self._config,
            plan,
            {each.store: each.topic for each in changelogs if each.store},
            next((each.topic for each in changelogs if not each.store), None),
            self._places.replicas,
            self._log.identity(),
        )


def lag_of(config: StreamsConfig) -> ReplicaLagWatch:
    """Return a watch over the lag of the committed state behind the log."""
    return ReplicaLagWatch(_LogEnds(config))


class _LogEnds:
    """A function that returns the ends of topics, with its own handle of the log."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._log: Any = None

    def __call__(self, topics: list[str]) -> Ends:
        if self._log is None:
            self._log = open_app_log(self._config)
        ends: dict[str, dict[int, int]] = {}
        for tp, end in self._log.end_offsets(topics).items():
            ends.setdefault(tp.topic, {})[tp.partition] = end
        return ends

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


class _GlobalReader:
    """A copy of the global stores for queries, at the position that a committed batch saw, or at the topics' ends."""

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self._topology = topology
        self._config = config
        self._lock = threading.Lock()
        self._log: Any = None
        self._stores: GlobalStores | None = None

    @contextmanager
    def reading(self, store: str, ends: Mapping[str, Mapping[int, int]] | None) -> Iterator[Any]:
        """Yield the typed view of a store; one reading at a time, as all share one copy."""
        with self._lock:
            if self._stores is None:
                self._log = open_app_log(self._config)
                places = Locations.of(self._config, self._log)
                identity = f"queries {self._config['application.id']} {places.checkpoint}"
                self._stores = GlobalStores(self._topology, self._config, self._log, str(places.queries), identity)
            topics = self._stores.topics
            flat = {
                TopicPartition(topic, partition): end
                for topic, parts in (ends or {}).items()
                if topic in topics
                for partition, end in parts.items()
            }
            self._stores.move_to(None if ends is None else flat)
            yield self._stores.views.view(self._topology.stores[store])

    def close(self) -> None:
        with self._lock:
            if self._stores is not None:
                self._stores.close()
                self._log.close()
                self._stores = self._log = None
