"""Where the reading of a topic partition begins, and what becomes of positions whose records are gone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.config.offset_reset import back_ms
from penstock.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from penstock.log.base import OffsetAndTime, TopicPartition
    from penstock.spark.offsets import Offsets
    from penstock.spark.reading import Reading

__all__ = ["first_positions", "lost_error", "overtaken"]


class _Times(Protocol):
    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None: ...


def first_positions(
    reading: Reading,
    new: Iterable[TopicPartition],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    committed: Offsets,
    log: _Times,
    *,
    known_topics: Iterable[str] = (),
    now_ms: int | None = None,
) -> dict[TopicPartition, int]:
    """Where to begin with partitions that have not been read yet.

    A committed offset of the group counts most, if its records are still there. A partition that was added to a topic
    which is read already begins at its beginning: all in it is new. Else the start timestamp or the topic's policy
    decides.

    Args:
        reading: The settings.
        new: The partitions.
        bounds: Their first offset and their end.
        committed: The group's offsets.
        log: Is asked for offsets by time.
        known_topics: Topics of which other partitions are read already.
        now_ms: The present time; None: the system's.

    Raises:
        OffsetOutOfRangeError: The policy is "none" and there is no committed offset.
    """
    now = int(time.time() * 1000) if now_ms is None else now_ms
    known = set(known_topics)
    found: dict[TopicPartition, int] = {}
    for tp in new:
        first, end = bounds[tp]
        at = committed.get(tp)
        if at is not None and first <= at <= end:
            found[tp] = at
        elif tp.topic in known:
            found[tp] = first
        else:
            found[tp] = _by_policy(reading, tp, first, end, at, log, now)
    return found


def _by_policy(
    reading: Reading, tp: TopicPartition, first: int, end: int, committed: int | None, log: _Times, now_ms: int
) -> int:
    policy = reading.offset_reset.get(tp.topic, "earliest")
    back = back_ms(policy)
    since = reading.start_ms if reading.start_ms is not None else None if back is None else now_ms - back
    if since is not None:
        at = log.offset_for_time(tp.topic, tp.partition, since)
        return end if at is None else at.offset
    if policy == "none":
        why = "has no committed offset" if committed is None else f"has offset {committed}, which is not there any more"
        raise OffsetOutOfRangeError(
            f"the group {why} for {tp.topic}-{tp.partition}, and auto.offset.reset is none",
            hint="Set it to earliest or latest, or put the offset somewhere: penstock groups reset.",
            topic=tp.topic,
            partition=tp.partition,
        )
    return end if policy == "latest" else first


def overtaken(at: Offsets, bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Of positions whose records are gone, how many offsets: retention was faster, or the topic is a new one.

    Example:
        >>> from penstock.log.base import TopicPartition
        >>> slow, new = TopicPartition("slow", 0), TopicPartition("new", 0)
        >>> overtaken({slow: 10, new: 50}, {slow: (90, 100), new: (0, 5)}) == {slow: 80, new: 0}
        True
    """
    return {
        tp: max(0, bounds[tp][0] - offset)
        for tp, offset in at.items()
        if tp in bounds and not bounds[tp][0] <= offset <= bounds[tp][1]
    }


def lost_error(tp: TopicPartition, at: int, first: int, end: int) -> OffsetOutOfRangeError:
    """What is to be raised where records were removed before they were read."""
    name = f"{tp.topic}-{tp.partition}"
    if at > end:
        what = f"{name} ends at offset {end}, but was read up to {at}: the topic was deleted and made again, or cut off"
    else:
        what = f"retention removed offsets {at} to {first - 1} of {name} before they were read"
    return OffsetOutOfRangeError(
        what,
        hint="Those records are lost to this application. To go on with the oldest that are there, set "
        "penstock.data.loss=continue; to keep them longer, raise the topic's retention.ms or retention.bytes.",
        topic=tp.topic,
        partition=tp.partition,
        offset=at,
    )
