"""Messages of PostgreSQL's logical replication, version 1, as its plugin pgoutput writes them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from penstock.connect.data import DataError

__all__ = [
    "UNCHANGED",
    "Begin",
    "Cell",
    "CommitMessage",
    "Delete",
    "Insert",
    "LogicalMessage",
    "Message",
    "OriginMessage",
    "RelationColumn",
    "RelationMessage",
    "Truncate",
    "Update",
    "parse_message",
]

EPOCH_US: Final = 946_684_800_000_000  # PostgreSQL counts from 2000-01-01


class _Unchanged:
    """A large value that an update did not touch, and that the server does not send."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
Cell = str | None | _Unchanged


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins.

    Attributes:
        lsn: The position of its commit.
        time_us: The time of the commit, microseconds since 1970.
        xid: Its number.
    """

    lsn: int
    time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """A transaction ends.

    Attributes:
        lsn: The position of the commit.
        end_lsn: The position behind it.
    """

    lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class OriginMessage:
    """Where a transaction that was replicated to the server comes from.

    Attributes:
        lsn: The position of its commit there.
        name: The name of the replication origin.
    """

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message of an application (``pg_logical_emit_message``).

    Attributes:
        is_transactional: It is part of a transaction, and comes with its commit.
        lsn: Its position.
        prefix: Its prefix.
        content: Its content.
    """

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation: name, number of its type, modifier of the type, and whether it is part of the key."""

    name: str
    kind: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table, sent before its first change and after it was altered."""

    number: int
    namespace: str
    name: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation: int
    new: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row; ``old`` is the whole old row, or its key with nulls elsewhere, if the server sends it.

    Attributes:
        is_whole: Whether ``old`` is whole (``REPLICA IDENTITY FULL``).
    """

    relation: int
    old: tuple[Cell, ...] | None
    is_whole: bool
    new: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted row: whole, or its key with nulls elsewhere."""

    relation: int
    old: tuple[Cell, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were emptied."""

    relations: tuple[int, ...]


Message = Begin | CommitMessage | OriginMessage | LogicalMessage | RelationMessage | Insert | Update | Delete | Truncate


def parse_message(data: bytes) -> Message | None:
    """Parse a message; None for the names of types, which come from the catalog.

    Raises:
        DataError: The bytes are not a message of this protocol.

    Example:
        >>> parse_message(b"D" + (7).to_bytes(4, "big") + b"K" + bytes([0, 1]) + b"t" + bytes([0, 0, 0, 1]) + b"5")
        Delete(relation=7, old=('5',), is_whole=False)
    """
    try:
        return _PgoutputReader(data).message()
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"a message of logical replication cannot be read: {data[:20].hex()}: {error}") from error


class _PgoutputReader:
    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def message(self) -> Message | None:
        match self.letter():
            case "B":
                lsn, time_us, xid = self.numbers(">QqI")
                return Begin(lsn, time_us + EPOCH_US, xid)
            case "C":
                _, lsn, end, _ = self.numbers(">BQQq")
                return CommitMessage(lsn, end)
            case "R":
                return self.relation()
            case "I":
                (number,) = self.numbers(">I")
                self.expect("N")
                return Insert(number, self.row())
            case "U":
                return self.update()
            case "D":
                (number,) = self.numbers(">I")
                kind = self.letter()
                return Delete(number, self.row(), kind == "O")
            case "T":
                count, _ = self.numbers(">IB")
                return Truncate(self.numbers(f">{min(count, len(self._data))}I"))
            case "O":
                (lsn,) = self.numbers(">Q")
                return OriginMessage(lsn, self.text())
            case "M":
                flags, lsn = self.numbers(">BQ")
                prefix = self.text()
                return LogicalMessage(bool(flags & 1), lsn, prefix, self.bytes())
            case "Y":
                return None
            case other:
                raise ValueError(f"there is no message {other!r}")

    def update(self) -> Update:
        (number,) = self.numbers(">I")
        kind, old = self.letter(), None
        if kind in "KO":
            old = self.row()
            self.expect("N")
        elif kind != "N":
            raise ValueError(f"an update has no part {kind!r}")
        return Update(number, old, kind == "O", self.row())

    def relation(self) -> RelationMessage:
        (number,) = self.numbers(">I")
        namespace, name = self.text(), self.text()
        _, count = self.numbers(">BH")
        columns = []
        for _ in range(count):
            (flags,) = self.numbers(">B")
            column = self.text()
            kind, modifier = self.numbers(">Ii")
            columns.append(RelationColumn(column, kind, modifier, bool(flags & 1)))
        return RelationMessage(number, namespace, name, tuple(columns))

    def row(self) -> tuple[Cell, ...]:
        (count,) = self.numbers(">H")
        return tuple(self.cell() for _ in range(count))

    def cell(self) -> Cell:
        match self.letter():
            case "n":
                return None
            case "u":
                return UNCHANGED
            case "t":
                return self.bytes().decode()
            case other:
                raise ValueError(f"a value has the form {other!r}, not text")

    def bytes(self) -> bytes:
        (length,) = self.numbers(">I")
        if self._at + length > len(self._data):
            raise ValueError("a value is cut short")
        self._at += length
        return bytes(self._data[self._at - length : self._at])

    def letter(self) -> str:
        self._at += 1
        return chr(self._data[self._at - 1])

    def expect(self, letter: str) -> None:
        actual = self.letter()
        if actual != letter:
            raise ValueError(f"{actual!r} stands where {letter!r} is expected")

    def numbers(self, form: str) -> tuple[int, ...]:
        unpacked = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return unpacked

    def text(self) -> str:
        end = bytes(self._data[self._at :]).index(0) + self._at
        decoded = bytes(self._data[self._at : end]).decode()
        self._at = end + 1
        return decoded
