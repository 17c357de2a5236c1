"""The records of a `KafkaLog` that only one writer at a time may change, each opened once."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from penstock.log.fenced_record import RecordName
from penstock.log.kafka.transactions.fenced_record import KafkaFencedRecord
from penstock.log.leases import lease_name, lease_of, refuse_newer

if TYPE_CHECKING:
    from penstock.log.kafka.transactions.core import KafkaCore

__all__ = ["KafkaRecords"]


class KafkaRecords:
    """The open records of a log."""

    def __init__(self, log: KafkaCore) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._open: dict[tuple[RecordName, bool], tuple[tuple[str, int] | None, KafkaFencedRecord]] = {}

    def get(self, name: RecordName, lease: tuple[str, int] | None = None) -> KafkaFencedRecord:
        """Return a record, always the same one for a lease.

        Args:
            name: Its name.
            lease: The application and the epoch of the lease that guards it: after it is lost, the record may not be
                changed.
        """
        with self._lock:
            before, open_record = self._open.get((name, lease is None), (None, None))
            if open_record is not None and before == lease:
                return open_record
            check = partial(self._check_lease, *lease) if lease is not None else lambda: None
            record = KafkaFencedRecord(self._log, name, check)
            self._open[name, lease is None] = (lease, record)
        if open_record is not None:
            open_record.close()
        return record

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            records, self._open = self._open, {}
        for _, record in records.values():
            record.close()

    def _check_lease(self, application: str, epoch: int) -> None:
        """Raise FencedError if a newer instance of the application has taken over."""
        refuse_newer(lease_of(self.get(lease_name(application)).read()), application, epoch)
