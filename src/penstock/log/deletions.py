"""Deletions that a compacted topic does not keep for ever, seen by who has been away."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.log.base import TopicLog, TopicPartition
from penstock.log.topic_settings import setting

__all__ = ["may_miss_deletions"]


def may_miss_deletions(
    log: TopicLog, tp: TopicPartition, config: Mapping[str, str], start: int, end: int, away_ms: int | None
) -> bool:
    """Return whether deletions among new records may be gone, so that rows that stand for those before would stay.

    They may have been deletions alone, all of which are gone. One offset at the end is the mark of a transaction.

    Args:
        log: The log.
        tp: The partition, of a topic that is compacted.
        config: The settings of the topic.
        start: The offset up to which the rows stand for it.
        end: The present end, which is behind that.
        away_ms: The milliseconds since then; None: it is not known.
    """
    if away_ms is not None and away_ms < int(setting(config, "delete.retention.ms")):
        return False
    if end - start > 1 or log.beginning_offset(tp.topic, tp.partition) > start:
        return True
    return any(each.num_rows for each in log.iterate(tp.topic, tp.partition, start, end))
