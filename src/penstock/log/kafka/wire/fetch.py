"""Fetching of offset ranges as columns, in sessions, and waiting for records behind known offsets.

While one answer is decoded, the broker prepares the next: the next request is sent as soon as the offset after the last
answer is known, from the headers of its batches.

In a session (KIP-227) a broker remembers the partitions and offsets of the last request. So the next request names only
those that have changed, and the answer only those with news. Fetching from 1,000 idle partitions costs no more than
from one, and waiting for them is one request to each broker, which answers when there are records.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError

from penstock.errors import LogError
from penstock.log.base import Fetched, TopicPartition
from penstock.log.kafka.wire.batch_reader import (
    AbortedRecords,
    BatchSource,
    decode_batches,
    end_of_batches,
    whole_batches,
)
from penstock.log.kafka.wire.connection import NO_CONNECTION, TIMED_OUT, arrivals, check, failed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.log.base import Isolation
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = [
    "DataWaiter",
    "FetchSession",
    "FetchSizes",
    "aborted_of",
    "fetch_once",
    "fetch_range",
    "fetch_request",
    "first_records",
    "hidden_offsets",
    "partition_of",
    "stored_bytes",
]

_READ_COMMITTED = 1
_LATE_S = 3.0  # a broker that has not answered by then may be gone: the leaders are looked up again
_FORGOTTEN = (KafkaError.FETCH_SESSION_ID_NOT_FOUND, KafkaError.INVALID_FETCH_SESSION_EPOCH)


class FetchSizes(NamedTuple):
    """The limits of an answer in bytes, and of its part for one partition; the first batch may be larger."""

    answer: int
    partition: int


@dataclass(slots=True)
class FetchSession:
    """The fetch session of one broker, for committed records.

    Attributes:
        sizes: The limits of its answers.
        offsets: The offsets to fetch from.
        sent: The offsets that the broker knows.
        number: The number of the request in flight.
        due: The time by which its answer is due.
    """

    sizes: FetchSizes
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    sent: dict[TopicPartition, int] = field(default_factory=dict)
    number: int | None = None
    due: float = 0.0
    _id: int = 0
    _epoch: int = 0
    _begins_anew: bool = False

    def begin_anew(self) -> None:
        """Have the broker answer for all partitions once more, also for those without news.

        It tells the end of a partition once, and again only when it changes: a partition that comes back, and whose end
        has been forgotten, would have none as long as nothing is written to it.
        """
        self._begins_anew = True

    def send(self, connection: BrokerConnection, wait_s: float) -> None:
        """Send a request for the offsets to fetch from, unless one is in flight."""
        if self.number is None:
            self.number = connection.send(self.request(wait_s))
            self.due = time.monotonic() + wait_s

    def receive(self, connection: BrokerConnection) -> Iterator[tuple[TopicPartition, int, Any]]:
        """Receive the answer, and return its partitions, each with the offset that it was asked from.

        Raises:
            KafkaException: Like librdkafka's consumer; errors of single partitions are left to the caller.
        """
        assert self.number is not None, "send() comes first"  # noqa: S101
        number, self.number = self.number, None
        answer = connection.receive(number)
        if answer.error_code in _FORGOTTEN:
            self._id = 0
            return iter(())
        check(answer.error_code, "fetching")
        self._id = answer.session_id
        self._epoch = self._epoch % ((1 << 31) - 1) + 1
        return self._parts(answer)

    def leave(self, connection: BrokerConnection) -> None:
        """End the session on this side; the broker forgets it by itself."""
        if self.number is not None:
            connection.drop(self.number)
            self.number = None

    @property
    def patience_s(self) -> float:
        """The time in seconds until the answer is late."""
        return max(0.0, self.due + _LATE_S - time.monotonic())

    def check_due(self, connection: BrokerConnection) -> None:
        """Raise KafkaException if the answer is late."""
        if self.number is not None and self.patience_s <= 0:
            raise failed(TIMED_OUT, f"broker {connection.address} does not answer whether there are new records")

    def _parts(self, answer: Any) -> Iterator[tuple[TopicPartition, int, Any]]:
        for topic in answer.responses:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic, each.partition_index)
                if (offset := self.sent.get(tp)) is not None:
                    yield tp, offset, each

    def request(self, wait_s: float) -> Any:
        """Make the next request: all partitions in a new session, then those that have changed."""
        from kafka.protocol.consumer import FetchRequest

        topic, forgotten = FetchRequest.FetchTopic, FetchRequest.ForgottenTopic
        if not self._id or self._begins_anew:
            self.sent, self._epoch = {}, 0
            self._begins_anew = False
        changed = {tp: offset for tp, offset in self.offsets.items() if self.sent.get(tp) != offset}
        gone = [tp for tp in self.sent if tp not in self.offsets]
        self.sent = dict(self.offsets)
        return FetchRequest(
            max_wait_ms=max(0, int(wait_s * 1000)),
            min_bytes=1,
            max_bytes=self.sizes.answer,
            isolation_level=_READ_COMMITTED,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[
                topic(topic=name, partitions=[self._partition(topic, tp, changed[tp]) for tp in places])
                for name, places in _by_topic(changed).items()
            ],
            forgotten_topics_data=[
                forgotten(topic=name, partitions=[tp.partition for tp in places])
                for name, places in _by_topic(gone).items()
            ],
            rack_id="",
            min_version=7,
            max_version=12,  # later ones name topics by their ids
        )

    def _partition(self, topic: Any, tp: TopicPartition, offset: int) -> Any:
        return topic.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self.sizes.partition,
        )


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in places:
        by_topic.setdefault(tp.topic, []).append(tp)
    return by_topic


_FIRST_BYTES = 1 << 20
_MOST_BYTES = 16 << 20
_SLACK = 1.1
_WAIT_MS = 100
_SAMPLE_BYTES = 64 << 10  # the broker returns at least one whole batch
_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


def fetch_range(
    cluster: Cluster, tp: TopicPartition, offsets: tuple[int, int], isolation: Isolation, patience_s: float
) -> Iterator[Fetched]:
    """Yield all records with start <= offset < end, in parts, each with the offset after it.

    Args:
        cluster: The cluster.
        tp: The topic partition.
        offsets: The first offset, and the offset after the last, which must exist.
        isolation: Whether records of aborted and open transactions are left out.
        patience_s: The time to wait for an end that the broker does not have (yet), as after a change of leaders.

    Raises:
        KafkaException: Like librdkafka's consumer. There are no retries here.
        LogError: A record batch is damaged or too large; names the topic, the partition and the offset.
    """
    source, end = BatchSource(tp, cluster.most_unpacked_bytes), offsets[1]
    with closing(_stored(cluster, tp, offsets, isolation, patience_s)) as parts:
        for start, after, data, aborted in parts:
            offset = start
            while True:
                decoded = decode_batches(data, offset, end, aborted, source)
                yield Fetched(decoded.records, min(decoded.next_offset, end))
                if not offset < decoded.next_offset < min(after, end):
                    break
                offset = decoded.next_offset


def hidden_offsets(cluster: Cluster, tp: TopicPartition, offsets: tuple[int, int], patience_s: float) -> set[int]:
    """Return the offsets of a range that readers never see: those of transactions' markers and of aborted records.

    Args:
        cluster: The cluster.
        tp: The topic partition.
        offsets: The first offset, and the offset after the last, which must exist.
        patience_s: The time to wait for an end that the broker does not have (yet).

    Raises:
        KafkaException: Like librdkafka's consumer. There are no retries here.
    """
    hidden: set[int] = set()
    with closing(_stored(cluster, tp, offsets, "read_committed", patience_s)) as parts:
        for _, _, data, transactions in parts:
            aborted = AbortedRecords(transactions)
            for head, begin, stop in whole_batches(memoryview(data)):
                if aborted.drops(head, data, begin, stop):
                    hidden.update(range(head.base, head.base + head.last + 1))
    return hidden


def _stored(
    cluster: Cluster, tp: TopicPartition, offsets: tuple[int, int], isolation: Isolation, patience_s: float
) -> Generator[tuple[int, int, bytes, list[tuple[int, int]] | None], None, None]:
    """Yield the batches of a range as they are stored: their offset, that after them, their bytes, and what is aborted.

    The next ones are asked for before. Close it, so that no answer is left on the connection.
    """
    offset, end = offsets
    if offset >= end:
        return
    connection = cluster.leader(tp)
    number: int | None = None
    size = _FIRST_BYTES
    waiting_since = time.monotonic()
    try:
        number = connection.send(_request(tp, offset, size, isolation))
        while number is not None:
            answer = _received(connection, number, tp, offset)
            number = None
            data = answer.records or b""
            after = end_of_batches(data, offset)
            if after > offset:
                waiting_since = time.monotonic()
                size = _next_size(len(data), after - offset, end - after)
            elif data:
                size = _larger(size, connection.most_bytes, tp, offset)
            elif time.monotonic() - waiting_since > patience_s:
                text = f"{tp.topic}-{tp.partition} should reach offset {end}, but there is nothing after {offset}"
                raise failed(TIMED_OUT, text)
            if after < end:
                number = connection.send(_request(tp, after, size, isolation))
            yield offset, after, data, aborted_of(answer, isolation)
            offset = after
    finally:
        if number is not None:
            connection.close()  # abandoned: an answer is still to come


def fetch_once(cluster: Cluster, tp: TopicPartition, offset: int, most_bytes: int, isolation: Isolation) -> Fetched:
    """Fetch once, without waiting, from this offset on."""
    connection = cluster.leader(tp)
    request = _request(tp, offset, most_bytes, isolation, wait_ms=0)
    answer = _received(connection, connection.send(request), tp, offset)
    aborted = aborted_of(answer, isolation)
    source = BatchSource(tp, cluster.most_unpacked_bytes)
    return decode_batches(answer.records or b"", offset, 1 << 62, aborted, source)


def first_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, pa.RecordBatch]:
    """Fetch the records of the first batches from these offsets on, by one request to each broker.

    Large batches, and partitions that cannot be read now, are left out: reading them alone returns the records, or
    raises the error.

    Raises:
        KafkaException: Like librdkafka's consumer.
    """
    sent = []
    first_batches: dict[TopicPartition, pa.RecordBatch] = {}
    try:
        for connection, places in cluster.by_leader(offsets).items():
            request = fetch_request({tp: offsets[tp] for tp in places}, _SAMPLE_BYTES, isolation, 0)
            sent.append((connection, connection.send(request)))
        for connection, number in sent:
            for topic in connection.receive(number).responses:
                for part in topic.partitions:
                    tp, aborted = TopicPartition(topic.topic, part.partition_index), aborted_of(part, isolation)
                    if not part.error_code and part.records:
                        source = BatchSource(tp, cluster.most_unpacked_bytes)
                        read = decode_batches(part.records, offsets[tp], 1 << 62, aborted, source)
                        first_batches[tp] = read.records
    except BaseException:
        cluster.forget()  # answers are still to come
        raise
    return first_batches


def stored_bytes(cluster: Cluster, samples: Sequence[tuple[TopicPartition, int]]) -> list[tuple[int, int]]:
    """Return, of the batches at each of these offsets, the number of offsets and of bytes.

    Batches that cannot be read, as retention has removed them or their leader moves, count as empty.
    """
    sent = []
    sizes = []
    try:
        for tp, offset in samples:
            connection = cluster.leader(tp)
            sent.append((connection, connection.send(_request(tp, offset, _SAMPLE_BYTES, "read_uncommitted", 0))))
        for (_, offset), (connection, number) in zip(samples, sent, strict=True):
            parts = [part for topic in connection.receive(number).responses for part in topic.partitions]
            data = b"".join(part.records for part in parts if not part.error_code and part.records)
            first = int.from_bytes(data[:8], "big")  # of its first batch, which may begin before the offset
            sizes.append((end_of_batches(data, offset) - first if data else 0, len(data)))
    except BaseException:
        cluster.forget()  # answers are still to come
        raise
    return sizes


def _next_size(had_bytes: int, had_offsets: int, missing_offsets: int) -> int:
    """Estimate the bytes of the missing records, so that the broker does not send more."""
    expected = int(_SLACK * had_bytes / had_offsets * missing_offsets) + (64 << 10)
    return min(_MOST_BYTES, expected)


def _larger(size: int, most_bytes: int, tp: TopicPartition, offset: int) -> int:
    """Return the size of the next request after one of ``size`` has returned no whole batch."""
    if size >= most_bytes:
        raise LogError(
            f"{tp.topic}-{tp.partition}: the record batch at offset {offset} is larger than {most_bytes:,} bytes",
            hint="If such batches are intended, set receive.message.max.bytes to a larger number.",
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
        )
    return min(size * 4, most_bytes)


def _request(tp: TopicPartition, offset: int, size: int, isolation: Isolation, wait_ms: int = _WAIT_MS) -> Any:
    return fetch_request({tp: offset}, size, isolation, wait_ms)


def fetch_request(offsets: Mapping[TopicPartition, int], size: int, isolation: Isolation, wait_ms: int) -> Any:
    """Make a request for ``size`` bytes of each partition."""
    from kafka.protocol.consumer import FetchRequest

    topic = FetchRequest.FetchTopic
    topics: dict[str, list[Any]] = {}
    for tp, offset in offsets.items():
        partition = topic.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=size,
        )
        topics.setdefault(tp.topic, []).append(partition)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max(size, min(size * len(offsets), _MOST_BYTES)),
        isolation_level=_LEVELS[isolation],
        session_id=0,
        session_epoch=-1,  # no fetch session: requests are independent
        topics=[topic(topic=name, partitions=each) for name, each in topics.items()],
        forgotten_topics_data=[],
        rack_id="",
        min_version=4,
        max_version=12,  # later ones name topics by their ids
    )


def _received(connection: BrokerConnection, number: int, tp: TopicPartition, offset: int) -> Any:
    """Receive a fetch's answer, and return its part for a partition."""
    try:
        answer = connection.receive(number)
    except LogError as error:
        where = {"topic": tp.topic, "partition": tp.partition, "offset": offset}
        text = f"{tp.topic}-{tp.partition} at offset {offset}: {error.message}"
        raise LogError(text, hint=error.hint, **where) from error
    return partition_of(answer, tp, offset)


def partition_of(answer: Any, tp: TopicPartition, offset: int) -> Any:
    """Return the part of a fetch's answer for a partition; raises its error as KafkaException."""
    check(getattr(answer, "error_code", 0), "fetching")
    for topic in answer.responses or ():
        for part in topic.partitions or ():
            if (topic.topic, part.partition_index) == (tp.topic, tp.partition):
                check(part.error_code, f"reading {tp.topic}-{tp.partition} from offset {offset}")
                return part
    raise failed(NO_CONNECTION, f"the answer to a fetch lacks {tp.topic}-{tp.partition}")


def aborted_of(answer: Any, isolation: Isolation) -> list[tuple[int, int]] | None:
    """Return the aborted transactions in a partition's answer, as (producer id, first offset); None keeps all."""
    if isolation == "read_uncommitted":
        return None
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]


_SIZES = FetchSizes(1, 1)  # a broker returns a whole batch of one partition all the same
_SLACK_S = 0.05


class DataWaiter:
    """A waiter for committed records; one thread at a time.

    Args:
        cluster: Connections of its own: a waiting request delays all later ones.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._awaited: dict[TopicPartition, int] = {}
        self._sessions: dict[BrokerConnection, FetchSession] = {}

    def wait(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """Wait for committed records at or behind these offsets; return False if there were none in time.

        Raises:
            KafkaException: A broker or a partition has an error; the next call looks up the leaders again.
        """
        with self._lock:
            try:
                self._assign(offsets)
                return self._wait(timeout_s)
            except BaseException:
                self._forget()
                raise

    def close(self) -> None:
        """Close its connections."""
        self._cluster.close()

    def _forget(self) -> None:
        self._cluster.forget()
        self._sessions.clear()
        self._awaited = {}

    def _assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._awaited == offsets and all(connection.usable for connection in self._sessions):
            return
        self._awaited = dict(offsets)
        by_leader: dict[BrokerConnection, dict[TopicPartition, int]] = {}
        for tp, offset in offsets.items():
            by_leader.setdefault(self._cluster.leader(tp), {})[tp] = offset
        for connection in self._sessions.keys() - by_leader.keys():
            self._sessions[connection].leave(connection)
        self._sessions = {connection: self._sessions.get(connection, FetchSession(_SIZES)) for connection in by_leader}
        for connection, places in by_leader.items():
            self._sessions[connection].offsets = places

    def _wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        has_news, left = False, timeout_s
        while not has_news and left >= 0:
            for connection, session in self._sessions.items():
                session.send(connection, left)  # unless one of an earlier call is in flight
            asked = {each: session.number for each, session in self._sessions.items() if session.number is not None}
            for connection in arrivals(asked, left + _SLACK_S):
                has_news |= _has_news(self._sessions[connection].receive(connection))
            for connection, session in self._sessions.items():
                session.check_due(connection)
            left = deadline - time.monotonic()
        return has_news


def _has_news(parts: Iterable[tuple[TopicPartition, int, Any]]) -> bool:
    """Return whether there are records behind a wanted offset."""
    has_news = False
    for tp, offset, each in parts:
        check(each.error_code, f"waiting for records of {tp.topic}-{tp.partition}")
        has_news |= bool(each.records) or each.last_stable_offset > offset
    return has_news
