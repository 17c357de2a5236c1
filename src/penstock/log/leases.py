"""The leases of applications: each is a record that only its holder changes, by compare-and-set."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TypeVar, cast

from penstock.base.clock import unix_ms
from penstock.errors import FencedError
from penstock.log.base import Lease
from penstock.log.fenced_record import WRITERS, FencedRecord, RecordName, StoredRecord, change_record
from penstock.log.lease_holders import heartbeat_pause_s, holder_runs, may_have_another_clock, runs_already
from penstock.log.processes import own_process

__all__ = ["LEASE_WRITER", "Leases", "lease_name", "lease_of", "refuse_newer"]

LEASE_WRITER = WRITERS[0]
_T = TypeVar("_T", bound=Lease | None)
_HEARTBEATS = 2  # to wait for while a holder may run with another clock
_LOOK_S = 0.1


def lease_name(application: str) -> RecordName:
    """Return the name of an application's lease."""
    return RecordName(application, LEASE_WRITER, f"{application}-penstock-ledger", b"lease", is_in_topic=False)


def lease_of(stored: StoredRecord) -> Lease | None:
    """Decode a lease; None if there is none."""
    if stored.value is None:
        return None
    facts = json.loads(stored.value)
    return Lease(**{**facts, "process_start": str(facts.get("process_start") or "")})


def refuse_newer(held: Lease | None, application: str, epoch: int) -> None:
    """Raise FencedError if this lease has a newer epoch."""
    if held is not None and held.epoch > epoch:
        raise FencedError(
            f"application {application!r}, epoch {epoch}: {held.owner} (process {held.pid} on {held.host}) "
            f"has taken over with epoch {held.epoch}",
            hint="stop this instance; the newer one continues",
            application=application, epoch=epoch, newest=held.epoch, owner=held.owner,
        )  # fmt: skip


class Leases:
    """The leases of a log.

    Args:
        record: Returns the record of an application's lease, always the same one.
    """

    def __init__(self, record: Callable[[str], FencedRecord]) -> None:
        self._record = record

    def acquire(
        self, application: str, owner: str, ttl_ms: int, *, force: bool, replacing: Lease | None = None
    ) -> Lease:
        """Take the right to run an application, with a new epoch.

        Of several starts at once one succeeds; the others find its lease. A holder on another machine whose clock is
        behind is known by its heartbeats.

        Raises:
            FencedError: Another instance runs, or has run since ``replacing``.
        """
        if replacing is None and not force:
            self._watch(application)

        def taken(held: Lease | None) -> Lease:
            if replacing is not None:
                refuse_newer(held, application, replacing.epoch)
            elif held is not None and not force and holder_runs(held):
                raise runs_already(held)
            now, epoch, (host, pid, start) = unix_ms(), (held.epoch if held else 0) + 1, own_process()
            return Lease(application, owner, epoch, host, pid, now, now, ttl_ms, False, start)  # noqa: FBT003 - in order

        return self._change(application, taken)

    def _watch(self, application: str) -> None:
        """Raise FencedError if a lease that looks too old is renewed."""
        held = self.read(application)
        if held is None or not may_have_another_clock(held):
            return
        deadline = time.monotonic() + _HEARTBEATS * heartbeat_pause_s(held)
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))
            now = self.read(application)
            if now is not None and now.epoch == held.epoch and not now.released and now != held:
                raise runs_already(now)

    def renew(self, lease: Lease) -> None:
        """Send a heartbeat, unless the lease is released; raises FencedError if a newer instance has taken over."""

        def renewed(held: Lease | None) -> Lease | None:
            refuse_newer(held, lease.application, lease.epoch)
            if held is not None and held.epoch == lease.epoch and held.released:
                return None  # a heartbeat that was on its way meanwhile
            return replace(lease, heartbeat_ms=unix_ms())

        self._change(lease.application, renewed)

    def release(self, lease: Lease) -> None:
        """Release the lease; does nothing if another instance has it."""

        def released(held: Lease | None) -> Lease | None:
            if held is None or held.epoch != lease.epoch or held.released:
                return None
            return replace(lease, heartbeat_ms=unix_ms(), released=True)

        self._change(lease.application, released)

    def read(self, application: str) -> Lease | None:
        """Return the lease of the instance that runs, or last ran, an application."""
        return lease_of(self._record(application).read())

    def is_newest(self, lease: Lease) -> bool:
        """Return whether no other instance has taken over since this lease was acquired."""
        held = self.read(lease.application)
        return held is not None and held.epoch == lease.epoch

    def check(self, application: str, epoch: int) -> None:
        """Raise FencedError if a newer instance has taken over."""
        refuse_newer(self.read(application), application, epoch)

    def _change(self, application: str, change: Callable[[Lease | None], _T]) -> _T:
        """Read, compare, write; once more if another process was faster.

        Args:
            application: The application.
            change: Returns the lease to write, or None, and raises FencedError if there must be none.
        """
        lease: Lease | None = None

        def changed(stored: StoredRecord) -> bytes | None:
            nonlocal lease
            lease = change(lease_of(stored))
            return None if lease is None else json.dumps(asdict(lease)).encode()

        change_record(self._record(application), changed)
        return cast("_T", lease)
