"""Who runs an application: a record of the ledger, written in transactions that only one instance can commit."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from penstock.errors import FencedError, LogUnavailableError
from penstock.log.base import Lease
from penstock.log.kafka.failures import error_of, persist
from penstock.log.kafka.ledger import LEASE, entry_part, partition_of
from penstock.log.kafka.wire.transactions import TransactionalWriter, list_transactions
from penstock.log.processes import process_start, runs_here

if TYPE_CHECKING:
    from penstock.log.kafka.log import KafkaLog

__all__ = ["Leases"]

_log = logging.getLogger(__name__)


class Leases:
    """The leases of a `KafkaLog`."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log

    def acquire(self, application: str, owner: str, ttl_ms: int, *, force: bool) -> Lease:
        """Takes the right to run an application, with a new epoch.

        Raises:
            FencedError: Another instance runs.
        """
        with self._log.ledger_of(application) as ledger:
            ledger.create(self._log.replication)
        self._check_free(application, force=force)
        # From here on nobody who began earlier can write a lease. So what is read now stays true.
        self._log.producers.drop(_id(application))
        first = self._log.producers.transactional(_id(application), None)
        persist(
            first.initialise, f"taking the lease of {application!r}", self._log.patience_s, self._log.clients.access,
            transactional_id=_id(application), operation="WRITE",
        )  # fmt: skip
        held = self._check_free(application, force=force)
        now = _now_ms()
        epoch = (held.epoch if held else 0) + 1
        lease = Lease(application, owner, epoch, socket.gethostname(), os.getpid(), now, now, ttl_ms, released=False)
        self._write(lease)
        self._end_open_transactions(application)
        return lease

    def _end_open_transactions(self, application: str) -> None:
        """Ends what tasks of an earlier start have left open: it would hide what is written behind it.

        Each ends when its task writes again, or after transaction.timeout.ms. But until then another task may wait for
        it to read the ledger, and that one comes first.
        """
        clients = self._log.clients
        ours = re.compile(rf"{re.escape(application)}-(\d+_\d+(/\d+)?|dataframe-.*)")
        try:
            for found in (each.transactional_id for each in list_transactions(clients.cluster(), "Ongoing")):
                if ours.fullmatch(found):
                    _log.info("the open transaction of %s is ended", found)
                    timeout_ms = clients.transaction_timeout_ms
                    TransactionalWriter(clients.cluster(), found, timeout_ms, clients.limits()).init()
        except KafkaException as error:
            clients.cluster().forget()
            _log.debug("open transactions are left to end by themselves: %s", error_of(error).str())

    def renew(self, lease: Lease) -> None:
        """The heartbeat; raises FencedError if a newer instance has taken over. A silent broker is no reason to."""
        try:
            self._check_mine(lease)
            self._write(_replaced(lease, heartbeat_ms=_now_ms()))
        except LogUnavailableError as error:
            _log.warning("the lease of %s could not be renewed: %s", lease.application, error.message)

    def release(self, lease: Lease) -> None:
        """Gives the lease back; does nothing if somebody else has it, and not much if no broker answers."""
        self._log.clients.hurry = True
        try:
            held = self.read(lease.application)
            if held is not None and held.epoch == lease.epoch:
                self._write(_replaced(lease, heartbeat_ms=_now_ms(), released=True))
        except LogUnavailableError as error:
            _log.warning("the lease of %s could not be given back: %s", lease.application, error.message)

    def read(self, application: str) -> Lease | None:
        """Who runs, or last ran, an application."""
        held = self._stored(application)
        return None if held is None else held[0]

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
        with self._log.transaction(_id(lease.application)) as transaction:
            transaction.append(topic, partition, record)

    def _check_mine(self, lease: Lease) -> None:
        held = self.read(lease.application)
        if held is not None and held.epoch > lease.epoch:
            raise FencedError(
                f"application {lease.application!r}, epoch {lease.epoch}: {held.owner} (process {held.pid} on "
                f"{held.host}) has taken over with epoch {held.epoch}",
                hint="stop this instance; the newer one goes on",
                application=lease.application, epoch=lease.epoch, newest=held.epoch, owner=held.owner,
            )  # fmt: skip

    def _check_free(self, application: str, *, force: bool) -> Lease | None:
        stored = self._stored(application)
        if stored is None:
            return None
        held, start = stored
        if not force and _alive(held, start):
            since = datetime.fromtimestamp(held.since_ms / 1000, UTC).isoformat(timespec="seconds")
            raise FencedError(
                f"application {application!r} runs already: {held.owner} "
                f"(process {held.pid} on {held.host}, since {since})",
                hint="stop that instance first, or give this one another application.id",
                application=application, owner=held.owner, host=held.host, pid=held.pid, since_ms=held.since_ms,
            )  # fmt: skip
        return held


def _id(application: str) -> str:
    return f"{application}-driver"


def _replaced(lease: Lease, **changes: int) -> Lease:
    return Lease(**{**asdict(lease), **changes})


def _alive(held: Lease, start: str) -> bool:
    if held.released or _now_ms() - held.heartbeat_ms > held.ttl_ms:
        return False
    return held.host != socket.gethostname() or runs_here(held.pid, start)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
