"""The present time as records, leases and heartbeats carry it, and a clock that nobody sets."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import lru_cache

__all__ = ["boot_id", "since_boot_ms", "unix_ms"]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def unix_ms() -> int:
    """Return the machine's time in milliseconds since 1970-01-01 UTC (Kafka: ``Time.milliseconds``).

    For timestamps and for what other processes compare with. Spans of time are measured by ``time.monotonic``.
    """
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Return an id of the machine's last start; empty where the system has none."""
    with suppress(OSError):  # which is not kept: a process may have too many files open for a moment
        return _first_line(os.fspath(_BOOT_ID))
    return ""


@lru_cache(maxsize=8)
def _first_line(path: str) -> str:
    """Return what a pseudo file holds that does not change while this process runs."""
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - a pseudo file
        return file.read().strip()


def since_boot_ms() -> int:
    """Return the milliseconds since the machine's last start, also those that it has slept.

    Nobody sets this clock, so it measures spans between processes of one start of the machine (`boot_id`).
    """
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000
