"""Metadata of transactions: events that say where they begin and end, and the place of each change in its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.java_text.hashing import hash_order
from penstock.connect.connectors.postgres.envelope import BLOCK, TRANSACTION_KEY, TRANSACTION_VALUE
from penstock.connect.data import SourceRecord, Struct

__all__ = ["TransactionMetadata"]

_ORDER = "transaction_data_collection_order_"


class TransactionMetadata:
    """Counts the changes of a transaction (``provide.transaction.metadata``).

    Args:
        topic: The topic of the events.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._identity: str | None = None
        self._counts: dict[str, int] = {}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on in a transaction that was written in part."""
        self._identity = stored.get("transaction_id")
        self._counts = {name[len(_ORDER) :]: int(n) for name, n in stored.items() if name.startswith(_ORDER)}

    def stored(self) -> dict[str, Any]:
        """What the offsets of its records have."""
        if self._identity is None:
            return {}
        counts = {f"{_ORDER}{name}": count for name, count in self._counts.items()}
        return {"transaction_id": self._identity, **counts}

    def begin(self, xid: int, lsn: int, time_us: int) -> SourceRecord:
        """A transaction begins."""
        self._identity, self._counts = f"{xid}:{lsn}", {}
        return self._record("BEGIN", None, None, time_us)

    def count(self, table: str) -> Struct:
        """The place of one more change of a table, given as ``schema.table``."""
        self._counts[table] = self._counts.get(table, 0) + 1
        return Struct.of_checked(BLOCK, [self._identity, sum(self._counts.values()), self._counts[table]])

    def end(self, time_us: int) -> SourceRecord:
        """The transaction ends."""
        collections = TRANSACTION_VALUE.fields[3].schema.values
        assert collections is not None  # noqa: S101 - the schema is a constant
        parts = [
            Struct(collections, {"data_collection": name, "event_count": self._counts[name]})
            for name in hash_order(self._counts)
        ]
        return self._record("END", sum(self._counts.values()), parts, time_us)

    def close(self) -> None:
        """Forget the transaction that has ended."""
        self._identity, self._counts = None, {}

    def _record(self, status: str, count: int | None, parts: list[Struct] | None, time_us: int) -> SourceRecord:
        value = Struct.of_checked(TRANSACTION_VALUE, [status, self._identity, count, parts, time_us // 1000])
        return SourceRecord(
            topic=self._topic,
            key=Struct.of_checked(TRANSACTION_KEY, [self._identity]),
            key_schema=TRANSACTION_KEY,
            value=value,
            value_schema=TRANSACTION_VALUE,
        )
