"""Start positions of topic partitions, and positions whose records are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.base.clock import unix_ms
from penstock.config.offset_reset import back_ms
from penstock.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from penstock.engines.offsets.offsets import Offsets
    from penstock.engines.offsets.reading_settings import ReadSettings
    from penstock.log.base import OffsetAndTime, TopicPartition

__all__ = ["added_positions", "first_positions", "lost_records_error", "lost_offsets"]


class _Times(Protocol):
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]: ...


def first_positions(
    reading: ReadSettings,
    new: Iterable[TopicPartition],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    committed: Offsets,
    log: _Times,
) -> dict[TopicPartition, int]:
    """Find the start positions of topics that have not been read yet.

    A committed offset of the group comes first, if its records are still there. Otherwise the start timestamp or the
    topic's policy decides.

    Args:
        reading: The settings of reading.
        new: The partitions.
        bounds: The first offset and the end of each partition.
        committed: The committed offsets of the group.
        log: The log, which finds offsets by time.

    Raises:
        OffsetOutOfRangeError: The policy is "none" and there is no committed offset.
    """
    now_ms = unix_ms()
    starts: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    for tp in new:
        first, end = bounds[tp]
        at = committed.get(tp)
        if at is not None and first <= at <= end:
            starts[tp] = at
        elif (since := _since(reading, tp, now_ms)) is not None:
            times[tp] = since
        else:
            starts[tp] = _by_policy(reading, tp, first, end, at)
    by_time = log.offsets_for_times(times) if times else {}
    return starts | {tp: bounds[tp][1] if each is None else each.offset for tp, each in by_time.items()}


def added_positions(
    added: Iterable[TopicPartition], bounds: Mapping[TopicPartition, tuple[int, int]], committed: Offsets
) -> dict[TopicPartition, int]:
    """Find the start positions of partitions that were added to topics which are read already.

    All records in them are new, so they are read from the beginning, or from a committed offset of the group if its
    records are still there.

    Args:
        added: The partitions.
        bounds: The first offset and the end of each partition.
        committed: The committed offsets of the group.

    Example:
        >>> from penstock.log.base import TopicPartition
        >>> one, two = TopicPartition("in", 1), TopicPartition("in", 2)
        >>> added_positions([one, two], {one: (0, 5), two: (0, 5)}, {two: 3}) == {one: 0, two: 3}
        True
    """
    positions = {}
    for tp in added:
        first, end = bounds[tp]
        at = committed.get(tp, first)
        positions[tp] = at if first <= at <= end else first
    return positions


def _since(reading: ReadSettings, tp: TopicPartition, now_ms: int) -> int | None:
    """Return the time from which the records of a topic are read; None if the start does not depend on a time."""
    if reading.start_ms is not None:
        return reading.start_ms
    back = back_ms(reading.offset_reset.get(tp.topic, "earliest"))
    return None if back is None else now_ms - back


def _by_policy(reading: ReadSettings, tp: TopicPartition, first: int, end: int, committed: int | None) -> int:
    policy = reading.offset_reset.get(tp.topic, "earliest")
    if policy == "none":
        why = "has no committed offset" if committed is None else f"has offset {committed}, which no longer exists"
        raise OffsetOutOfRangeError(
            f"the group {why} for {tp.topic}-{tp.partition}, and auto.offset.reset is none",
            hint="Set it to earliest or latest, or set the group's offset: penstock groups reset.",
            topic=tp.topic,
            partition=tp.partition,
        )
    return end if policy == "latest" else first


def lost_offsets(at: Offsets, bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Count the lost offsets of positions whose records are gone: removed by retention, or the topic is a new one.

    Example:
        >>> from penstock.log.base import TopicPartition
        >>> slow, new = TopicPartition("slow", 0), TopicPartition("new", 0)
        >>> lost_offsets({slow: 10, new: 50}, {slow: (90, 100), new: (0, 5)}) == {slow: 80, new: 0}
        True
    """
    return {
        tp: max(0, bounds[tp][0] - offset)
        for tp, offset in at.items()
        if tp in bounds and not bounds[tp][0] <= offset <= bounds[tp][1]
    }


def lost_records_error(tp: TopicPartition, at: int, first: int, end: int) -> OffsetOutOfRangeError:
    """Make the error for records that were removed before they were read."""
    name = f"{tp.topic}-{tp.partition}"
    facts = {"topic": tp.topic, "partition": tp.partition, "offset": at}
    if at > end:
        return OffsetOutOfRangeError(
            f"{name} ends at offset {end}, but was read up to {at}: it was truncated, by an older copy of its log or "
            "by an unclean election of its leader",
            hint="The truncated records have been processed; records written there since may be counted twice or "
            f"not at all. To continue at offset {end}: penstock.data.loss=continue.",
            **facts,
        )
    return OffsetOutOfRangeError(
        f"retention removed offsets {at} to {first - 1} of {name} before they were read",
        hint="This application cannot read them any more. To continue with the oldest that are there, set "
        "penstock.data.loss=continue; to keep them longer, raise the topic's retention.ms or retention.bytes.",
        **facts,
    )
