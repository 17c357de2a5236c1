"""Kafka's internal intervals between two looks at what may be sent; tests set them to 0."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.aggregate.windows import EMIT_INTERVAL as OF_WINDOWS
from penstock.runtime.joins.unmatched import EMIT_INTERVAL as OF_JOINS

__all__ = ["emit_intervals"]


def emit_intervals(settings: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the intervals, in milliseconds, that a query's settings name.

    >>> emit_intervals([("ksql.streams.__emit.interval.ms.kstreams.windowed.aggregation__", "0"), ("a", "b")])
    {'__emit.interval.ms.kstreams.windowed.aggregation__': 0}
    """
    intervals = ((name.removeprefix("ksql.streams."), value) for name, value in settings)
    return {name: int(value) for name, value in intervals if name in (OF_WINDOWS, OF_JOINS)}
