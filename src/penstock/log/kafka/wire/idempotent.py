"""Idempotent writes outside transactions: retries write no record twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from penstock.log.kafka.wire.produce import ProduceLimits, ProduceRequests
from penstock.log.kafka.wire.protocol_errors import check
from penstock.log.kafka.wire.record_batches import NO_PRODUCER, ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from penstock.log.base import TopicPartition
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.stored import StoredRecords

__all__ = ["IdempotentWriter", "new_producer_request"]

_ANY_TIMEOUT_MS = 60_000


class IdempotentWriter:
    """A producer without a transactional id; not thread-safe.

    Args:
        cluster: The cluster.
        limits: Size limits of requests.
    """

    def __init__(self, cluster: Cluster, limits: ProduceLimits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._state: ProducerState | None = None
        self._going: ProducerState | None = None
        self._is_sent = False
        self._sequences: dict[TopicPartition, int] = {}

    def write(
        self,
        parts: Iterable[tuple[TopicPartition, pa.RecordBatch | StoredRecords]],
        patiently: Callable[[Callable[[], None]], None],
    ) -> ProduceRequests:
        """Write all parts and return them with their offsets; see `begin` and `finish`."""
        batches = self.begin(parts, patiently)
        self.finish(batches, patiently)
        return batches

    def begin(
        self,
        parts: Iterable[tuple[TopicPartition, pa.RecordBatch | StoredRecords]],
        patiently: Callable[[Callable[[], None]], None],
    ) -> ProduceRequests:
        """Send all parts without waiting for the answers, which `finish` does; it must come before the next `begin`.

        Args:
            parts: Records by partition; a partition may come several times.
            patiently: Calls a function, with retries after temporary failures.

        Raises:
            KafkaException: Like librdkafka's producer, also for a batch that is too large. Nothing has been written.
        """
        if self._state is None:
            patiently(self._init)
        self._going, self._state = self._state, None  # after an error the next sequence is unknown
        assert self._going is not None  # noqa: S101 - _init has set it
        batches = ProduceRequests(parts, self._limits, self._going, self._sequences)
        self._is_sent = True
        try:
            batches.start(self._cluster, None)
        except KafkaException:
            self._is_sent = False
        return batches

    def finish(self, batches: ProduceRequests, patiently: Callable[[Callable[[], None]], None]) -> None:
        """Wait until all batches of `begin` are written; they have their offsets then.

        Raises:
            KafkaException: Like librdkafka's producer. Some records may have been written.
        """

        def write() -> None:
            is_sent, self._is_sent = self._is_sent, False
            if is_sent:
                batches.finish()
            else:
                batches.send(self._cluster, None)

        patiently(write)
        self._state = self._going

    def _init(self) -> None:
        answer = self._cluster.any_broker().ask(new_producer_request(None, _ANY_TIMEOUT_MS))
        check(answer.error_code, "asking for a producer id")
        self._state = ProducerState(answer.producer_id, answer.producer_epoch, 0)
        self._sequences = {}


def new_producer_request(transactional_id: str | None, timeout_ms: int, own: ProducerState = NO_PRODUCER) -> Any:
    """Make a request for a producer id, or for the next epoch of a transactional id.

    Args:
        transactional_id: The transactional id.
        timeout_ms: The time-out of its transactions.
        own: The producer that wants to go on: a newer one is not fenced, but fences it (KIP-360).
    """
    from kafka.protocol.producer import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=own.producer_id,
        producer_epoch=own.epoch,
        min_version=0 if own is NO_PRODUCER else 3,
        max_version=4,
    )
