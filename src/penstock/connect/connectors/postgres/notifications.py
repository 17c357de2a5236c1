"""Notifications of snapshots, as records of a topic or as lines of the log."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.postgres.envelope import NOTIFICATION_KEY, NOTIFICATION_VALUE
from penstock.connect.data import SourceRecord, Struct

__all__ = ["Notifications"]

_LOG = own_logger(__name__)
INITIAL, INCREMENTAL = "Initial Snapshot", "Incremental Snapshot"


@dataclass(frozen=True, slots=True)
class Notifications:
    """Makes notifications for the channels that are enabled.

    Attributes:
        connector: The connector's logical name.
        topic: The topic of the channel ``sink``; None: the channel is not enabled.
        logs: The channel ``log`` is enabled.
    """

    connector: str
    topic: str | None = None
    logs: bool = False

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> Notifications:
        """Return the notifications of a connector's settings."""
        channels = [each.strip() for each in parsed["notification.enabled.channels"]]
        topic = parsed["notification.sink.topic.name"] if "sink" in channels else None
        return cls(parsed["topic.prefix"], topic, "log" in channels)

    def started(self) -> list[SourceRecord]:
        """Return the notification that the first snapshot begins."""
        return self.send(INITIAL, "STARTED", {})

    def in_progress(self, tables: Sequence[str], number: int) -> list[SourceRecord]:
        """Return the notification that the rows of a table are read."""
        more = {"data_collections": ",".join(tables), "current_collection_in_progress": tables[number]}
        return self.send(INITIAL, "IN_PROGRESS", more)

    def scanned(self, tables: Sequence[str], number: int, count: int) -> list[SourceRecord]:
        """Return the notification that the rows of a table are read to their end."""
        more = {
            "data_collections": ",".join(tables),
            "scanned_collection": tables[number],
            "total_rows_scanned": str(count),
            "status": "SUCCEEDED" if count else "EMPTY",
        }
        return self.send(INITIAL, "TABLE_SCAN_COMPLETED", more)

    def completed(self) -> list[SourceRecord]:
        """Return the notification that the first snapshot ends."""
        return self.send(INITIAL, "COMPLETED", {})

    def skipped(self) -> list[SourceRecord]:
        """Return the notification that there is no first snapshot."""
        return self.send(INITIAL, "SKIPPED", {})

    def incremental(self, kind: str, facts: Mapping[str, str]) -> list[SourceRecord]:
        """Return a notification of an incremental snapshot."""
        return self.send(INCREMENTAL, kind, facts)

    def send(self, aggregate: str, kind: str, more: Mapping[str, str]) -> list[SourceRecord]:
        """Return the records of a notification."""
        identity, now_ms = str(uuid.uuid4()), time.time_ns() // 1_000_000
        data = {"connector_name": self.connector, **more}
        if self.logs:
            _LOG.info("[Notification Service] %s %s %s", aggregate, kind, data)
        if self.topic is None:
            return []
        return [
            SourceRecord(
                topic=self.topic,
                key=Struct.of_checked(NOTIFICATION_KEY, [identity]),
                key_schema=NOTIFICATION_KEY,
                value=Struct.of_checked(NOTIFICATION_VALUE, [identity, kind, aggregate, data, now_ms]),
                value_schema=NOTIFICATION_VALUE,
            )
        ]
