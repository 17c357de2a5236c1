"""The positions at which threads begin: committed to the group before they start, where it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.log_lines import own_logger
from penstock.spark.checkpoint.identities import recreated_error, recreated_topics
from penstock.spark.offsets.start_positions import added_positions, first_positions, lost_offsets, lost_records_error

if TYPE_CHECKING:
    from penstock.spark.checkpoint.planned_app import PlannedApp
    from penstock.spark.offsets.reading_settings import ReadSettings

__all__ = ["commit_start_positions"]

_log = own_logger(__name__)


def commit_start_positions(
    app: PlannedApp, reading: ReadSettings, ids_before: Mapping[str, str], ids: Mapping[str, str]
) -> None:
    """Commit start positions of partitions that have none, or whose records are gone.

    Args:
        app: The application; the lease is held, and no thread runs.
        reading: The settings of reading.
        ids_before: The topics' ids at the last start.
        ids: Their present ids.

    Raises:
        OffsetOutOfRangeError: Unread records are gone, or a topic was made again, and ``penstock.data.loss`` is "fail".
    """
    log, topics = app.log, list(app.plan.external_topics)
    recreated = recreated_topics(ids_before, {topic: ids[topic] for topic in topics if topic in ids})
    if recreated and app.loss_fails:
        raise recreated_error(recreated, app.application)
    group = log.committed_offsets(app.application)
    first, ends = log.beginning_offsets(topics), log.end_offsets(topics)
    bounds = {tp: (first[tp], end) for tp, end in ends.items() if tp.partition < app.plan.partitions[tp.topic]}
    starts = {tp: bounds[tp][0] for tp in bounds if tp.topic in recreated}
    at = {tp: offset for tp, offset in group.items() if tp in bounds and tp not in starts}
    known = {tp.topic for tp in at}
    new = [tp for tp in bounds if tp not in at and tp not in starts]
    starts |= added_positions([tp for tp in new if tp.topic in known], bounds, {})
    starts |= first_positions(reading, [tp for tp in new if tp.topic not in known], bounds, {}, log)
    for tp, count in lost_offsets(at, bounds).items():
        if app.loss_fails:
            raise lost_records_error(tp, at[tp], *bounds[tp])
        _log.warning("%s-%d: records were gone before they were read (%d offsets)", tp.topic, tp.partition, count)
        starts[tp] = bounds[tp][1] if at[tp] > bounds[tp][1] else bounds[tp][0]
    if starts:
        log.commit_offsets(app.application, starts)
