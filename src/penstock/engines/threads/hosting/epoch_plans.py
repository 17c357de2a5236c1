"""The epochs of a run, one prepared after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engines.threads.hosting.known_positions import KnownPositions
from penstock.engines.threads.hosting.log_notes import LogNotes, read_notes, take_notes
from penstock.engines.threads.hosting.start import (
    NewEpoch,
    ends_of,
    extended_epoch,
    positions_of,
    prepare_epoch,
    thread_count,
)
from penstock.errors import CheckpointMismatchError, FencedError

if TYPE_CHECKING:
    from penstock.engines.application.planned_app import PlannedApp
    from penstock.engines.threads.hosting.instance_group import InstanceGroup
    from penstock.engines.threads.hosting.job import ContinuousJob
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.log.embedded.coordination import Lease
    from penstock.topology.plan.stored import StoredPlan

__all__ = ["SPARE_SLOTS", "THREAD_SETTINGS", "EpochPlans"]

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
