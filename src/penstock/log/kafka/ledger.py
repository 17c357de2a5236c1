"""The ledger of an application: a compacted topic that says which batch each task has written, and who runs.

An entry is written in the transaction of the outputs that it stands for. It is read only where somebody else may have
written since: by the first attempt of a task in a process, and by a retry.
"""

from __future__ import annotations

import json
import logging
import re
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka.admin import OffsetSpec

from penstock.errors import LogUnavailableError, TopicExistsError
from penstock.log.base import TopicPartition
from penstock.log.kafka.topics import Topics
from penstock.log.kafka.writing import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log.kafka.reading import RangeReader

__all__ = ["LEASE", "Entry", "Ledger", "entry_part", "ledger_topic", "partition_of"]

LEASE = "lease"
_TASK_PARTITIONS = 8
_SETTINGS = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
_PAUSE_S = 0.02
_SUSPICIOUS_S, _AGAIN_S = 3.0, 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """That a task has written a batch, and under which epoch of the application's lease."""

    batch: int
    epoch: int


def ledger_topic(application: str) -> str:
    """The name of an application's ledger."""
    return f"{application}-penstock-ledger"


def partition_of(task: str) -> int:
    """Where a task's entries are; the lease has partition 0 for itself, so that no transaction of a task delays it."""
    if task == LEASE:
        return 0
    number = re.match(r"\d+_(\d+)", task)
    return 1 + (int(number[1]) if number else zlib.crc32(task.encode())) % _TASK_PARTITIONS


def entry_part(application: str, key: str, value: bytes | None) -> Part:
    """A record of the ledger, to be written."""
    record = pa.RecordBatch.from_pydict(
        {"key": pa.array([key.encode()], pa.large_binary()), "value": pa.array([value], pa.large_binary())}
    )
    return ledger_topic(application), partition_of(key), record


class Ledger:
    """One application's ledger, as this process has read it; not for several threads at once.

    Args:
        application: Whose.
        topics: To ask for offsets.
        reader: To read with.
        patience_s: How long a transaction that somebody has left open is waited for.
        settle: Called when one stays open for long; has those ended that only their broker has left open.
    """

    def __init__(
        self,
        application: str,
        topics: Topics,
        reader: RangeReader,
        patience_s: float,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._settle = settle
        self._topics = topics
        self._reader = reader
        self._patience_s = patience_s
        self.topic = ledger_topic(application)
        self._positions: dict[int, int] = {}
        self._records: dict[str, bytes] = {}

    def exists(self) -> bool:
        """Whether the application has ever run here."""
        return self.topic in self._topics.counts()

    def create(self, replication: int = -1) -> None:
        """Creates the topic if it is not there."""
        if not self.exists():
            with suppress(TopicExistsError):
                self._topics.create(self.topic, 1 + _TASK_PARTITIONS, _SETTINGS, replication)

    def read(self, partitions: list[int]) -> None:
        """Reads what is new in these partitions, up to where they end now.

        An open transaction hides what comes after it. It is waited for: whoever opened it commits soon, or is fenced,
        or runs into its timeout.
        """
        places = [TopicPartition(self.topic, number) for number in partitions]
        fresh = [place for place in places if place.partition not in self._positions]
        for place, found in self._topics.offsets(fresh, OffsetSpec.earliest()).items():
            self._positions[place.partition] = found.offset
        written = self._topics.offsets(places, OffsetSpec.latest(), committed=False)
        deadline = time.monotonic() + self._patience_s
        suspicious = time.monotonic() + _SUSPICIOUS_S
        while True:
            stable = self._topics.offsets(places, OffsetSpec.latest())
            if all(stable[place].offset >= written[place].offset for place in places):
                break
            if time.monotonic() > deadline:
                raise LogUnavailableError(
                    f"{self.topic}: a transaction has been open for {self._patience_s:.0f} s",
                    hint="Whoever began it still runs; stop that instance, or wait for its transaction.timeout.ms.",
                )
            if time.monotonic() > suspicious:
                _log.warning("%s: a transaction is open and is waited for", self.topic)
                self._settle()
                suspicious = time.monotonic() + _AGAIN_S
            time.sleep(_PAUSE_S)
        for place in places:
            self._take(place.partition, stable[place].offset)

    def _take(self, partition: int, end: int) -> None:
        start = self._positions[partition]
        if end < start:  # the topic was deleted and created anew
            self._records = {key: value for key, value in self._records.items() if partition_of(key) != partition}
            start = 0
        for batch in self._reader.read(self.topic, partition, start, end):
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                if value is None:
                    self._records.pop(key.decode(), None)
                else:
                    self._records[key.decode()] = value
        self._positions[partition] = end

    def read_all(self) -> None:
        """Reads all partitions."""
        self.read(list(range(self._topics.partitions(self.topic))))

    def entry(self, task: str) -> Entry | None:
        """What a task has written last, as far as read."""
        data = self._records.get(task)
        if data is None:
            return None
        found = json.loads(data)
        return Entry(int(found["batch"]), int(found["epoch"]))

    def lease(self) -> dict[str, object] | None:
        """The lease as it was written last, as far as read."""
        data = self._records.get(LEASE)
        return None if data is None else json.loads(data)

    def tasks(self) -> dict[str, int]:
        """Task -> last batch written, as far as read."""
        return {key: int(json.loads(data)["batch"]) for key, data in self._records.items() if key != LEASE}
