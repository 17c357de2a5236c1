"""One start of an application on the driver: lease, plan and query, and what is looked after while it runs."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import AppFailedError, LogError
from penstock.plan.plan import changed
from penstock.spark import faults
from penstock.spark.engine import Engine
from penstock.spark.feed import feeds_of
from penstock.spark.launch import Places, create_missing, open_app_log, plan_for, prepare_job
from penstock.spark.moves import MARK
from penstock.spark.realtime import RealtimeEngine, require_mode, require_realtime
from penstock.spark.session import session_for
from penstock.topology.configured_serdes import with_serdes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.log.coordination import Lease
    from penstock.plan.plan import PhysicalPlan
    from penstock.spark.progress import BatchProgress
    from penstock.topology.topology import Topology

__all__ = ["LEASE_TTL_MS", "Run"]

_log = logging.getLogger(__name__)
LEASE_TTL_MS = 30_000
_HEARTBEAT_S = 5.0
_MOST_RESTARTS = 3  # of the query, without a batch in between


class Run:
    """Holds what a running application has: its log, lease, plan, session and engine.

    Args:
        topology: What runs.
        config: Its settings.
        session: The user's own Spark session; None: the active one, or a new one.
        listeners: Called after each batch that did something; may grow.

    Attributes:
        replicas: Task -> machine -> the batch that its replica held when the task last ran there: the machines but the
            last are the task's standbys.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        session: SparkSession | None,
        listeners: Sequence[Callable[[BatchProgress], None]],
    ) -> None:
        self.topology = topology
        self.config = config
        self.session = session
        self.log: TopicLog | None = None
        self.lease: Lease | None = None
        self.plan: PhysicalPlan | None = None
        self._engine: Engine | None = None
        self._listeners = listeners
        self._owns_session = False
        self._positions: dict[str, int] = {}
        self.replicas: dict[str, dict[str, int]] = {}
        self._committed_batch = -1
        self._until_latest = False
        self._restarts = 0
        self._beat = self._looked = time.monotonic()

    def launch(self, *, until_latest: bool) -> None:
        """Checks everything and starts the query; after an error call `release`."""
        log = self.log = open_app_log(self.config)
        self.plan = plan_for(self.topology, self.config, log)
        places = Places.of(self.config)
        places.check()
        application = self.config["application.id"]
        self._take_lease(log)
        if create_missing(self.topology, self.config, log):
            self.plan = plan_for(self.topology, self.config, log)
        settings = {f"spark.{name}": value for name, value in self.config.with_prefix("spark.").items()}
        given = self.session
        rows_in_jvm = self._is_realtime or bool(self.topology.dataframes)
        self.session, is_new = session_for(
            settings, application, places.checkpoint, session=given, rows_in_jvm=rows_in_jvm
        )
        self._owns_session = given is None and is_new
        self._start_engine(until_latest=until_latest)

    def _take_lease(self, log: TopicLog, *, again: bool = False) -> Lease:
        owner = self.config["client.id"] or f"{socket.gethostname()}:{os.getpid()}"
        self.lease = log.acquire_lease(self.config["application.id"], owner, LEASE_TTL_MS, force=again)
        return self.lease

    def _start_engine(self, *, until_latest: bool) -> None:
        self._until_latest = until_latest
        session, log, lease, plan = self.session, self.log, self.lease, self.plan
        assert session is not None and log is not None and lease is not None and plan is not None  # noqa: S101, PT018
        if self._is_realtime:
            require_realtime(self.topology, self.config, plan, until_latest=until_latest)
        require_mode(Places.of(self.config).checkpoint, self.config["processing.mode"])
        job = prepare_job(
            self.topology,
            self.config,
            plan,
            log,
            lease,
            parallelism=session.sparkContext.defaultParallelism,
            until_latest=until_latest,
        )
        feeds = feeds_of(with_serdes(self.topology, self.config), log, lease, job.checkpoint)
        engine = RealtimeEngine if self._is_realtime else Engine
        self._engine = engine(session, job, self._batch_done, feeds)
        self._engine.start(int(self.config["commit.interval.ms"]))

    @property
    def _is_realtime(self) -> bool:
        return bool(self.config["processing.mode"] == "realtime")

    def wait(self, timeout_s: float) -> bool:
        """Looks after the query for a while; True when it has ended. Raises what made it fail."""
        assert self._engine is not None  # noqa: S101 - launch() comes first
        if self._engine.wait(timeout_s):
            return True
        self.commit_group()
        if time.monotonic() - self._beat > _HEARTBEAT_S and self.log is not None and self.lease is not None:
            self.log.renew_lease(self.lease)
            self._beat = time.monotonic()
        return False

    def new_plan(self) -> PhysicalPlan | None:
        """Another plan than the one that runs, if topics have appeared or grown; looked for at intervals."""
        if time.monotonic() - self._looked < int(self.config["metadata.max.age.ms"]) / 1000:
            return None
        self._looked = time.monotonic()
        assert self.log is not None and self.plan is not None  # noqa: S101, PT018 - launch() comes first
        plan = plan_for(self.topology, self.config, self.log)
        return plan if changed(self.plan, plan, self.topology) else None

    def rebalance(self, plan: PhysicalPlan) -> None:
        """Ends the query between two batches and goes on with another plan.

        Raises:
            CheckpointMismatchError: The state does not fit the new plan.
        """
        _log.info("topics have changed: %s is planned anew", plan.application_id)
        self.plan = plan
        self._begin_again()

    def may_recover(self, error: AppFailedError) -> bool:
        """Whether the loss of a process has ended the query, which may go well the next time."""
        if not error.facts.get("lost_process") or self._restarts >= _MOST_RESTARTS or not self._has_spark():
            return False
        self._restarts += 1
        _log.warning("%s; the query is started again (%d of %d)", error.message, self._restarts, _MOST_RESTARTS)
        return True

    def recover(self) -> None:
        """Starts the query again: it continues where it stopped, as at any start."""
        self._begin_again()

    def _begin_again(self) -> None:
        assert self.log is not None  # noqa: S101 - launch() comes first
        self.stop()
        self.commit_group()
        self._take_lease(self.log, again=True)  # a task that still runs somewhere is fenced
        self._start_engine(until_latest=self._until_latest)

    def _has_spark(self) -> bool:
        session: Any = self.session
        try:
            return not session.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - there is no public way
        except Exception:  # noqa: BLE001 - its JVM is gone
            return False

    def commit_group(self) -> None:
        """Offsets of what Spark has committed, for lag tools; the truth is in the checkpoint."""
        committed = self._engine.committed() if self._engine is not None else None
        if committed is not None and committed[0] > self._committed_batch and self.log is not None:
            faults.reach(5, committed[0], "driver", os.getpid())
            self._committed_batch = committed[0]
            self._restarts = 0
            try:
                self.log.commit_offsets(self.config["application.id"], committed[1], f"{MARK} batch {committed[0]}")
            except LogError as error:  # lag tools will see it late, nothing else needs it
                _log.warning("the group's offsets are not committed: %s", error)

    def stop(self) -> None:
        """Ends the query."""
        if self._engine is not None:
            self._engine.stop()

    def release(self, *, commit: bool = False) -> None:
        """Ends the query and gives back lease, log and session; what has gone already does not keep the rest.

        Args:
            commit: Whether the group's offsets are to be committed.
        """
        self.stop()
        steps: list[Callable[[], object]] = [self.commit_group] if commit else []
        if self.log is not None:
            if self.lease is not None:
                steps.append(partial(self.log.release_lease, self.lease))
            steps.append(self.log.close)
        if self._owns_session and self.session is not None:
            steps.append(self.session.stop)
        for step in steps:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the broker, or Spark's JVM, may be the reason for ending
                _log.warning("while the application ended: %s", error)

    def _batch_done(self, progress: BatchProgress) -> None:
        for task in progress.tasks:
            if "replica" in task:
                host, batch = task["replica"]
                self.replicas.setdefault(task["task"], {})[host] = batch
        log, plan = self.log, self.plan
        if not self._listeners or log is None or plan is None:
            return
        for task in progress.tasks:
            self._positions |= task.get("ends", {})
        try:
            ends = log.end_offsets(list(plan.external_topics))
        except LogError as error:  # the lag is for people: not to know it ends no batch
            _log.warning("the lag after batch %d is not known: %s", progress.batch, error)
            ends = {}
        names = {f"{tp.topic}-{tp.partition}": end for tp, end in ends.items()}
        lag = {name: end - self._positions[name] for name, end in names.items() if name in self._positions}
        progress = replace(progress, lag=lag)
        for listener in self._listeners:
            try:
                listener(progress)
            except Exception:  # noqa: BLE001 - logged; the application goes on
                _log.exception("a progress listener raised")
