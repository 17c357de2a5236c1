"""The leases of applications: records that only their holders change, by compare-and-set; who holds them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar, cast

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, PenstockError
from penstock.log.base import Lease
from penstock.log.fenced_record import WRITERS, FencedRecord, RecordName, StoredRecord, change_record
from penstock.log.processes import may_run, own_process

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = [
    "LEASE_WRITER",
    "LeaseKeeper",
    "Leases",
    "heartbeat_pause_s",
    "held_lease",
    "holder_runs",
    "is_fresh",
    "lease_name",
    "lease_of",
    "may_have_another_clock",
    "not_shared",
    "check_not_fenced",
    "runs_already",
]

_MOST_S = 5.0
_OF_TTL = 4  # heartbeats within the time to live
_CLOCKS_MS = 3_600_000  # by so much at most the clocks of two machines are taken to differ


def heartbeat_pause_s(lease: Lease) -> float:
    """Return the time between two heartbeats of a holder."""
    return max(0.0, min(_MOST_S, lease.ttl_ms / 1000 / _OF_TTL))


def may_have_another_clock(lease: Lease) -> bool:
    """Return whether a holder on another machine may run although its heartbeats look old: its clock may be behind."""
    age_ms = unix_ms() - lease.heartbeat_ms
    return not lease.released and lease.host != socket.gethostname() and lease.ttl_ms < age_ms < _CLOCKS_MS


def is_fresh(lease: Lease) -> bool:
    """Return whether the lease is held, and its last heartbeat is no older than ``ttl_ms``."""
    return not lease.released and unix_ms() - lease.heartbeat_ms <= lease.ttl_ms


def holder_runs(lease: Lease) -> bool:
    """Return whether the lease is fresh, and its holder's process is not known to be gone."""
    return is_fresh(lease) and may_run(lease.host, lease.pid, lease.process_start)


def not_shared(held: Lease, reason: str) -> FencedError:
    """Return the error for a start that would share the tasks of the holder, and cannot."""
    return runs_already(held, f"Its tasks are not shared: {reason}. Stop that instance first, or give this one another "
                        "application.id")  # fmt: skip


def runs_already(
    held: Lease, hint: str = "stop that instance first, or give this one another application.id"
) -> FencedError:
    """Return the error for a start of an application whose lease is held."""
    since = datetime.fromtimestamp(held.since_ms / 1000, UTC).isoformat(timespec="seconds")
    return FencedError(
        f"application {held.application!r} runs already: {held.owner} "
        f"(process {held.pid} on {held.host}, since {since})",
        hint=hint,
        application=held.application,
        owner=held.owner,
        host=held.host,
        pid=held.pid,
        since_ms=held.since_ms,
    )


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


def check_not_fenced(held: Lease | None, application: str, epoch: int) -> None:
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
                check_not_fenced(held, application, replacing.epoch)
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
            check_not_fenced(held, lease.application, lease.epoch)
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
        check_not_fenced(self.read(application), application, epoch)

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


_log = own_logger(__name__)
_PATIENCE_S = 10.0


class LeaseKeeper:
    """The renewal of a lease in a thread of its own, until `end`.

    Args:
        log: The log.
        lease: The lease.
        on_lost: Called once another instance has taken over.

    Attributes:
        lease: The present lease.
    """

    def __init__(self, log: TopicLog, lease: Lease, on_lost: Callable[[], None] = lambda: None) -> None:
        self.lease = lease
        self._log = log
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._lost: FencedError | None = None
        self._thread = threading.Thread(target=self._keep, name=f"{lease.application}-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise FencedError if another instance has taken over."""
        if self._lost is not None:
            raise self._lost

    def replace(self, acquire: Callable[[Lease], Lease]) -> Lease:
        """Replace the lease by another one of this instance, while no heartbeat is on its way."""
        with self._lock:
            self.lease = acquire(self.lease)
        return self.lease

    def end(self) -> bool:
        """Send no more heartbeats; return whether the last one is through."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()

    def _keep(self) -> None:
        while not self._ended.wait(heartbeat_pause_s(self.lease)):
            try:
                with self._lock:
                    if not self._ended.is_set():
                        self._log.renew_lease(self.lease)
            except FencedError as error:
                self._lost = error
                self._on_lost()
                return
            except PenstockError as error:  # the log is away; the next heartbeat may reach it
                _log.warning("the lease of %s could not be renewed: %s", self.lease.application, error.message)
            except Exception:  # noqa: BLE001 - without this thread the lease expires unnoticed
                _log.exception("the lease of %s could not be renewed", self.lease.application)


@contextmanager
def held_lease(
    log: TopicLog, application: str, owner: str, ttl_ms: int = 30_000, *, force: bool = False
) -> Iterator[LeaseKeeper]:
    """Hold the lease of an application during the block, which may take long.

    Raises:
        FencedError: The application runs; or, at the end of the block, another instance has taken over meanwhile.
    """
    lease = log.acquire_lease(application, owner, ttl_ms, force=force)
    keeper = LeaseKeeper(log, lease)
    try:
        yield keeper
        keeper.check()
    finally:
        keeper.end()
        log.release_lease(lease)
