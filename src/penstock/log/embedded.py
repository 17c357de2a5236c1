"""The embedded log: a TopicLog in one SQLite file, or in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import pyarrow as pa

from penstock.errors import LogError
from penstock.log import catalog, records
from penstock.log.base import Fetched, Isolation, OffsetAndTime, TopicInfo, TopicPartition
from penstock.log.codec import EncodedRow, encode, normalise
from penstock.log.coordination import Coordination
from penstock.log.database import Database
from penstock.log.groups import Groups
from penstock.log.settings import setting
from penstock.log.transaction import EmbeddedTransaction
from penstock.log.upkeep import Upkeep

__all__ = ["EmbeddedLog"]


class EmbeddedLog(Coordination, Groups, Upkeep):
    """Topics in one SQLite database; any number of processes and threads may use it at once.

    Open it with :func:`penstock.log.open.open_log`. Records become visible when their transaction commits, all at once,
    so read_committed and read_uncommitted give the same.

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

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; raises TopicExistsError if there is one of that name."""
        with self._database.writing() as connection:
            catalog.create(connection, name, partitions, config, _now_ms())

    def create_partitions(self, name: str, total: int) -> None:
        """Adds partitions until the topic has ``total``."""
        with self._database.writing() as connection:
            catalog.add_partitions(connection, name, total)

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets some of a topic's settings; None returns one to its default."""
        with self._database.writing() as connection:
            catalog.alter(connection, name, changes)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic, its records and the groups' offsets in it."""
        with self._database.writing() as connection:
            catalog.delete(connection, name)

    def topics(self) -> list[TopicInfo]:
        """All topics by name."""
        with self._database.reading() as connection:
            return catalog.listing(connection)

    def topic(self, name: str) -> TopicInfo:
        """One topic; raises UnknownTopicError with the nearest names."""
        with self._database.reading() as connection:
            return catalog.find(connection, name)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self.topic(topic).partitions

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Appends outside any transaction; gives the first offset."""
        with self.transaction("") as transaction:
            transaction.append(topic, partition, records)
        return transaction.first_offsets[TopicPartition(topic, partition)]

    @contextmanager
    def transaction(self, transactional_id: str, epoch: int | None = None) -> Iterator[EmbeddedTransaction]:
        """One atomic unit; commits when the block ends, aborts when it raises.

        Everything is buffered, and written in one SQLite transaction at the end, so the write lock is held only then.

        Args:
            transactional_id: Whose writes these are; an empty one is not fenced.
            epoch: The attempt's number (see ``acquire_lease``). Once a higher one has written, lower ones are refused.

        Raises:
            FencedError: If a newer attempt or instance has taken over. Nothing is written.
        """
        transaction = EmbeddedTransaction(self, transactional_id, epoch)
        yield transaction
        transaction.commit()

    def expect_transactions(self, transactional_ids: Sequence[str], epoch: int | None) -> None:
        """Nothing is to be made ready."""

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = 50_000,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        """Up to ``max_records`` from ``offset`` on, and where to read on."""
        del isolation  # nothing uncommitted is ever visible
        with self._database.reading() as connection:
            return records.read(connection, catalog.slot(connection, topic, partition), offset, max_records)

    def read_range(self, topic: str, partition: int, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """All records with start <= offset < end, as stored batches (small ones joined)."""
        return list(self.iterate(topic, partition, start, end))

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """As ``read_range``, in pieces of about 100,000 records: memory does not grow with the range."""
        position = start
        while position < end:
            with self._database.reading() as connection:
                slot = catalog.slot(connection, topic, partition)
                found: list[pa.RecordBatch] = []
                size = 0
                for batch in records.iterate(connection, slot, position, end):
                    found.append(batch)
                    size += batch.num_rows
                    if size >= _PIECE_RECORDS:
                        break
            yield from found
            if size < _PIECE_RECORDS:
                return
            position = found[-1].column("offset")[-1].as_py() + 1

    def beginning_offset(self, topic: str, partition: int) -> int:
        """The first offset that retention has left."""
        with self._database.reading() as connection:
            return catalog.slot(connection, topic, partition).start_offset

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next record will get."""
        with self._database.reading() as connection:
            return catalog.slot(connection, topic, partition).next_offset

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """The end offsets of all partitions of these topics, in one query."""
        return self._offsets(topics, "next_offset")

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """The first offsets of all partitions of these topics, in one query."""
        return self._offsets(topics, "start_offset")

    def _offsets(self, topics: Sequence[str], column: str) -> dict[TopicPartition, int]:
        marks = ", ".join("?" * len(topics))
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT t.name, p.partition, p.{column} FROM topics t JOIN partitions p ON p.topic_id = t.id "  # noqa: S608
                f"WHERE t.name IN ({marks}) ORDER BY t.name, p.partition",
                tuple(topics),
            ).fetchall()
            found = {row[0] for row in rows}
            for name in topics:
                if name not in found:
                    raise catalog.unknown(connection, name)
        return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """The first record whose timestamp is at least this; None if there is none."""
        with self._database.reading() as connection:
            return records.offset_for_time(connection, catalog.slot(connection, topic, partition), timestamp)

    def stretches(self, topic: str, partition: int, start: int, end: int, most: int) -> list[tuple[int, int, int]]:
        """Stored rows from ``start`` on until they hold ``most`` records: (next offset, smallest, largest time)."""
        with self._database.reading() as connection:
            return records.stretches(connection, catalog.slot(connection, topic, partition), start, end, most)

    def version(self) -> int:
        """A number that grows with every write of anybody."""
        with self._database.reading() as connection:
            return int(connection.execute("SELECT value FROM counters WHERE name = 'version'").fetchone()[0])

    def wait_for_data(self, known: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        """Waits until these topics no longer end at ``known``, at most so long; gives where they end then."""
        deadline = time.monotonic() + timeout_s
        topics = sorted({place.topic for place in known})
        pause = 0.001
        version = self.version()
        while (ends := self.end_offsets(topics)) == known:
            while (now := self.version()) == version:
                if (left := deadline - time.monotonic()) <= 0:
                    return ends
                time.sleep(min(pause, left))
                pause = min(pause * 1.5, 0.025)
            version = now
        return ends

    def prepare(self, topic: str, partition: int, batch: pa.RecordBatch) -> list[EncodedRow]:
        """Checks and encodes what a transaction appends, before the write lock is taken."""
        with self._database.reading() as connection:
            slot = catalog.slot(connection, topic, partition)
        stamped = setting(slot.config, "message.timestamp.type") == "LogAppendTime"
        try:
            normal = normalise(batch, append_time_ms=_now_ms() if stamped else None)
        except pa.ArrowInvalid as error:
            raise LogError(
                f"{topic}-{partition}: records of the wrong types: {error}", hint="use RECORD_SCHEMA"
            ) from error
        records.check_keys(slot, normal)
        plain = setting(slot.config, "compression.type") == "uncompressed"
        return encode(normal, compression="none" if plain else self._compression)

    def close(self) -> None:
        """Closes the log; harmless if it is closed already."""
        self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., EmbeddedLog], tuple[str, int]]:
        from penstock.log.open import reopen

        return reopen, (self.url, os.getpid())

    def __repr__(self) -> str:
        return f"EmbeddedLog({self.url!r})"


_PIECE_RECORDS = 100_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
