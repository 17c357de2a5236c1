"""KafkaLog: the seam of topic logs over a Kafka cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import pyarrow as pa

from penstock.errors import UnknownTopicError
from penstock.log.base import (
    Fetched,
    GroupState,
    Isolation,
    Lease,
    OffsetAndMetadata,
    OffsetAndTime,
    TopicInfo,
    TopicPartition,
)
from penstock.log.kafka.clients import Clients
from penstock.log.kafka.failures import persist
from penstock.log.kafka.group_state import delete_offsets, group_state
from penstock.log.kafka.leases import Leases
from penstock.log.kafka.ledger import Ledger, entry_part
from penstock.log.kafka.offsets import stretches, wait_for_data
from penstock.log.kafka.producers import Producers
from penstock.log.kafka.reading import EMPTY, RangeReader
from penstock.log.kafka.settling import settle_hanging
from penstock.log.kafka.topics import Topics
from penstock.log.kafka.transaction import KafkaTransaction
from penstock.log.kafka.writing import Part, checked, placed
from penstock.log.time_range import first_from

__all__ = ["KafkaLog"]

_MOST_EXPECTED = 16


class KafkaLog:
    """The topics of a Kafka cluster; nothing is asked of it until it is used.

    Open it with :func:`penstock.log.open.open_log`.

    Args:
        servers: As ``bootstrap.servers``.
        settings: Kafka's client settings by their Java names.
    """

    def __init__(self, servers: str, settings: Mapping[str, Any] | None = None) -> None:
        self.clients = Clients(servers, settings or {})
        self.producers = Producers(self.clients)
        self.replication = int(self.clients.settings.get("replication.factor", -1))
        self._topics = Topics(self.clients)
        self._leases = Leases(self)
        self._ledgers: dict[str, tuple[threading.Lock, Ledger]] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """What opens this log again."""
        return self.clients.servers

    @property
    def patience_s(self) -> float:
        """How long to try again what fails for reasons that may pass."""
        return self.clients.patience_s

    # Topics

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; raises TopicExistsError if there is one of that name."""
        self._topics.create(name, partitions, config or {}, self.replication)

    def create_partitions(self, name: str, total: int) -> None:
        """Adds partitions until the topic has ``total``."""
        self._topics.add_partitions(name, total)

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets some of a topic's settings; None returns one to its default."""
        self._topics.alter_config(name, changes)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic."""
        self._topics.delete(name)

    def topics(self) -> list[TopicInfo]:
        """All topics by name, Kafka's own left out; `topic` tells their settings too."""
        return [TopicInfo(name, count) for name, count in self._topics.counts().items()]

    def topic(self, name: str) -> TopicInfo:
        """One topic; raises UnknownTopicError with the nearest names."""
        return self._topics.info(name)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, which fewer may not know than its settings."""
        return self._topics.partitions(topic)

    def topic_setting(self, topic: str, name: str) -> str:
        """A setting of a topic, be it its own or the broker's default."""
        return self._topics.config(topic, everything=True)[name]

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Removes all records below an offset; gives the new first offset."""
        return self._topics.delete_records(self._place(topic, partition), before_offset)

    # Records

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Appends outside any transaction; gives the first offset."""
        place = self._place(topic, partition)
        if not records.num_rows:
            return self.end_offset(topic, partition)
        return self.write_plainly([(topic, partition, checked(topic, partition, records))])[place]

    def write_plainly(self, parts: Sequence[Part]) -> dict[TopicPartition, int]:
        """Idempotent writes outside transactions; gives the first offset of each partition."""
        doing = "writing to " + ", ".join(sorted({f"{topic}-{partition}" for topic, partition, _ in parts}))
        cluster = self.clients.cluster()

        def patiently(action: Callable[[], None]) -> None:
            persist(action, doing, self.patience_s, self.clients.access, cluster.forget, operation="WRITE")

        with self.producers.plain() as writer:
            return writer.write([placed(part) for part in parts], patiently)

    @contextmanager
    def transaction(self, transactional_id: str, epoch: int | None = None) -> Iterator[KafkaTransaction]:
        """One atomic unit; commits when the block ends, writes nothing when it raises.

        Args:
            transactional_id: Whose writes these are; the newest attempt of an id fences earlier ones. With an empty one
                the writes are idempotent, but not one unit.
            epoch: Of the application's lease (see ``acquire_lease``).

        Raises:
            FencedError: A newer attempt or instance has taken over.
            ProductionError: Kafka refuses a record for good.
            LogUnavailableError: It could not be written within ``task.timeout.ms``.
        """
        transaction = KafkaTransaction(self, transactional_id, epoch)
        yield transaction
        transaction.commit()

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = 50_000,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        """Up to ``max_records`` from ``offset`` on, and where to read on."""
        self._place(topic, partition)
        reader = self._reader(isolation)
        found = list(reader.read(topic, partition, offset, None, max_records))
        return Fetched(pa.concat_batches(found) if found else EMPTY, reader.position)

    def read_range(self, topic: str, partition: int, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """All committed records with start <= offset < end."""
        return list(self._reader().read(topic, partition, start, end))

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """As ``read_range``, piece by piece."""
        return self._reader().read(topic, partition, start, end)

    # Offsets

    def beginning_offset(self, topic: str, partition: int) -> int:
        """The first offset that retention has left."""
        return self._topics.beginnings([topic])[self._place(topic, partition)]

    def end_offset(self, topic: str, partition: int) -> int:
        """The last stable offset: what is behind it is not committed yet."""
        return self._topics.ends([topic])[self._place(topic, partition)]

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """The first offsets of all partitions of these topics."""
        return self._topics.beginnings(topics)

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """The last stable offsets of all partitions of these topics."""
        return self._topics.ends(topics)

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """The first record whose timestamp is at least this; None if there is none."""
        near = self._topics.for_time(self._place(topic, partition), timestamp)
        if near is None:
            return None
        # The index counts the markers of transactions, whose times are those of the commits: where records are older
        # than their commits, it names a marker. Nearly always the first record that is read here is the one.
        found = (first_from(batch, timestamp) for batch in self._reader().read(topic, partition, near.offset))
        return next((first for first in found if first is not None), None)

    def stretches(self, topic: str, partition: int, start: int, end: int, most: int) -> list[tuple[int, int, int]]:
        """Stretches of records from ``start`` on until they hold ``most``: (next offset, smallest, largest time)."""
        return stretches(self._topics, TopicPartition(topic, partition), start, end, most)

    def wait_for_data(self, known: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        """Waits until these topics no longer end at ``known``, at most so long; gives where they end then."""
        return wait_for_data(self._topics, known, timeout_s)

    # Groups

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Sets the group's next offsets; it must have no members."""
        self._topics.commit(group, offsets, metadata)

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The group's next offset per partition."""
        return {place: each.offset for place, each in self._topics.committed(group).items()}

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's next offsets with what was noted beside them."""
        return self._topics.committed(group)

    def groups(self) -> list[str]:
        """The names of all groups."""
        return self._topics.groups()

    def group_state(self, group: str) -> GroupState:
        """State and members; Empty also if there is no such group."""
        return group_state(self._topics, self.clients.admin(), group)

    def delete_offsets(self, group: str, places: Iterable[TopicPartition]) -> None:
        """Forgets where the group is in these partitions; it must have no members."""
        delete_offsets(self._topics, group, places)

    def delete_group(self, group: str) -> None:
        """Forgets a group's offsets."""
        self._topics.delete_group(group)

    # Applications

    def expect_transactions(self, transactional_ids: Sequence[str], epoch: int | None) -> None:
        """Begins to initialise the producers of these ids that this process has not had yet."""
        self.producers.warm(transactional_ids[:_MOST_EXPECTED], epoch)

    def ledger(self, application: str) -> dict[str, int]:
        """Task -> last batch written."""
        with self.ledger_of(application) as ledger:
            if not ledger.exists():
                return {}
            ledger.read_all()
            return ledger.tasks()

    def clear_ledger(self, application: str) -> None:
        """Forgets what an application has written; part of a reset, after its checkpoint is deleted."""
        tasks = self.ledger(application)
        if not tasks:
            return
        with self.transaction(f"{application}-reset") as transaction:
            for task in tasks:
                transaction.append(*entry_part(application, task, None))

    def acquire_lease(self, application: str, owner: str, ttl_ms: int = 30_000, *, force: bool = False) -> Lease:
        """Takes the right to run an application, with a new epoch.

        Raises:
            FencedError: If another instance runs: says who, where and since when.
        """
        return self._leases.acquire(application, owner, ttl_ms, force=force)

    def renew_lease(self, lease: Lease) -> None:
        """The heartbeat; raises FencedError if a newer instance has taken over."""
        self._leases.renew(lease)

    def release_lease(self, lease: Lease) -> None:
        """Gives the lease back; does nothing if somebody else has it."""
        self._leases.release(lease)

    def lease(self, application: str) -> Lease | None:
        """Who runs, or last ran, an application."""
        return self._leases.read(application)

    # Its parts

    @contextmanager
    def ledger_of(self, application: str) -> Iterator[Ledger]:
        """An application's ledger, for one thread at a time."""
        with self._lock:
            if application not in self._ledgers:
                settle = partial(settle_hanging, application, self._topics, self.clients)
                ledger = Ledger(application, self._topics, self._reader(), self.patience_s, settle)
                self._ledgers[application] = (threading.Lock(), ledger)
            lock, found = self._ledgers[application]
        with lock:
            yield found

    def _reader(self, isolation: Isolation = "read_committed") -> RangeReader:
        return RangeReader(self.clients.cluster(), isolation, self.patience_s, self.clients.access)

    def _place(self, topic: str, partition: int) -> TopicPartition:
        count = self._topics.partitions(topic)
        if not 0 <= partition < count:
            raise UnknownTopicError(
                f"topic {topic!r} has no partition {partition}", hint=f"it has {count}, counted from 0", topic=topic
            )
        return TopicPartition(topic, partition)

    def close(self) -> None:
        """Closes its clients; harmless if they are closed already."""
        with self._lock:
            self._ledgers.clear()
        self.producers.close()
        self.clients.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaLog, (self.clients.servers, self.clients.settings)

    def __repr__(self) -> str:
        return f"KafkaLog({self.url!r})"
