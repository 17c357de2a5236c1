"""Kafka's timestamp extractors by their class names, and functions that users give in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.base.clock import unix_ms
from penstock.base.nearest_name import did_you_mean
from penstock.errors import TopologyError
from penstock.topology.operations.functions import EXTRACTED, Function

__all__ = ["extractor_of", "wall_clock"]


def extractor_of(extractor: object, role: str) -> Function | None:
    """Return the function of an extractor; None: the records' own timestamps, which must be valid.

    Args:
        extractor: A function of a record, or of a record and the largest time so far of its partition; the name of
            one of Kafka's classes, with or without its package; None.
        role: The verb or setting that it is given to.

    Raises:
        TopologyError: It is neither.

    >>> extractor_of("WallclockTimestampExtractor", "Consumed: timestamp_extractor").fn is wall_clock
    True
    """
    if isinstance(extractor, str):
        name = extractor.rpartition(".")[2]
        if name not in _BY_NAME:
            raise TopologyError(
                f"{role} is {extractor!r}",
                hint=did_you_mean(name, _BY_NAME) or f"Give a function, or one of {', '.join(_BY_NAME)}.",
            )
        extractor = _BY_NAME[name]
    if extractor is None:
        return None
    return Function.wrap(extractor, verb=role, allowed=(1, 2), passed=EXTRACTED, expression=False)


def wall_clock(record: Any, partition_time_ms: int) -> int:  # noqa: ARG001 - an extractor's signature
    """Return the present time; sources know this function, and take one time for many records."""
    return unix_ms()


def _fail_on_invalid(record: Any, partition_time_ms: int) -> int:  # noqa: ARG001
    """Return the record's own timestamp, which must be valid."""
    if record.timestamp < 0:
        raise ValueError(f"the record has the invalid timestamp {record.timestamp}")
    return int(record.timestamp)


def _skip_invalid(record: Any, partition_time_ms: int) -> int:  # noqa: ARG001
    """Return the record's own timestamp; a negative one drops the record and is logged."""
    return int(record.timestamp)


def _partition_time_if_invalid(record: Any, partition_time_ms: int) -> int:
    """Return the record's own timestamp, or else the largest so far of its partition."""
    stamp = int(record.timestamp) if record.timestamp >= 0 else partition_time_ms
    if stamp < 0:
        raise ValueError("the first record of the partition has no valid timestamp")
    return stamp


_BY_NAME: dict[str, Callable[[Any, int], int]] = {
    "FailOnInvalidTimestamp": _fail_on_invalid,
    "LogAndSkipOnInvalidTimestamp": _skip_invalid,
    "UsePartitionTimeOnInvalidTimestamp": _partition_time_if_invalid,
    "WallclockTimestampExtractor": wall_clock,
}
