"""Fetch sessions (KIP-227): a broker remembers the partitions and offsets of the last request.

So the next request names only those that have changed, and the answer only those with news. Fetching from 1,000 idle
partitions costs no more than from one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.protocol_errors import TIMED_OUT, check, failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["FetchSession", "FetchSizes"]

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
        wanted: The offsets to fetch from.
        sent: The offsets that the broker knows.
        number: The number of the request in flight.
        due: The time by which its answer is due.
    """

    sizes: FetchSizes
    wanted: dict[TopicPartition, int] = field(default_factory=dict)
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
        """Send a request for the wanted offsets, unless one is in flight."""
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
        changed = {tp: offset for tp, offset in self.wanted.items() if self.sent.get(tp) != offset}
        gone = [tp for tp in self.sent if tp not in self.wanted]
        self.sent = dict(self.wanted)
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
