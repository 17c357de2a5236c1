"""Source offsets in a topic, in Kafka Connect's own format, written in the transaction of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.connect.data.stored_offsets import (
    note_headers,
    note_of,
    offset_record,
    partition_id,
    stored_offset,
    with_note,
)
from penstock.log.base import HEADERS_TYPE, LogTransaction, TopicLog
from penstock.log.ensure_topic import ensure_topic
from penstock.serde.partitioner import partitions_for

__all__ = ["StoredOffsets"]

Partition = Mapping[str, Any]


class StoredOffsets:
    """The source offsets of one connector: an `OffsetReader` that can be written to.

    Args:
        log: The log.
        connector: The connector's name.
        topic: The topic of offsets, created if there is none.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://")
        >>> offsets = StoredOffsets(log, "lines")
        >>> with log.transaction("connect-lines-0") as transaction:
        ...     offsets.write(transaction, [({"filename": "in.txt"}, {"position": 8})])
        >>> offsets.offset({"filename": "in.txt"})
        {'position': 8}
    """

    def __init__(self, log: TopicLog, connector: str, topic: str = "connect-offsets") -> None:
        self._log, self._connector, self.topic = log, connector, topic
        ensure_topic(log, topic, 1, {"cleanup.policy": "compact"})
        self._by_partition: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._read_to = {n: log.beginning_offset(topic, n) for n in range(log.partitions(topic))}

    def offset(self, partition: Partition) -> dict[str, Any] | None:
        """Return the offset to go on from in a source partition; None: there is none."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[Partition]) -> list[dict[str, Any] | None]:
        """Return the offsets of several partitions, in their order."""
        self._refresh()
        pairs = [self._by_partition.get(partition_id(partition)) for partition in partitions]
        return [None if pair is None else with_note(pair[1]) for pair in pairs]

    def all(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return all source partitions with their offsets."""
        self._refresh()
        return list(self._by_partition.values())

    def write(self, transaction: LogTransaction, offsets: Sequence[tuple[Partition | None, Partition | None]]) -> None:
        """Add offsets to a transaction; None deletes one."""
        if not offsets:
            return
        now = unix_ms()
        records = [offset_record(self._connector, partition, offset) for partition, offset in offsets]
        keys, values = (pa.array(column, pa.large_binary()) for column in zip(*(r[:2] for r in records), strict=True))
        headers = pa.array([note_headers(each.note) for each in records], HEADERS_TYPE)
        columns = [pa.array([now] * len(records)), keys, values, headers]
        batch = pa.RecordBatch.from_arrays(columns, ["timestamp", "key", "value", "headers"])
        targets = partitions_for(keys, len(self._read_to))  # as Java's worker: the last record of a key counts
        for number in np.unique(targets).tolist():
            transaction.append(self.topic, number, batch.filter(pa.array(targets == number)))

    def _refresh(self) -> None:
        for number, position in self._read_to.items():
            end, at = self._log.end_offset(self.topic, number), position
            while at < end:
                fetched = self._log.read(self.topic, number, at)
                names = ("key", "value", "headers")
                for row in zip(*(fetched.records.column(name).to_pylist() for name in names), strict=True):
                    self._apply(*row)
                if fetched.next_offset <= at:
                    break
                at = fetched.next_offset
            self._read_to[number] = at

    def _apply(self, key: bytes | None, value: bytes | None, headers: Sequence[Mapping[str, Any]] | None) -> None:
        stored = stored_offset(key, value, note_of(headers))
        if stored is None or stored.connector != self._connector:
            return
        if stored.offset is not None:
            self._by_partition[partition_id(stored.partition)] = (stored.partition, stored.offset)
        else:
            self._by_partition.pop(partition_id(stored.partition), None)
