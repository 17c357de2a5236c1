"""Reads ranges of partitions as columns.

While one answer is decoded, the broker prepares the next: a request is sent as soon as the offset after the last
answer is known, which the heads of its batches tell.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.log.base import Fetched, TopicPartition
from penstock.log.kafka.wire.errors import TIMED_OUT, check, failed
from penstock.log.kafka.wire.record_batches import decode_batches, end_of_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.log.base import Isolation
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["fetch_once", "fetch_range"]

_FIRST_BYTES = 1 << 20
_MOST_BYTES = 16 << 20
_LARGEST_BATCH_BYTES = 1 << 30
_SLACK = 1.1
_WAIT_MS = 100
_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


def fetch_range(
    cluster: Cluster, tp: TopicPartition, start: int, end: int, isolation: Isolation, patience_s: float
) -> Iterator[Fetched]:
    """All records with start <= offset < end, piece by piece; each says where to read on.

    Args:
        cluster: Where.
        tp: The topic partition.
        start: The first offset.
        end: The offset after the last; the log must have come so far.
        isolation: Whether records of aborted and open transactions are left out.
        patience_s: How long to wait for an end that the broker does not have (yet), as after a change of leaders.

    Raises:
        KafkaException: As librdkafka's consumer raises it. Nothing is tried twice here.
    """
    if start >= end:
        return
    connection = cluster.leader(tp)
    number: int | None = None
    offset, size = start, _FIRST_BYTES
    waiting_since = time.monotonic()
    try:
        number = connection.send(_request(tp, offset, size, isolation))
        while number is not None:
            answer = _answer(connection.receive(number), tp, offset)
            number = None
            data = answer.records or b""
            after = end_of_batches(data, offset)
            if after > offset:
                waiting_since = time.monotonic()
                size = _next_size(len(data), after - offset, end - after)
            elif data:
                size = min(size * 4, _LARGEST_BATCH_BYTES)  # not one whole batch
            elif time.monotonic() - waiting_since > patience_s:
                text = f"{tp.topic}-{tp.partition} should reach offset {end}, but there is nothing after {offset}"
                raise failed(TIMED_OUT, text)
            if after < end:
                number = connection.send(_request(tp, after, size, isolation))
            records = decode_batches(data, offset, end, _aborted(answer, isolation)).records
            yield Fetched(records, min(after, end))
            offset = after
    finally:
        if number is not None:
            connection.close()  # given up half way: an answer is still to come


def fetch_once(
    cluster: Cluster, tp: TopicPartition, offset: int, most_bytes: int, isolation: Isolation, wait_ms: int = 0
) -> Fetched:
    """What the broker gives at once from this offset on, and where to read on."""
    connection = cluster.leader(tp)
    request = _request(tp, offset, most_bytes, isolation, wait_ms)
    answer = _answer(connection.ask(request), tp, offset)
    return decode_batches(answer.records or b"", offset, 1 << 62, _aborted(answer, isolation))


def _next_size(had_bytes: int, had_offsets: int, missing_offsets: int) -> int:
    """Bytes that should bring what is missing: more would be sent for nothing."""
    expected = int(_SLACK * had_bytes / had_offsets * missing_offsets) + (64 << 10)
    return min(_MOST_BYTES, expected)


def _request(tp: TopicPartition, offset: int, size: int, isolation: Isolation, wait_ms: int = _WAIT_MS) -> Any:
    from kafka.protocol.consumer import FetchRequest

    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=tp.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=size,
    )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=size,
        isolation_level=_LEVELS[isolation],
        session_id=0,
        session_epoch=-1,  # no fetch session: requests stand alone
        topics=[topic(topic=tp.topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        min_version=4,
        max_version=12,  # later ones name topics by their ids
    )


def _answer(answer: Any, tp: TopicPartition, offset: int) -> Any:
    check(getattr(answer, "error_code", 0), "fetching")
    found = answer.responses[0].partitions[0]
    check(found.error_code, f"reading {tp.topic}-{tp.partition} from offset {offset}")
    return found


def _aborted(answer: Any, isolation: Isolation) -> list[tuple[int, int]] | None:
    if isolation == "read_uncommitted":
        return None
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
