"""Micro-batches: an application as one query of Structured Streaming, and the preparation of its start."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.application.application_note import note_application
from penstock.engines.application.identities import check_log_identity
from penstock.engines.application.internal_topic_creation import prepare_changelogs
from penstock.engines.application.locations import log_settings
from penstock.engines.application.stored_plans import read_stored_plan, resumable_plan, write_stored_plan
from penstock.engines.dataframes import dataframe_queries
from penstock.engines.micro_batches.query import BatchQuery
from penstock.engines.micro_batches.recovery.lost_checkpoint import is_takeover_unfinished, start_over, take_up
from penstock.engines.micro_batches.recovery.moved_stores import move_stores
from penstock.engines.micro_batches.recovery.rebuild import check_put_back
from penstock.engines.micro_batches.takeovers import (
    ResetElsewhereError,
    TakenOverError,
    check_changelog_ends,
    check_group,
    note_changelog_ends,
)
from penstock.engines.offsets.start_positions import read_settings_of, take_up_group_resets
from penstock.engines.spark import fault_injection
from penstock.engines.spark.job import SparkJob
from penstock.engines.spark.session import dataframe_query_settings, users_spark_settings
from penstock.engines.spark.topology_bytes import pickle_app
from penstock.errors import LogError, PenstockError, UnknownTopicError
from penstock.log.groups.offset_regressions import MARK
from penstock.topology.configured import with_serdes
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.engines.engine import Start
    from penstock.engines.spark.progress import BatchProgress
    from penstock.log.base import GroupMembership, Lease, TopicLog, TopicPartition
    from penstock.query.instances import HostInfo
    from penstock.state.restores.restore_progress import Restore
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["MicroBatches", "prepare_job"]


def prepare_job(app: PlannedApp, lease: Lease, *, parallelism: int, until_latest: bool) -> SparkJob:
    """Compare the checkpoint with the application, note the new plan in it, and make the job for the workers.

    Args:
        app: The application.
        lease: Its lease.
        parallelism: The number of Spark tasks that can run at once.
        until_latest: Whether the run ends at the present ends of the topics.

    Raises:
        CheckpointMismatchError: The checkpoint is of another application or an incompatible topology.
        MissingSegmentError: A store is put back, or moves to another sub-topology, and segments of it are lost.
        TopologyError: A function cannot be pickled.
    """
    topology, config, plan, log = app.topology, app.config, app.plan, app.log
    pickled_app = pickle_app(topology, config)
    checkpoint = app.checkpoint
    before = resumable_plan(checkpoint, app.document, plan, log, config["penstock.state.drop"])
    check_log_identity(checkpoint, log, app.application, loss_fails=app.loss_fails)
    lost: frozenset[str] = frozenset()
    if before is not None:
        before, lost = _as_others_left_it(app, lease, before)
    if before is not None:
        check_group(checkpoint, log, app.application)
    if before is not None:
        check_put_back(app, before)
    prepare_changelogs(app, before, lost)
    if before is not None:
        move_stores(app, before, lease)
    note_changelog_ends(checkpoint, log, [each.topic for each in app.changelogs])
    stored = StoredPlan.first(app.document, app.fingerprint)
    if before is not None:
        stored = before.followed_by(app.document, app.fingerprint, log.ledger(app.application))
    write_stored_plan(checkpoint, stored, topology, config)
    note_application(app, stored, lease)
    return SparkJob(
        plan=plan,
        pickled_app=pickled_app,
        log_url=log.url,
        log_settings=log_settings(config),
        epoch=lease.epoch,
        checkpoint=checkpoint,
        replica_root=app.places.replicas,
        fingerprint=app.fingerprint,
        accepts=stored.fingerprints,
        unsegmented=dict(stored.unsegmented),
        exactly_once=config["processing.guarantee"] == "exactly_once_v2",
        parallelism=parallelism,
        reading=read_settings_of(topology, plan, config),
        tick_ms=int(config["penstock.tick.interval.ms"]) if plan.ticks else 0,
        until_latest=until_latest,
        driver_pid=os.getpid(),
        changelogs={each.store: each.topic for each in app.changelogs if each.store},
        numbers_topic=next((each.topic for each in app.changelogs if not each.store), None),
        journal=app.places.journal,
        group_resets=take_up_group_resets(checkpoint, log, lease, plan.external_topics),
    )


def _as_others_left_it(app: PlannedApp, lease: Lease, before: StoredPlan) -> tuple[StoredPlan | None, frozenset[str]]:
    """Take up the work of other programs on the application since its checkpoint was written.

    Returns:
        The plan that the checkpoint now holds, and the changelogs that do not hold the whole contents of their stores.
    """
    try:
        if is_takeover_unfinished(app.checkpoint):
            take_up(app.topology, app.config, app.log, lease, None)
        return before, check_changelog_ends(app, before.homes())
    except TakenOverError as error:
        take_up(app.topology, app.config, app.log, lease, error)
        return read_stored_plan(app.checkpoint), frozenset()
    except ResetElsewhereError as error:
        start_over(app.config, app.log, error)
        check_log_identity(app.checkpoint, app.log, app.application, loss_fails=app.loss_fails)
        return None, frozenset()


_log = own_logger(__name__)
_NOTE_S = 5.0
_MOST_RESTARTS = 3  # of the query, without a batch in between


class MicroBatches:
    """The `Engine` of micro-batches.

    The checkpoint holds its plan and its positions; the group's offsets are committed for other tools.

    Args:
        config: The application's settings.
        on_batch: Called on the driver after each batch that did something.
        reads_nothing: Whether it only finishes what is half done, for a conversion.
    """

    mode = "micro_batch"
    plans_at_resume = False
    has_batches = True
    spare_slots = 0
    shares_tasks = False
    stored_plan: StoredPlan | None = None

    def __init__(
        self, config: StreamsConfig, on_batch: Callable[[BatchProgress], None], *, reads_nothing: bool
    ) -> None:
        self._config, self._on_batch, self._reads_nothing = config, on_batch, reads_nothing
        self._query: BatchQuery | None = None
        self._started: Start | None = None
        self._changelogs: list[str] = []
        self._replicas: dict[str, dict[str, int | None]] = {}
        self._committed_batch, self._noted = -1, time.monotonic()
        self._restarts = 0
        self._crashed: tuple[object, object] = (None, None)  # the task that ended its process last, and its batch

    def check(self, topology: Topology, *, until_latest: bool) -> None:
        """Accept every topology."""

    def may_share(self, *, until_latest: bool) -> bool:  # noqa: ARG002 - the engines' interface
        """Return False: one driver plans each batch."""
        return False

    def sharing_identity(self, app: PlannedApp) -> str:  # noqa: ARG002 - the engines' interface
        """Return nothing: no tasks are shared."""
        return ""

    def why_not_shared(self, app: PlannedApp) -> str:  # noqa: ARG002 - the engines' interface
        """Return why not."""
        return "it runs in micro-batches"

    def share(self) -> None:
        """Do nothing: no tasks are shared."""

    def forget_dead(self, app: PlannedApp) -> None:
        """Do nothing: it has no members."""

    def read_notes(self, log: TopicLog) -> None:
        """Do nothing: the checkpoint has the plan."""

    def take_notes(self, log: TopicLog, lease: Lease | None) -> bool:  # noqa: ARG002 - the engines' interface
        """Return that nothing has changed: the checkpoint has the plan."""
        return False

    @property
    def spark_settings(self) -> Mapping[str, Any]:
        """The user's settings of Spark."""
        return users_spark_settings(self._config)

    def cores_to_leave(self, cores: int, topology: Topology) -> int:  # noqa: ARG002 - the engines' interface
        """Return none: all are free between batches."""
        return 0

    def keeps(self, cores: int) -> bool:  # noqa: ARG002 - the engines' interface
        """Return that they are free between batches."""
        return False

    def topics_of_group(self, plan: PhysicalPlan) -> list[str]:
        """Return the source topics."""
        return list(plan.external_topics)

    def known_offsets(self) -> Mapping[TopicPartition, int]:
        """Return nothing: the driver commits for its tasks."""
        return {}

    def start(self, start: Start) -> None:
        """Compare the checkpoint with the application, and start the query."""
        start.doing("planning the query")
        app, self._started = start.app, start
        job = prepare_job(app, start.own_lease, parallelism=start.slots, until_latest=start.until_latest)
        job = replace(job, reads_nothing=self._reads_nothing)
        self._changelogs = [*job.changelogs.values(), *([job.numbers_topic] if job.numbers_topic else [])]
        settings = dataframe_query_settings(self.spark_settings, job.checkpoint)
        topology = with_serdes(app.topology, self._config)
        queries = []
        if not self._reads_nothing:  # what is half done is in their topics
            queries = dataframe_queries(topology, app.log, start.own_lease, job.checkpoint, settings)
        self._query = BatchQuery(start.spark.session, job, self._batch_done, queries)
        self._query.start(int(self._config["commit.interval.ms"]))
        start.doing("starting the query and its Python workers")

    def _batch_done(self, progress: BatchProgress) -> None:
        for task in progress.tasks:
            if "replica" in task:
                self._replicas.setdefault(task["task"], {}).update([task["replica"]])
        self._on_batch(progress)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the query for a while; return whether it has ended. Raise the error that ended it, if any."""
        assert self._query is not None, "call start() first"  # noqa: S101
        return self._query.wait(timeout_s)

    def has_running_tasks(self) -> bool:
        """Return whether a batch has run, or workers are ready and there is nothing to do yet."""
        return self._query is not None and self._query.has_running_tasks()

    def has_room_for(self, plan: PhysicalPlan) -> int:
        """Return the number of tasks of the widest stage."""
        return max(plan.run_count(level) for level in range(plan.levels))

    def extend(self, start: Start) -> bool:  # noqa: ARG002 - the engines' interface
        """Return that a running query keeps its plan."""
        return False

    def serve_at(self, address: HostInfo | None) -> None:
        """Do nothing: instances are registered in the checkpoint."""

    def wants_plan(self) -> bool:
        """Return False: the plan says which tasks there are."""
        return False

    def may_recover(self, error: PenstockError, is_removed: Callable[[], bool]) -> bool:  # noqa: ARG002 - as above
        """Return whether the loss of a process has ended the query, and not the same task's as before."""
        if not error.facts.get("lost_process") or self._restarts >= _MOST_RESTARTS:
            return False
        crashed = (error.facts.get("task"), error.facts.get("batch"))
        if crashed[0] is not None and crashed == self._crashed:  # it would end its process again
            return False
        self._crashed = crashed
        self._restarts += 1
        _log.warning("%s; the query is started again (%d of %d)", error.message, self._restarts, _MOST_RESTARTS)
        return True

    def suspend(self) -> None:
        """End the query, and commit the offsets of its last batch."""
        self.stop()
        self.commit()

    def resume(self, start: Start) -> None:
        """Start the query again; the new lease fences a task that still runs somewhere."""
        start.attend()
        self.start(start)

    def show_membership(self, membership: GroupMembership | tuple[()]) -> None:
        """Do nothing: the driver commits with the lease."""

    def commit(self) -> None:
        """Commit the offsets of the last batch to the group, for lag tools; the checkpoint holds the truth."""
        committed = self._query.committed() if self._query is not None else None
        if committed is None or committed[0] <= self._committed_batch or self._started is None:
            return
        fault_injection.reach(5, committed[0], "driver", os.getpid())
        self._committed_batch = committed[0]
        self._restarts = 0
        app = self._started.app
        try:
            mark = f"{MARK} batch {committed[0]}"
            app.log.commit_offsets(app.application, committed[1], mark, self._started.lease)
        except (LogError, UnknownTopicError) as error:  # lag tools will see it late, nothing else needs it
            _log.warning("the group's offsets are not committed: %s", error)
        if time.monotonic() - self._noted > _NOTE_S:
            self.note_end()

    def note_end(self) -> None:
        """Note the ends of the changelogs, so that the next start sees whether others have written to them."""
        if self._started is None or not self._changelogs:
            return
        self._noted, app = time.monotonic(), self._started.app
        try:
            note_changelog_ends(app.checkpoint, app.log, self._changelogs, self._committed_batch)
        except PenstockError as error:  # without the note, the next start compares the records
            _log.warning("the ends of the changelogs are not noted: %s", error)

    def stop(self) -> None:
        """End the query, between two batches if that comes soon."""
        if self._query is not None:
            self._query.stop()

    @property
    def parallelism(self) -> int:
        """The most tasks that Spark runs at a time."""
        return 0 if self._query is None else self._query.parallelism

    def step(self) -> str:
        """Return nothing: Spark does not say what it does before the first batch."""
        return ""

    def phase(self) -> str:
        """Describe what the query is doing now."""
        return "" if self._query is None else self._query.phase()

    def under_way(self) -> Sequence[Restore]:
        """Return the restores of tasks that take longer than a second."""
        return () if self._query is None else self._query.under_way()

    def long_steps(self) -> Sequence[Mapping[str, Any]]:
        """Return the tasks of this machine that are in one step of the batch for long."""
        return () if self._query is None else self._query.long_steps()

    def replicas(self) -> dict[str, dict[str, int | None]]:
        """Return the machines on which each task has run, with the batch of the replica there."""
        return {task: dict(machines) for task, machines in self._replicas.items()}
