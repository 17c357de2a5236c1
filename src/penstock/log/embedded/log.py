"""The embedded log: a TopicLog in one SQLite file, or in memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import LogError
from penstock.log.application_needs import ApplicationNeeds
from penstock.log.base import Fetched, Isolation, OffsetAndTime, Span, Stretch, TopicInfo, TopicPartition
from penstock.log.client_counts import count
from penstock.log.embedded import catalog, records
from penstock.log.embedded.codec import EncodedRow, encode, normalise
from penstock.log.embedded.coordination import Coordination
from penstock.log.embedded.database import Database
from penstock.log.embedded.groups import ConsumerGroups
from penstock.log.embedded.records import EmbeddedFetcher
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.embedded.transaction import EmbeddedCommitProducer, EmbeddedTransaction
from penstock.log.embedded.upkeep import Upkeep
from penstock.log.thread_clients import Writer
from penstock.log.topic_settings import setting
from penstock.log.url import parse_log_url

__all__ = ["EmbeddedLog", "drop_memory_log", "open_embedded", "reopen"]

_MEMORY: dict[str, Database] = {}
_LOCK = threading.Lock()


class EmbeddedLog(Coordination, ConsumerGroups, Upkeep):
    """Topics in one SQLite database; any number of processes and threads may use it at once.

    Open it with :func:`penstock.log.open.open_log`. Records become visible when their transaction commits, all at once,
    so read_committed and read_uncommitted return the same.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-embedded")
        >>> log.create_topic("orders", partitions=2)
        >>> log.append("orders", 0, pa.RecordBatch.from_pydict({"value": [b"a", b"b"]}))
        0
        >>> log.end_offset("orders", 0)
        2
    """

    def __init__(self, database: Database, *, on_close: Callable[[], None]) -> None:
        super().__init__(database)
        self._on_close = on_close
        self._compression = database.url.settings.get("compression", "lz4")

    @property
    def url(self) -> str:
        """The URL that opens this log again, in any process."""
        return self._database.url.url

    def identity(self) -> str:
        """Return the id of the log, made when it was created."""
        with self._database.reading() as connection:
            return catalog.identity(connection)

    def require_able(self, needs: ApplicationNeeds) -> None:
        """Do nothing: whoever can open the file may do all."""

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; raises TopicExistsError if there is one of that name."""
        own = {key: value for key, value in (config or {}).items() if key != "replication.factor"}  # there is one copy
        with self._database.writing() as connection:
            catalog.create(connection, name, partitions, own, unix_ms())

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions until the topic has ``total``."""
        with self._database.writing() as connection:
            catalog.add_partitions(connection, name, total)

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None resets one to its default."""
        with self._database.writing() as connection:
            catalog.alter(connection, name, changes)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records and the groups' offsets in it."""
        with self._database.writing() as connection:
            catalog.delete(connection, name)

    def topics(self) -> list[TopicInfo]:
        """List all topics by name."""
        with self._database.reading() as connection:
            return catalog.listing(connection)

    def topic(self, name: str) -> TopicInfo:
        """Describe a topic; raises UnknownTopicError, which names similar topics, if there is none."""
        with self._database.reading() as connection:
            return catalog.find(connection, name)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of those topics that exist."""
        with self._database.reading() as connection:
            return catalog.topic_ids(connection, names)

    def partitions(self, topic: str) -> int:
        """Count a topic's partitions."""
        return self.topic(topic).partitions

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Append outside any transaction and return the first offset."""
        with self.transaction("") as transaction:
            transaction.append(topic, partition, records)
        return transaction.first_offsets[TopicPartition(topic, partition)]

    @contextmanager
    def transaction(self, transactional_id: str, epoch: int | None = None) -> Iterator[EmbeddedTransaction]:
        """Begin a transaction, which commits when the block ends and writes nothing if it raises.

        Everything is buffered, and written in one SQLite transaction at the end, so the write lock is held only then.

        Args:
            transactional_id: The id of the writer; an empty one is never fenced.
            epoch: The lease's epoch (see ``acquire_lease``). Once a higher one has written, lower ones are fenced.

        Raises:
            FencedError: A newer attempt or instance has taken over. Nothing is written.
        """
        transaction = EmbeddedTransaction(self, transactional_id, epoch)
        yield transaction
        transaction.commit()

    def prepare_transactions(self, transactional_ids: Sequence[str], epoch: int | None) -> None:
        """Do nothing: transactions need no preparation."""

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = 50_000,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        """Read up to ``max_records`` from ``offset`` on."""
        del isolation  # nothing uncommitted is ever visible
        count("consumer", "range-reads")
        with self._database.reading() as connection:
            return records.read(connection, catalog.slot(connection, topic, partition), offset, max_records)

    def read_range(self, topic: str, partition: int, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """Read all records with start <= offset < end, as stored batches (small ones are joined)."""
        return list(self.iterate(topic, partition, start, end))

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Like ``read_range``, in steps of about 100,000 records or 8 MiB: memory does not grow with the range."""
        position = start
        while position < end:
            count("consumer", "range-reads")
            with self._database.reading() as connection:
                slot = catalog.slot(connection, topic, partition)
                batches: list[pa.RecordBatch] = []
                size = size_bytes = 0
                for batch in records.iterate(connection, slot, position, end):
                    batches.append(batch)
                    size, size_bytes = size + batch.num_rows, size_bytes + batch.nbytes
                    if size >= _PIECE_RECORDS or size_bytes >= _PIECE_BYTES:
                        break
                else:
                    position = end
            yield from batches
            if position == end:
                return
            position = batches[-1].column("offset")[-1].as_py() + 1

    def beginning_offset(self, topic: str, partition: int) -> int:
        """Return the first offset that retention has left."""
        with self._database.reading() as connection:
            return catalog.slot(connection, topic, partition).start_offset

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the next record to be written."""
        with self._database.reading() as connection:
            return catalog.slot(connection, topic, partition).next_offset

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the end offsets of all partitions of these topics, in one query."""
        return self._offsets(topics, "next_offset")

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the first offsets of all partitions of these topics, in one query."""
        return self._offsets(topics, "start_offset")

    def _offsets(self, topics: Sequence[str], column: str) -> dict[TopicPartition, int]:
        marks = ", ".join("?" * len(topics))
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT t.name, p.partition, p.{column} FROM topics t JOIN partitions p ON p.topic_id = t.id "  # noqa: S608
                f"WHERE t.name IN ({marks}) ORDER BY t.name, p.partition",
                tuple(topics),
            ).fetchall()
            existing_topics = {row[0] for row in rows}
            for name in topics:
                if name not in existing_topics:
                    raise catalog.unknown(connection, name)
        return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """Find the first record whose timestamp is at least this; None if there is none."""
        with self._database.reading() as connection:
            return records.offset_for_time(connection, catalog.slot(connection, topic, partition), timestamp)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        """Like ``offset_for_time``, for many partitions."""
        with self._database.reading() as connection:
            return {
                tp: records.offset_for_time(connection, catalog.slot(connection, tp.topic, tp.partition), at)
                for tp, at in times.items()
            }

    def stretches(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, list[Stretch]]:
        """List stored rows from the start of each span until they hold its ``most`` records."""
        with self._database.reading() as connection:
            return {
                tp: records.stretches(connection, catalog.slot(connection, tp.topic, tp.partition), span)
                for tp, span in spans.items()
            }

    def record_sizes(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Return the size of the records of these ranges in bytes, before compression; parts of rows in proportion."""
        with self._database.reading() as connection:
            return {
                tp: records.size_bytes(connection, catalog.slot(connection, tp.topic, tp.partition), *span)
                for tp, span in ranges.items()
            }

    def version(self) -> int:
        """Return a number that grows with every write by any process."""
        return self._database.version()

    def wait_for_data(self, known_ends: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        """Wait until partitions end elsewhere than at ``known_ends`` or the timeout; return their end offsets."""
        deadline = time.monotonic() + timeout_s
        topics = sorted({tp.topic for tp in known_ends})
        version = self.version()
        while (ends := self.end_offsets(topics)) == known_ends and (left := deadline - time.monotonic()) > 0:
            version = self._database.wait_for_write(version, left)
        return ends

    def fetcher(self, application: str = "") -> EmbeddedFetcher:  # noqa: ARG002 - for Kafka's open transactions
        """Make a fetcher for a stream thread."""
        return EmbeddedFetcher(self._database)

    def commit_producer(self, writer: Writer) -> EmbeddedCommitProducer:
        """Make the producer of a stream thread; it fences all earlier ones of its transactional id.

        Raises:
            FencedError: A newer instance of the application has taken over.
        """
        return EmbeddedCommitProducer(self, writer)

    def streams_coordinator(self) -> EmbeddedStreamsCoordinator:
        """Return the coordinator of streams groups, which is this log itself."""
        return EmbeddedStreamsCoordinator(self)

    def settled_ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of these partitions; a commit shows in all of them at once."""
        partitions = set(places)
        ends = self.end_offsets(sorted({tp.topic for tp in partitions}))
        return {tp: end for tp, end in ends.items() if tp in partitions}

    def fence_threads(self, application: str, threads: Iterable[str], epoch: int | None = None) -> None:
        """Fence the present producers of these threads.

        Raises:
            FencedError: The application's lease has a newer epoch.
        """
        for thread in threads:
            writer = Writer(application, thread, epoch)
            self.new_producer_epoch(writer.transactional_id, writer.lease)

    def prepare(self, topic: str, partition: int, batch: pa.RecordBatch) -> list[EncodedRow]:
        """Check and encode the records of a transaction, before the write lock is taken."""
        with self._database.reading() as connection:
            slot = catalog.slot(connection, topic, partition)
        stamped = setting(slot.config, "message.timestamp.type") == "LogAppendTime"
        try:
            normal = normalise(batch, append_time_ms=unix_ms() if stamped else None)
        except pa.ArrowInvalid as error:
            raise LogError(
                f"{topic}-{partition}: records of the wrong types: {error}", hint="use RECORD_SCHEMA"
            ) from error
        records.check_keys(slot, normal)
        plain = setting(slot.config, "compression.type") == "uncompressed"
        return encode(normal, compression="none" if plain else self._compression)

    def close(self) -> None:
        """Close the log; safe to call twice."""
        self.wait_for_cleaner()
        self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., EmbeddedLog], tuple[str, int]]:
        return reopen, (self.url, os.getpid())

    def __repr__(self) -> str:
        return f"EmbeddedLog({self.url!r})"


_PIECE_RECORDS = 100_000
_PIECE_BYTES = 8 << 20


def open_embedded(url: str) -> EmbeddedLog:
    """Open an embedded log; see `open_log`."""
    location = parse_log_url(url)
    if location.path is not None or not location.name:
        database = Database(location)
        return EmbeddedLog(database, on_close=database.close)
    with _LOCK:
        if location.name not in _MEMORY:
            _MEMORY[location.name] = Database(location)
        return EmbeddedLog(_MEMORY[location.name], on_close=lambda: None)


def reopen(url: str, pid: int) -> EmbeddedLog:
    """Open a pickled log again; a log in memory only in the process that pickled it."""
    if parse_log_url(url).path is None and pid != os.getpid():
        raise LogError(
            f"the log {url} lives in the memory of process {pid}, this is process {os.getpid()}",
            hint="use a file (sqlite:///name.db) when several processes share a log",
        )
    return open_embedded(url)


def drop_memory_log(name: str) -> None:
    """Delete the log in memory of this name; open handles of it raise InvalidStateError from then on."""
    with _LOCK:
        database = _MEMORY.pop(name, None)
    if database is None:
        raise LogError(f"there is no log in memory of the name {name!r}", hint="see open_log")
    database.close()
