"""The shared core of a `KafkaLog`'s parts: its clients, its ledgers, its membership of a group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from penstock.errors import UnknownTopicError
from penstock.log.acls import TopicAcl
from penstock.log.base import Isolation, Lease, TopicPartition
from penstock.log.kafka.clients.connections import Clients
from penstock.log.kafka.cluster_topics import Topics, add_topic_acls, topic_acls
from penstock.log.kafka.failures import failure, persist
from penstock.log.kafka.reading import RangeReader, settled_ends
from penstock.log.kafka.transactions.group_presence import Presence
from penstock.log.kafka.transactions.hanging_transactions import settle_hanging
from penstock.log.kafka.transactions.ledger import Ledger
from penstock.log.kafka.transactions.producer_fencing import Producers
from penstock.log.kafka.wire.fetch import hidden_offsets
from penstock.log.kafka.wire.record_batches import fetch_stored
from penstock.log.kafka.writing import AnyPart
from penstock.log.stored_batches import StoredRecords, joined

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.streams_groups.description import StreamsGroupDescription

__all__ = ["KafkaCore"]


class KafkaCore:
    """The base of `KafkaLog`, on which transactions and leases build.

    Args:
        servers: In the form of ``bootstrap.servers``.
        settings: Kafka's client settings by their Java names.
    """

    def __init__(self, servers: str, settings: Mapping[str, Any] | None = None) -> None:
        self.clients = Clients(servers, settings or {})
        self.producers = Producers(self.clients)
        self.replication = int(self.clients.settings.get("replication.factor", -1))
        self._topics = Topics(self.clients)
        self._ledgers: dict[str, tuple[threading.Lock, Ledger]] = {}
        self._lock = threading.Lock()
        self._presence: Presence | None = None

    @property
    def patience_s(self) -> float:
        """The time in seconds for retries after temporary failures."""
        return self.clients.patience_s

    def batch_limit_bytes(self, topic: str) -> int:
        """Return the size of the largest record batch that a topic accepts from this client."""
        limit = int(self._topics.config(topic, everything=True)["max.message.bytes"])
        return min(self.clients.max_request_bytes, limit)

    def write_plainly(self, parts: Sequence[AnyPart]) -> dict[TopicPartition, int]:
        """Write idempotently outside transactions, and return the first offset of each partition."""
        doing = "writing to " + ", ".join(sorted({f"{topic}-{partition}" for topic, partition, _ in parts}))
        cluster = self.clients.cluster()

        def patiently(action: Callable[[], None]) -> None:
            persist(action, doing, self.patience_s, self.clients.access, cluster.forget, operation="WRITE")

        with self.producers.plain() as writer:
            try:
                return writer.write(joined(parts), patiently).offsets
            except KafkaException as error:
                raise failure(error, doing, self.clients.access, operation="WRITE") from error

    def stored(self, positions: Mapping[TopicPartition, int], most_bytes: int) -> dict[TopicPartition, StoredRecords]:
        """Read the committed record batches behind these positions, as they are stored.

        Args:
            positions: The offset to read from, by partition; partitions without new records, and those whose position
                is out of range, are left out of the result.
            most_bytes: The limit of each partition, unless its first batch is larger.

        Raises:
            LogUnavailableError: No broker answers.
            LogError: A batch is damaged.
        """
        clients, cluster = self.clients, self.clients.cluster()
        action = partial(fetch_stored, cluster, positions, most_bytes)
        doing = "reading " + ", ".join(sorted({tp.topic for tp in positions}))
        return persist(action, doing, self.patience_s, clients.access, cluster.forget, operation="READ")

    def topic_acls(self) -> list[TopicAcl] | None:
        """List the rights to single topics; None: the cluster asks for none."""
        return topic_acls(self._topics, self.clients.admin())

    def add_topic_acls(self, rules: Sequence[TopicAcl]) -> None:
        """Add rights to topics; those that are there already stay."""
        add_topic_acls(self._topics, self.clients.admin(), rules)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "", lease: Lease | None = None
    ) -> None:
        """Set the group's next offsets; it must have no members but this log's running application.

        A newer instance of the application has expelled the member of this one, so ``lease`` need not be compared.

        Raises:
            FencedError: A newer instance has taken over.
        """
        del lease
        presence = self._presence
        if presence is None or presence.group != group:
            self._topics.commit(group, offsets, metadata)
        else:
            presence.commit(lambda me: self._topics.commit(group, offsets, metadata, me), offsets)

    def streams_group(self, group: str) -> StreamsGroupDescription | None:
        """Return a streams group; None if there is none of that name."""
        return self._topics.streams_group(group)

    def _end_presence(self) -> None:
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.end()

    @contextmanager
    def ledger_of(self, application: str) -> Iterator[Ledger]:
        """Lend an application's ledger, to one thread at a time."""
        with self._lock:
            if application not in self._ledgers:
                settle = partial(settle_hanging, application, self._topics, self.clients)
                ledger = Ledger(application, self._topics, self._reader(), self.patience_s, settle)
                self._ledgers[application] = (threading.Lock(), ledger)
            lock, ledger = self._ledgers[application]
        with lock:
            yield ledger

    def settled_end(self, topic: str, application: str) -> int | None:
        """Wait until all that has been written to a topic's partition 0 has ended; return its end.

        None: there is no such topic. Transactions of the application that a broker has left open are ended.
        """
        if not self._topics.exists(topic):
            return None
        tp = TopicPartition(topic, 0)
        settle = partial(settle_hanging, application, self._topics, self.clients)
        return settled_ends(self._topics, (tp,), self.patience_s, settle)[tp]

    def beginning_offset(self, topic: str, partition: int) -> int:
        """Return the first offset that retention has left."""
        return self._topics.beginnings([topic])[self._place(topic, partition)]

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the last stable offset: later records are not committed yet."""
        return self._topics.ends([topic])[self._place(topic, partition)]

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield all committed records with start <= offset < end, batch by batch."""
        return self._reader().read(topic, partition, start, end)

    def hidden_offsets(self, topic: str, partition: int, start: int, end: int) -> set[int]:
        """Return the offsets of a range that readers never see; see `penstock.log.base.HidesOffsets`."""
        clients, cluster, tp = self.clients, self.clients.cluster(), self._place(topic, partition)
        action = partial(hidden_offsets, cluster, tp, (start, end), self.patience_s)
        return persist(action, f"reading {topic}", self.patience_s, clients.access, cluster.forget, operation="READ")

    def _place(self, topic: str, partition: int) -> TopicPartition:
        count = self._topics.partitions(topic)
        if not 0 <= partition < count:
            raise UnknownTopicError(
                f"topic {topic!r} has no partition {partition}", hint=f"it has {count}, counted from 0", topic=topic
            )
        return TopicPartition(topic, partition)

    def _reader(self, isolation: Isolation = "read_committed") -> RangeReader:
        return RangeReader(self.clients.cluster(), isolation, self.patience_s, self.clients.access)
