"""The heartbeats of a lease, from the moment it is taken until it is released, whatever its holder does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, PenstockError
from penstock.log.lease_holders import heartbeat_pause_s

if TYPE_CHECKING:
    from penstock.log.base import Lease, TopicLog

__all__ = ["LeaseKeeper", "held_lease"]

_log = own_logger(__name__)
_PATIENCE_S = 10.0


class LeaseKeeper:
    """Renews a lease in a thread of its own, until `end`.

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
