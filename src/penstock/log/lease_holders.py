"""The holder of an application's lease: whether it still runs, and the error for those who want the lease too."""

from __future__ import annotations

import socket
from datetime import UTC, datetime

from penstock.base.clock import unix_ms
from penstock.errors import FencedError
from penstock.log.base import Lease
from penstock.log.processes import may_run

__all__ = ["heartbeat_pause_s", "holder_runs", "is_fresh", "may_have_another_clock", "not_shared", "runs_already"]

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
