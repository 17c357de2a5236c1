"""Which offsets hold what was written between two points in time."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from penstock.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import ConfigError
from penstock.log.base import TopicPartition
from penstock.log.consuming import ConsumerPort

__all__ = ["offsets_of", "span_of", "within"]

Offsets = dict[TopicPartition, int]


def span_of(start: TimestampLike, end: TimestampLike) -> tuple[int, int]:
    """The range in milliseconds; its end is left out."""
    span = timestamp_ms(start, "start"), timestamp_ms(end, "end")
    if span[1] < span[0]:
        raise ConfigError(f"the time range ends before it starts: {start} to {end}", hint="swap the two")
    return span


def offsets_of(
    port: ConsumerPort, places: Collection[TopicPartition], span: tuple[int, int], disorder: DurationLike | None
) -> tuple[Offsets, Offsets]:
    """From where to where the partitions have to be searched for records of this time.

    A first record that is in time starts the search. Its end is where the log says that all older records are over; a
    log that does not know is searched to its end, or up to the first record that is too new by ``disorder``.
    """
    ends = port.end_offsets(places)
    found = port.offsets_for_times(dict.fromkeys(places, span[0]))
    starts = {place: ends[place] if (at := found[place]) is None else at.offset for place in places}
    if disorder is None:
        return starts, {
            place: max(starts[place], port.last_offset_before(place, span[1], ends[place])) for place in places
        }
    later = port.offsets_for_times(dict.fromkeys(places, span[1] + duration_ms(disorder, "disorder")))
    return starts, ends | {place: at.offset for place, at in later.items() if at is not None}


def within(batch: pa.RecordBatch, span: tuple[int, int]) -> pa.RecordBatch:
    """The records of this time."""
    times = batch.column("timestamp")
    return batch.filter(pc.and_(pc.greater_equal(times, span[0]), pc.less(times, span[1])))
