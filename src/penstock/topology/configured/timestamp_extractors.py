"""``default.timestamp.extractor``: a function of the user's, or one of Kafka's by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.base.clock import unix_ms
from penstock.topology.operations.functions import Function

__all__ = ["extractor_of"]


def extractor_of(setting: Any) -> Function | None:
    """Return the function for a value of the setting; None: the records' own timestamps, which must be valid."""
    fn = _BY_NAME[setting] if isinstance(setting, str) else setting
    if fn is None:
        return None
    return Function.wrap(fn, verb="default.timestamp.extractor", allowed=(1, 2), expression=False)


def _skip_invalid(record: Any, partition_time_ms: int) -> int:  # noqa: ARG001 - an extractor's signature
    """Return the record's own timestamp; a negative one drops the record and is logged."""
    return int(record.timestamp)


def _partition_time_if_invalid(record: Any, partition_time_ms: int) -> int:
    """Return the record's own timestamp, or else the largest so far of its partition."""
    stamp = int(record.timestamp) if record.timestamp >= 0 else partition_time_ms
    if stamp < 0:
        raise ValueError("the first record of the partition has no valid timestamp")
    return stamp


def _wall_clock(record: Any, partition_time_ms: int) -> int:  # noqa: ARG001 - an extractor's signature
    """Return the present time."""
    return unix_ms()


_BY_NAME: dict[str, Callable[[Any, int], int] | None] = {
    "FailOnInvalidTimestamp": None,  # the behaviour without an extractor
    "LogAndSkipOnInvalidTimestamp": _skip_invalid,
    "UsePartitionTimeOnInvalidTimestamp": _partition_time_if_invalid,
    "WallclockTimestampExtractor": _wall_clock,
}
