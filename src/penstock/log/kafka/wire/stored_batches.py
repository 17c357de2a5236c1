"""Record batches as brokers store them: found in a fetch's answer, and given to another producer.

A batch is copied as it is, with its compression, if a broker accepts it from a producer. The others are decoded and
encoded anew: those with gaps between their offsets, those whose times the broker has set, the one that is not wanted
from its first record on, and runs of tiny ones, each of which would take a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.batch_format import (
    CODEC,
    HEADER,
    LOG_APPEND_TIME,
    DamagedError,
    damaged,
)
from penstock.log.kafka.wire.batch_reader import (
    AbortedRecords,
    BatchHead,
    BatchSource,
    check_batch,
    decode_batches,
    end_of_batches,
    whole_batches,
)
from penstock.log.kafka.wire.fetch import aborted_of, fetch_request
from penstock.log.kafka.wire.protocol_errors import check
from penstock.log.kafka.wire.record_batches import encode_batches
from penstock.log.stored import StoredBatch, StoredRecords, StoredStretch, stretches_of

if TYPE_CHECKING:
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["fetch_stored", "stored_batches"]

_TINY_BYTES, _FEW = 2 << 10, 8
_BATCH_BYTES = 900_000
_DELETE_HORIZON = 0x40  # the base timestamp of such a batch is not that of a record
_NOT_NOW = (KafkaError.OFFSET_OUT_OF_RANGE,)


def fetch_stored(
    cluster: Cluster, positions: Mapping[TopicPartition, int], most_bytes: int
) -> dict[TopicPartition, StoredRecords]:
    """Fetch committed batches of many partitions without waiting, by one request to each leader.

    Args:
        cluster: The cluster.
        positions: The offset to read from, by partition; one that is out of range is left out of the result.
        most_bytes: The limit of each partition, unless its first batch is larger.

    Raises:
        KafkaException: Like librdkafka's consumer. There are no retries here.
        LogError: A batch is damaged.
    """
    stored, unread = _fetch(cluster, positions, most_bytes)
    for tp in unread:  # its first batch is larger than the rest of the answer: alone it comes whole
        stored |= _fetch(cluster, {tp: positions[tp]}, most_bytes)[0]
    return stored


def _fetch(
    cluster: Cluster, positions: Mapping[TopicPartition, int], most_bytes: int
) -> tuple[dict[TopicPartition, StoredRecords], list[TopicPartition]]:
    sent = []
    stored: dict[TopicPartition, StoredRecords] = {}
    unread: list[TopicPartition] = []
    try:
        for connection, places in cluster.by_leader(positions).items():
            offsets = {tp: positions[tp] for tp in places}
            sent.append((connection, connection.send(fetch_request(offsets, most_bytes, "read_committed", 0))))
        answers = [connection.receive(number) for connection, number in sent]
    except BaseException:
        cluster.forget()  # answers are still to come
        raise
    for answer in answers:
        check(getattr(answer, "error_code", 0), "fetching")
        for topic in answer.responses:
            for part in topic.partitions:
                tp = TopicPartition(topic.topic, part.partition_index)
                if part.error_code in _NOT_NOW:
                    continue
                check(part.error_code, f"reading {tp.topic}-{tp.partition} from offset {positions[tp]}")
                read = _read(part, positions[tp], BatchSource(tp, cluster.most_unpacked_bytes))
                if read.next_offset > positions[tp]:
                    stored[tp] = read
                elif part.records or part.last_stable_offset > positions[tp]:
                    unread.append(tp)
    return stored, unread if len(positions) > 1 else []


def _read(part: Any, start: int, source: BatchSource) -> StoredRecords:
    return stored_batches(bytes(part.records or b""), start, aborted_of(part, "read_committed"), source)


def stored_batches(
    data: bytes, start: int, aborted: Sequence[tuple[int, int]] | None, source: BatchSource
) -> StoredRecords:
    """Return the batches of a fetch's answer from an offset on; see `decode_batches`.

    Raises:
        LogError: A batch has an old message format, or is damaged.
    """
    drops, seen, batches = AbortedRecords(aborted), -1, []
    rewritten: list[tuple[BatchHead, int, int]] = []  # neighbours, which are decoded together
    at = start

    def flush() -> None:
        if len(rewritten) == 1 and _copies(rewritten[0][0], start):
            batches.append(_as_it_is(data, *rewritten[0]))
        elif rewritten:
            batches.extend(_anew(data[rewritten[0][1] : rewritten[-1][2]], start, rewritten[0][0], source))
        rewritten.clear()

    try:
        for head, begin, stop in whole_batches(memoryview(data)):
            at, first = head.base, begin - HEADER.size
            check_batch(head, memoryview(data)[first:stop], seen)
            seen = head.base + head.last
            if drops.drops(head, data, begin, stop) or not head.records or seen < start:
                flush()
                continue
            tiny = (stop - first < _TINY_BYTES and head.records < _FEW) or not _copies(head, start)
            if not tiny or (rewritten and rewritten[-1][0].attributes & CODEC != head.attributes & CODEC):
                flush()
            if tiny:
                rewritten.append((head, first, stop))
            else:
                batches.append(_as_it_is(data, head, first, stop))
        flush()
    except DamagedError as error:
        raise damaged(source.tp, at, error) from error
    return StoredRecords(tuple(batches), max(seen + 1, start))


def _copies(head: BatchHead, start: int) -> bool:
    """Return whether a broker accepts a batch as it is from a producer, and all of it is wanted."""
    kept = not head.attributes & (LOG_APPEND_TIME | _DELETE_HORIZON)
    return kept and head.records == head.last + 1 and head.base >= start


def _as_it_is(data: bytes, head: BatchHead, first: int, stop: int) -> StoredBatch:
    return StoredBatch(data[first:stop], head.records, (StoredStretch(head.base, head.records),))


def _anew(data: bytes, start: int, head: BatchHead, source: BatchSource) -> Iterator[StoredBatch]:
    """Yield decoded batches, encoded with the codec of the first."""
    while data:
        fetched = decode_batches(data, start, 1 << 62, None, source)
        row = 0
        for encoded, count in encode_batches(fetched.records, _BATCH_BYTES, head.attributes & CODEC):
            yield StoredBatch(encoded, count, stretches_of(fetched.records.slice(row, count)))
            row += count
        after = fetched.next_offset
        if after >= end_of_batches(data, start):
            return
        # the batches together unpack to more than is decoded at once
        data = data[
            next(begin - HEADER.size for each, begin, _ in whole_batches(memoryview(data)) if each.base >= after) :
        ]
