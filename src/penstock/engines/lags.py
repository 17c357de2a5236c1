"""The lag of an application: the records of its input that it has not read yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import LogError, UnknownTopicError
from penstock.log.time_range import timestamp_at

if TYPE_CHECKING:
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.topology.plan.plan import PhysicalPlan

__all__ = ["beginnings_of", "committed_by_name", "ends_of", "lag_behind", "positions_at_start", "time_at"]

_log = own_logger(__name__)


def lag_behind(log: TopicLog, plan: PhysicalPlan, positions: Mapping[str, int], batch: int) -> dict[str, int]:
    """Return the lag of each partition whose position is known; nothing if the log does not answer.

    Args:
        log: The log.
        plan: The plan.
        positions: ``<topic>-<partition>`` -> the offset of the next record.
        batch: The batch after which it is asked for, for messages.
    """
    try:
        ends = _by_name(log.end_offsets(list(plan.external_topics)))
    except (LogError, UnknownTopicError) as error:  # the lag is for people: no batch fails without it
        _log.warning("the lag after batch %d is not known: %s", batch, error)
        return {}
    return {name: end - positions[name] for name, end in ends.items() if name in positions}


def ends_of(log: TopicLog, topics: Collection[str]) -> dict[str, int]:
    """Return the end of each partition by ``<topic>-<partition>``; nothing if the log does not answer."""
    return _offsets(log.end_offsets, topics)


def beginnings_of(log: TopicLog, topics: Collection[str]) -> dict[str, int]:
    """Return the first offset of each partition by ``<topic>-<partition>``; nothing if the log does not answer."""
    return _offsets(log.beginning_offsets, topics)


def positions_at_start(log: TopicLog, application_id: str, from_the_first: Collection[str]) -> dict[str, int]:
    """Return where an application begins to read, by ``<topic>-<partition>``, as far as that is known.

    Args:
        log: The log.
        application_id: Its group, whose committed offsets come first.
        from_the_first: The topics that it reads from their first records if the group has no offsets.
    """
    beginnings = beginnings_of(log, from_the_first)
    try:
        return beginnings | _by_name(log.committed_offsets(application_id))
    except LogError as error:
        _log.debug("the lag is not known: %s", error)
        return {}


def committed_by_name(log: TopicLog, application_id: str) -> dict[str, int]:
    """Return the committed offsets of an application by ``<topic>-<partition>``; nothing if the log does not answer."""
    try:
        return _by_name(log.committed_offsets(application_id))
    except LogError as error:
        _log.debug("the lag is not known: %s", error)
        return {}


def _offsets(ask: Callable[[Sequence[str]], dict[TopicPartition, int]], topics: Collection[str]) -> dict[str, int]:
    try:
        return _by_name(ask(list(topics)))
    except (LogError, UnknownTopicError) as error:
        _log.debug("the lag is not known: %s", error)
        return {}


def _by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {f"{tp.topic}-{tp.partition}": offset for tp, offset in offsets.items()}


def time_at(log: TopicLog, topic: str, partition: int, offset: int) -> int | None:
    """Return the timestamp of the first record from an offset on; None if there is none, or the log does not answer."""
    try:
        return timestamp_at(log, topic, partition, offset)
    except (LogError, UnknownTopicError) as error:
        _log.debug("the age of %s-%d is not known: %s", topic, partition, error)
        return None
