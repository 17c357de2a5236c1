"""The protocol of transactions: records, and the offsets of a group, committed together under a transactional id.

With Kafka 4's transactions (``transaction.version`` 2, KIP-890) records and offsets add their partitions to the
transaction by themselves, and its end returns the next epoch: two round trips in all. Before that it takes three.
"""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.base.backoff import Backoff
from penstock.log.base import GroupMembership, TopicPartition
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.wire.cluster import feature_level
from penstock.log.kafka.wire.connection import check
from penstock.log.kafka.wire.groups import offsets_by_topic, partitions_by_topic
from penstock.log.kafka.wire.produce import NotWrittenError, ProduceRequests, new_producer_request
from penstock.log.kafka.wire.record_batches import NO_PRODUCER, ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.log.base import OffsetAndMetadata
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection
    from penstock.log.kafka.wire.produce import ProducedStretch, ProduceLimits
    from penstock.log.stored_batches import StoredRecords

    MayPass = Callable[[KafkaException], bool]

__all__ = [
    "MarkerWatch",
    "ProducerTransactions",
    "TransactionTimedOutError",
    "TransactionalWriter",
    "list_transactions",
]

_OF_KAFKA_4 = 2
_FEATURE = "transaction.version"
_NOBODY = GroupMembership("", "", -1)
_ABORTED, _COMMITTING = "CompleteAbort", "PrepareCommit"
_FENCED = (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
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
_ASKING = Backoff(0.002, 0.1)
_BACKOFF = Backoff(0.002, 0.05)
_MARKING_PAUSE_S = 0.001
_MARKED_S = 0.03  # after so long a transaction is marked unless the brokers are in trouble
_RETRIED_S = 0.015
_MANY_RETRIED = 20  # points: a slow write has five, another one takes one away
_CALM = 100  # answers in a row
_ASK_EVERY = 50  # transactions


def _never(_: KafkaException) -> bool:
    return False


class ProducerTransactions:
    """The transactions of one transactional id. `init` comes first; after an error of `write` comes `abort`.

    Args:
        cluster: The cluster.
        transactional_id: Kafka's ``transactional.id``.
        group: The group whose offsets are committed.
        limits: Size limits of requests; may be replaced between two transactions.
        patience_s: The time for retries while a coordinator is busy, as with the end of the last transaction.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, group: str, limits: ProduceLimits, patience_s: float = 30.0
    ) -> None:
        self.limits = limits
        self.group = group
        self.membership: GroupMembership | None = None  # in whose name offsets are committed
        self.transactional_id = transactional_id
        self.state = NO_PRODUCER
        self.timeout_ms = 0
        self._cluster = cluster
        self._patience_s = patience_s
        self._is_of_kafka_4 = False
        self._markers = MarkerWatch()
        self._has_begun = False  # the coordinator has the transaction as this producer's
        self._sequences: dict[TopicPartition, int] = {}
        self.firsts: Mapping[TopicPartition, int] = {}  # of the last write: first offsets
        self.stretches: Callable[[], Mapping[TopicPartition, Sequence[ProducedStretch]]] = dict  # of the last write

    def init(self, timeout_ms: int, *, again: bool = False) -> None:
        """Take over the transactional id, and abort the open transaction of an earlier producer.

        Args:
            timeout_ms: The time-out of later transactions.
            again: Go on as the same producer: fails if another one has taken over (KIP-360).

        Raises:
            KafkaException: Like librdkafka's producer; INVALID_TRANSACTION_TIMEOUT if brokers allow less.
        """
        own = self.state if again else NO_PRODUCER
        answer = self._ask(
            lambda: new_producer_request(self.transactional_id, timeout_ms, own),
            lambda reply: check(reply.error_code, f"taking over transactional.id {self.transactional_id!r}"),
        )
        self.timeout_ms = timeout_ms
        self._go_on_as(answer)
        if not again:
            with self._cluster.coordinating(self.transactional_id, "transactional.id") as coordinator:
                self._is_of_kafka_4 = feature_level(coordinator, _FEATURE) >= _OF_KAFKA_4

    def write(
        self,
        parts: Sequence[tuple[TopicPartition, pa.RecordBatch | StoredRecords]],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        may_pass: MayPass = _never,
    ) -> dict[TopicPartition, int]:
        """Write records and offsets in a transaction, which stays open; return the offset after each partition.

        It may be called several times for one transaction.

        Args:
            parts: The records.
            offsets: The offsets.
            may_pass: Returns whether to send what has failed with this error again. No record is written twice.

        Raises:
            NotWrittenError: A leader has refused a batch.
            KafkaException: Like librdkafka's producer.
        """
        self._has_begun = False
        if not self._is_of_kafka_4:
            self._add_patiently({tp for tp, _ in parts}, offsets, may_pass)
            self._has_begun = True
        asked = None
        with self._passing(may_pass):
            asked = self._ask_for_markers()
        batches = ProduceRequests(parts, self.limits, self.state, self._sequences)
        with self._passing(may_pass):
            self._await_markers(asked)
        began = time.monotonic()
        deadline = began + self._patience_s
        for failures in itertools.count(1):
            try:
                self._send(batches, offsets)
            except KafkaException as error:
                # The brokers still mark the last transaction; what they have accepted of this one stays.
                is_marking = error.args[0].code() == KafkaError.CONCURRENT_TRANSACTIONS
                if not (is_marking or may_pass(error)) or time.monotonic() > deadline:
                    raise
                if not is_marking:
                    self._cluster.forget()
            else:
                self._markers.written(time.monotonic() - began)
                self.firsts, self.stretches = batches.offsets, batches.stretches
                return batches.following
            time.sleep(_BACKOFF.pause_s(failures))
        raise AssertionError  # pragma: no cover

    def _add_patiently(
        self, places: set[TopicPartition], offsets: Mapping[TopicPartition, Any], may_pass: MayPass
    ) -> None:
        deadline = time.monotonic() + self._patience_s
        for failures in itertools.count(1):
            with self._passing(may_pass if time.monotonic() < deadline else _never):
                self._add(places, with_offsets=bool(offsets))
                return
            time.sleep(_BACKOFF.pause_s(failures))

    @contextmanager
    def _passing(self, may_pass: MayPass) -> Iterator[None]:
        """Pass over errors that may pass; connections are made anew then."""
        try:
            yield
        except KafkaException as error:
            if not may_pass(error):
                raise
            self._cluster.forget()

    def _ask_for_markers(self) -> int | None:
        """Ask for the state of the last transaction, if it may still be on its way to the brokers."""
        if not self._is_of_kafka_4 or not self._markers.is_worth_asking():
            return None
        return self._ask_for_state()

    def _ask_for_state(self) -> int:
        with self._cluster.coordinating(self.transactional_id, "transactional.id") as coordinator:
            return coordinator.send(_state_request(self.transactional_id))

    def _await_markers(self, asked: int | None) -> None:
        """Wait a little until the brokers have marked the last transaction; `write` copes if they have not."""
        while asked is not None:
            with self._cluster.coordinating(self.transactional_id, "transactional.id") as coordinator:
                transaction = coordinator.receive(asked).transaction_states[0]
            is_marked = transaction.transaction_state != _COMMITTING
            self._markers.answered(is_marked=is_marked)
            if is_marked:
                return
            time.sleep(_MARKING_PAUSE_S)
            asked = self._ask_for_state() if self._markers.is_recent else None

    def _send(self, batches: ProduceRequests, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Send records, and then offsets; wait for the answers to both."""
        if not offsets:
            self._start(batches, None)
            batches.finish()
            return
        try:
            with self._cluster.coordinating(self.group, "group") as coordinator:
                self._start(batches, coordinator)
                number = coordinator.send(self._offsets_request(offsets))
                try:
                    batches.finish()
                except BaseException:
                    coordinator.close()  # the answer is still to come
                    raise
                _check_committed(coordinator.receive(number), self.group)
        except BaseException:
            batches.abandon()
            raise

    def _start(self, batches: ProduceRequests, next_to: BrokerConnection | None) -> None:
        if self._is_of_kafka_4:
            batches.start_in_turn(self._cluster, self.transactional_id, next_to)
        else:
            batches.start(self._cluster, self.transactional_id)

    def end(self) -> None:
        """Commit the open transaction. After an error of a connection it may be called again, and is committed once.

        Raises:
            KafkaException: Like librdkafka's producer. After an error of fencing or of an invalid state it is not
                committed, unless a newer producer has taken over since.
        """
        self._end(committed=True)

    def abort(self) -> None:
        """Abort the open transaction if there is one, as the same producer; late requests of it are fenced.

        It succeeds too if the coordinator has aborted the transaction after its time-out.

        Raises:
            KafkaException: Like librdkafka's producer; PRODUCER_FENCED if another producer has taken over.
        """
        try:
            self._end(committed=False)
        except KafkaException as error:
            code = error.args[0].code()
            if code in _FENCED:
                # The coordinator has aborted it, or the answer to an earlier `init` was lost; if neither, `init` fails.
                self._go_on_after_timeout()
            elif code != KafkaError.INVALID_TXN_STATE:
                raise
        else:
            if self._is_of_kafka_4:
                return
        self.init(self.timeout_ms, again=True)

    def give_up(self) -> None:
        """Abort the open transaction as the producer that began it, which does not go on: it fences no other one.

        Raises:
            KafkaException: Like librdkafka's producer.
        """
        self._end(committed=False)

    def end_without_records(self, places: Iterable[TopicPartition], *, committed: bool) -> None:
        """Write only markers to these partitions, which are added one by one as before Kafka 4."""
        self._is_of_kafka_4 = False
        self._add(set(places), with_offsets=False)
        self._end(committed=committed)

    def _go_on_after_timeout(self) -> None:
        """Go on from the epoch of the coordinator's abort, if that is what has fenced this producer.

        A producer that takes over an open transaction has an epoch that is larger by two.
        """
        if not self._has_begun:
            return  # a newer producer may have been idle, and aborted a transaction of its own
        with self._cluster.coordinating(self.transactional_id, "transactional.id") as coordinator:
            answer = coordinator.ask(_state_request(self.transactional_id))
        transaction = answer.transaction_states[0]
        check(transaction.error_code, f"asking for the state of transaction {self.transactional_id!r}")
        by_timeout = (_ABORTED, self.state.producer_id, self.state.epoch + 1)
        if (transaction.transaction_state, transaction.producer_id, transaction.producer_epoch) == by_timeout:
            self._go_on_as(transaction)

    def _add(self, places: set[TopicPartition], *, with_offsets: bool) -> None:
        from kafka.protocol.producer import AddOffsetsToTxnRequest

        if places:
            self._ask(lambda: add_request(self.transactional_id, self.state, places), check_added)
        if with_offsets:
            request = {
                "transactional_id": self.transactional_id,
                "producer_id": self.state.producer_id,
                "producer_epoch": self.state.epoch,
                "group_id": self.group,
            }
            self._ask(
                lambda: AddOffsetsToTxnRequest(**request, max_version=3),
                lambda reply: check(reply.error_code, f"adding the offsets of group {self.group!r} to a transaction"),
            )

    def _offsets_request(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
        from kafka.protocol.producer import TxnOffsetCommitRequest

        me = self.membership or _NOBODY
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.state.producer_id,
            producer_epoch=self.state.epoch,
            generation_id=me.generation,
            member_id=me.member,
            group_instance_id=me.instance or None,
            topics=offsets_by_topic(offsets, topic, topic.TxnOffsetCommitRequestPartition),
            min_version=5 if self._is_of_kafka_4 else 3,
            max_version=5 if self._is_of_kafka_4 else 3,
        )

    def _end(self, *, committed: bool) -> None:
        from kafka.protocol.producer import EndTxnRequest

        version = 5 if self._is_of_kafka_4 else 4
        request = {
            "transactional_id": self.transactional_id,
            "producer_id": self.state.producer_id,
            "producer_epoch": self.state.epoch,
            "committed": committed,
        }
        answer = self._ask(
            lambda: EndTxnRequest(**request, min_version=version if self._is_of_kafka_4 else 0, max_version=version),
            lambda reply: check(reply.error_code, f"ending the transaction of {self.transactional_id!r}"),
        )
        self._markers.ended()
        if self._is_of_kafka_4:
            self._go_on_as(answer)

    def _go_on_as(self, answer: Any) -> None:
        self.state = ProducerState(answer.producer_id, answer.producer_epoch, 0, transactional=True)
        self._sequences = {}

    def _ask(self, request: Callable[[], Any], checked: Callable[[Any], None]) -> Any:
        return ask_coordinator(self._cluster, self.transactional_id, request, checked, self._patience_s)


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
    """Transactions of one transactional id that are each written by one call: all of its records, or none.

    After a failure the whole transaction is repeated; `init` comes before, and aborts what is unfinished.

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
        self.timeout_ms = timeout_ms
        self.ready = False  # it may write without `init`: as far as it knows, no other producer has taken over
        self._cluster = cluster
        self._patience_s = patience_s
        self._transactions = ProducerTransactions(cluster, transactional_id, "", limits, patience_s)
        self._is_unfinished = False

    @property
    def firsts(self) -> Mapping[TopicPartition, int]:
        """The offset of the first record of each partition in the last transaction."""
        return self._transactions.firsts

    def init(self, timeout_ms: int | None = None) -> None:
        """Take over the transactional id: abort the open transaction of another writer, and fence it.

        Args:
            timeout_ms: The time-out of later transactions; None: unchanged.

        Raises:
            KafkaException: Like librdkafka's producer; INVALID_TRANSACTION_TIMEOUT if brokers allow less.
        """
        self.ready = self._is_unfinished = False
        self.timeout_ms = timeout_ms or self.timeout_ms
        self._transactions.init(self.timeout_ms)
        self.ready = True

    def write(
        self, parts: Sequence[tuple[TopicPartition, pa.RecordBatch | StoredRecords]]
    ) -> dict[TopicPartition, int]:
        """Write all parts in one transaction; return the offset after each partition. After an error call `init` first.

        Raises:
            KafkaException: Like librdkafka's producer. The transaction may have been committed if the error came
                from its end; the ledger shows it.
            TransactionTimedOutError: It took too long.
        """
        assert self.ready, "init() comes first"  # noqa: S101
        self.ready, self._is_unfinished = False, True
        began = time.monotonic()
        try:
            following = self._transactions.write(parts, {})
            self._end()
        except KafkaException as error:
            # Fencing by another producer has the same errors. But the time-out counts from the first partition,
            # so before it the coordinator has not aborted; and after it `init` and the ledger show the cause.
            seconds = time.monotonic() - began
            if error.args[0].code() in _ENDED and seconds * 1000 >= self.timeout_ms:
                raise TransactionTimedOutError(self._transactions.transactional_id, self.timeout_ms, seconds) from error
            raise
        self.ready, self._is_unfinished = True, False
        return following

    def abort(self) -> None:
        """End the transaction of a `write` that has failed, as the producer that began it: it fences no other one.

        Raises:
            KafkaException: Like librdkafka's producer; it ends by itself after its time-out.
        """
        if self._is_unfinished:
            self._is_unfinished = False
            self._transactions.give_up()

    def _end(self) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return self._transactions.end()
            except KafkaException as error:  # the answer is lost: the same producer may ask again, and it ends once
                if error.args[0].code() not in _NO_ANSWER or time.monotonic() > deadline:
                    raise
                self._cluster.forget()
                time.sleep(_ASKING.longest_s)


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
        pause = _ASKING.pause_s(failures)
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
    by_topic = partitions_by_topic(sorted(places))
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


def _state_request(transactional_id: str) -> Any:
    from kafka.protocol.admin import DescribeTransactionsRequest

    return DescribeTransactionsRequest(transactional_ids=[transactional_id])


def _check_committed(answer: Any, group: str) -> None:
    for topic in answer.topics:
        for each in topic.partitions:
            check(each.error_code, f"committing {topic.name}-{each.partition_index} for group {group!r}")


class MarkerWatch:
    """Counts how the last transactions went.

    >>> watch = MarkerWatch()
    >>> watch.is_worth_asking()  # no transaction has ended
    False
    >>> watch.ended()
    >>> watch.is_worth_asking()
    True
    """

    def __init__(self) -> None:
        self._ended_s = float("-inf")
        self._calm = 0
        self._unasked = 0
        self._slow = 0

    def ended(self) -> None:
        """Note that the coordinator has just answered the end of a transaction."""
        self._ended_s = time.monotonic()

    @property
    def is_recent(self) -> bool:
        """Whether the last transaction ended so short a time ago that its markers may still be on their way."""
        return time.monotonic() - self._ended_s <= _MARKED_S

    def is_worth_asking(self) -> bool:
        """Return whether to ask for the state of the last transaction before the next one is written."""
        if not self.is_recent:
            return False
        self._unasked = 0 if self._calm < _CALM else (self._unasked + 1) % _ASK_EVERY
        return not self._unasked

    def answered(self, *, is_marked: bool) -> None:
        """Note the answer to the question."""
        self._calm = self._calm + 1 if is_marked else 0

    def written(self, seconds: float) -> None:
        """Note how long the records and offsets of a transaction took; one slow write alone says little."""
        self._slow = self._slow + 5 if seconds >= _RETRIED_S else max(0, self._slow - 1)
        if self._slow >= _MANY_RETRIED:
            self._calm = self._slow = 0
