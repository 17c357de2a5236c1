"""The offset topic: the source offsets of connectors by source partition, in Kafka Connect's own format."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.connect.data.stored_offsets import offset_record, partition_id, stored_offset, with_note
from penstock.connect.storage.topic_table import Table, TableChange

__all__ = ["ConnectorOffsets", "OffsetStore", "offset_change"]

Partition = Mapping[str, Any]
Offset = Mapping[str, Any]


def offset_change(connector: str, partition: Partition | None, offset: Offset | None) -> TableChange:
    """Return the record of an offset, byte by byte as Kafka Connect writes it.

    >>> offset_change("f", {"filename": "in.txt"}, {"position": 8}).value
    b'{"position":8}'
    """
    record = offset_record(connector, partition, offset)
    return TableChange(record.key, record.value)


class OffsetStore:
    """The offset topic as a state; tasks write to it with their records, in one transaction."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._offsets: dict[str, dict[str, tuple[Partition, Offset]]] = {}
        self._lock = threading.RLock()

    def refresh(self) -> None:
        """Read what was written since the last time."""
        with self._lock:
            for change in self._table.refresh():
                self._apply(change)

    def catch_up(self) -> None:
        """Read what was written since the last time, also what is in transactions that are still open now.

        Raises:
            LogUnavailableError: A transaction stays open.
        """
        with self._lock:
            for change in self._table.catch_up():
                self._apply(change)

    def close(self) -> None:
        """Close the topic."""
        self._table.close()

    def offsets(self, connector: str) -> list[tuple[Partition, Offset]]:
        """Return all offsets of a connector, with their source partitions."""
        with self._lock:
            return list(self._offsets.get(connector, {}).values())

    def offset(self, connector: str, partition: Partition) -> Offset | None:
        """Return the offset of a source partition."""
        with self._lock:
            entry = self._offsets.get(connector, {}).get(partition_id(partition))
            return None if entry is None else entry[1]

    def put(self, connector: str, offsets: Iterable[tuple[Partition | None, Offset | None]]) -> None:
        """Store offsets; None deletes one."""
        self._table.put([offset_change(connector, partition, offset) for partition, offset in offsets])
        self.catch_up()

    def _apply(self, change: TableChange) -> None:
        stored = stored_offset(change.key, change.value, change.note)
        if stored is None:
            return
        offsets = self._offsets.setdefault(stored.connector, {})
        if stored.offset is not None:
            offsets[partition_id(stored.partition)] = (stored.partition, stored.offset)
        else:
            offsets.pop(partition_id(stored.partition), None)


class ConnectorOffsets:
    """The offsets of one connector, for its tasks: an `OffsetReader`."""

    def __init__(self, store: OffsetStore, connector: str) -> None:
        self._store = store
        self._connector = connector

    def offset(self, partition: Partition) -> dict[str, Any] | None:
        """Return the offset to go on from in a source partition; None: there is none."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[Partition]) -> list[dict[str, Any] | None]:
        """Return the offsets of several partitions, in their order."""
        self._store.refresh()
        stored = [self._store.offset(self._connector, partition) for partition in partitions]
        return [None if offset is None else with_note(offset) for offset in stored]

    def all(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return all source partitions with their offsets."""
        self._store.refresh()
        return [(dict(partition), with_note(offset)) for partition, offset in self._store.offsets(self._connector)]
