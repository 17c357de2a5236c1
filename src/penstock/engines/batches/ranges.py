"""Reading of planned ranges, of which some records may be gone by then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engines.offsets.start_positions import lost_records_error
from penstock.errors import LogUnavailableError, OffsetOutOfRangeError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.batches.envelope import Envelope
    from penstock.log.base import TopicLog

__all__ = ["read_planned_range"]


def read_planned_range(envelope: Envelope, log: TopicLog, lost: dict[str, int] | None) -> list[pa.RecordBatch]:
    """Read the records of a RANGE envelope.

    Args:
        envelope: The range.
        log: The log that holds its records.
        lost: Receives the number of offsets that are gone, by ``topic-partition``; None: a lost offset is an error.

    Raises:
        OffsetOutOfRangeError: Offsets are gone, and ``lost`` is None.
    """
    tp = TopicPartition(envelope.topic, envelope.partition)
    start, end = planned = envelope.range
    if envelope.is_gone:
        start = end
    records: list[pa.RecordBatch] | None = None
    while records is None:
        try:
            records = list(log.read_range(*_place(tp), start, end)) if start < end else []
            begins = records[0].column("offset")[0].as_py() if records else end
            if begins > start:  # offsets have gaps, so not all that miss are gone
                start = min(max(start, log.beginning_offset(*_place(tp))), begins)
        except (OffsetOutOfRangeError, LogUnavailableError):  # Kafka waits for an end that the log no longer has
            first, last = log.beginning_offset(*_place(tp)), log.end_offset(*_place(tp))
            if first <= start and end <= last:
                raise
            if lost is None:
                raise lost_records_error(tp, start if first > start else end, first, last) from None
            end = min(end, last)
            start = min(max(start, first), end)
    gone = (planned[1] - planned[0]) - (end - start)
    if gone and lost is None:
        raise lost_records_error(tp, planned[0], start, end)
    if gone and lost is not None:
        lost[f"{tp.topic}-{tp.partition}"] = gone
    return records


def _place(tp: TopicPartition) -> tuple[str, int]:
    return tp.topic, tp.partition
