"""The offsets of the records between two points in time."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.durations import TimestampLike, timestamp_ms
from penstock.errors import ConfigError
from penstock.log.base import OffsetAndTime, TopicLog, TopicPartition
from penstock.log.client_interfaces import LogConsumer

__all__ = ["first_from", "offsets_of", "span_of", "timestamp_at", "within"]

Offsets = dict[TopicPartition, int]


def span_of(start: TimestampLike, end: TimestampLike) -> tuple[int, int]:
    """Return a time range in milliseconds; its end is exclusive."""
    span = timestamp_ms(start, "start"), timestamp_ms(end, "end")
    if span[1] < span[0]:
        raise ConfigError(f"the time range ends before it starts: {start} to {end}", hint="swap the two")
    return span


def offsets_of(
    consumer: LogConsumer, places: Collection[TopicPartition], span: tuple[int, int], *, to_end: bool
) -> tuple[Offsets, Offsets]:
    """Return the first and the end offsets to search for records of a time range.

    The search starts at the first record that is not too old. It ends where, by the log's index, no older record
    follows; a log without such an index is searched to its end, as is every log with ``to_end``.
    """
    ends = consumer.end_offsets(places)
    firsts = consumer.offsets_for_times(dict.fromkeys(places, span[0]))
    starts = {tp: ends[tp] if (at := firsts[tp]) is None else at.offset for tp in places}
    if to_end:
        return starts, ends
    return starts, {tp: max(starts[tp], consumer.last_offset_before(tp, span[1], ends[tp])) for tp in places}


def first_from(batch: pa.RecordBatch, timestamp: int) -> OffsetAndTime | None:
    """Find the first record that is not older than a timestamp; None if all are older."""
    at = pc.index(pc.greater_equal(batch.column("timestamp"), timestamp), value=True).as_py()
    return None if at < 0 else OffsetAndTime(batch.column("offset")[at].as_py(), batch.column("timestamp")[at].as_py())


def timestamp_at(log: TopicLog, topic: str, partition: int, offset: int) -> int | None:
    """Return the timestamp of the first record from an offset on; None if there is none."""
    records = log.read(topic, partition, offset, 1).records
    return int(records.column("timestamp")[0].as_py()) if records.num_rows else None


def within(batch: pa.RecordBatch, span: tuple[int, int]) -> pa.RecordBatch:
    """Return the records of a time range."""
    times = batch.column("timestamp")
    return batch.filter(pc.and_(pc.greater_equal(times, span[0]), pc.less(times, span[1])))
