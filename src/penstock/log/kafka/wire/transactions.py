"""Transactions, each written by one call: all of its records, or none.

After a failure the whole transaction is repeated by a producer with a new epoch, which aborts the unfinished one.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.base.backoff import Backoff
from penstock.log.base import TopicPartition
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.wire.idempotent import new_producer_request
from penstock.log.kafka.wire.produce import NotWrittenError, ProduceLimits, ProduceRequests
from penstock.log.kafka.wire.protocol_errors import check
from penstock.log.kafka.wire.record_batches import ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.stored import StoredRecords

__all__ = [
    "TransactionTimedOutError",
    "TransactionalWriter",
    "add_request",
    "ask_coordinator",
    "check_added",
    "list_transactions",
]

_BUSY = {
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_NOT_ATTEMPTED = 55  # OPERATION_NOT_ATTEMPTED
# The errors of a transaction that its coordinator has aborted after the time-out, which raises the epoch.
_ENDED = {
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.TRANSACTION_ABORTABLE,
}
_NO_ANSWER = {LocalCode.TRANSPORT, LocalCode.TIMED_OUT}
_BACKOFF = Backoff(0.002, 0.1)


class TransactionTimedOutError(KafkaException):  # type: ignore[misc] # the client has no types
    """A transaction took longer than its time-out; its coordinator has aborted it.

    Attributes:
        timeout_ms: The time-out.
        seconds: The time that it had taken.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, seconds: float) -> None:
        text = f"the transaction of {transactional_id!r} was aborted after {seconds:.1f} s; limit: {timeout_ms} ms"
        super().__init__(KafkaError(KafkaError.TRANSACTION_ABORTABLE, text))
        self.timeout_ms = timeout_ms
        self.seconds = seconds


class TransactionalWriter:
    """The producer of one transactional id; `init` fences all earlier ones.

    Args:
        cluster: The cluster.
        transactional_id: Kafka's ``transactional.id``.
        timeout_ms: The time after which the coordinator aborts an open transaction; `init` may change it.
        limits: Size limits of requests.
        patience_s: The time for retries while the coordinator is busy, as with the end of the last transaction.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout_ms: int, limits: ProduceLimits, patience_s: float = 30.0
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self.timeout_ms = timeout_ms
        self._limits = limits
        self._patience_s = patience_s
        self._state: ProducerState | None = None
        self._failed: ProducerState | None = None  # that has begun a transaction, and not ended it
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def ready(self) -> bool:
        """Whether it may write without `init`: as far as it knows, no other producer has taken over."""
        return self._state is not None

    def init(self, timeout_ms: int | None = None) -> None:
        """Take over the transactional id: abort the open transaction of another writer, and fence it.

        Args:
            timeout_ms: The time-out of later transactions; None: unchanged.

        Raises:
            KafkaException: Like librdkafka's producer; INVALID_TRANSACTION_TIMEOUT if brokers allow less.
        """
        self._state = self._failed = None
        self.timeout_ms = timeout_ms or self.timeout_ms
        answer = self._ask(
            lambda: new_producer_request(self.transactional_id, self.timeout_ms),
            lambda reply: check(reply.error_code, f"taking over transactional.id {self.transactional_id!r}"),
        )
        self._state = ProducerState(answer.producer_id, answer.producer_epoch, 0, transactional=True)
        self._sequences = {}

    def write(self, parts: Sequence[tuple[TopicPartition, pa.RecordBatch | StoredRecords]]) -> ProduceRequests:
        """Write all parts in one transaction, and return them with their offsets. After any error call `init` first.

        Raises:
            KafkaException: Like librdkafka's producer. The transaction may have been committed if the error came
                from its end; the ledger shows it.
            TransactionTimedOutError: It took too long.
        """
        state = self._state
        assert state is not None, "init() comes first"  # noqa: S101
        self._state, self._failed = None, state
        began = time.monotonic()
        try:
            self._add({tp for tp, _ in parts}, state)
            batches = ProduceRequests(parts, self._limits, state, self._sequences)
            batches.send(self._cluster, self.transactional_id)
            self._end(state)
        except KafkaException as error:
            # Fencing by another producer has the same errors. But the time-out counts from the first added partition,
            # so before it the coordinator has not aborted; and after it `init` and the ledger show the cause.
            seconds = time.monotonic() - began
            if error.args[0].code() in _ENDED and seconds * 1000 >= self.timeout_ms:
                raise TransactionTimedOutError(self.transactional_id, self.timeout_ms, seconds) from error
            raise
        self._state, self._failed = state, None
        return batches

    def abort(self) -> None:
        """End the transaction of a `write` that has failed, as the producer that began it: it fences no other one.

        Raises:
            KafkaException: Like librdkafka's producer; it ends by itself after its time-out.
        """
        state, self._failed = self._failed, None
        if state is not None:
            self._end(state, committed=False)

    def end_without_records(self, places: Sequence[TopicPartition], *, committed: bool) -> None:
        """Write only markers to these partitions. After any error call `init` first."""
        state = self._state
        assert state is not None, "init() comes first"  # noqa: S101
        self._state = None
        self._add(set(places), state)
        self._end(state, committed=committed)
        self._state = state

    def _add(self, places: set[TopicPartition], state: ProducerState) -> None:
        self._ask(lambda: add_request(self.transactional_id, state, places), check_added)

    def _end(self, state: ProducerState, *, committed: bool = True) -> None:
        from kafka.protocol.producer import EndTxnRequest

        request = {
            "transactional_id": self.transactional_id,
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "committed": committed,
        }
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                self._ask(
                    lambda: EndTxnRequest(**request, max_version=4),
                    lambda reply: check(reply.error_code, f"ending the transaction of {self.transactional_id!r}"),
                )
            except KafkaException as error:  # the answer is lost: the same producer may ask again, and it ends once
                if error.args[0].code() not in _NO_ANSWER or time.monotonic() > deadline:
                    raise
                self._cluster.forget()
                time.sleep(_BACKOFF.longest_s)
            else:
                return

    def _ask(self, request: Callable[[], Any], checked: Callable[[Any], None]) -> Any:
        return ask_coordinator(self._cluster, self.transactional_id, request, checked, self._patience_s)


def ask_coordinator(
    cluster: Cluster,
    transactional_id: str,
    request: Callable[[], Any],
    checked: Callable[[Any], None],
    patience_s: float,
) -> Any:
    """Send a request to the coordinator of a transactional id, with retries while it is busy."""
    deadline = time.monotonic() + patience_s
    for failures in itertools.count(1):
        pause = _BACKOFF.pause_s(failures)
        try:
            with cluster.coordinating(transactional_id, "transactional.id") as coordinator:
                answer = coordinator.ask(request())
                checked(answer)
        except KafkaException as error:
            if error.args[0].code() not in _BUSY or time.monotonic() + pause > deadline:
                raise
        else:
            return answer
        time.sleep(pause)
    raise AssertionError  # pragma: no cover


def add_request(transactional_id: str, state: ProducerState, places: Iterable[TopicPartition]) -> Any:
    """Make a request that adds partitions to the open transaction, which it begins if there is none."""
    from kafka.protocol.producer import AddPartitionsToTxnRequest

    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(places):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=state.producer_id,
        v3_and_below_producer_epoch=state.epoch,
        v3_and_below_topics=[topic(name=name, partitions=each) for name, each in by_topic.items()],
        max_version=3,
    )


def list_transactions(cluster: Cluster, *states: str) -> list[Any]:
    """List the transactions in these states that this user may see: transactional id, producer id, state.

    Raises:
        KafkaException: Like librdkafka's admin client.
    """
    from kafka.protocol.admin import ListTransactionsRequest

    transactions = []
    for connection in cluster.every_broker():
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=[], max_version=0)
        answer = connection.ask(request)
        check(answer.error_code, f"listing transactions in state {' or '.join(states)}")
        transactions += answer.transaction_states
    return transactions


def check_added(answer: Any) -> None:
    """Raise the error of refused partitions; the others are not attempted then."""
    for topic in answer.results_by_topic_v3_and_below:
        for each in topic.results_by_partition:
            if each.partition_error_code not in (0, _NOT_ATTEMPTED):
                raise NotWrittenError(each.partition_error_code, TopicPartition(topic.name, each.partition_index))
