"""The journal of a session: the statements that have changed its catalog, in a topic of the log.

A catalog is what its statements have made of an empty one, so the journal is all that has to last. An entry holds the
statement, the settings under which it ran and the number of the next query; its checksum covers the checksum of the
entry before it, so that a lost, changed or added entry is found at the next start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.clock import unix_ms
from penstock.errors import LogError
from penstock.log.base import TopicLog

__all__ = ["Entry", "Journal"]

START = "0" * 16
LASTING = {"retention.ms": "-1", "cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement of the journal.

    Attributes:
        text: The statement.
        settings: The settings under which it ran.
        made: The number of queries that had been made before it.
        functions: The Python functions that it calls, each with the file and line where it was.
    """

    text: str
    settings: Mapping[str, str]
    made: int
    functions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data."""
        found = {"statement": self.text, "settings": dict(self.settings), "made": self.made}
        return {**found, "functions": dict(self.functions)} if self.functions else found


class Journal:
    """The statements of a session in a topic with one partition.

    Args:
        log: The log.
        topic: The name of the topic; it is made with the first entry.

    >>> from penstock.log.open import open_log
    >>> log = open_log("memory://doc-journal")
    >>> Journal(log, "statements").append(Entry("CREATE TYPE id AS INT;", {}, 0))
    >>> [entry.text for entry in Journal(log, "statements").read()]
    ['CREATE TYPE id AS INT;']
    """

    def __init__(self, log: TopicLog, topic: str) -> None:
        self._log = log
        self.topic = topic
        self._last = START
        self._exists = False

    def read(self) -> list[Entry]:
        """All entries.

        Raises:
            LogError: An entry has been changed, lost or added.
        """
        self._last = START
        found: list[Entry] = []
        self._exists = self.topic in {each.name for each in self._log.topics()}
        if not self._exists:
            return []
        offset, end = self._log.beginning_offset(self.topic, 0), self._log.end_offset(self.topic, 0)
        while offset < end:
            fetched = self._log.read(self.topic, 0, offset)
            for value in fetched.records.column("value").to_pylist():
                found.append(self._entry(value, len(found)))
            offset = fetched.next_offset
        return found

    def append(self, entry: Entry) -> None:
        """Add an entry; it is durable when this returns."""
        if not self._exists:
            self._log.create_topic(self.topic, 1, LASTING)
            self._exists = True
        body = entry.to_json()
        checksum = _checksum(self._last, body)
        value = json.dumps({**body, "checksum": checksum}, ensure_ascii=False).encode()
        columns = {
            "timestamp": pa.array([unix_ms()], pa.int64()),
            "key": pa.array([b"statement"], pa.large_binary()),
            "value": pa.array([value], pa.large_binary()),
        }
        self._log.append(self.topic, 0, pa.RecordBatch.from_pydict(columns))
        self._last = checksum

    def _entry(self, value: bytes | None, number: int) -> Entry:
        try:
            body = json.loads(value or b"")
            checksum = body.pop("checksum")
            entry = Entry(body["statement"], body["settings"], body["made"], body.get("functions", {}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(number, "cannot be read") from error
        if checksum != _checksum(self._last, body):
            raise self._damaged(number, "has another checksum than it was written with, or one before it is missing")
        self._last = checksum
        return entry

    def _damaged(self, number: int, why: str) -> LogError:
        return LogError(
            f"statement {number} of the topic {self.topic} {why}",
            hint=f"Restore the topic from a backup; or delete it (penstock topics delete {self.topic}) and run the "
            "file of `penstock sql export` again. Topics and states of queries are not affected.",
        )


def _checksum(before: str, body: Mapping[str, Any]) -> str:
    text = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:16]
