"""The messages of a stream thread's turn, encoded and decoded in plain Python.

They are four: fetch, produce, the offsets of a transaction, its end. kafka-python's codec walks through a description
of each message, which takes 25 to 30 us for a request or an answer; a commit of a handful of records has four or five
of both. These take 1 to 4 us, for one version of each message, that of current brokers; `codec_of` returns None for
others. Requests are objects of kafka-python all the same, and what is decoded has its names of fields. Fields that
nobody reads (record errors, the starts of logs) are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from penstock.base.varints import read_unsigned, unsigned

__all__ = ["FrequentCodec", "codec_of"]

_MORE = 0x80
_NO_TAGS = b"\0"
_NULL = b"\0"
_HEADER = Struct(">hhih")
_INT32 = Struct(">i")
_ANSWER_HEAD, _FETCH_HEAD = Struct(">i"), Struct(">ihi")
_FETCH_FRONT, _FETCH_PLACE = Struct(">iiiibii"), Struct(">iiqiqi")
_FETCHED_PLACE, _ABORTED = Struct(">ihqqq"), Struct(">qq")
_PRODUCE_FRONT, _PRODUCED_PLACE = Struct(">hi"), Struct(">ihqqq")
_IDENTITY, _GENERATION = Struct(">qh"), Struct(">i")
_OFFSET, _COMMITTED_PLACE = Struct(">iqi"), Struct(">ih")
_END, _ENDED = Struct(">qh?"), Struct(">ihqh")


class FrequentCodec(NamedTuple):
    """The codec of one version of a message.

    Attributes:
        key: Kafka's number of the message.
        version: Its version.
        body: Encodes the body of a request.
        answer: Decodes the body of an answer from a position on, and returns it with the position after it.
    """

    key: int
    version: int
    body: Callable[[Any], bytes]
    answer: Callable[[memoryview, int], tuple[Any, int]]

    def encode(self, request: Any, number: int, client_id: str) -> bytes:
        """Encode a request with its length and header."""
        name = client_id.encode()
        head = _HEADER.pack(self.key, self.version, number, len(name))
        data = b"".join((head, name, _NO_TAGS, self.body(request)))
        return _INT32.pack(len(data)) + data

    def decode(self, data: memoryview) -> tuple[int, Any]:
        """Decode an answer without its length; return the request's number, and the answer.

        Raises:
            ValueError, LookupError, struct.error: It is malformed.
        """
        (number,) = _ANSWER_HEAD.unpack_from(data)
        answer, at = self.answer(data, _after_tags(data, _ANSWER_HEAD.size))
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many")
        return number, answer


class AbortedTransaction(NamedTuple):
    """An aborted transaction of a fetched partition."""

    producer_id: int
    first_offset: int


class FetchedPartition(NamedTuple):
    """The records of a partition, undecoded."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTransaction] | None
    records: memoryview | None  # of the answer's own memory


class FetchedTopic(NamedTuple):
    """A topic of a fetch."""

    topic: str
    partitions: list[FetchedPartition]


class FetchAnswer(NamedTuple):
    """The answer to a fetch: records by partition."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchedTopic]


@dataclass(slots=True)
class ProducedPartition:
    """A leader's answer to a batch: whether and where it was written."""

    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int


class ProducedTopic(NamedTuple):
    """A topic of a produce request."""

    name: str
    partition_responses: list[ProducedPartition]


class ProduceAnswer(NamedTuple):
    """The answer to writes, by partition."""

    responses: list[ProducedTopic]
    throttle_time_ms: int


class CommittedPartition(NamedTuple):
    """The answer to the commit of an offset."""

    partition_index: int
    error_code: int


class CommittedTopic(NamedTuple):
    """A topic of offsets."""

    name: str
    partitions: list[CommittedPartition]


class OffsetsAnswer(NamedTuple):
    """The answer to commits of offsets, by partition."""

    throttle_time_ms: int
    topics: list[CommittedTopic]


class EndAnswer(NamedTuple):
    """The end of a transaction, and the identity of the next one."""

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


def codec_of(name: str, version: int) -> FrequentCodec | None:
    """Return the codec of a version of a message.

    >>> codec_of("FetchRequest", 12).key
    1
    >>> codec_of("FetchRequest", 11)
    """
    return _CODECS.get((name, version))


def _fetch(request: Any) -> bytes:
    parts = [
        _FETCH_FRONT.pack(
            -1,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
        ),
        _count(len(request.topics)),
    ]
    for topic in request.topics:
        parts += (_text(topic.topic), _count(len(topic.partitions)))
        for each in topic.partitions:
            epochs = each.current_leader_epoch, each.fetch_offset, each.last_fetched_epoch, each.log_start_offset
            parts += (_FETCH_PLACE.pack(each.partition, *epochs, each.partition_max_bytes), _NO_TAGS)
        parts.append(_NO_TAGS)
    parts.append(_count(len(request.forgotten_topics_data)))
    for topic in request.forgotten_topics_data:
        parts += (_text(topic.topic), _count(len(topic.partitions)), *map(_INT32.pack, topic.partitions), _NO_TAGS)
    parts += (_text(request.rack_id), _NO_TAGS)
    return b"".join(parts)


def _fetched(data: memoryview, at: int) -> tuple[FetchAnswer, int]:
    throttled, code, session = _FETCH_HEAD.unpack_from(data, at)
    topics, at = _items(data, at + _FETCH_HEAD.size, _fetched_topic)
    return FetchAnswer(throttled, code, session, topics), _after_tags(data, at)


def _fetched_topic(data: memoryview, at: int) -> tuple[FetchedTopic, int]:
    name, at = _read_text(data, at)
    partitions, at = _items(data, at, _fetched_partition)
    return FetchedTopic(name, partitions), _after_tags(data, at)


def _fetched_partition(data: memoryview, at: int) -> tuple[FetchedPartition, int]:
    number, code, high, stable, start = _FETCHED_PLACE.unpack_from(data, at)
    count, at = read_unsigned(data, at + _FETCHED_PLACE.size)
    aborted: list[AbortedTransaction] = []
    for _ in range(count - 1):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(data, at)))
        at = _after_tags(data, at + _ABORTED.size)
    _INT32.unpack_from(data, at)  # the preferred replica
    size, at = read_unsigned(data, at + _INT32.size)
    end = at + max(0, size - 1)
    if end > len(data):
        raise ValueError(f"{size - 1} bytes of records in an answer of {len(data)}")
    records = data[at:end] if size else None
    partition = FetchedPartition(number, code, high, stable, start, aborted if count else None, records)
    return partition, _after_tags(data, end)


def _produce(request: Any) -> bytes:
    name = request.transactional_id
    parts = [
        _NULL if name is None else _text(name),
        _PRODUCE_FRONT.pack(request.acks, request.timeout_ms),
        _count(len(request.topic_data)),
    ]
    for topic in request.topic_data:
        parts += (_text(topic.name), _count(len(topic.partition_data)))
        for each in topic.partition_data:
            parts += (_INT32.pack(each.index), _count(len(each.records)), each.records, _NO_TAGS)
        parts.append(_NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _produced(data: memoryview, at: int) -> tuple[ProduceAnswer, int]:
    topics, at = _items(data, at, _produced_topic)
    (throttled,) = _INT32.unpack_from(data, at)
    return ProduceAnswer(topics, throttled), _after_tags(data, at + _INT32.size)


def _produced_topic(data: memoryview, at: int) -> tuple[ProducedTopic, int]:
    name, at = _read_text(data, at)
    partitions, at = _items(data, at, _produced_partition)
    return ProducedTopic(name, partitions), _after_tags(data, at)


def _produced_partition(data: memoryview, at: int) -> tuple[ProducedPartition, int]:
    index, code, base, appended_ms, _ = _PRODUCED_PLACE.unpack_from(data, at)
    _, at = _items(data, at + _PRODUCED_PLACE.size, _record_error)
    at = _after_text(data, at)
    return ProducedPartition(index, code, base, appended_ms), _after_tags(data, at)


def _record_error(data: memoryview, at: int) -> tuple[None, int]:
    return None, _after_tags(data, _after_text(data, at + _INT32.size))


def _offsets(request: Any) -> bytes:
    instance = request.group_instance_id
    parts = [
        _text(request.transactional_id),
        _text(request.group_id),
        _IDENTITY.pack(request.producer_id, request.producer_epoch),
        _GENERATION.pack(request.generation_id),
        _text(request.member_id),
        _NULL if instance is None else _text(instance),
        _count(len(request.topics)),
    ]
    for topic in request.topics:
        parts += (_text(topic.name), _count(len(topic.partitions)))
        for each in topic.partitions:
            note = each.committed_metadata
            at = each.partition_index, each.committed_offset, each.committed_leader_epoch
            parts += (_OFFSET.pack(*at), _NULL if note is None else _text(note), _NO_TAGS)
        parts.append(_NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _offsets_noted(data: memoryview, at: int) -> tuple[OffsetsAnswer, int]:
    (throttled,) = _INT32.unpack_from(data, at)
    topics, at = _items(data, at + _INT32.size, _committed_topic)
    return OffsetsAnswer(throttled, topics), _after_tags(data, at)


def _committed_topic(data: memoryview, at: int) -> tuple[CommittedTopic, int]:
    name, at = _read_text(data, at)
    partitions, at = _items(data, at, _committed_partition)
    return CommittedTopic(name, partitions), _after_tags(data, at)


def _committed_partition(data: memoryview, at: int) -> tuple[CommittedPartition, int]:
    partition = CommittedPartition(*_COMMITTED_PLACE.unpack_from(data, at))
    return partition, _after_tags(data, at + _COMMITTED_PLACE.size)


def _end(request: Any) -> bytes:
    identity = request.producer_id, request.producer_epoch, request.committed
    return b"".join((_text(request.transactional_id), _END.pack(*identity), _NO_TAGS))


def _ended(data: memoryview, at: int) -> tuple[EndAnswer, int]:
    return EndAnswer(*_ENDED.unpack_from(data, at)), _after_tags(data, at + _ENDED.size)


def _count(number: int) -> bytes:
    """Encode the length of a compact array or string: one more, as an unsigned varint."""
    return bytes((number + 1,)) if number + 1 < _MORE else unsigned(number + 1)


def _text(value: str) -> bytes:
    data = value.encode()
    return _count(len(data)) + data


def _items(data: memoryview, at: int, read: Callable[[memoryview, int], tuple[Any, int]]) -> tuple[list[Any], int]:
    """Read a compact array; each item has at least one byte, so a wrong count ends at the end of the data."""
    count, at = read_unsigned(data, at)
    items = []
    for _ in range(count - 1):
        item, at = read(data, at)
        items.append(item)
    return items, at


def _read_text(data: memoryview, at: int) -> tuple[str, int]:
    end = _after_text(data, at)
    size, at = read_unsigned(data, at)
    if not size:
        raise ValueError("a name is null")
    return str(data[at:end], "utf-8"), end


def _after_text(data: memoryview, at: int) -> int:
    size, at = read_unsigned(data, at)
    end = at + max(0, size - 1)
    if end > len(data):
        raise ValueError(f"a text of {size - 1} bytes in an answer of {len(data)}")
    return end


def _after_tags(data: memoryview, at: int) -> int:
    """Return the position after tagged fields, none of which is read."""
    if data[at] == 0:
        return at + 1
    count, at = read_unsigned(data, at)
    for _ in range(count):
        _, at = read_unsigned(data, at)
        size, at = read_unsigned(data, at)
        at += size
        if at > len(data):
            raise ValueError(f"a tagged field of {size} bytes in an answer of {len(data)}")
    return at


_CODECS = {
    ("ProduceRequest", 12): FrequentCodec(0, 12, _produce, _produced),
    ("FetchRequest", 12): FrequentCodec(1, 12, _fetch, _fetched),
    ("EndTxnRequest", 5): FrequentCodec(26, 5, _end, _ended),
    ("TxnOffsetCommitRequest", 5): FrequentCodec(28, 5, _offsets, _offsets_noted),
}
