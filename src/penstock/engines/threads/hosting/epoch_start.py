"""Preparation of a run's epochs on the driver: topics, positions, the noted plan, fencing, the job for the threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.application.identities import recreated_topics
from penstock.engines.application.internal_topic_creation import create_internal_topics
from penstock.engines.application.locations import log_settings
from penstock.engines.application.stored_plans import write_stored_plan
from penstock.engines.offsets.start_positions import read_settings_of
from penstock.engines.spark.topology_bytes import pickle_app
from penstock.engines.threads.app import ThreadApp, write_noted_app
from penstock.engines.threads.hosting.epoch_job import ContinuousJob
from penstock.engines.threads.hosting.epoch_positions import KnownPositions, commit_start_positions, restore_positions
from penstock.engines.threads.hosting.plan_notes import (
    LogNotes,
    StartNote,
    read_notes,
    share_notes,
    take_notes,
    write_notes,
)
from penstock.errors import CheckpointMismatchError, ConfigError, FencedError
from penstock.topology.configured import with_settings
from penstock.topology.plan.evolution import require_compatible
from penstock.topology.plan.internal_topics import numbers_topic
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.engines.threads.hosting.instance_group import InstanceGroup
    from penstock.log.base import Lease, TopicLog, TopicPartition
    from penstock.log.thread_clients import ThreadClients
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = [
    "SPARE_SLOTS",
    "THREAD_SETTINGS",
    "EpochPlans",
    "NewEpoch",
    "PreparedEpoch",
    "check_own_changelogs",
    "ends_of",
    "placement_settings",
    "prepare_epoch",
    "require_continuous",
]

_log = own_logger(__name__)


@dataclass(frozen=True)
class PreparedEpoch:
    """An epoch that may begin, and the note of it in the log."""

    job: ContinuousJob
    notes: LogNotes


def require_continuous(topology: Topology, config: object) -> None:
    """Raise ConfigError if continuous mode cannot run an application."""
    if topology.stores and not config["penstock.changelog.enabled"]:  # type: ignore[index] # StreamsConfig
        raise ConfigError(
            "processing.mode is continuous, which keeps state in changelogs, and penstock.changelog.enabled is off",
            hint="Leave penstock.changelog.enabled out, or set processing.mode=micro_batch.",
            setting="penstock.changelog.enabled",
        )


def thread_count(plan: PhysicalPlan, slots: int, most: int | None) -> int:
    """Return the number of threads: no more than tasks, than Spark can run at once, and than ``num.stream.threads``."""
    return max(1, min(sum(sub.tasks for sub in plan.subtopologies), slots, most or slots))


def prepare_epoch(
    app: PlannedApp,
    epoch: NewEpoch,
    before: LogNotes | None,
) -> PreparedEpoch:
    """Prepare an epoch; no thread of an earlier one of this instance runs any more, or its commits will fail.

    Args:
        app: The application.
        epoch: The epoch.
        before: The note of the epoch before in this process; None: that in the log, if there is one.

    Raises:
        CheckpointMismatchError: The state is of an incompatible topology, changelogs are gone, or committed offsets
            have gone back.
        CoPartitionError: An internal topic has another number of partitions.
        OffsetOutOfRangeError: Unread records are gone, and ``penstock.data.loss`` is "fail".
        TopologyError: A function cannot be pickled.
    """
    log, config = app.log, app.config
    pickled = pickle_app(app.topology, config)
    before = before or read_notes(log, app.application)
    clients: ThreadClients = log  # type: ignore[assignment] # both logs are
    if before is not None and epoch.is_alone:
        clients.fence_threads(app.application, before.threads, epoch.lease_epoch)
    return _prepared(app, epoch, before, pickled)


def extended_epoch(app: PlannedApp, epoch: NewEpoch, job: ContinuousJob, before: LogNotes) -> PreparedEpoch | None:
    """Prepare more tasks or topics for an epoch that runs; None: they need a new one.

    A new epoch is needed if tasks or topics have gone, if internal topics have other numbers of partitions, if global
    tables read other topics, or if there would be more threads.

    Args:
        app: The application with its new plan.
        epoch: The epoch, with the number of threads that a new one would have.
        job: The epoch that runs.
        before: The note of it.

    Raises:
        CheckpointMismatchError, CoPartitionError, OffsetOutOfRangeError: As `prepare_epoch`.
    """
    if job.bounds is not None or epoch.threads > job.threads or not _is_extension(job.plan, app.plan):
        return None
    return _prepared(app, replace(epoch, threads=job.threads, bounds=None, known=None), before, job.pickled_app)


def _is_extension(old: PhysicalPlan, new: PhysicalPlan) -> bool:
    if old.global_topics != new.global_topics or len(old.subtopologies) != len(new.subtopologies):
        return False
    if any(old.partitions[topic] != new.partitions.get(topic) for topic in old.internal_topics):
        return False
    for was, is_ in zip(old.subtopologies, new.subtopologies, strict=True):
        if replace(was, tasks=is_.tasks, external_topics=is_.external_topics) != is_ or was.tasks > is_.tasks:
            return False
        if not {*was.external_topics} <= {*is_.external_topics}:
            return False
    return True


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """An epoch to prepare.

    Attributes:
        number: Its number: that of the lease, if there is one.
        threads: The number of threads.
        lease: The application's lease, which is new; None: its instances share its tasks.
        instance: The id of the instance; empty with a lease.
        bounds: The offsets to stop at; None: it runs until it is stopped.
        known: The committed offsets that the driver knows of; None: nothing is compared with them.
        is_alone: Whether no thread of another instance runs.
        group_epoch: The epoch of the group that instances share the tasks in.
    """

    number: int
    threads: int
    lease: Lease | None = None
    instance: str = ""
    bounds: dict[TopicPartition, int] | None = None
    known: KnownPositions | None = None
    is_alone: bool = True
    group_epoch: int = -1

    @property
    def lease_epoch(self) -> int | None:
        """The epoch of the lease; None if there is none."""
        return None if self.lease is None else self.lease.epoch

    def write_notes(self, app: PlannedApp, before: LogNotes | None, notes: LogNotes) -> None:
        """Write the note of the application.

        Raises:
            FencedError: Another instance has changed it since: the epoch is to be prepared anew.
        """
        if self.lease is not None:
            write_notes(app.log, self.lease, notes)
        elif not share_notes(app.log, app.application, before, notes):
            raise FencedError(
                f"another instance of {app.application!r} has started with another plan at the same time",
                hint="Start this one again.",
                plan_anew=True,
            )


def _prepared(app: PlannedApp, epoch: NewEpoch, before: LogNotes | None, pickled: bytes) -> PreparedEpoch:
    """Create topics, commit start positions, and note the plan; return the job."""
    log, config, plan = app.log, app.config, app.plan
    if before is not None and epoch.lease is None:
        _refuse_other_guarantee(app, before, epoch)
    stored = _stored_plan(app, before)
    if before is not None:
        check_own_changelogs(app, before)
    create_internal_topics(app, has_run=before is not None)
    own = [each.topic for each in app.changelogs]
    ids = dict(log.topic_ids([*plan.external_topics, *own]))
    recreated = recreated_topics(
        before.topic_ids if before is not None else {},
        {topic: ids[topic] for topic in plan.external_topics if topic in ids},
    )
    if epoch.known is not None:
        numbers = numbers_topic(app.application)
        epoch.known.open(app.checkpoint, log.topic_ids([numbers]).get(numbers, ""))
        assert epoch.lease is not None  # noqa: S101 - only with a lease is anything known
        restore_positions(app, epoch.known.offsets, recreated, epoch.lease)
    lost: dict[str, int] = {}
    if epoch.is_alone:
        lost = commit_start_positions(app, read_settings_of(app.topology, plan, config), recreated, epoch.lease)
    job = ContinuousJob(
        plan=plan,
        pickled_app=pickled,
        log_url=log.url,
        log_settings=log_settings(config),
        identity=log.identity(),
        epoch=epoch.number,
        threads=epoch.threads,
        instance=epoch.instance,
        replica_root=app.places.replicas,
        changelogs={each.store: each.topic for each in app.changelogs if each.store},
        numbers_topic=next((each.topic for each in app.changelogs if not each.store), None),
        topic_ids=ids,
        bounds=epoch.bounds,
        exactly_once=config["processing.guarantee"] == "exactly_once_v2",
        **placement_settings(config),
        lost=lost,
    )
    typed = with_settings(app.topology, config)
    write_noted_app(app.checkpoint, ThreadApp(typed, config, plan, job.changelogs, job.numbers_topic))
    thread_names = () if epoch.instance else job.thread_names
    batch = -1 if before is None else before.batch
    start = StartNote.own(epoch.group_epoch) if epoch.is_alone and epoch.lease is None else None
    notes = LogNotes(stored, ids, thread_names, batch, config["processing.guarantee"], start)
    if notes != before or start is not None:
        write_stored_plan(app.checkpoint, stored, app.topology, config)
        epoch.write_notes(app, before, notes)
    return PreparedEpoch(job, notes)


def placement_settings(config: StreamsConfig) -> dict[str, Any]:
    """Return the settings of a `ContinuousJob` that decide where tasks and their copies are."""
    return {
        "standbys": int(config["num.standby.replicas"]),
        "warmups": int(config["max.warmup.replicas"]),
        "acceptable_lag": int(config["acceptable.recovery.lag"]),
        "probing_s": int(config["probing.rebalance.interval.ms"]) / 1000,
    }


def ends_of(log: TopicLog, plan: PhysicalPlan) -> dict[TopicPartition, int]:
    """Return the present ends of the topics from outside, where a run until "latest" stops."""
    return log.end_offsets(list(plan.external_topics))


def positions_of(log: TopicLog, plan: PhysicalPlan) -> dict[TopicPartition, int]:
    """Return the group's positions in the topics from outside, where a run stops that reads nothing new."""
    committed = log.committed_offsets(plan.application_id)
    return {tp: committed.get(tp, 0) for tp in ends_of(log, plan)}


def _stored_plan(app: PlannedApp, before: LogNotes | None) -> StoredPlan:
    if before is None:
        return StoredPlan.first(app.document, app.fingerprint)
    change = require_compatible(before.stored, app.document, app.log.url, app.config["penstock.state.drop"])
    for migration in change.migrations:
        _log.warning("%s", migration)
    for note in change.notes:
        _log.info("%s", note)
    if before.stored.fingerprints[-1] == app.fingerprint:
        return before.stored
    return before.stored.followed_by(app.document, app.fingerprint)


def _refuse_other_guarantee(app: PlannedApp, before: LogNotes, epoch: NewEpoch) -> None:
    """Raise ConfigError if other instances run, or start, with another guarantee: tasks would have one by chance.

    Of instances that start at the same time, the first to note its start goes on.
    """
    guarantee, start = app.config["processing.guarantee"], before.start
    if before.guarantee in ("", guarantee):
        return
    if not epoch.is_alone:
        others = f"the running instances of {app.application!r} have"
        hint = "They go on undisturbed. Set the same here, or stop them all before the first start with the other."
    elif start is not None and start.goes_on(epoch.group_epoch):
        others = f"another instance of {app.application!r}, process {start.pid} on {start.host}, starts just now with"
        hint = "It goes on undisturbed. Set the same here, or start this one when the other has ended."
    else:
        return
    raise ConfigError(
        f"{others} processing.guarantee={before.guarantee}, and this one has {guarantee}",
        hint=hint,
        setting="processing.guarantee",
    )


def check_own_changelogs(app: PlannedApp, before: LogNotes) -> None:
    """Compare the changelogs with those that the application has written.

    Raises:
        CheckpointMismatchError: One is gone, or was made again, and ``penstock.data.loss`` is "fail".
    """
    topics = [each.topic for each in app.changelogs if each.topic in before.topic_ids]
    now = app.log.topic_ids(topics)
    gone = sorted(topic for topic in topics if now.get(topic) != before.topic_ids[topic])
    if gone and app.loss_fails:
        raise CheckpointMismatchError(
            f"{', '.join(gone)}: deleted, or made again, since {app.application!r} has written there, and they held "
            "its state",
            hint=f"To start from nothing: penstock app reset {app.application}. To continue with empty stores in their "
            "place: penstock.data.loss=continue.",
            topics=gone,
        )
    if gone:
        _log.warning("%s: deleted, or made again; the stores begin empty", ", ".join(gone))


# Spark starts a lost thread again while the others go on, and ends their job at the last of these failures.
THREAD_SETTINGS = {"spark.task.maxFailures": 16}
_MOST_STARTS = 5  # of other instances that change the note while this one prepares
SPARE_SLOTS = 4  # of a local Spark that the application starts: for DataFrames, and for other applications in it


class EpochPlans:
    """The preparation of the epochs of one run, which notes each in the log.

    Args:
        reads_nothing: Whether the run ends where it begins, as for a conversion.

    Attributes:
        until_latest: Whether it ends at the records that exist at its start.
        known: The committed offsets that its driver knows of.
    """

    def __init__(self, *, reads_nothing: bool) -> None:
        self._reads_nothing = reads_nothing
        self._epochs = 0
        self.until_latest = False
        self.known = KnownPositions()
        self._notes: LogNotes | None = None
        self._bounds: dict[TopicPartition, int] | None = None

    @property
    def stored(self) -> StoredPlan | None:
        """The plan that the log notes; None if there is none."""
        return None if self._notes is None else self._notes.stored

    def read(self, log: TopicLog, application: str) -> None:
        """Read the note of the last run."""
        self._notes = read_notes(log, application)

    def take(self, log: TopicLog, application: str, lease: Lease | None) -> bool:
        """Read the note again, as the holder of the lease, and return whether another instance has changed it since."""
        before = self._notes
        self._notes = read_notes(log, application) if lease is None else take_notes(log, lease)
        return self._notes != before

    def go_over(self, epoch: int) -> None:
        """Have the tasks be shared from the next epoch on; offsets are the group's affair then.

        Args:
            epoch: The number of the epoch before: the next ones have higher numbers.
        """
        self._epochs, self.known = epoch, KnownPositions()

    def next(
        self, app: PlannedApp, lease: Lease | None, slots: int, group: InstanceGroup | None = None
    ) -> ContinuousJob:
        """Prepare the next epoch, see `prepare_epoch`.

        Args:
            app: The application.
            lease: Its lease; None: its instances share its tasks.
            slots: The number of Spark tasks that can run at once.
            group: The group of its instances, if there is no lease.
        """
        if group is not None:
            return self._next_of(group, app, slots)
        assert lease is not None  # noqa: S101 - one of the two
        if self.until_latest and self._bounds is None:
            look = positions_of if self._reads_nothing else ends_of
            self._bounds = look(app.log, app.plan)
        threads = self._threads(app, slots)
        epoch = NewEpoch(lease.epoch, threads, lease, bounds=self._bounds, known=self.known)
        prepared = prepare_epoch(app, epoch, self._notes)
        self._notes = prepared.notes
        return prepared.job

    def _next_of(self, group: InstanceGroup, app: PlannedApp, slots: int) -> ContinuousJob:
        """Prepare the next epoch of an instance, while others may run, or start at the same time."""
        self._epochs += 1
        for left in reversed(range(_MOST_STARTS)):
            notes = self._notes = read_notes(app.log, app.application)
            described = group.described()
            epoch = NewEpoch(
                self._epochs,
                self._threads(app, slots),
                instance=str(group.instance),
                is_alone=described is None or not described.members,
                group_epoch=-1 if described is None else described.epoch,
            )
            try:
                prepared = prepare_epoch(app, epoch, notes)
            except (CheckpointMismatchError, FencedError):
                if not left or read_notes(app.log, app.application) == notes:
                    raise
            else:
                break
        self._notes = prepared.notes
        return prepared.job

    def extension(self, app: PlannedApp, lease: Lease | None, slots: int, job: ContinuousJob) -> ContinuousJob | None:
        """Prepare more tasks for the epoch that runs; None if that needs a new one, see `extended_epoch`."""
        if self._notes is None:
            return None
        is_alone = lease is not None
        epoch = NewEpoch(job.epoch, self._threads(app, slots), lease, job.instance, is_alone=is_alone)
        prepared = extended_epoch(app, epoch, job, self._notes)
        if prepared is None:
            return None
        self._notes = prepared.notes
        return prepared.job

    def _threads(self, app: PlannedApp, slots: int) -> int:
        return thread_count(app.plan, slots, app.config["num.stream.threads"])
