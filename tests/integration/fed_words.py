"""The records of `shared_app`, as its tests feed and recount them: each is passed on once, and counted once."""

from __future__ import annotations

import time

import pyarrow as pa

from penstock.log.base import TopicLog, TopicPartition

__all__ = ["PARTITIONS", "TASKS", "FedWords", "word_of"]

PARTITIONS = 4
TASKS = 2 * PARTITIONS
WORDS = 7


def word_of(number: int) -> bytes:
    """Return the word that the record of a number counts."""
    return b"word %d" % (number % WORDS)


def value_of(number: int) -> bytes:
    """Return the value of the record of a number."""
    return b"%s:%d" % (word_of(number), number)


class FedWords:
    """The topics of an application, and what has been fed to it.

    Args:
        log: The log, which is read.
        application: The ``application.id``.
        fed_log: The log by which records are written, if another thread does that.
    """

    def __init__(self, log: TopicLog, application: str, fed_log: TopicLog | None = None) -> None:
        self.log, self.application, self._fed_log = log, application, fed_log or log
        self.fed = 0
        for name in ("words", "passed", "out"):
            log.create_topic(self.topic(name), PARTITIONS)

    def topic(self, name: str) -> str:
        """Return a topic of the application."""
        return f"{self.application}-{name}"

    def feed(self, count: int) -> None:
        """Write so many records more, in turn to all partitions."""
        numbers = range(self.fed, self.fed + count)
        for partition in range(PARTITIONS):
            of_partition = [number for number in numbers if number % PARTITIONS == partition]
            columns = {
                "timestamp": pa.array([round(time.time() * 1000)] * len(of_partition), pa.int64()),
                "key": pa.array([b"%d" % number for number in of_partition], pa.large_binary()),
                "value": pa.array([value_of(number) for number in of_partition], pa.large_binary()),
            }
            self._fed_log.append(self.topic("words"), partition, pa.RecordBatch.from_pydict(columns))
        self.fed += count

    def values(self) -> list[bytes]:
        """Return the values that were fed."""
        return [value_of(number) for number in range(self.fed)]

    def committed(self, name: str) -> list[tuple[bytes, bytes]]:
        """Return all committed records of a topic, each partition to its end."""
        topic = self.topic(name)
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        ends = self.log.settled_ends(places)
        records: list[tuple[bytes, bytes]] = []
        for place in places:
            for batch in self.log.iterate(topic, place.partition, 0, ends[place]):
                records += zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        return records

    def counts(self, name: str = "out") -> dict[bytes, list[int]]:
        """Return the counts of each word, one after the other."""
        counts: dict[bytes, list[int]] = {}
        for word, count in self.committed(name):
            counts.setdefault(word, []).append(int.from_bytes(count, "big"))
        return counts

    def passed(self) -> int:
        """Return how many records have been passed on."""
        return len(self.committed("passed"))

    def are_all_through(self) -> bool:
        """Return whether everything that was fed has come out, or more."""
        return self.passed() >= self.fed and sum(each[-1] for each in self.counts().values()) >= self.fed
