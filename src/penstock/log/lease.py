"""The lease of a running application."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Lease"]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run an application; a higher epoch fences lower ones.

    ``process_start`` is the start of its holder's process, see `penstock.log.processes.process_start`.
    """

    application: str
    owner: str
    epoch: int
    host: str
    pid: int
    since_ms: int
    heartbeat_ms: int
    ttl_ms: int
    released: bool
    process_start: str = ""
