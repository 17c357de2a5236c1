"""Spark's queries: the trigger by which they run, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["commit_trigger", "has_ended"]


def commit_trigger(commit_interval_ms: int, *, until_latest: bool) -> dict[str, Any]:
    """Return the arguments of Spark's ``DataStreamWriter.trigger``.

    Args:
        commit_interval_ms: ``commit.interval.ms``, the time from one batch to the start of the next.
        until_latest: Whether the query ends when all records that are there now have been processed.

    >>> commit_trigger(100, until_latest=False)
    {'processingTime': '100 milliseconds'}
    """
    return {"availableNow": True} if until_latest else {"processingTime": f"{commit_interval_ms} milliseconds"}


def has_ended(query: StreamingQuery, timeout_s: float) -> bool:
    """Wait for the end of a query for a while; return whether it has ended.

    Spark looks for an error first, and then whether the query still runs. One that fails between the two looks seems to
    have ended well, so the error is asked for once more.

    Raises:
        StreamingQueryException: An error has ended it.
    """
    is_over = bool(query.awaitTermination(timeout_s))  # type: ignore[arg-type] # fractions are fine
    if is_over and (error := query.exception()) is not None:
        raise error
    return is_over
