"""The ledger of an application: a compacted topic with the last batch of each task, and the lease.

An entry is written in the transaction of the outputs that it records. It is read only if another process may have
written since: by the first attempt of a task in a process, and by a retry.

Compaction lags behind, and the markers of transactions stay even longer. So that a new process need not read the whole
topic, the driver writes notes from time to time, one record per partition: an offset, and the entries up to it. The
first read of the ledger in a process loads the notes and continues from there.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.base.log_lines import own_logger
from penstock.errors import LogError, TopicExistsError
from penstock.log.base import TopicPartition
from penstock.log.kafka.cluster_topics import Topics
from penstock.log.kafka.reading import settled_ends
from penstock.log.kafka.wire.groups import EARLIEST, LATEST
from penstock.log.kafka.writing import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log.kafka.reading import RangeReader

__all__ = [
    "LEASE",
    "LEDGER_SETTINGS",
    "NOTES",
    "PLANNED",
    "Ledger",
    "LedgerRecord",
    "entry_part",
    "ledger_topic",
    "partition_of",
]

LEASE = "lease"
NOTES = "notes/"
PLANNED = "planned"
_TASK_PARTITIONS = 8
# Only closed segments are compacted, and markers of transactions are removed only after delete.retention.ms.
LEDGER_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "300000",
    "delete.retention.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
}
_MOST_NOTED_BYTES = 500_000
_log = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A batch that a task has written, the epoch of the application's lease, and a checksum of the batch's inputs."""

    batch: int
    epoch: int
    inputs: str = ""

    def pack(self) -> bytes:
        """Encode as the value of a record."""
        return json.dumps({"batch": self.batch, "epoch": self.epoch, "inputs": self.inputs}).encode()

    @classmethod
    def unpack(cls, data: bytes) -> LedgerRecord:
        """Decode the value of a record; those of earlier versions have no ``inputs``."""
        fields = json.loads(data)
        return cls(int(fields["batch"]), int(fields["epoch"]), str(fields.get("inputs", "")))


def ledger_topic(application: str) -> str:
    """Return the name of an application's ledger."""
    return f"{application}-penstock-ledger"


def partition_of(task: str) -> int:
    """Return the partition of a key. The driver's own records are in 0: no transaction of a task delays them there."""
    if task in (LEASE, PLANNED) or task.startswith(NOTES):
        return 0
    number = re.match(r"\d+_(\d+)", task)
    return 1 + (int(number[1]) if number else zlib.crc32(task.encode())) % _TASK_PARTITIONS


def entry_part(application: str, key: str, value: bytes | None) -> Part:
    """Make a record of the ledger."""
    record = pa.RecordBatch.from_pydict(
        {"key": pa.array([key.encode()], pa.large_binary()), "value": pa.array([value], pa.large_binary())}
    )
    return ledger_topic(application), partition_of(key), record


class Ledger:
    """One application's ledger, as read by this process; not thread-safe.

    Args:
        application: The ``application.id``.
        topics: For topics and offsets.
        reader: The reader of its records.
        patience_s: The longest wait for an open transaction.
        settle: Called when a transaction stays open for long; ends those that only the broker has left open.
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
        self.unnoted = 0  # entries read since the last notes
        self._positions: dict[int, int] = {}
        self._records: dict[str, bytes] = {}

    def exists(self) -> bool:
        """Return whether the application has ever run on this cluster."""
        return self.topic in self._topics.counts()

    def create(self, replication: int = -1) -> None:
        """Create the topic if it does not exist; one of an earlier version gets the settings of this one."""
        if not self.exists():
            with suppress(TopicExistsError):
                self._topics.create(self.topic, 1 + _TASK_PARTITIONS, LEDGER_SETTINGS, replication)
                return
        try:
            config = self._topics.config(self.topic)
            changes = {name: value for name, value in LEDGER_SETTINGS.items() if config.get(name) != value}
            if changes:
                self._topics.alter_config(self.topic, changes)
        except LogError as error:  # the application may lack the right; its ledger is then larger than it need be
            _log.warning("the settings of %s stay as they are: %s", self.topic, error.message)

    def read(self, partitions: list[int]) -> None:
        """Read the new records of these partitions, up to their present ends.

        An open transaction hides all later records, so this waits for it: its writer commits soon, or is fenced, or its
        timeout ends.
        """
        places = [TopicPartition(self.topic, number) for number in partitions]
        self._begin([tp for tp in places if tp.partition not in self._positions])
        ends = settled_ends(self._topics, places, self._patience_s, self._settle)
        for tp in places:
            self._read_to(tp.partition, ends[tp])

    def _begin(self, fresh: list[TopicPartition]) -> None:
        """Set the start offsets of partitions that have not been read yet, from the notes if there are any."""
        if any(tp.partition for tp in fresh) and 0 not in self._positions:
            self.read([0])
        for tp, first in self._topics.offsets(fresh, EARLIEST).items():
            if tp.partition in self._positions:  # partition 0, by now
                continue
            notes = json.loads(self._records.get(f"{NOTES}{tp.partition}", b"{}"))
            self._positions[tp.partition] = max(first.offset, notes.get("offset", 0))
            self._records |= {task: value.encode() for task, value in notes.get("entries", {}).items()}

    def follow(self) -> None:
        """Read all records that are decided by now, without waiting for open transactions."""
        places = [TopicPartition(self.topic, number) for number in range(self._topics.partitions(self.topic))]
        self._begin([tp for tp in places if tp.partition not in self._positions])
        for tp, stable in self._topics.offsets(places, LATEST).items():
            self._read_to(tp.partition, stable.offset)

    def notes(self) -> dict[str, bytes]:
        """Return the notes as key -> value, so that other processes need not read these entries again."""
        self.unnoted = 0
        notes = {}
        for number in sorted(self._positions):
            entries = {key: value.decode() for key, value in self._records.items() if partition_of(key) == number}
            value = json.dumps({"offset": self._positions[number], "entries": entries}).encode()
            if number and len(value) < _MOST_NOTED_BYTES:
                notes[f"{NOTES}{number}"] = value
        return notes

    def _read_to(self, partition: int, end: int) -> None:
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
            self.unnoted += batch.num_rows if partition else 0
        self._positions[partition] = end

    def read_all(self) -> None:
        """Read all partitions."""
        self.read(list(range(self._topics.partitions(self.topic))))

    def entry(self, task: str) -> LedgerRecord | None:
        """Return the last entry of a task, as far as read."""
        data = self._records.get(task)
        return None if data is None else LedgerRecord.unpack(data)

    def lease(self) -> dict[str, object] | None:
        """Return the newest lease, as far as read."""
        data = self._records.get(LEASE)
        return None if data is None else json.loads(data)

    def planned(self) -> str | None:
        """Return the newest planned batch, as far as read."""
        data = self._records.get(PLANNED)
        return None if data is None else data.decode()

    def entries(self) -> dict[str, LedgerRecord]:
        """Return the last entry of each task, as far as read."""
        return {key: LedgerRecord.unpack(data) for key, data in self._records.items() if partition_of(key)}
