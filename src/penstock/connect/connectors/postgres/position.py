"""Positions in the stream: what is stored of them, in Debezium's form, and what to leave out after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.connect.connectors.postgres.pgoutput import Begin
from penstock.connect.data.stored_offsets import NotedOffset

__all__ = ["ChangePosition", "HistoryBranch", "Noted", "Resume", "with_confirmed"]

_CONFIRMED = "confirmed="


@dataclass(frozen=True, slots=True)
class HistoryBranch:
    """The history that positions belong to: the same number is another place in that of another one.

    Attributes:
        system: The number of the cluster.
        timeline: The number of its timeline, which rises when a replica becomes the primary.
    """

    system: int
    timeline: int


@dataclass(frozen=True, slots=True)
class Noted:
    """What is noted beside an offset, in words that Debezium does not store; zero is what is not there.

    Attributes:
        records: The number of records of the position that are written.
        begun: Where the transaction of the position is committed.
        branch: The history that the position belongs to.
        confirmed: How far the server may have been allowed to forget.
        since: What was committed up to it is written, where no later commit is known.

    >>> Noted.of(ChangePosition(70, records=2, begun=90, branch=HistoryBranch(7, 1), confirmed=60, since=50).noted({}))
    Noted(records=2, begun=90, branch=HistoryBranch(system=7, timeline=1), confirmed=60, since=50)
    """

    records: int = 0
    begun: int = 0
    branch: HistoryBranch | None = None
    confirmed: int = 0
    since: int = 0

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Noted:
        """Return what is noted beside a stored offset: nothing, if somebody else has stored it."""
        words = (each.partition("=") for each in str(getattr(stored, "note", "")).split())
        numbers = {name: int(number) for name, _, number in words if number.isdecimal()}
        timeline = numbers.get("timeline", 0)
        return cls(
            numbers.get("records", 0),
            numbers.get("begun", 0),
            HistoryBranch(numbers.get("system", 0), timeline) if timeline else None,
            numbers.get("confirmed", 0),
            numbers.get("since", 0),
        )


def with_confirmed(note: str, lsn: int) -> str:
    """Return a note with another position up to which the server may forget.

    >>> with_confirmed("records=2 confirmed=60", 80), with_confirmed("", 80)
    ('records=2 confirmed=80', 'confirmed=80')
    """
    return f"{note.partition(_CONFIRMED)[0].strip()} {_CONFIRMED}{lsn}".strip()


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """Where the connector is, as the offsets of its records have it.

    Attributes:
        lsn: The position of the last message.
        time_us: The time of its commit.
        xid: The number of its transaction; None: it is of none.
        kind: What the message was, such as ``INSERT``; None: none has come yet.
        processed: The position of the last message that was handled as a whole.
        commit: The position of the last commit.
        transaction: What is stored of a transaction in progress.
        records: The number of records that have the position: COPY, the update of a key, and TRUNCATE make several.
        begun: Where the transaction is committed, as its begin says.
        branch: The history that the position belongs to.
        confirmed: How far the server may have been allowed to forget.
        since: Where it goes on from, until the first commit: the slot may have earlier transactions.
    """

    lsn: int = 0
    time_us: int = 0
    xid: int | None = None
    kind: str | None = None
    processed: int | None = None
    commit: int | None = None
    transaction: Mapping[str, Any] = field(default_factory=dict)
    records: int = 0
    begun: int = 0
    branch: HistoryBranch | None = None
    confirmed: int = 0
    since: int = 0

    @property
    def written(self) -> int:
        """The end of what is written, as far as it is known."""
        return max(self.lsn, self.commit or 0, self.begun)

    def offset(self) -> dict[str, Any]:
        """Return the stored form."""
        stored: dict[str, Any] = {"lsn": self.lsn, "ts_usec": self.time_us}
        if self.xid is not None:
            stored["txId"] = self.xid
        if self.processed is not None:
            stored["lsn_proc"] = self.processed
        if self.commit is not None:
            stored["lsn_commit"] = self.commit
        if self.kind is not None:
            stored["messageType"] = self.kind
        return {**stored, **self.transaction}

    def noted(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored form with more fields, and a note of what Debezium does not store.

        >>> offset = ChangePosition(70, records=2, branch=HistoryBranch(7, 1)).noted({})
        >>> offset, offset.note
        ({'lsn': 70, 'ts_usec': 0}, 'records=2 system=7 timeline=1')
        """
        words = [f"records={self.records}"] if self.records else []
        if self.begun:
            words.append(f"begun={self.begun}")
        if self.branch is not None:
            words.append(f"system={self.branch.system} timeline={self.branch.timeline}")
        if self.since and self.commit is None:
            words.append(f"since={self.since}")
        if self.confirmed:
            words.append(f"{_CONFIRMED}{self.confirmed}")
        return NotedOffset({**self.offset(), **more}, " ".join(words))

    def snapshot_offset(self, more: Mapping[str, Any], *, is_last: bool) -> dict[str, Any]:
        """Return the stored form of a row of the first snapshot, with more fields."""
        return self.noted(
            {**more, "snapshot": "INITIAL", "snapshot_completed": is_last, "last_snapshot_record": is_last}
        )

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ChangePosition:
        """Return the position of a stored offset."""
        transaction = {name: value for name, value in stored.items() if name.startswith("transaction_")}
        noted = Noted.of(stored)
        return cls(
            int(stored["lsn"]),
            int(stored.get("ts_usec", 0)),
            _number(stored.get("txId")),
            stored.get("messageType"),
            _number(stored.get("lsn_proc")),
            _number(stored.get("lsn_commit")),
            transaction,
            noted.records,
            noted.begun,
            noted.branch,
            noted.confirmed,
            noted.since,
        )

    def at(self, lsn: int, kind: str) -> ChangePosition:
        """Return the position of another message of the same transaction."""
        records = self.records if lsn == self.lsn else 0
        return replace(self, lsn=lsn, processed=lsn, kind=kind, records=records)


@dataclass(frozen=True, slots=True)
class Resume:
    """What was written before a restart: whole transactions, and the beginning of one.

    Attributes:
        commit: All that was committed up to this position is written.
        inside: The number of a transaction that was written in part, and how far.
        records: The number of records of that position that are written; None: all.

    >>> resume = Resume.of({"lsn": 70, "lsn_commit": 50, "txId": 9, "messageType": "INSERT"})
    >>> [resume.has_all_of(Begin(lsn, 0, 9)) for lsn in (50, 80)]
    [True, False]
    >>> resume.has(9, 70), resume.has(9, 71), resume.has(8, 60)
    (True, False, False)
    >>> Resume.of(ChangePosition(70, 0, 9, "INSERT", since=60).noted({}))
    Resume(commit=60, inside=(9, 70), records=None)
    >>> resume = Resume(50, (9, 70), 2)
    >>> resume.has(9, 69), resume.has(9, 70), resume.records_of(9, 70), resume.records_of(9, 71)
    (True, False, 2, 0)
    """

    commit: int = 0
    inside: tuple[int, int] | None = None
    records: int | None = None

    @classmethod
    def before(cls, end: int) -> Resume:
        """Resume where all that ends at a position is written, and a commit that begins there is not."""
        return cls(end - 1)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Resume:
        """Return what a stored offset says."""
        noted = Noted.of(stored)
        lsn, commit = int(stored["lsn"]), max(_number(stored.get("lsn_commit")) or 0, noted.since)
        xid, kind = _number(stored.get("txId")), stored.get("messageType")
        if kind == "COMMIT" or "end" in stored:  # an earlier version has ``end``
            return cls(max(lsn, commit))
        if kind is None or xid is None:
            return cls.before(max(lsn, commit + 1))
        if kind == "BEGIN":
            return cls(commit, (xid, 0))  # a transaction begins at the position of its commit
        return cls(commit, (xid, lsn), noted.records or None)

    def has_all_of(self, begun: Begin) -> bool:
        """Return whether a transaction is written as a whole."""
        return begun.lsn <= self.commit

    def has(self, xid: int, lsn: int) -> bool:
        """Return whether a message of a transaction is written as a whole."""
        if self.inside is None or self.inside[0] != xid:
            return False
        return lsn < self.inside[1] or (lsn == self.inside[1] and self.records is None)

    def records_of(self, xid: int | None, lsn: int) -> int:
        """Return the number of the first records of a position that are written, where others of it are not."""
        return (self.records or 0) if self.inside == (xid, lsn) else 0


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def is_streaming(stored: Mapping[str, Any]) -> bool:
    """Return whether a stored offset is one of the stream: a snapshot that was interrupted begins again."""
    if not stored.get("lsn"):
        return False
    return stored.get("snapshot") in (None, "INCREMENTAL") or bool(stored.get("snapshot_completed"))
