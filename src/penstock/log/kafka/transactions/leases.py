"""The lease of an application: a record of the ledger, written in transactions that only one instance can commit."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from penstock.clock import unix_ms
from penstock.errors import FencedError, LogUnavailableError
from penstock.log.base import Lease
from penstock.log.kafka.failures import error_of, persist
from penstock.log.kafka.transactions.fenced_producers import DRIVER, is_own_id
from penstock.log.kafka.transactions.ledger import LEASE, entry_part, partition_of
from penstock.log.kafka.transactions.transaction import transaction
from penstock.log.kafka.wire.transactions import TransactionalWriter, list_transactions
from penstock.log.lease_holders import holder_runs, runs_already
from penstock.log.processes import process_start

if TYPE_CHECKING:
    from penstock.log.kafka.transactions.core import KafkaCore

__all__ = ["Leases"]

_log = logging.getLogger(__name__)
_NOTE_EVERY_S = 60.0
_MUCH = 1_000  # entries


class Leases:
    """The leases of a `KafkaLog`."""

    def __init__(self, log: KafkaCore) -> None:
        self._log = log
        self._noted_at = time.monotonic()

    def acquire(
        self, application: str, owner: str, ttl_ms: int, *, force: bool, replacing: Lease | None = None
    ) -> Lease:
        """Take the right to run an application, with a new epoch.

        Raises:
            FencedError: Another instance runs, or has run since ``replacing``.
        """
        held = self._check_free(application, force=force, replacing=replacing)
        if held is None or replacing is None:  # else it has been created, with the settings of this version
            with self._log.ledger_of(application) as ledger:
                ledger.create(self._log.replication)
        # From here on no earlier instance can write a lease, so the lease that is read now stays true.
        self._log.producers.drop(_id(application))
        first = self._log.producers.transactional(_id(application), None)
        persist(
            first.initialise, f"taking the lease of {application!r}", self._log.patience_s, self._log.clients.access,
            transactional_id=_id(application), operation="WRITE",
        )  # fmt: skip
        held = self._check_free(application, force=force, replacing=replacing)
        now = unix_ms()
        epoch = (held.epoch if held else 0) + 1
        lease = Lease(application, owner, epoch, socket.gethostname(), os.getpid(), now, now, ttl_ms, released=False)
        self._write(lease)
        self._end_open_transactions(application)
        self._note(application)
        return lease

    def _end_open_transactions(self, application: str) -> None:
        """End transactions that tasks of an earlier start have left open: they hide all later records.

        Each ends when its task writes again, or after transaction.timeout.ms. But until then another task, which runs
        first, may have to wait for it to read the ledger.
        """
        clients = self._log.clients
        try:
            for found in (each.transactional_id for each in list_transactions(clients.cluster(), "Ongoing")):
                if is_own_id(application, found) and found != _id(application):
                    _log.info("the open transaction of %s is ended", found)
                    timeout_ms = clients.timeouts.least_ms
                    TransactionalWriter(clients.cluster(), found, timeout_ms, clients.limits()).init()
        except KafkaException as error:
            clients.cluster().forget()
            _log.debug("open transactions are left to end by themselves: %s", error_of(error).str())

    def renew(self, lease: Lease) -> None:
        """Send a heartbeat; raises FencedError if a newer instance has taken over, but nothing if no broker answers."""
        try:
            self.check(lease.application, lease.epoch)
            self._write(_replaced(lease, heartbeat_ms=unix_ms()))
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
            with transaction(self._log, _id(application)) as own:
                for key, value in notes.items():
                    own.append(*entry_part(application, key, value))

    def release(self, lease: Lease) -> None:
        """Release the lease; does nothing if another instance has it, and only warns if no broker answers."""
        self._log.clients.hurry = True
        try:
            held = self.read(lease.application)
            if held is not None and held.epoch == lease.epoch:
                self._write(_replaced(lease, heartbeat_ms=unix_ms(), released=True))
        except LogUnavailableError as error:
            _log.warning("the lease of %s could not be given back: %s", lease.application, error.message)

    def read(self, application: str) -> Lease | None:
        """Return the lease of the instance that runs, or last ran, an application."""
        held = self._stored(application)
        return None if held is None else held[0]

    def is_newest(self, lease: Lease) -> bool:
        """Return whether no other instance has taken over since this lease was acquired."""
        held = self.read(lease.application)
        return held is not None and held.epoch == lease.epoch

    def _stored(self, application: str) -> tuple[Lease, str] | None:
        with self._log.ledger_of(application) as ledger:
            if not ledger.exists():
                return None
            ledger.read([partition_of(LEASE)])
            found = ledger.lease()
        if found is None:
            return None
        start = str(found.pop("process_start"))
        return Lease(**found), start  # type: ignore[arg-type] # as written by _write

    def _write(self, lease: Lease) -> None:
        start = process_start(lease.pid) if lease.pid == os.getpid() else ""
        value = json.dumps({**asdict(lease), "process_start": start}).encode()
        topic, partition, record = entry_part(lease.application, LEASE, value)
        with transaction(self._log, _id(lease.application)) as own:
            own.append(topic, partition, record)

    def check(self, application: str, epoch: int) -> None:
        """Raise FencedError if a newer instance has taken over."""
        held = self.read(application)
        if held is not None:
            _refuse_newer(held, epoch)

    def _check_free(self, application: str, *, force: bool, replacing: Lease | None) -> Lease | None:
        stored = self._stored(application)
        if stored is None:
            return None
        held, start = stored
        if replacing is not None:
            _refuse_newer(held, replacing.epoch)
        elif not force and holder_runs(held, start):
            raise runs_already(held)
        return held


def _refuse_newer(held: Lease, epoch: int) -> None:
    """Raise FencedError if this lease has a newer epoch."""
    if held.epoch > epoch:
        raise FencedError(
            f"application {held.application!r}, epoch {epoch}: {held.owner} (process {held.pid} on "
            f"{held.host}) has taken over with epoch {held.epoch}",
            hint="stop this instance; the newer one goes on",
            application=held.application, epoch=epoch, newest=held.epoch, owner=held.owner,
        )  # fmt: skip


def _id(application: str) -> str:
    return f"{application}-{DRIVER}"


def _replaced(lease: Lease, **changes: int) -> Lease:
    return Lease(**{**asdict(lease), **changes})
