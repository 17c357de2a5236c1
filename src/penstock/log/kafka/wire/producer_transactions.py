"""The transactions inside of a producer: its records and the offsets of its group, committed together.

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
from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.features import feature_level
from penstock.log.kafka.wire.idempotent import new_producer_request
from penstock.log.kafka.wire.produce import ProduceRequests
from penstock.log.kafka.wire.protocol_errors import check
from penstock.log.kafka.wire.record_batches import NO_PRODUCER, ProducerState
from penstock.log.kafka.wire.transactions import add_request, ask_coordinator, check_added
from penstock.log.membership import GroupMembership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.log.base import OffsetAndMetadata
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection
    from penstock.log.kafka.wire.produce import ProducedStretch, ProduceLimits

    MayPass = Callable[[KafkaException], bool]

__all__ = ["MarkerWatch", "ProducerTransactions"]

_OF_KAFKA_4 = 2
_FEATURE = "transaction.version"
_NOBODY = GroupMembership("", "", -1)
_ABORTED, _COMMITTING = "CompleteAbort", "PrepareCommit"
_FENCED = (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
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
        cluster: Connections of its own.
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
        parts: Sequence[tuple[TopicPartition, pa.RecordBatch]],
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
        by_topic: dict[str, list[Any]] = {}
        for tp, each in offsets.items():
            partition = topic.TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=each.offset,
                committed_leader_epoch=-1,
                committed_metadata=each.metadata,
            )
            by_topic.setdefault(tp.topic, []).append(partition)
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.state.producer_id,
            producer_epoch=self.state.epoch,
            generation_id=me.generation,
            member_id=me.member,
            group_instance_id=me.instance or None,
            topics=[topic(name=name, partitions=each) for name, each in by_topic.items()],
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
