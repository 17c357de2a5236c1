"""A started application on the driver: its lease, plan and query, and its upkeep while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.app_metrics import committed_by_name, lag_behind, with_known_ends
from penstock.engines.application.application_lease import LeaseTenure, SharedTenure, wait_for_lease, wait_to_share
from penstock.engines.application.application_mode import (
    in_mode,
    is_in_another_mode,
    known_mode,
    may_have_run,
    require_mode,
    with_mode,
)
from penstock.engines.application.application_note import note_sinks
from penstock.engines.application.locations import Locations, open_app_log
from penstock.engines.application.log_needs import needs_of
from penstock.engines.application.planning import PlannedApp, create_missing, create_sources, plan_for
from penstock.engines.application_figures import BatchMeter
from penstock.engines.engine import Start
from penstock.engines.factory import engine_of
from penstock.engines.spark.java_archive import make_in_background
from penstock.engines.spark.session import SparkApplication, plans_queries, spare_slots, spark_for
from penstock.engines.spark.task_slots import CoreWatch, task_slots
from penstock.engines.spark.worker_process import check_open_files
from penstock.errors import FencedError, LogError, LogUnavailableError, PenstockError, UnknownTopicError
from penstock.log.client_counts import rebalancing
from penstock.log.url import kafka_servers
from penstock.topology.plan.plan import changed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.config import StreamsConfig
    from penstock.engines.app_metrics import AppMetrics
    from penstock.engines.application.application_lease import Tenure
    from penstock.engines.spark.progress import BatchProgress
    from penstock.log.base import Lease, TopicLog
    from penstock.state.restores.restore_progress import StateRestoreListener
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["Run"]

_log = own_logger(__name__)
_LAG_EVERY_S = 1.0
_LOOK_S = 0.1
_PLAN_S = 1.0  # between two looks for topics that have grown, as the group says
_JOIN_S = 10.0


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
        spark: The Spark that it runs in; None before the start.
        restore_listener: Called while stream threads restore stores.
        waits_for_lease: Whether a run that cannot share its tasks waits while another instance has the lease.
        is_stopped: Returns whether the run is to end.
        engine: What runs the tasks.
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
        self.topology, self.config, self._session = topology, config, session
        self.restore_listener: StateRestoreListener | None = None
        self.metrics: AppMetrics | None = None
        self.waits_for_lease = False
        self.is_stopped: Callable[[], bool] = lambda: False
        self.spark: SparkApplication | None = None
        self.log: TopicLog | None = None
        self.plan: PhysicalPlan | None = None
        self.places: Locations | None = None
        self._reads_nothing = reads_nothing
        self.engine = engine_of(config, self._batch_done, reads_nothing=reads_nothing)
        self._listeners, self._meter = listeners, meter
        self._measured, self._has_run = 0.0, False
        self._positions: dict[str, int] = {}
        self._until_latest = False
        self._cores: CoreWatch | None = None
        self._tenure: Tenure | None = None
        self._looked = time.monotonic()

    @property
    def until_latest(self) -> bool:
        """Whether it ends when the records that existed at the start have been processed."""
        return self._until_latest

    def launch(self, *, until_latest: bool) -> None:
        """Check everything and start the query; after an error call `release`."""
        self._meter.doing("looking at topics and state")
        log = self.log = open_app_log(self.config)
        log.give_up_at_end(self.is_stopped, self.config["penstock.shutdown.timeout.ms"] / 1000)
        self._settle_mode(log)
        create_sources(self.topology, self.config, log)
        self.engine.check(self.topology, until_latest=until_latest)
        if is_in_another_mode(self.config, log):
            from penstock.engines.conversion import convert_at_start

            convert_at_start(self.topology, self.config, log, self.finish_in)
        self.engine.read_notes(log)
        self.plan = self._plan(log)
        places = self.places = Locations.of(self.config, log)
        places.prepare()
        log.require_able(needs_of(self.topology, self.config, self.plan))
        self.engine.forget_dead(self._planned())
        tenure = self._entitle(log, until_latest=until_latest)
        has_changed = self.engine.take_notes(log, tenure.lease)
        if create_missing(self.topology, self.config, log) or has_changed:
            self.plan = self._plan(log)
        check_open_files(self.plan)
        self._attend()
        note_sinks(self.topology, self.config, log)
        self._start_spark()
        self._start_engine(until_latest=until_latest)

    def _start_spark(self) -> None:
        """Have a Spark, if there is none yet."""
        if self.spark is not None:
            return
        assert self.places is not None  # noqa: S101 - launch() comes first
        self._meter.doing("starting Spark")
        rows_in_jvm = bool(self.topology.dataframes)
        self.spark = spark_for(
            self.engine.spark_settings, self.config["application.id"], self.places.journal or self.places.checkpoint,
            session=self._session, rows_in_jvm=rows_in_jvm, uses_sql=plans_queries(self.config),
            spare=self.engine.spare_slots,
        )  # fmt: skip

    def _settle_mode(self, log: TopicLog) -> None:
        """Keep the mode of earlier runs if none is set, and say so."""
        mode = known_mode(self.config, log)
        users_config, self.config = self.config, in_mode(self.config, mode)
        if self.config is not users_config:
            self.engine = engine_of(self.config, self._batch_done, reads_nothing=self._reads_nothing)
            _log.warning(
                "%s goes on in micro-batches, as it has run in them and processing.mode is not set; "
                "processing.mode=continuous converts it to stream threads, which are the default",
                self.config["application.id"],
            )
        elif mode is None and may_have_run(self.config, log):
            _log.info(
                "%s runs in stream threads, the default of processing.mode; nothing but offsets of its group shows "
                "that it may have run before: if it has, in micro-batches, set processing.mode=micro_batch",
                self.config["application.id"],
            )
        if not self._reads_nothing:
            for sentence in self.config.ineffective():
                _log.warning("%s", sentence)
        self._meter.has_batches = self.engine.has_batches

    def finish_in(self, mode: str) -> None:
        """Finish what is half done in a mode, in a run of its own that reads nothing new; for conversions."""
        config, is_clean = with_mode(self.config, mode), False
        run = Run(self.topology, config, self._session, (), BatchMeter(config["application.id"]), reads_nothing=True)
        try:
            run.launch(until_latest=True)
            while not is_clean:
                is_clean = run.wait(_LOOK_S)
        finally:
            run.release(commit=is_clean)

    @property
    def lease(self) -> Lease | None:
        """The lease; None before the start, and where instances share the tasks."""
        return None if self._tenure is None else self._tenure.lease

    def _entitle(self, log: TopicLog, *, until_latest: bool) -> Tenure:
        """Take the right to run: alone, or with other instances.

        Raises:
            FencedError: An instance runs that does not share its tasks with this one.
        """
        engine, application = self.engine, self.config["application.id"]
        if not engine.shares_tasks:
            lease = LeaseTenure(log, self.config)
            self._tenure = lease
            if self.waits_for_lease and engine.has_batches and not until_latest:
                self._wait_for_lease(log, lease)
                return lease
            if not engine.may_share(until_latest=until_latest):
                lease.take()
                return lease
            app = self._planned()
            identity, why_not_shared = engine.sharing_identity(app), partial(engine.why_not_shared, app)
            if not wait_to_share(log, application, lease, identity, why_not_shared, self._meter.doing):
                lease.offer_to_share(identity, self.wake)
                return lease
            engine.share()
        shared = self._tenure = SharedTenure(log, self.config)
        shared.take()
        return shared

    def _wait_for_lease(self, log: TopicLog, lease: LeaseTenure) -> None:
        """Take the lease, after an instance that has it now has gone; meanwhile Spark is started.

        Raises:
            FencedError: The other instance does not let this one wait.
        """
        application = self.config["application.id"]

        def wait(held: Lease) -> None:
            if self.spark is None:
                _log.warning(
                    "%s runs already, in process %d on %s: this instance waits, and takes over when that one has gone",
                    application, held.pid, held.host,
                )  # fmt: skip
                self._start_spark()
            self._meter.doing(f"waiting for the end of process {held.pid} on {held.host}")

        if wait_for_lease(log, application, lease, wait, self.is_stopped):
            _log.warning("%s: the instance that had it has gone, and this one takes over", application)
            self.plan = self._plan(log)  # topics may have come, or grown

    def may_share(self) -> bool:
        """Return whether to go over to sharing, as another instance asks; if not, answer it with the reason."""
        tenure = self._tenure
        if tenure is None or not tenure.is_asked_to_share:
            return False
        try:
            reason = self._obstacle(tenure)
            if reason:
                _log.warning("%s: another start is refused: %s", self.config["application.id"], reason)
                tenure.refuse_to_share(reason)
        except LogError as error:  # the log is away: who asks waits, and this instance goes on
            _log.debug("whether the tasks can be shared is not known: %s", error.message)
            return False
        return not reason

    def _obstacle(self, tenure: Tenure) -> str:
        """Return why the tasks cannot be shared; empty: they can.

        Raises:
            LogUnavailableError, FencedError: It is not known; the watch of the run finds out more.
        """
        try:
            if reason := self.engine.why_not_shared(self._planned()):
                return reason
            is_embedded = kafka_servers(str(self.config["bootstrap.servers"])) is None
            if not is_embedded and tenure.membership(_JOIN_S) is None:
                return "it is not a member of its group, which it may not be allowed to join"
        except (LogUnavailableError, FencedError):
            raise
        except LogError as error:  # it may not ask
            return error.message
        return ""

    @rebalancing()
    def share(self) -> None:
        """Go on with the other instances that ask for it, as members of the application's group.

        After an error `recover` goes on with it.

        Raises:
            FencedError: An instance has taken over that does not share its tasks.
        """
        assert self._tenure is not None and self.log is not None  # noqa: S101, PT018 - launch() comes first
        _log.info("another instance of %s starts: they share its tasks from now on", self.config["application.id"])
        self.engine.suspend()
        alone = self._tenure
        self.engine.share()
        self._tenure = SharedTenure(self.log, self.config, alone.lease)  # which goes on with what fails from here on
        alone.give_back()
        self._tenure.take()
        self.engine.resume(self._start())

    def _attend(self) -> None:
        """Join the application's group, so that other tools see that it runs."""
        assert self._tenure is not None and self.plan is not None  # noqa: S101, PT018 - launch() comes first
        self._tenure.attend(self.engine.topics_of_group(self.plan), self.engine.known_offsets)

    def _join(self) -> None:
        """Join the group with the topics that are there now, and wait: threads commit in the name of the member."""
        self._attend()
        self._look_at_membership(_JOIN_S)

    def _look_at_membership(self, timeout_s: float = 0.0) -> None:
        """Tell the engine in whose name it commits.

        Raises:
            FencedError: Another program has removed the application from its group, or a newer instance is the member.
        """
        assert self._tenure is not None  # noqa: S101 - launch() comes first
        try:
            membership = self._tenure.membership(timeout_s)
        except FencedError:
            self.engine.show_membership(())
            raise
        if membership is not None:
            self.engine.show_membership(membership)

    def _start_engine(self, *, until_latest: bool) -> None:
        self._until_latest = until_latest
        spark, log = self.spark, self.log
        assert spark is not None and log is not None  # noqa: S101, PT018 - launch() comes first
        require_mode(Locations.of(self.config, log).checkpoint, self.engine.mode)
        is_shared = not spark.is_new and not until_latest and not spare_slots(spark.context)
        free = self.engine.cores_to_leave(task_slots(spark.context), self.topology) if is_shared else 0
        self._cores = CoreWatch(lambda: max(1, task_slots(spark.context) - free))
        self.engine.start(self._start())

    def _start(self) -> Start:
        """Return what the engine starts, or goes on, with, over the present cores."""
        assert self.spark is not None and self._cores is not None  # noqa: S101, PT018 - launch() comes first
        return Start(
            spark=self.spark,
            app=self._planned(),
            lease=self.lease,
            slots=self._cores.plan(),
            until_latest=self._until_latest,
            restore_listener=self.restore_listener,
            attend=self._attend,
            join=self._join,
            doing=self._meter.doing,
        )

    def _planned(self) -> PlannedApp:
        assert self.log is not None and self.plan is not None  # noqa: S101, PT018 - launch() comes first
        return PlannedApp(self.topology, self.config, self.plan, self.log)

    def _plan(self, log: TopicLog) -> PhysicalPlan:
        return plan_for(self.topology, self.config, log, self.engine.stored_plan)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the query for a while; return whether it has ended. Raise the error that ended it, if any."""
        if self.engine.wait(timeout_s):
            return True
        self._look_at_membership()
        self.engine.commit()
        self._measure(_LAG_EVERY_S)
        assert self._tenure is not None  # noqa: S101 - launch() comes first
        self._tenure.check()
        return False

    def wake(self) -> None:
        """End a call of `wait`: there is something to see."""
        self.engine.wake()

    def warn_of_taken_cores(self) -> None:
        """Say that a query in the application's session would wait, if the tasks keep all cores."""
        spark = self.spark
        if spark is None or spare_slots(spark.context):
            return
        if self.engine.keeps(task_slots(spark.context)):
            _log.warning(
                "stream threads use all of Spark's cores: a query of a DataFrame waits until one is free. Set "
                "num.stream.threads to fewer, give Spark more, or set processing.mode=micro_batch"
            )

    def has_running_tasks(self) -> bool:
        """Return whether workers are ready, and the query has run a batch or found nothing to do."""
        if not self.engine.has_running_tasks():
            if step := self.engine.step():
                self._meter.doing(step)
            return False
        self.note_tasks_ran()
        if not self._has_run:
            self._has_run = True
            make_in_background(with_sql=plans_queries(self.config) or bool(self.topology.dataframes))
        return True

    def note_tasks_ran(self) -> None:
        """Log that tasks have run, also of a query that ended before anybody looked; says nothing twice."""
        self._meter.doing("")

    def new_plan(self) -> PhysicalPlan | None:
        """Return the plan to go on with if topics appeared or grew, or executors came; checked at intervals."""
        if self._have_cores_come():
            return self.plan
        every_s = _PLAN_S if self.engine.wants_plan() else int(self.config["metadata.max.age.ms"]) / 1000
        if time.monotonic() - self._looked < every_s:
            return None
        self._looked = time.monotonic()
        assert self.log is not None and self.plan is not None  # noqa: S101, PT018 - launch() comes first
        try:
            plan = self._plan(self.log)
        except (UnknownTopicError, LogUnavailableError) as error:  # those who read find out, and whether it comes back
            _log.debug("no new plan: %s", error.message)
            return None
        return plan if changed(self.plan, plan, self.topology) else None

    def plan_anew(self) -> bool:
        """Plan over the topics that are there now, before a new epoch; return whether none is missing."""
        if self.engine.plans_at_resume:
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
        return self._cores.have_come(self.engine.has_room_for(self.plan))

    @rebalancing()
    def rebalance(self, plan: PhysicalPlan) -> None:
        """Go on with this plan, over the present cores: within the running epoch, or after an end of the query.

        Raises:
            CheckpointMismatchError: The state does not fit the new plan.
        """
        _log.info("topics or executors have changed: %s is planned again", plan.application_id)
        self.plan = plan
        if not self.engine.extend(self._start()):
            self._begin_again()

    def may_recover(self, error: PenstockError) -> bool:
        """Return whether the loss of a process ended the query or epoch, so that a restart may succeed."""
        return self.spark is not None and self.spark.is_running() and self.engine.may_recover(error, self._is_removed)

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
        assert self._tenure is not None  # noqa: S101 - launch() comes first
        self._tenure.keep_sharing()
        self.engine.suspend()
        self._tenure.take()
        self.engine.resume(self._start())

    def stop(self) -> None:
        """End the query."""
        self.engine.stop()

    def release(self, *, commit: bool = False) -> None:
        """End the query and release lease, log and session; a step that fails does not prevent the others.

        Args:
            commit: Whether to commit the group's offsets.
        """
        self.stop()
        steps: list[Callable[[], object]] = [self.engine.commit, self.engine.note_end, self._measure] if commit else []
        if self.log is not None:
            if self._tenure is not None:
                steps.append(self._tenure.give_back)
            steps.append(self.log.close)
        if self.spark is not None:
            steps.append(self.spark.release)
        for step in steps:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the broker, or Spark's JVM, may be the reason for ending
                _log.warning("while the application ended: %s", error)

    def _batch_done(self, progress: BatchProgress) -> None:
        for task in progress.tasks:
            self._positions |= task.get("ends", {})
        if self.log is None or self.plan is None:
            return
        if self._listeners:
            progress = replace(progress, lag=lag_behind(self.log, self.plan, self._positions, progress.batch))
        elif self.metrics:
            progress = replace(progress, lag=with_known_ends(progress.lag, self._positions, self.metrics.lags()))
        for listener in [self._meter, *([self.metrics] if self.metrics else ()), *self._listeners]:
            try:
                listener(progress)
            except Exception:  # noqa: BLE001 - logged; the application goes on
                _log.exception("a progress listener raised")

    def _measure(self, every_s: float = 0.0) -> None:
        """Look how far the application is behind, if so much time has passed since the last look."""
        if self.metrics and self.log and self.plan and time.monotonic() - self._measured >= every_s:
            self._measured = time.monotonic()
            if self.engine.shares_tasks:  # others go on with tasks that were here
                for name, offset in committed_by_name(self.log, self.plan.application_id).items():
                    self._positions[name] = max(offset, self._positions.get(name, 0))
            self.metrics.parallelism = self.engine.parallelism
            self._meter.behind(self.metrics.look(self.log, self.plan.external_topics, dict(self._positions)))
