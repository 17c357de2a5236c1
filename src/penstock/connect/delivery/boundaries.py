"""Where the transactions of a source's task end: at each poll, after a time, or where the connector says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

from penstock.connect.data import SourceRecord
from penstock.errors import ConnectError

__all__ = ["Boundary", "boundary_of"]

Ending = Literal["commit", "abort"] | None
_MOST_PENDING = 16_000


class Boundary:
    """A transaction at each poll: ``transaction.boundary=poll``."""

    context: _Transactions | None = None
    commits_at_end = True

    def is_due(self, *, more: bool, pending: int) -> bool:  # noqa: ARG002 - at any time
        """Return whether what is pending is to be committed now.

        Args:
            more: The next poll returns records at once.
            pending: The number of records that are pending.
        """
        return True

    def after(self, record: SourceRecord) -> Ending:  # noqa: ARG002 - no matter which
        """Return what follows a record."""
        return None

    def after_batch(self) -> Ending:
        """Return what follows a batch."""
        return None

    def committed(self) -> None:
        """Note a commit."""


class _Drained(Boundary):
    """A transaction at each poll, or at the last of some that follow each other without a pause: the default."""

    def is_due(self, *, more: bool, pending: int) -> bool:
        return not more or pending >= _MOST_PENDING


class _Interval(Boundary):
    """A transaction after each interval: ``transaction.boundary=interval``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds

    def is_due(self, *, more: bool, pending: int) -> bool:  # noqa: ARG002 - the time alone counts
        return time.monotonic() >= self._due

    def committed(self) -> None:
        self._due = time.monotonic() + self._seconds


class _Transactions:
    """The `TransactionContext` of a task."""

    def __init__(self) -> None:
        self._records: dict[int, Literal["commit", "abort"]] = {}
        self._batch: Ending = None

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """End the transaction after this record, or after the next batch."""
        self._note(record, "commit")

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Discard the transaction with this record, or with the next batch."""
        self._note(record, "abort")

    def take(self, record: SourceRecord) -> Ending:
        """Return what was asked for after a record."""
        return self._records.pop(id(record), None)

    def take_batch(self) -> Ending:
        """Return what was asked for after the batch."""
        ending, self._batch = self._batch, None
        return ending

    def _note(self, record: SourceRecord | None, ending: Literal["commit", "abort"]) -> None:
        if record is None:
            if self._batch not in (None, ending):
                raise ConnectError("The batch is to be committed and to be aborted", hint="Ask for one of the two.")
            self._batch = ending
        else:
            if self._records.get(id(record), ending) != ending:
                raise ConnectError("A record is to be committed and to be aborted", hint="Ask for one of the two.")
            self._records[id(record)] = ending


class _ByConnector(Boundary):
    """Transactions as the connector says: ``transaction.boundary=connector``."""

    commits_at_end = False

    def __init__(self) -> None:
        self._transactions = _Transactions()
        self.context = self._transactions

    def is_due(self, *, more: bool, pending: int) -> bool:  # noqa: ARG002 - the connector alone decides
        return False

    def after(self, record: SourceRecord) -> Ending:
        return self._transactions.take(record)

    def after_batch(self) -> Ending:
        return self._transactions.take_batch()


def boundary_of(config: Mapping[str, str | None], flush_ms: int = 60_000) -> Boundary:
    """Return the boundary that a connector's config asks for.

    Args:
        config: The connector's config.
        flush_ms: The interval of commits unless the config has one (``offset.flush.interval.ms``).
    """
    match (config.get("transaction.boundary") or "").strip().lower():
        case "interval":
            return _Interval(int(config.get("transaction.boundary.interval.ms") or flush_ms) / 1000)
        case "connector":
            return _ByConnector()
        case "poll":
            return Boundary()
    return _Drained()
