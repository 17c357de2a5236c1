"""The journal of a session: the statements that have changed its catalog, in a topic of the log.

A catalog is what its statements have made of an empty one, so the journal is all that has to last. An entry holds the
statement, the settings under which it ran and the number of the next query; its checksum covers the checksum of the
entry before it, so that a lost, changed or added entry is found at the next start.

The end of the journal is a record that only the holder of the service's lease may replace, by compare-and-set: an entry
follows the very entry that its session knows. If the answer to a write is lost, the journal is read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import FencedError, InvalidStateError, LogError, PenstockError
from penstock.log.base import Lease, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.fenced_record import FencedRecord, RecordName

__all__ = ["JournalEntry", "StatementJournal"]

FORMAT = 1  # of entries, which have no number until there is another one
START = "0" * 16
KEY = b"statement"
LASTING = {"retention.ms": "-1", "cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A statement of the journal.

    Attributes:
        text: The statement.
        settings: The settings under which it ran.
        query_count: The number of queries that had been made before it.
        functions: The Python functions that it calls, each with the file and line where it was.
    """

    text: str
    settings: Mapping[str, str]
    query_count: int
    functions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        fields = {"statement": self.text, "settings": dict(self.settings), "made": self.query_count}
        return {**fields, "functions": dict(self.functions)} if self.functions else fields


class StatementJournal:
    """The statements of a session in a topic with one partition.

    Args:
        log: The log.
        topic: The name of the topic; it is made with the first entry.

    >>> from penstock.log.open import open_log
    >>> log = open_log("memory://doc-journal")
    >>> journal = StatementJournal(log, "statements")
    >>> journal.hold(log.acquire_lease("default_sql", "this session"))
    >>> journal.append(JournalEntry("CREATE TYPE id AS INT;", {}, 0))
    >>> [entry.text for entry in StatementJournal(log, "statements").read()]
    ['CREATE TYPE id AS INT;']
    """

    def __init__(self, log: TopicLog, topic: str) -> None:
        self._log = log
        self.topic = topic
        self._last = START
        self._newest: bytes | None = None  # the last entry that this session knows
        self._next = 0  # no entry behind it comes before this offset
        self._exists = False
        self._end: FencedRecord | None = None
        self._ended: PenstockError | None = None  # why this session may add nothing more
        self._is_unsure = False  # whether the last entry may be stored or not

    def hold(self, lease: Lease) -> None:
        """Become the only writer, as the holder of the service's lease; comes before `read`.

        Raises:
            FencedError: A newer session has the lease.
        """
        name = RecordName(lease.application, "journal", self.topic, KEY)
        self._end = self._log.fenced_record(name, (lease.application, lease.epoch))
        self._end.take()

    def read(self) -> list[JournalEntry]:
        """Return all entries.

        Raises:
            LogError: An entry has been changed, lost or added.
        """
        self._last, self._next, self._newest = START, 0, None
        self._exists = self.topic in {each.name for each in self._log.topics()}
        return self._missed(0) if self._exists else []

    def append(self, entry: JournalEntry) -> None:
        """Add an entry; it is durable when this returns.

        Raises:
            FencedError: Another session has the lease, or has written an entry.
            InvalidStateError: An earlier entry was stored, though its answer was lost: as the catalog of this session
                lacks it, this one and all later entries are refused.
            LogUnavailableError: The log did not answer: the entry may be stored or not. The same entry may be added
                again, and is stored once.
        """
        if self._end is None:
            raise InvalidStateError(f"this session may not write to {self.topic}", hint="The one with the lease may.")
        if self._ended is not None:
            raise self._ended
        if not self._exists:
            ensure_topic(self._log, self.topic, 1, LASTING)
            self._exists = True
        before = self._end.read() if self._is_unsure else self._end.held()
        if self._is_unsure and (missed := self._missed(self._next)):
            self._is_unsure = False
            if missed == [entry]:
                return
            self._ended = InvalidStateError(
                f"{' '.join(missed[0].text.split())[:120]} was stored, though its answer was lost",
                hint="Open this session again: it then has that statement.",
            )
            self._require_lease()  # else the statement may be that of the session that has it
            raise self._ended
        body = entry.to_json()
        checksum = _checksum(self._last, body)
        value = json.dumps({**body, "checksum": checksum}, ensure_ascii=False).encode()
        self._is_unsure = True
        try:
            self._end.replace(value, before.version)
        except FencedError as error:  # nothing was written, and the entries that follow are of another session
            self._ended = error
            raise
        self._is_unsure = False
        self._last, self._newest = checksum, value

    def _require_lease(self) -> None:
        """Raise FencedError if a newer session has the lease."""
        assert self._end is not None  # noqa: S101 - append() has checked it
        try:
            self._end.take()
        except FencedError as error:
            self._ended = error
            raise

    def _missed(self, offset: int) -> list[JournalEntry]:
        """Read the entries from an offset on; one that a lost answer has doubled counts once."""
        values: list[bytes | None] = []
        tp = TopicPartition(self.topic, 0)
        offset, end = max(offset, self._log.beginning_offset(self.topic, 0)), self._log.settled_ends([tp])[tp]
        while offset < end:
            fetched = self._log.read(self.topic, 0, offset)
            values += fetched.records.column("value").to_pylist()
            offset = fetched.next_offset
        if self._newest in values:  # what this session has written itself
            del values[: values.index(self._newest) + 1]
        entries: list[JournalEntry] = []
        for value in values:
            if value is None or value != self._newest:
                entries.append(self._entry(value, len(entries)))
            self._newest = value
        self._next = offset
        return entries

    def _entry(self, value: bytes | None, number: int) -> JournalEntry:
        try:
            body = json.loads(value or b"")
            if body.get("format", FORMAT) != FORMAT:
                raise self._newer(number, body["format"])
            checksum = body.pop("checksum")
            entry = JournalEntry(body["statement"], body["settings"], body["made"], body.get("functions", {}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(number, "cannot be read") from error
        if checksum != _checksum(self._last, body):
            raise self._damaged(number, "has another checksum than it was written with, or one before it is missing")
        self._last = checksum
        return entry

    def _newer(self, number: int, written: object) -> LogError:
        return LogError(
            f"statement {number} of the topic {self.topic} has format {written}; this version of Penstock reads "
            f"format {FORMAT}",
            hint="Open the session with the version of Penstock that wrote it.",
        )

    def _damaged(self, number: int, why: str) -> LogError:
        return LogError(
            f"statement {number} of the topic {self.topic} {why}",
            hint=f"Restore the topic from a backup; or delete it (penstock topics delete {self.topic}) and run the "
            "file of `penstock sql export` again. Topics and states of queries are not affected.",
        )


def _checksum(before: str, body: Mapping[str, Any]) -> str:
    text = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:16]
