"""Which offsets hold what was written between two points in time."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from penstock.durations import TimestampLike, timestamp_ms
from penstock.errors import ConfigError
from penstock.log.base import OffsetAndTime, TopicPartition
from penstock.log.consuming import ConsumerPort

__all__ = ["first_from", "offsets_of", "span_of", "within"]

Offsets = dict[TopicPartition, int]


def span_of(start: TimestampLike, end: TimestampLike) -> tuple[int, int]:
    """The range in milliseconds; its end is left out."""
    span = timestamp_ms(start, "start"), timestamp_ms(end, "end")
    if span[1] < span[0]:
        raise ConfigError(f"the time range ends before it starts: {start} to {end}", hint="swap the two")
    return span


def offsets_of(
    port: ConsumerPort, places: Collection[TopicPartition], span: tuple[int, int], *, to_end: bool
) -> tuple[Offsets, Offsets]:
    """From where to where the partitions have to be searched for records of this time.

    The first record that is in time starts the search. It ends where the log says that all older records are over; a
    log that does not know is searched to its end, and so is every log if that is asked for.
    """
    ends = port.end_offsets(places)
    found = port.offsets_for_times(dict.fromkeys(places, span[0]))
    starts = {place: ends[place] if (at := found[place]) is None else at.offset for place in places}
    if to_end:
        return starts, ends
    return starts, {place: max(starts[place], port.last_offset_before(place, span[1], ends[place])) for place in places}


def first_from(batch: pa.RecordBatch, timestamp: int) -> OffsetAndTime | None:
    """The first record that is not older; None if all are."""
    at = pc.index(pc.greater_equal(batch.column("timestamp"), timestamp), value=True).as_py()
    return None if at < 0 else OffsetAndTime(batch.column("offset")[at].as_py(), batch.column("timestamp")[at].as_py())


def within(batch: pa.RecordBatch, span: tuple[int, int]) -> pa.RecordBatch:
    """The records of this time."""
    times = batch.column("timestamp")
    return batch.filter(pc.and_(pc.greater_equal(times, span[0]), pc.less(times, span[1])))
