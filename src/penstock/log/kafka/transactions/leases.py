"""The leases of applications over Kafka, and what the holder of a new one does first."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from confluent_kafka import KafkaException

from penstock.base.log_lines import own_logger
from penstock.errors import AuthorizationError, FencedError, LogUnavailableError
from penstock.log.kafka.failures import error_of
from penstock.log.kafka.transactions.fenced_producers import PLANNER, is_own_id
from penstock.log.kafka.transactions.ledger import entry_part
from penstock.log.kafka.wire.transactions import ProducerTransactions, list_transactions
from penstock.log.leases import LEASE_WRITER, Leases, lease_name
from penstock.log.streams_groups.refusals import shared_already
from penstock.log.thread_clients import CHANGELOG_WRITER

if TYPE_CHECKING:
    from penstock.log.base import Lease
    from penstock.log.kafka.transactions.core import KafkaCore
    from penstock.log.kafka.transactions.fenced_record import KafkaFencedRecord, KafkaRecords

__all__ = ["KafkaLeases"]

_log = own_logger(__name__)
_NOTE_EVERY_S = 60.0
_MUCH = 1_000  # entries


class KafkaLeases(Leases):
    """The leases of a `KafkaLog`."""

    def __init__(self, log: KafkaCore, records: KafkaRecords) -> None:
        super().__init__(lambda application: records.get(lease_name(application)))
        self._log = log
        self._noted_at = time.monotonic()

    def prepare(self, application: str) -> None:
        """Create the ledger, which the lease is in, if it is not there."""
        with self._log.ledger_of(application) as ledger:
            ledger.create(self._log.replication)

    def acquire(
        self, application: str, owner: str, ttl_ms: int, *, force: bool, replacing: Lease | None = None
    ) -> Lease:
        """Take the right to run an application, with a new epoch.

        Raises:
            FencedError: Another instance runs, or has run since ``replacing``; or instances share the work of the
                application.
        """
        self._refuse_members(application)
        if replacing is None:  # else it has been created, with the settings of this version
            self.prepare(application)
        before = self.read(application)
        lease = super().acquire(application, owner, ttl_ms, force=force, replacing=replacing)
        try:
            self._refuse_members(application)  # they look for a lease once they have joined
        except FencedError:
            super().release(lease)
            raise
        is_taken_over = replacing is None and before is not None and not before.released
        # What the one before had on its way may come later than anything that is read from now on.
        self._fence(
            lease, tuple(f"{application}-{each}" for each in (CHANGELOG_WRITER, PLANNER)) if is_taken_over else ()
        )
        self._note(application)
        return lease

    def _refuse_members(self, application: str) -> None:
        """Raise FencedError if stream threads are members of the application's group, as far as that can be seen."""
        with suppress(AuthorizationError):
            described = self._log.streams_group(application)
            if described is not None and described.members:
                raise shared_already(application, described)

    def _fence(self, lease: Lease, others: tuple[str, ...]) -> None:
        """End transactions that tasks of an earlier start have left open: they hide all later records.

        Each ends when its task writes again, or after transaction.timeout.ms. But until then another task, which runs
        first, may have to wait for it to read the ledger.

        Args:
            lease: The lease that was just acquired.
            others: More transactional ids to fence, those whose next writer may come much later.

        Raises:
            FencedError: Another instance has taken over meanwhile: the transactions are its own.
        """
        clients, application = self._log.clients, lease.application
        try:
            listed = (each.transactional_id for each in list_transactions(clients.cluster(), "Ongoing"))
            own = {each for each in listed if is_own_id(application, each) and each != f"{application}-{LEASE_WRITER}"}
            for transactional_id in sorted(own.union(others)):
                self.check(application, lease.epoch)
                if transactional_id in own:
                    _log.info("the open transaction of %s is ended", transactional_id)
                transactions = ProducerTransactions(clients.cluster(), transactional_id, "", clients.limits())
                transactions.init(clients.timeouts.least_ms)
        except KafkaException as error:
            clients.cluster().forget()
            _log.debug("open transactions are left to time out: %s", error_of(error).str())

    def renew(self, lease: Lease) -> None:
        """Send a heartbeat; raises FencedError if a newer instance has taken over, but nothing if no broker answers."""
        try:
            super().renew(lease)
            if time.monotonic() - self._noted_at > _NOTE_EVERY_S:
                self._note(lease.application)
        except LogUnavailableError as error:
            _log.warning("the lease of %s could not be renewed: %s", lease.application, error.message)

    def _note(self, application: str) -> None:
        """Write notes to the ledger once they save later readers much."""
        self._noted_at = time.monotonic()
        with self._log.ledger_of(application) as ledger:
            ledger.follow()
            notes = ledger.notes() if ledger.unnoted >= _MUCH else {}
        if notes:
            record = cast("KafkaFencedRecord", self._record(application))
            stored = record.held()
            parts = tuple(entry_part(application, key, value) for key, value in notes.items())
            record.replace(stored.value or b"", stored.version, beside=parts)

    def release(self, lease: Lease) -> None:
        """Release the lease; does nothing if another instance has it, and only warns if no broker answers."""
        clients = self._log.clients
        before, clients.hurry = clients.hurry, True  # most end then; one that shares its tasks goes on
        try:
            super().release(lease)
        except LogUnavailableError as error:
            _log.warning("the lease of %s could not be given back: %s", lease.application, error.message)
        finally:
            clients.hurry = before
