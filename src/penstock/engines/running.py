"""A started application on the driver: its lease, plan and query, and its upkeep while it runs."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.application.app_log import open_app_log
from penstock.engines.application.locations import Locations
from penstock.engines.application.modes import require_mode
from penstock.engines.application.planned_app import PlannedApp
from penstock.engines.application.planning import create_missing, create_sources, plan_for
from penstock.engines.application.sink_formats import note_sinks
from penstock.engines.batches.engine import Engine
from penstock.engines.batches.launch import prepare_job
from penstock.engines.batches.takeovers import note_changelog_ends
from penstock.engines.conversion.convert import convert_at_start
from penstock.engines.conversion.modes import with_mode
from penstock.engines.dataframes.into_topic import dataframe_queries
from penstock.engines.figures import BatchMeter
from penstock.engines.lags import lag_behind
from penstock.engines.offsets.group_resets import MARK
from penstock.engines.replica_hosts import replica_hosts
from penstock.engines.spark import faults
from penstock.engines.spark.cores import CoreWatch
from penstock.engines.spark.gateway import has_context
from penstock.engines.spark.java_archive import make_in_background
from penstock.engines.spark.machine_limits import check_open_files
from penstock.engines.spark.session import dataframe_query_settings, running_session, session_for
from penstock.engines.threads.hosting.engine import ContinuousEngine
from penstock.engines.threads.hosting.epoch_plans import THREAD_SETTINGS, EpochPlans
from penstock.engines.threads.hosting.restore_watch import RestoreWatch
from penstock.engines.threads.hosting.start import require_continuous
from penstock.engines.threads.hosting.unread import UnreadPatience
from penstock.errors import FencedError, LogError, PenstockError, UnknownTopicError
from penstock.log.client_counts import rebalancing
from penstock.log.lease_keeper import LeaseKeeper
from penstock.query.placement import PlacementNote
from penstock.topology.configured.serdes import with_serdes
from penstock.topology.plan.plan import changed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.config import StreamsConfig
    from penstock.engines.app_metrics import AppMetrics
    from penstock.engines.spark.progress import BatchProgress
    from penstock.engines.threads.hosting.job import ContinuousJob
    from penstock.log.base import TopicLog
    from penstock.log.embedded.coordination import Lease
    from penstock.state.restores.listener import StateRestoreListener
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["LEASE_TTL_MS", "Run"]

_log = own_logger(__name__)
LEASE_TTL_MS = 30_000
_LAG_EVERY_S = 1.0
_NOTE_S = 5.0
_LOOK_S = 0.1
_SESSION_MS = 45_000  # Kafka's default of session.timeout.ms
_JOIN_S = 10.0
_MOST_RESTARTS = 3  # of the query, without a batch in between


class Run:
    """A started application with its log, lease, plan, session and engine.

    Args:
        topology: The topology.
        config: The application's settings.
        session: The user's own Spark session; None: the active one, or a new one.
        listeners: Called after each batch that did something; may grow.
        meter: Called before the listeners.
        reads_nothing: Whether a run until "latest" only finishes what is half done, for a conversion.

    Attributes:
        session: The user's session; without one, the application's own.
        restore_listener: Called while threads of continuous mode restore stores.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        session: SparkSession | None,
        listeners: Sequence[Callable[[BatchProgress], None]],
        meter: BatchMeter,
        *,
        reads_nothing: bool = False,
    ) -> None:
        self.topology, self.config, self.session = topology, config, session
        self.restore_listener: StateRestoreListener | None = None
        self.metrics: AppMetrics | None = None
        self._own: SparkSession | None = None
        self.log: TopicLog | None = None
        self.lease: Lease | None = None
        self.plan: PhysicalPlan | None = None
        self.places: Locations | None = None
        self._engine: Engine | ContinuousEngine | None = None
        self._epochs = EpochPlans(reads_nothing=reads_nothing)
        self._listeners, self._meter = listeners, meter
        self._measured, self._owns_session, self._has_run = 0.0, False, False
        self.doing: Engine | RestoreWatch | None = None  # what the engine is doing
        self._positions: dict[str, int] = {}
        self._replicas: dict[str, dict[str, int]] = {}
        self._until_latest, self._reads_nothing, self._committed_batch, self._restarts = False, reads_nothing, -1, 0
        self._cores: CoreWatch | None = None
        self._crashed: tuple[object, object] = (None, None)  # the task that ended its process last, and its batch
        self._changelogs: list[str] = []
        self._keeper: LeaseKeeper | None = None
        self._looked = self._noted = time.monotonic()

    def launch(self, *, until_latest: bool) -> None:
        """Check everything and start the query; after an error call `release`."""
        self._meter.doing("looking at topics and state")
        log = self.log = open_app_log(self.config)
        create_sources(self.topology, self.config, log)
        if self._is_continuous:
            require_continuous(self.topology, self.config)
        convert_at_start(self.topology, self.config, log, self.finish_in)
        if self._is_continuous:
            self._epochs.read(log, self.config["application.id"])
        self.plan = self._plan(log)
        places = self.places = Locations.of(self.config, log)
        places.prepare()
        application = self.config["application.id"]
        lease = self._take_lease(log)
        has_changed = self._is_continuous and self._epochs.take(log, lease)
        if create_missing(self.topology, self.config, log) or has_changed:
            self.plan = self._plan(log)
        check_open_files(self.plan)
        self._attend()
        note_sinks(self.topology, self.config, log)
        self._meter.doing("starting Spark")
        given = self.session or running_session()
        rows_in_jvm = bool(self.topology.dataframes)
        files = places.journal or places.checkpoint
        own, is_new = session_for(self._of_spark, application, files, session=given, rows_in_jvm=rows_in_jvm)
        self._own, self.session = own, given or own
        self._owns_session = is_new
        self._start_engine(until_latest=until_latest)

    def finish_in(self, mode: str) -> None:
        """Finish what is half done in a mode, in a run of its own that reads nothing new; for conversions."""
        config, is_clean = with_mode(self.config, mode), False
        run = Run(self.topology, config, self.session, (), BatchMeter(config["application.id"]), reads_nothing=True)
        try:
            run.launch(until_latest=True)
            while not is_clean:
                is_clean = run.wait(_LOOK_S)
        finally:
            run.release(commit=is_clean)

    def _take_lease(self, log: TopicLog) -> Lease:
        """Acquire the lease; replacing that of this start fences its own tasks, but no newer instance."""
        owner = self.config["client.id"] or f"{socket.gethostname()}:{os.getpid()}"
        acquire = partial(log.acquire_lease, self.config["application.id"], owner, LEASE_TTL_MS)
        if self._keeper is None:
            self.lease = acquire()
            self._keeper = LeaseKeeper(log, self.lease)  # a start of the JVM and rebuilds of stores may take long
        else:
            self.lease = self._keeper.replace(lambda before: acquire(replacing=before))
        return self.lease

    def _attend(self) -> None:
        """Join the application's group, so that other tools see that it runs."""
        assert self.log is not None and self.lease is not None and self.plan is not None  # noqa: S101, PT018
        topics = list(self.plan.external_topics)
        if self._is_continuous:  # as in Kafka Streams, its members read the repartition topics too
            topics += self.plan.repartition_topics
        self.log.show_as_member(self.lease, topics, self._epochs.known.committed)

    def _join(self) -> None:
        """Join the group with the topics that are there now, and wait: threads commit in the name of the member."""
        self._attend()
        self._look_at_membership(_JOIN_S)

    def _look_at_membership(self, timeout_s: float = 0.0) -> None:
        """Tell the threads in whose name they commit.

        Raises:
            FencedError: Another program has removed the application from its group, or a newer instance is the member.
        """
        engine = self._engine
        assert self.log is not None  # noqa: S101 - launch() comes first
        try:
            found = self.log.membership(timeout_s)
        except FencedError:
            if isinstance(engine, ContinuousEngine):
                engine.show_membership(())
            raise
        if found is not None and isinstance(engine, ContinuousEngine):
            engine.show_membership(found)

    def _start_engine(self, *, until_latest: bool) -> None:
        self._meter.doing("planning the query")
        self._until_latest = self._epochs.until_latest = until_latest
        session, log, lease = self._own, self.log, self.lease
        assert session is not None and log is not None and lease is not None  # noqa: S101, PT018 - launch() comes first
        checkpoint = Locations.of(self.config, log).checkpoint
        require_mode(checkpoint, self.config["processing.mode"])
        if self._cores is None:
            self._cores = CoreWatch(lambda: int(session.sparkContext.defaultParallelism))
        if self._is_continuous:
            self._start_threads(session)
            return
        job = prepare_job(self._planned(), lease, parallelism=self._cores.plan(), until_latest=until_latest)
        job = replace(job, reads_nothing=self._reads_nothing)
        self._changelogs = [*job.changelogs.values(), *([job.numbers_topic] if job.numbers_topic else [])]
        settings = dataframe_query_settings(self._of_spark, job.checkpoint)
        queries = dataframe_queries(with_serdes(self.topology, self.config), log, lease, job.checkpoint, settings)
        engine = self._engine = Engine(session, job, self._batch_done, queries)
        self.doing = engine
        engine.start(int(self.config["commit.interval.ms"]))
        self._meter.doing("starting the query and its Python workers")

    def _start_threads(self, session: SparkSession) -> None:
        assert self.log is not None and self.places is not None  # noqa: S101, PT018 - launch() comes first
        session_s = int(self.config.get("session.timeout.ms") or _SESSION_MS) / 1000
        folder = Path(self.places.replicas).with_name("query")
        patience = UnreadPatience.of(int(self.config["max.task.idle.ms"]), int(self.config["task.timeout.ms"]))
        engine = ContinuousEngine(session, self.log, self._batch_done, folder, session_s, patience)
        engine.restores = RestoreWatch(self.restore_listener)
        engine.note, engine.known = PlacementNote(self.places.checkpoint), self._epochs.known
        job = self._next_epoch()
        self._engine, self.doing = engine, engine.restores
        self._join()
        engine.start(job)
        self._meter.doing("starting stream threads")

    def _next_epoch(self) -> ContinuousJob:
        """Prepare the next epoch of continuous mode."""
        assert self.lease is not None and self._cores is not None  # noqa: S101, PT018 - launch() comes first
        return self._epochs.next(self._planned(), self.lease, self._cores.plan())

    def _planned(self) -> PlannedApp:
        assert self.log is not None and self.plan is not None  # noqa: S101, PT018 - launch() comes first
        return PlannedApp(self.topology, self.config, self.plan, self.log)

    def _plan(self, log: TopicLog) -> PhysicalPlan:
        return plan_for(self.topology, self.config, log, self._epochs.stored)

    @property
    def _of_spark(self) -> dict[str, Any]:
        given = {f"spark.{name}": value for name, value in self.config.with_prefix("spark.").items()}
        return {**THREAD_SETTINGS, **given} if self._is_continuous else given

    @property
    def _is_continuous(self) -> bool:
        return bool(self.config["processing.mode"] == "continuous")

    def wait(self, timeout_s: float) -> bool:
        """Wait for the query for a while; return whether it has ended. Raise the error that ended it, if any."""
        assert self._engine is not None  # noqa: S101 - launch() comes first
        if self._engine.wait(timeout_s):
            return True
        self._look_at_membership()
        self.commit_group()
        self._measure(_LAG_EVERY_S)
        assert self._keeper is not None  # noqa: S101 - launch() comes first
        self._keeper.check()
        return False

    def has_running_tasks(self) -> bool:
        """Return whether workers are ready, and the query has run a batch or found nothing to do."""
        if self._engine is None or not self._engine.has_running_tasks():
            if isinstance(self._engine, ContinuousEngine) and (doing := self._engine.restores.doing()):
                self._meter.doing(doing)
            return False
        self._meter.doing("")
        if not self._has_run:
            self._has_run = True
            make_in_background()
        return True

    def new_plan(self) -> PhysicalPlan | None:
        """Return the plan to go on with if topics appeared or grew, or executors came; checked at intervals."""
        if self._have_cores_come():
            return self.plan
        if time.monotonic() - self._looked < int(self.config["metadata.max.age.ms"]) / 1000:
            return None
        self._looked = time.monotonic()
        assert self.log is not None and self.plan is not None  # noqa: S101, PT018 - launch() comes first
        try:
            plan = self._plan(self.log)
        except UnknownTopicError as error:  # those who read it find out, and whether it is made again
            _log.debug("no new plan: %s", error.message)
            return None
        return plan if changed(self.plan, plan, self.topology) else None

    def plan_anew(self) -> bool:
        """Plan over the topics that are there now, before a new epoch; return whether none is missing."""
        if isinstance(self._engine, ContinuousEngine):
            assert self.log is not None  # noqa: S101 - launch() comes first
            try:
                self.plan = self._plan(self.log)
            except UnknownTopicError as error:
                _log.debug("no new plan: %s", error.message)
                return False
        return True

    def _have_cores_come(self) -> bool:
        if self._cores is None or self.plan is None or self._until_latest:
            return False
        if self._is_continuous:
            tasks = sum(sub.tasks for sub in self.plan.subtopologies)
            return self._cores.have_come(min(tasks, self.config["num.stream.threads"] or tasks))
        return self._cores.have_come(max(self.plan.run_count(level) for level in range(self.plan.levels)))

    @rebalancing()
    def rebalance(self, plan: PhysicalPlan) -> None:
        """Go on with this plan, over the present cores: within the running epoch, or after an end of the query.

        Raises:
            CheckpointMismatchError: The state does not fit the new plan.
        """
        _log.info("topics or executors have changed: %s is planned anew", plan.application_id)
        self.plan = plan
        if not self._extend_epoch():
            self._begin_again()

    def _extend_epoch(self) -> bool:
        """Have the running threads of continuous mode take more tasks; return whether they can."""
        engine = self._engine
        if not isinstance(engine, ContinuousEngine) or not engine.has_running_tasks() or self._cores is None:
            return False
        assert self.lease is not None  # noqa: S101 - launch() comes first
        job = self._epochs.extension(self._planned(), self.lease, self._cores.plan(), engine.job)
        if job is not None:
            self._join()
            engine.extend(job)
        return job is not None

    def may_recover(self, error: PenstockError) -> bool:
        """Return whether the loss of a process ended the query or epoch, so that a restart may succeed."""
        if isinstance(self._engine, ContinuousEngine):
            return not self._is_removed() and has_context(self.session) and self._engine.may_begin_again(error)
        is_lost = error.facts.get("lost_process")
        if not is_lost or self._restarts >= _MOST_RESTARTS or not has_context(self.session):
            return False
        crashed = (error.facts.get("task"), error.facts.get("batch"))
        if crashed[0] is not None and crashed == self._crashed:  # it would end its process again
            return False
        self._crashed = crashed
        self._restarts += 1
        _log.warning("%s; the query is started again (%d of %d)", error.message, self._restarts, _MOST_RESTARTS)
        return True

    def _is_removed(self) -> bool:
        """Return whether the application is no longer to be a member of its group: it ends then."""
        try:
            self._look_at_membership()
        except FencedError:
            return True
        return False

    @rebalancing("restarts")
    def recover(self) -> None:
        """Start the query again: it continues where it stopped, as at any start."""
        self._begin_again()

    def _begin_again(self) -> None:
        assert self.log is not None  # noqa: S101 - launch() comes first
        if isinstance(self._engine, ContinuousEngine):
            self._engine.end_epoch()
            self._take_lease(self.log)
            job = self._next_epoch()
            self._join()
            self._engine.begin_epoch(job)
            return
        self.stop()
        self.commit_group()
        self._take_lease(self.log)  # a task that still runs somewhere is fenced
        self._attend()
        self._start_engine(until_latest=self._until_latest)

    def commit_group(self) -> None:
        """Commit the offsets of the last batch to the group, for lag tools; the checkpoint holds the truth."""
        committed = self._engine.committed() if self._engine is not None else None
        if committed is not None and committed[0] > self._committed_batch and self.log is not None:
            faults.reach(5, committed[0], "driver", os.getpid())
            self._committed_batch = committed[0]
            self._restarts = 0
            if self._is_continuous:  # threads commit by themselves
                return
            try:
                application, mark = self.config["application.id"], f"{MARK} batch {committed[0]}"
                self.log.commit_offsets(application, committed[1], mark, self.lease)
            except (LogError, UnknownTopicError) as error:  # lag tools will see it late, nothing else needs it
                _log.warning("the group's offsets are not committed: %s", error)
            if time.monotonic() - self._noted > _NOTE_S:
                self._note_standing()

    def _note_standing(self) -> None:
        """Note the ends of the changelogs, so that the next start sees whether others have written to them."""
        if self.log is not None and self.places is not None and self._changelogs:
            self._noted = time.monotonic()
            try:
                note_changelog_ends(self.places.checkpoint, self.log, self._changelogs, self._committed_batch)
            except PenstockError as error:  # without the note, the next start compares the records
                _log.warning("the ends of the changelogs are not noted: %s", error)

    def replicas(self) -> dict[str, dict[str, int | None]]:
        """Return by task the machines with a replica of its state, see `replica_hosts`."""
        return replica_hosts(self._engine, self._replicas)

    def stop(self) -> None:
        """End the query."""
        if self._engine is not None:
            self._engine.stop()

    def release(self, *, commit: bool = False) -> None:
        """End the query and release lease, log and session; a step that fails does not prevent the others.

        Args:
            commit: Whether to commit the group's offsets.
        """
        self.stop()
        steps: list[Callable[[], object]] = [self.commit_group, self._note_standing, self._measure] if commit else []
        if self.log is not None:
            if self._keeper is not None:
                steps.append(self._release_lease)
            steps.append(self.log.close)
        if self._owns_session and self.session is not None:
            steps.append(self.session.stop)
        for step in steps:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the broker, or Spark's JVM, may be the reason for ending
                _log.warning("while the application ended: %s", error)

    def _release_lease(self) -> None:
        assert self.log is not None and self._keeper is not None  # noqa: S101, PT018 - release() has checked
        if self._keeper.end():
            self.log.release_lease(self._keeper.lease)
        else:
            _log.warning("the lease of %s could not be given back: no broker answers", self._keeper.lease.application)

    def _batch_done(self, progress: BatchProgress) -> None:
        for task in progress.tasks:
            self._positions |= task.get("ends", {})
            if "replica" in task:
                self._replicas.setdefault(task["task"], {}).update([task["replica"]])
        if self.log is None or self.plan is None:
            return
        if self._listeners:
            progress = replace(progress, lag=lag_behind(self.log, self.plan, self._positions, progress.batch))
        for listener in [self._meter, *([self.metrics] if self.metrics else ()), *self._listeners]:
            try:
                listener(progress)
            except Exception:  # noqa: BLE001 - logged; the application goes on
                _log.exception("a progress listener raised")

    def _measure(self, every_s: float = 0.0) -> None:
        """Look how far the application is behind, if so much time has passed since the last look."""
        if self.metrics and self.log and self.plan and time.monotonic() - self._measured >= every_s:
            self._measured = time.monotonic()
            self.metrics.parallelism = self._engine.parallelism if self._engine else 0
            self._meter.behind(self.metrics.look(self.log, self.plan.external_topics, dict(self._positions)))
