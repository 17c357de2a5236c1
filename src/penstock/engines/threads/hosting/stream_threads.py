"""Stream threads: an application as long-running tasks of a Spark job, which process records by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engines.dataframes import DataFrameQuery, dataframe_queries
from penstock.engines.spark.jvm import silence_py4j
from penstock.engines.spark.session import dataframe_query_settings, users_spark_settings
from penstock.engines.threads.hosting.epoch_checks import UnreadPatience, require_core_for_dataframes
from penstock.engines.threads.hosting.epoch_start import SPARE_SLOTS, THREAD_SETTINGS, EpochPlans, require_continuous
from penstock.engines.threads.hosting.instance_group import (
    InstanceGroup,
    leave_for_dead,
    require_sharable,
    sharing_identity,
    why_not_shared,
)
from penstock.engines.threads.hosting.restore_watch import RestoreWatch
from penstock.engines.threads.hosting.thread_jobs import ThreadJobs
from penstock.log.streams_groups.description import Endpoint
from penstock.query.placement import PlacementNote
from penstock.topology.configured.apply_settings import with_serdes
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.engines.engine import Start
    from penstock.engines.spark.progress import BatchProgress
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.errors import PenstockError
    from penstock.log.base import GroupMembership, Lease, TopicLog, TopicPartition
    from penstock.query.instances import HostInfo
    from penstock.state.restores.restore_progress import Restore
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.plan.plan_json import StoredPlan

__all__ = ["StreamThreads"]

_SESSION_MS = 45_000  # Kafka's default of session.timeout.ms


class StreamThreads:
    """The `Engine` of stream threads.

    The log holds its plan, its positions and its state. A run is a sequence of epochs, each with its threads.

    Args:
        config: The application's settings.
        on_batch: Called on the driver once a second when threads have done something.
        reads_nothing: Whether it ends where it begins, for a conversion.
    """

    mode = "continuous"
    plans_at_resume = True
    has_batches = False
    spare_slots = SPARE_SLOTS

    def __init__(
        self, config: StreamsConfig, on_batch: Callable[[BatchProgress], None], *, reads_nothing: bool
    ) -> None:
        self._config, self._on_batch = config, on_batch
        self._reads_nothing = reads_nothing
        self._epochs = EpochPlans(reads_nothing=reads_nothing)
        self._feeds: list[DataFrameQuery] = []  # which write DataFrames into their topics, under the present lease
        self._jobs: ThreadJobs | None = None
        self._group: InstanceGroup | None = None
        self._topology = Topology()
        self._restores = RestoreWatch()
        self._shares_tasks = bool(config["group.protocol"] == "streams" and not reads_nothing)
        self._is_open = False
        self._endpoint: Endpoint | None = None  # where queries reach this instance

    @property
    def shares_tasks(self) -> bool:
        """Whether threads are members of the application's group, with those of other instances."""
        return self._shares_tasks

    def may_share(self, *, until_latest: bool) -> bool:
        """Return whether the run goes on, and ``group.protocol`` is not set."""
        return not (until_latest or self._reads_nothing or self.shares_tasks or self._config["group.protocol"])

    def sharing_identity(self, app: PlannedApp) -> str:
        """Return the identity of the topology that the group knows, and of the processing guarantee."""
        return sharing_identity(app)

    def why_not_shared(self, app: PlannedApp) -> str:
        """Return why the tasks cannot be shared; empty: they can."""
        return why_not_shared(app)

    def share(self) -> None:
        """Have threads be members from the next `start`, or `resume`, on."""
        self._shares_tasks = True

    def forget_dead(self, app: PlannedApp) -> None:
        """Leave the group in the name of threads of this machine that were killed with their driver."""
        leave_for_dead(Path(app.places.replicas).parent, app)

    def check(self, topology: Topology, *, until_latest: bool) -> None:
        """Raise ConfigError for state without changelogs, and for what instances cannot share."""
        require_continuous(topology, self._config)
        if self.shares_tasks:
            require_sharable(topology, until_latest=until_latest)

    def read_notes(self, log: TopicLog) -> None:
        """Read the note of the last run."""
        self._epochs.read(log, self._config["application.id"])

    def take_notes(self, log: TopicLog, lease: Lease | None) -> bool:
        """Read the note again, as the holder of the lease; return whether another instance has changed it since."""
        return self._epochs.take(log, self._config["application.id"], lease)

    @property
    def stored_plan(self) -> StoredPlan | None:
        """The plan that the log notes."""
        return self._epochs.stored

    @property
    def spark_settings(self) -> Mapping[str, Any]:
        """The user's settings of Spark, over those that threads need."""
        return {**THREAD_SETTINGS, **users_spark_settings(self._config)}

    def cores_to_leave(self, cores: int, topology: Topology) -> int:
        """Return one: threads never give theirs back, and other queries need one; those of DataFrames in any case."""
        if topology.dataframes:
            require_core_for_dataframes(cores)
            return 1
        return 0 if self._config["num.stream.threads"] else 1

    def keeps(self, cores: int) -> bool:
        """Return whether there are so many threads."""
        return self._jobs is not None and self._jobs.job.threads >= cores

    def topics_of_group(self, plan: PhysicalPlan) -> list[str]:
        """Return source topics and repartition topics, as in Kafka Streams."""
        return [*plan.external_topics, *plan.repartition_topics]

    def known_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offsets that threads have reported as committed."""
        return self._epochs.known.committed()

    def start(self, start: Start) -> None:
        """Prepare the first epoch, and start its threads."""
        start.doing("planning the tasks")
        config, app = self._config, start.app
        session_s = int(config.get("session.timeout.ms") or _SESSION_MS) / 1000
        patience = UnreadPatience.of(int(config["max.task.idle.ms"]), int(config["task.timeout.ms"]))
        self._epochs.until_latest = start.until_latest
        self._restores = RestoreWatch(start.restore_listener)
        if self.shares_tasks:
            self._group = self._group_of(app)
        jobs = ThreadJobs(start.spark.context, app.log, self._on_batch, session_s, patience, self._group)
        jobs.restores, jobs.known = self._restores, self._epochs.known
        if self._group is None:  # else the group knows the places
            jobs.note = PlacementNote(app.places.checkpoint)
        if start.until_latest:  # which ends at what is in their topics then
            self._start_feeds(start)
        job = self._next_epoch(start)
        self._jobs = jobs
        start.join()
        jobs.start(job)
        if not start.until_latest:
            self._start_feeds(start)
        start.doing("starting stream threads")

    def _group_of(self, app: PlannedApp) -> InstanceGroup:
        """Return the group whose members the threads of the next epoch are.

        Raises:
            TopologyError: Other instances run with another topology.
        """
        group = InstanceGroup(app)
        try:
            group.check()
        except BaseException:
            group.close()
            raise
        self._topology = app.topology
        if self._is_open:
            group.open_at(self._endpoint)
        return group

    def _start_feeds(self, start: Start) -> None:
        """Start the queries of DataFrames; in a run until "latest" return when all present rows are written."""
        if self._reads_nothing or not start.app.topology.dataframes:
            return
        app, checkpoint = start.app, start.app.checkpoint
        settings = dataframe_query_settings(self.spark_settings, checkpoint)
        topology = with_serdes(app.topology, self._config)
        self._feeds = dataframe_queries(topology, app.log, start.own_lease, checkpoint, settings)
        for feed in self._feeds:
            feed.start(int(self._config["commit.interval.ms"]), until_latest=start.until_latest)

    def _stop_feeds(self) -> None:
        with silence_py4j():
            for feed in self._feeds:
                feed.stop()
        self._feeds = []

    def _next_epoch(self, start: Start) -> ContinuousJob:
        job = self._epochs.next(start.app, start.lease, start.slots, self._group)
        if self._group is not None:
            self._group.prepare(start.app.log)
        return job

    def serve_at(self, address: HostInfo | None) -> None:
        """Have the members of the group tell the others; from now on threads may join."""
        self._is_open, self._endpoint = True, None if address is None else Endpoint(address.host, address.port)
        if self._group is not None:
            self._group.open_at(self._endpoint)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the run; return whether it has ended. Raise the error that has ended the epoch."""
        assert self._jobs is not None, "call start() first"  # noqa: S101
        for feed in self._feeds:
            feed.check()
        return self._jobs.wait(timeout_s)

    def has_running_tasks(self) -> bool:
        """Return whether all threads process records."""
        return self._jobs is not None and self._jobs.has_running_tasks()

    def has_room_for(self, plan: PhysicalPlan) -> int:
        """Return the number of threads that the tasks of a plan can use."""
        tasks = sum(sub.tasks for sub in plan.subtopologies)
        return min(tasks, self._config["num.stream.threads"] or tasks)

    def extend(self, start: Start) -> bool:
        """Have the running threads take more tasks; return whether they can."""
        jobs = self._jobs
        if jobs is None or not (self.shares_tasks or jobs.has_running_tasks()):
            return False
        job = self._epochs.extension(start.app, start.lease, start.slots, jobs.job)
        if job is not None:
            start.join()
            jobs.extend(job)
        return job is not None

    def wants_plan(self) -> bool:
        """Return whether the group has given this instance tasks that its plan does not know yet."""
        return self._jobs is not None and self._jobs.wants_plan()

    def may_recover(self, error: PenstockError, is_removed: Callable[[], bool]) -> bool:
        """Return whether a new epoch may succeed."""
        return self._jobs is not None and not is_removed() and self._jobs.may_begin_again(error)

    def suspend(self) -> None:
        """End the epoch: threads commit; those that do not answer are ended by Spark."""
        self._stop_feeds()
        if self._jobs is not None:
            self._jobs.end_epoch()

    def resume(self, start: Start) -> None:
        """Begin the next epoch."""
        assert self._jobs is not None, "call start() first"  # noqa: S101
        if self.shares_tasks and self._group is None:
            self._group = self._group_of(start.app)
            self._epochs.go_over(self._jobs.job.epoch)
            self._jobs.go_over(self._group, self._epochs.known)
        job = self._next_epoch(start)
        start.join()
        self._jobs.begin_epoch(job)
        if not start.until_latest:
            self._start_feeds(start)

    def show_membership(self, membership: GroupMembership | tuple[()]) -> None:
        """Tell the threads in whose name they commit."""
        if self._jobs is not None:
            self._jobs.show_membership(membership)

    def commit(self) -> None:
        """Do nothing: threads commit by themselves."""

    def note_end(self) -> None:
        """Do nothing: the group's offsets and the changelogs say where the application stands."""

    def stop(self) -> None:
        """End the epoch and the jobs, with everything committed."""
        self._stop_feeds()
        if self._jobs is not None:
            self._jobs.stop()
        if self._group is not None:
            self._group.close()

    @property
    def parallelism(self) -> int:
        """The number of stream threads that have come."""
        return 0 if self._jobs is None else self._jobs.parallelism

    def step(self) -> str:
        """Describe the restores that are under way."""
        return self._restores.doing()

    def phase(self) -> str:
        """Describe what stream threads do that seem stuck."""
        return self._restores.phase()

    def under_way(self) -> Sequence[Restore]:
        """Return the restores that have not ended."""
        return self._restores.under_way()

    def long_steps(self) -> Sequence[Mapping[str, Any]]:
        """Return the tasks that are in one step of their thread for long."""
        return self._restores.long_steps()

    def replicas(self) -> dict[str, dict[str, int | None]]:
        """Return by task its machine (0), and the machines of its standbys with the number of records they lack.

        None stands for a number that is not known yet.
        """
        if self._jobs is None:
            return {}
        if self._group is not None:
            return self._group.replicas(self._jobs.job.plan, self._topology)
        standbys = self._jobs.standbys()
        return {task: {**standbys.get(task, {}), host: 0} for task, host in sorted(self._jobs.active_hosts().items())}
