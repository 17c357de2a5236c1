"""A transaction as one call: all of its records, or none.

As the records are at hand, nothing is half done: whatever fails is done again from the start by a producer with a new
epoch, which ends what the one before it has left open.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.errors import check
from penstock.log.kafka.wire.idempotent import new_producer_request
from penstock.log.kafka.wire.produce import Batches, NotWrittenError, ProduceLimits
from penstock.log.kafka.wire.record_batches import ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["TransactionalWriter", "list_transactions"]

_BUSY = {
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_NOT_ATTEMPTED = 55  # OPERATION_NOT_ATTEMPTED
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.1


class TransactionalWriter:
    """The producer of one transactional id; `init` fences all that came before it.

    Args:
        cluster: Where to.
        transactional_id: Kafka's ``transactional.id``.
        timeout_ms: After which the coordinator aborts an open transaction.
        limits: Sizes of what is sent.
        patience_s: How long to ask again while the coordinator is busy, as with the end of the transaction before.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout_ms: int, limits: ProduceLimits, patience_s: float = 30.0
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._limits = limits
        self._patience_s = patience_s
        self._state: ProducerState | None = None
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def ready(self) -> bool:
        """Whether it may write without `init`: it was the last to do so, as far as it knows."""
        return self._state is not None

    def init(self) -> None:
        """Takes the transactional id over: an open transaction of another is ended, and its writer fenced.

        Raises:
            KafkaException: As librdkafka's producer raises it.
        """
        self._state = None
        answer = self._ask(
            lambda: new_producer_request(self.transactional_id, self._timeout_ms),
            lambda found: check(found.error_code, f"taking over transactional.id {self.transactional_id!r}"),
        )
        self._state = ProducerState(answer.producer_id, answer.producer_epoch, 0, transactional=True)
        self._sequences = {}

    def write(self, parts: Sequence[tuple[TopicPartition, pa.RecordBatch]]) -> None:
        """Writes all parts in one transaction. After any error `init` comes first.

        Raises:
            KafkaException: As librdkafka's producer raises it. Whether the transaction took place is known only if
                the error came from before its end; ask the ledger.
        """
        state = self._state
        assert state is not None, "init() comes first"  # noqa: S101
        self._state = None
        self._add({tp for tp, _ in parts}, state)
        Batches(parts, self._limits, state, self._sequences).send(self._cluster, self.transactional_id)
        self._end(state)
        self._state = state

    def end_without_records(self, places: Sequence[TopicPartition], *, committed: bool) -> None:
        """Writes markers into these partitions, and nothing else. After any error `init` comes first."""
        state = self._state
        assert state is not None, "init() comes first"  # noqa: S101
        self._state = None
        self._add(set(places), state)
        self._end(state, committed=committed)
        self._state = state

    def _add(self, places: set[TopicPartition], state: ProducerState) -> None:
        from kafka.protocol.producer import AddPartitionsToTxnRequest

        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(places):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        request = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": state.producer_id,
            "v3_and_below_producer_epoch": state.epoch,
            "v3_and_below_topics": [topic(name=name, partitions=each) for name, each in by_topic.items()],
        }
        self._ask(lambda: AddPartitionsToTxnRequest(**request, max_version=3), _check_added)

    def _end(self, state: ProducerState, *, committed: bool = True) -> None:
        from kafka.protocol.producer import EndTxnRequest

        request = {
            "transactional_id": self.transactional_id,
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "committed": committed,
        }
        self._ask(
            lambda: EndTxnRequest(**request, max_version=4),
            lambda found: check(found.error_code, f"ending the transaction of {self.transactional_id!r}"),
        )

    def _ask(self, request: Callable[[], Any], checked: Callable[[Any], None]) -> Any:
        """Asks the coordinator, again while it is busy."""
        deadline = time.monotonic() + self._patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                with self._cluster.coordinating(self.transactional_id, "transactional.id") as coordinator:
                    answer = coordinator.ask(request())
                    checked(answer)
            except KafkaException as error:
                if error.args[0].code() not in _BUSY or time.monotonic() + pause > deadline:
                    raise
            else:
                return answer
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def list_transactions(cluster: Cluster, *states: str) -> list[Any]:
    """The transactions in these states, of those that this user may see: transactional id, producer id, state.

    Raises:
        KafkaException: As librdkafka's admin client raises it.
    """
    from kafka.protocol.admin import ListTransactionsRequest

    found = []
    for connection in cluster.every_broker():
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=[], max_version=0)
        answer = connection.ask(request)
        check(answer.error_code, f"listing transactions in state {' or '.join(states)}")
        found += answer.transaction_states
    return found


def _check_added(answer: Any) -> None:
    """Raises the reason why partitions were refused; those that are fine are not attempted then."""
    for topic in answer.results_by_topic_v3_and_below:
        for each in topic.results_by_partition:
            if each.partition_error_code not in (0, _NOT_ATTEMPTED):
                raise NotWrittenError(each.partition_error_code, TopicPartition(topic.name, each.partition_index))
