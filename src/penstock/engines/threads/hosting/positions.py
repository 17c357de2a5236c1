"""The positions at which threads begin: committed to the group before they start, where it has none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.application.identities import recreated_error
from penstock.engines.offsets.start_positions import added_positions, first_positions, lost_offsets, lost_records_error
from penstock.log.groups.gone_back import (
    epoch_note,
    gone_back,
    gone_back_error,
    gone_back_text,
    moved_text,
    set_by_others,
)

if TYPE_CHECKING:
    from penstock.engines.application.planned_app import PlannedApp
    from penstock.engines.offsets.reading_settings import ReadSettings
    from penstock.log.base import Lease, TopicPartition
    from penstock.log.groups.gone_back import KnownOffset

__all__ = ["commit_start_positions", "restore_positions"]

_log = own_logger(__name__)


def restore_positions(
    app: PlannedApp, known: Mapping[TopicPartition, KnownOffset], recreated: Collection[str], lease: Lease
) -> None:
    """Compare the group's offsets with those that the driver knows of; no thread runs.

    Args:
        app: The application.
        known: The offsets that were committed.
        recreated: Topics that were made again since.
        lease: Its lease.

    Raises:
        CheckpointMismatchError: Some have gone back, and ``penstock.data.loss`` is "fail".
    """
    log, plan = app.log, app.plan
    partitions = {topic: plan.partitions[topic] for topic in plan.external_topics if topic not in recreated}
    partitions |= {physical: plan.partitions[topic] for physical, topic in plan.repartition_topics.items()}
    of_plan = {tp: at for tp, at in known.items() if tp.partition < partitions.get(tp.topic, 0)}
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
