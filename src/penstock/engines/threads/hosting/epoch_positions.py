"""The positions of an application in continuous mode: at its start, as its driver knows them, and at the end of a run.

Threads report what they have committed, once a second. The driver notes it in the checkpoint (``positions.json``), so
that the next start sees whether the group's offsets have gone back, also for tasks without state. The note is always
behind what is really committed, or equal to it. It is of one life of the application: a reset makes the topic of the
tasks' numbers anew, and the id of that topic is in the note.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.application.identities import recreated_error
from penstock.engines.offsets.start_positions import added_positions, first_positions, lost_offsets, lost_records_error
from penstock.errors import PenstockError
from penstock.log.base import TopicPartition
from penstock.log.groups.offset_regressions import (
    KnownOffset,
    epoch_note,
    gone_back,
    gone_back_error,
    gone_back_text,
    moved_text,
    set_by_others,
)
from penstock.state.checkpoint import read_document, write_document

if TYPE_CHECKING:
    from penstock.engines.application.planning import PlannedApp
    from penstock.engines.offsets.start_positions import ReadSettings
    from penstock.engines.threads.hosting.thread_state import ThreadState
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.plan.plan import PhysicalPlan

__all__ = ["KnownPositions", "commit_start_positions", "has_reached", "restore_positions"]

_log = own_logger(__name__)
_DOCUMENT = "positions.json"
_EVERY_S = 5.0


class KnownPositions:
    """The newest committed offsets by partition, kept across epochs and starts."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, KnownOffset] = {}
        self._place = ("", "")  # checkpoint, life
        self._written: dict[TopicPartition, KnownOffset] = {}
        self._written_s = float("-inf")

    def open(self, checkpoint: str, life: str) -> None:
        """Read the note of earlier starts, unless that has been done.

        Args:
            checkpoint: The checkpoint location.
            life: The id of the topic of the tasks' numbers; a note of another one does not count.
        """
        if self._place == (checkpoint, life):
            return
        self._place = checkpoint, life
        self.offsets = self._read()
        self._written = dict(self.offsets)

    def committed(self) -> dict[TopicPartition, int]:
        """Return the offsets; from any thread."""
        return {tp: at.offset for tp, at in list(self.offsets.items())}

    def _read(self) -> dict[TopicPartition, KnownOffset]:
        checkpoint, life = self._place
        try:
            noted = json.loads(read_document(checkpoint, _DOCUMENT) or "{}")
            if noted.get("life") != life or not life:
                return {}
            return {TopicPartition(topic, number): KnownOffset(*at) for topic, number, *at in noted["offsets"]}
        except (PenstockError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            _log.warning("the note of committed offsets in %s cannot be read: %s", checkpoint, error)
            return {}

    def note(self, epoch: int, threads: Mapping[str, ThreadState]) -> None:
        """Note what the threads of an epoch have committed."""
        for thread in threads.values():
            for name, offset in thread.report.get("committed", {}).items():
                topic, _, partition = name.rpartition("-")
                tp = TopicPartition(topic, int(partition))
                before = self.offsets.get(tp)
                if before is None or before.epoch < epoch or before.offset < offset:
                    self.offsets[tp] = KnownOffset(int(offset), epoch)
        if time.monotonic() - self._written_s >= _EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the note, if anything has changed."""
        checkpoint, life = self._place
        if not checkpoint or self.offsets == self._written:
            return
        self._written_s = time.monotonic()
        offsets = [[tp.topic, tp.partition, *at] for tp, at in sorted(self.offsets.items())]
        try:
            write_document(checkpoint, _DOCUMENT, json.dumps({"life": life, "offsets": offsets}))
            self._written = dict(self.offsets)
        except (PenstockError, OSError) as error:  # the next start knows less
            _log.warning("the committed offsets are not noted in %s: %s", checkpoint, error)


def restore_positions(
    app: PlannedApp, committed: Mapping[TopicPartition, KnownOffset], recreated: Collection[str], lease: Lease
) -> None:
    """Compare the group's offsets with those that the driver knows of; no thread runs.

    Args:
        app: The application.
        committed: The offsets that were committed.
        recreated: Topics that were made again since.
        lease: Its lease.

    Raises:
        CheckpointMismatchError: Some have gone back, and ``penstock.data.loss`` is "fail".
    """
    log, plan = app.log, app.plan
    partitions = {topic: plan.partitions[topic] for topic in plan.external_topics if topic not in recreated}
    partitions |= {physical: plan.partitions[topic] for physical, topic in plan.repartition_topics.items()}
    of_plan = {tp: at for tp, at in committed.items() if tp.partition < partitions.get(tp.topic, 0)}
    if not of_plan:
        return
    group = log.group_offsets(app.application, of_plan)
    set_offsets = set_by_others(of_plan, group)
    if moved := {tp: offset for tp, offset in set_offsets.items() if offset != of_plan[tp].offset}:
        _log.warning("%s", moved_text(app.application, moved))
    behind = {tp: at for tp, at in of_plan.items() if tp not in group or group[tp].offset < at.offset}
    if not behind:
        return
    topics = sorted({tp.topic for tp in behind})
    back = gone_back(behind, group, log.beginning_offsets(topics), log.end_offsets(topics))
    if not back:
        return
    if app.loss_fails:
        raise gone_back_error(app.application, "the application", back)
    _log.warning("%s; it continues from there", gone_back_text(app.application, "the application", back))
    newer = {tp: offset for tp, (_, offset) in back.items()}
    log.commit_offsets(app.application, newer, epoch_note("stream-driver", lease.epoch), lease)


def commit_start_positions(
    app: PlannedApp,
    reading: ReadSettings,
    recreated: Collection[str],
    lease: Lease | None,
) -> dict[str, int]:
    """Commit start positions of partitions that have none, or whose records are gone.

    Args:
        app: The application; no thread runs.
        reading: The settings of reading.
        recreated: Topics that were made again since the last start.
        lease: Its lease; None: its instances share its tasks, and none of the others runs.

    Returns:
        The numbers of records that were gone before they were read, by ``topic-partition``.

    Raises:
        OffsetOutOfRangeError: Unread records are gone, or a topic was made again, and ``penstock.data.loss`` is "fail".
    """
    log, topics = app.log, list(app.plan.external_topics)
    if recreated and app.loss_fails:
        raise recreated_error(frozenset(recreated), app.application)
    first, ends = log.beginning_offsets(topics), log.end_offsets(topics)
    bounds = {tp: (first[tp], end) for tp, end in ends.items() if tp.partition < app.plan.partitions[tp.topic]}
    starts = {tp: bounds[tp][0] for tp in bounds if tp.topic in recreated}
    group = log.group_offsets(app.application, [tp for tp in bounds if tp not in starts])
    at = {tp: each.offset for tp, each in group.items()}
    read_topics = {tp.topic for tp in at}
    new = [tp for tp in bounds if tp not in at and tp not in starts]
    starts |= added_positions([tp for tp in new if tp.topic in read_topics], bounds, {})
    starts |= first_positions(reading, [tp for tp in new if tp.topic not in read_topics], bounds, {}, log)
    lost = lost_offsets(at, bounds)
    for tp, count in lost.items():
        if app.loss_fails:
            raise lost_records_error(tp, at[tp], *bounds[tp])
        _log.warning("%s-%d: records were gone before they were read (%d offsets)", tp.topic, tp.partition, count)
        starts[tp] = bounds[tp][1] if at[tp] > bounds[tp][1] else bounds[tp][0]
    if starts:
        if lease is not None:
            log.commit_offsets(app.application, starts, epoch_note("stream-driver", lease.epoch), lease)
        elif not log.commit_if_empty(app.application, starts):
            _log.info("another instance of %s has started meanwhile: this one goes on from there", app.application)
    return {f"{tp.topic}-{tp.partition}": count for tp, count in lost.items()}


def has_reached(log: TopicLog, plan: PhysicalPlan, bounds: Mapping[TopicPartition, int]) -> bool:
    """Return whether threads have committed everything up to the bounds, and all that followed from it.

    The committed offsets are fetched before the ends of the repartition topics. What was committed by then has left
    its records in them; so if they end where they are committed, nothing is left to do.

    Args:
        log: The log.
        plan: The plan.
        bounds: The offsets to reach in topics from outside.
    """
    application = plan.application_id
    committed = log.committed_offsets(application)
    if any(committed.get(tp, 0) < bound for tp, bound in bounds.items()):
        return False
    internal = list(plan.repartition_topics)
    if not internal:
        return True
    first, ends = log.beginning_offsets(internal), log.end_offsets(internal)
    if any(committed.get(tp, first[tp]) < end for tp, end in ends.items()):
        return False
    # A transaction's offsets can be seen a moment before its records: each partition of Kafka hears of its end alone.
    return all(
        log.read(tp.topic, tp.partition, end, 1, "read_uncommitted").next_offset <= end for tp, end in ends.items()
    )
