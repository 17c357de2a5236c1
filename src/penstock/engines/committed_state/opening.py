"""Opening of an application's committed state, in any process: by topology and settings, or by its checkpoint alone."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock.base.log_lines import own_logger
from penstock.engines.application.application_mode import CONTINUOUS, checkpoint_mode, in_own_mode, mode_of_state
from penstock.engines.application.application_note import read_application
from penstock.engines.application.locations import Locations, open_app_log
from penstock.engines.application.planning import plan_for
from penstock.engines.committed_state.continuous_state import ReplicatedState, ReplicatedStores
from penstock.engines.committed_state.micro_batch_state import CommittedState, QueriedStores
from penstock.engines.committed_state.task_state import ReplicaFolders
from penstock.engines.global_store_copy import GlobalStores
from penstock.engines.threads.app import ThreadApp, noted_app
from penstock.errors import CoPartitionError, LogUnavailableError, PenstockError, StateError, UnknownTopicError
from penstock.log.base import TopicPartition
from penstock.log.streams_groups.description import GroupTask
from penstock.query.instances import HostInfo, Instance, Instances, unreachable_text
from penstock.query.source import ReplicaLagWatch, specs_in_plan
from penstock.state.checkpoint import read_document, read_plan
from penstock.state.private_folders import state_home
from penstock.topology.configured import with_serdes, with_settings
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.log.streams_groups.description import StreamsCoordinator, StreamsGroupDescription
    from penstock.log.thread_clients import ThreadClients
    from penstock.query.source import CommittedStores, Ends
    from penstock.topology.topology import Topology

__all__ = ["GroupInstances", "ThreadsPlanner", "instances_of", "lag_of", "open_committed", "state_of_checkpoint"]


def state_of_checkpoint(
    checkpoint: str, own_root: str | Path | None = None, open_log: Callable[[], TopicLog] | None = None
) -> CommittedState | ReplicatedState:
    """Open the state, by the plan in the checkpoint.

    Args:
        checkpoint: The checkpoint location.
        own_root: A directory for replicas; by default one in the user's directory of state.
        open_log: Opens the application's log, which has the state of an application in continuous mode.

    Raises:
        StateError: There is no plan; or the application runs in continuous mode, and its log is not given.
    """
    location = checkpoint.rstrip("/")
    if "://" not in location:
        location = str(Path(location).expanduser().absolute())
    digest = hashlib.blake2b(location.encode(), digest_size=6).hexdigest()
    root = state_home() / "penstock" / "queries" / digest if own_root is None else Path(own_root)
    beside = Path(location).with_name("replicas")
    worker_root = beside if "://" not in location and beside.is_dir() else None
    if checkpoint_mode(location) == CONTINUOUS:
        return _state_of_log(location, root, worker_root, open_log)
    text = read_document(location, "plan.json")
    if text is None:
        raise StateError(
            f"there is no checkpoint of an application at {checkpoint}",
            hint="It is the directory with plan.json: penstock.checkpoint.location, "
            "<state.dir>/<application.id>/checkpoint, or by default <log file>.penstock/<application.id>/checkpoint.",
            checkpoint=checkpoint,
        )
    document = json.loads(text)
    specs = specs_in_plan(document.get("stores") or document["plan"]["stores"])
    stores = QueriedStores(specs, frozenset(document.get("global_stores", ())))
    return CommittedState(location, document["plan"]["application"], stores, ReplicaFolders(root, worker_root))


def _state_of_log(
    checkpoint: str, root: Path, worker_root: Path | None, open_log: Callable[[], TopicLog] | None
) -> ReplicatedState:
    """Open the state of an application in continuous mode, which only its log has, by the note in its checkpoint."""
    if open_log is None:
        raise StateError(
            f"the application at {checkpoint} runs in continuous mode: its state is in its log, not in the checkpoint",
            hint="Name the log too: --bootstrap-servers LOG.",
            checkpoint=checkpoint,
        )
    replicas = None if worker_root is None else str(worker_root)
    with ExitStack() as closing:
        log = open_log()
        closing.callback(log.close)
        identity = log.identity()
        app = noted_app(checkpoint, identity, replicas)
        if app is None:
            raise StateError(
                f"the checkpoint {checkpoint} does not describe the stores of its application in continuous mode",
                hint="Start the application once with this version, or name its topology: penstock query "
                "MODULE:TOPOLOGY STORE.",
                checkpoint=checkpoint,
            )
        specs = app.topology.stores
        stores = ReplicatedStores(app.application_id, checkpoint, root, specs, replica_root=replicas)
        closing.pop_all()
        return ReplicatedState(stores, lambda: noted_app(checkpoint, identity, replicas), log)


_log = own_logger(__name__)
_REFRESH_S = 1.0
_LOOPBACK = ("localhost", "::1", "127.")


@dataclass(slots=True)
class _Share:
    """The tasks behind an endpoint."""

    machine: str
    active: set[GroupTask] = field(default_factory=set)
    standby: set[GroupTask] = field(default_factory=set)


class GroupInstances(Instances):
    """The instances whose threads are members of the application's group, and query servers beside them.

    Args:
        checkpoint: The checkpoint location, where query servers of this machine are registered.
        topology: The application's topology.
        application: The ``application.id``, which is the group.
        open_log: Opens the application's log, which is closed by `close`.
    """

    def __init__(self, checkpoint: str, topology: Topology, application: str, open_log: Callable[[], TopicLog]) -> None:
        super().__init__(checkpoint)
        self._application, self._open_log = application, open_log
        self._opened: tuple[TopicLog, StreamsCoordinator] | None = None
        self._numbers = {store: str(sub.id) for sub in topology.subtopologies() for store in sub.stores}
        self._shares: Mapping[HostInfo, _Share] = {}
        self._asked_s = float("-inf")
        self._said: set[HostInfo] = set()  # that others do not reach
        self._lock = threading.Lock()

    def alive(self) -> list[Instance]:
        """List the live instances: those of the group first."""
        registered = {one.host_info: one for one in super().alive()}
        of_group = [
            registered.pop(address, Instance(address.host, address.port, "active", share.machine, 0))
            for address, share in sorted(self._known().items())
        ]
        return [*of_group, *registered.values()]

    def role_of(self, one: Instance, store: str, partition: int) -> Literal["active", "standby"] | None:
        """Return what an instance is for a partition of a store; None: it would have to restore it."""
        share = self._known().get(one.host_info)
        if share is None:
            return super().role_of(one, store, partition)
        if store not in self._numbers:  # a global store, which all have
            return "active"
        task = GroupTask(self._numbers[store], partition)
        return "active" if task in share.active else "standby" if task in share.standby else None

    def machine_of(self, one: Instance) -> str:
        """Return the machine of an instance."""
        share = self._known().get(one.host_info)
        return "" if share is None else share.machine

    def _known(self) -> Mapping[HostInfo, _Share]:
        if time.monotonic() - self._asked_s > _REFRESH_S:
            self._asked_s = time.monotonic()
            try:
                self.take(self._coordinator().describe(self._application))
            except PenstockError as error:  # what was known before is the best guess
                _log.debug("the group is not described: %s", error.message)
        return self._shares

    def take(self, described: StreamsGroupDescription | None) -> None:
        """Take the group as it is now; say once of each address that it is good on its own machine alone."""
        self._shares = _shares(described)
        machines = {share.machine for share in self._shares.values()}
        for address, share in self._shares.items():
            if len(machines) > 1 and address.host.startswith(_LOOPBACK) and address not in self._said:
                self._said.add(address)
                one = Instance(address.host, address.port, "active", share.machine, 0)
                _log.warning("%s", unreachable_text(one, "each machine means itself by that"))

    def _coordinator(self) -> StreamsCoordinator:
        with self._lock:
            if self._opened is None:
                log = self._open_log()
                self._opened = log, cast("ThreadClients", log).streams_coordinator()
            return self._opened[1]

    def close(self) -> None:
        """Close the log."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()
            opened[0].close()


def _shares(described: StreamsGroupDescription | None) -> dict[HostInfo, _Share]:
    shares: dict[HostInfo, _Share] = {}
    for member in () if described is None else described.members:
        if member.endpoint is not None:
            share = shares.setdefault(HostInfo(*member.endpoint), _Share(member.host.lstrip("/")))
            share.active |= member.assignment.active
            share.standby |= member.assignment.standby | member.assignment.warmup
    return shares


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
