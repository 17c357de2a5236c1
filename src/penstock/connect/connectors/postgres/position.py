"""Positions in the stream: what is stored of them, in Debezium's form, and what to leave out after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.connect.connectors.postgres.pgoutput import Begin

__all__ = ["Position", "Resume"]


@dataclass(frozen=True, slots=True)
class Position:
    """Where the connector is, as the offsets of its records have it.

    Attributes:
        lsn: The position of the last message.
        time_us: The time of its commit.
        xid: The number of its transaction; None: it is of none.
        kind: What the message was, such as ``INSERT``; None: none has come yet.
        processed: The position of the last message that was handled as a whole.
        commit: The position of the last commit.
        transaction: What is stored of a transaction in progress.
    """

    lsn: int = 0
    time_us: int = 0
    xid: int | None = None
    kind: str | None = None
    processed: int | None = None
    commit: int | None = None
    transaction: Mapping[str, Any] = field(default_factory=dict)

    def offset(self) -> dict[str, Any]:
        """The stored form."""
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

    def snapshot_offset(self, *, is_last: bool) -> dict[str, Any]:
        """The stored form of a row of the first snapshot."""
        return {**self.offset(), "snapshot": "INITIAL", "snapshot_completed": is_last, "last_snapshot_record": is_last}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Position:
        """The position of a stored offset."""
        transaction = {name: value for name, value in stored.items() if name.startswith("transaction_")}
        return cls(
            int(stored["lsn"]),
            int(stored.get("ts_usec", 0)),
            _number(stored.get("txId")),
            stored.get("messageType"),
            _number(stored.get("lsn_proc")),
            _number(stored.get("lsn_commit")),
            transaction,
        )

    def at(self, lsn: int, kind: str) -> Position:
        """The position of another message of the same transaction."""
        return replace(self, lsn=lsn, processed=lsn, kind=kind)


@dataclass(frozen=True, slots=True)
class Resume:
    """What was written before a restart: whole transactions, and the beginning of one.

    Attributes:
        commit: All that was committed up to this position is written.
        inside: The number of a transaction that was written in part, and how far.

    >>> resume = Resume.of({"lsn": 70, "lsn_commit": 50, "txId": 9, "messageType": "INSERT"})
    >>> [resume.has_all_of(Begin(lsn, 0, 9)) for lsn in (50, 80)]
    [True, False]
    >>> resume.has(9, 70), resume.has(9, 71), resume.has(8, 60)
    (True, False, False)
    """

    commit: int = 0
    inside: tuple[int, int] | None = None

    @classmethod
    def before(cls, end: int) -> Resume:
        """All that ends at a position is written: a commit that begins there is not."""
        return cls(end - 1)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Resume:
        """What a stored offset says."""
        lsn, commit = int(stored["lsn"]), _number(stored.get("lsn_commit")) or 0
        xid, kind = _number(stored.get("txId")), stored.get("messageType")
        if kind == "COMMIT" or "end" in stored:  # an earlier version has ``end``
            return cls(max(lsn, commit))
        if kind is None or xid is None:
            return cls.before(max(lsn, commit + 1))
        return cls(commit, (xid, 0 if kind == "BEGIN" else lsn))  # a transaction begins at the position of its commit

    def has_all_of(self, begun: Begin) -> bool:
        """Whether a transaction is written as a whole."""
        return begun.lsn <= self.commit

    def has(self, xid: int, lsn: int) -> bool:
        """Whether a message of a transaction is written."""
        return self.inside is not None and self.inside[0] == xid and lsn <= self.inside[1]


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
