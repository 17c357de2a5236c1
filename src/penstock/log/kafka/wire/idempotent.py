"""Writes outside transactions: each record once for as long as the writer lives, whatever is sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.log.kafka.wire.errors import check
from penstock.log.kafka.wire.produce import Batches, ProduceLimits
from penstock.log.kafka.wire.record_batches import ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from penstock.log.base import TopicPartition
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["IdempotentWriter", "new_producer_request"]

_NONE = -1
_ANY_TIMEOUT_MS = 60_000


class IdempotentWriter:
    """A producer without a transactional id; not for several threads at once.

    Args:
        cluster: Where to.
        limits: Sizes of what is sent.
    """

    def __init__(self, cluster: Cluster, limits: ProduceLimits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._state: ProducerState | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def write(
        self, parts: Iterable[tuple[TopicPartition, pa.RecordBatch]], patiently: Callable[[Callable[[], None]], None]
    ) -> dict[TopicPartition, int]:
        """Writes all parts; gives the first offset of each partition.

        Args:
            parts: Records by partition; a partition may come several times.
            patiently: Calls what it is given, again while that fails for reasons that may pass.

        Raises:
            KafkaException: As librdkafka's producer raises it. Some of it may have been written.
        """
        if self._state is None:
            patiently(self._init)
        state, self._state = self._state, None
        assert state is not None  # noqa: S101 - _init has set it
        batches = Batches(parts, self._limits, state, self._sequences)
        patiently(lambda: batches.send(self._cluster, None))
        self._state = state  # after an error nobody knows which sequence comes next
        return batches.offsets

    def _init(self) -> None:
        answer = self._cluster.any_broker().ask(new_producer_request(None, _ANY_TIMEOUT_MS))
        check(answer.error_code, "asking for a producer id")
        self._state = ProducerState(answer.producer_id, answer.producer_epoch, 0)
        self._sequences = {}


def new_producer_request(transactional_id: str | None, timeout_ms: int) -> Any:
    """Asks for a producer id, or for the next epoch of a transactional id's."""
    from kafka.protocol.producer import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=_NONE,
        producer_epoch=_NONE,
        max_version=4,
    )
