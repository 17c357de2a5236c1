"""The present time as records, leases and heartbeats carry it."""

from __future__ import annotations

import time

__all__ = ["unix_ms"]


def unix_ms() -> int:
    """Return the machine's time in milliseconds since 1970-01-01 UTC (Kafka: ``Time.milliseconds``).

    For timestamps and for what other processes compare with. Spans of time are measured by ``time.monotonic``.
    """
    return time.time_ns() // 1_000_000
