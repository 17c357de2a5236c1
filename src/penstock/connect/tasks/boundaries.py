"""Where the transactions of a source's task end: at each poll, after a time, or where the connector says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

from penstock.connect.data import SourceRecord
from penstock.connect.settings.worker_config import WorkerConfig
from penstock.errors import ConnectError

__all__ = ["Boundary", "boundary_of"]

Ending = Literal["commit", "abort"] | None


class Boundary:
    """A transaction at each poll: ``transaction.boundary=poll``."""

    context: _Transactions | None = None
    commits_at_end = True

    def is_due(self, *, polled: bool) -> bool:  # noqa: ARG002 - at any time
        """Whether what is pending is to be committed now."""
        return True

    def after(self, record: SourceRecord) -> Ending:  # noqa: ARG002 - no matter which
        """What follows a record."""
        return None

    def after_batch(self) -> Ending:
        """What follows a batch."""
        return None

    def committed(self) -> None:
        """Note a commit."""


class _Interval(Boundary):
    """A transaction after each interval: ``transaction.boundary=interval``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds

    def is_due(self, *, polled: bool) -> bool:  # noqa: ARG002 - the time alone counts
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
        """What was asked for after a record."""
        return self._records.pop(id(record), None)

    def take_batch(self) -> Ending:
        """What was asked for after the batch."""
        found, self._batch = self._batch, None
        return found

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

    def is_due(self, *, polled: bool) -> bool:  # noqa: ARG002 - the connector alone decides
        return False

    def after(self, record: SourceRecord) -> Ending:
        return self._transactions.take(record)

    def after_batch(self) -> Ending:
        return self._transactions.take_batch()


def boundary_of(config: Mapping[str, str | None], worker: WorkerConfig) -> Boundary:
    """The boundary that a connector's config asks for."""
    match (config.get("transaction.boundary") or "poll").strip().lower():
        case "interval":
            own = config.get("transaction.boundary.interval.ms")
            return _Interval(int(own or worker["offset.flush.interval.ms"]) / 1000)
        case "connector":
            return _ByConnector()
    return Boundary()
