"""The trigger of Spark's queries: ``commit.interval.ms`` is the time from one batch to the start of the next."""

from __future__ import annotations

from typing import Any

__all__ = ["commit_trigger"]


def commit_trigger(commit_interval_ms: int, *, until_latest: bool) -> dict[str, Any]:
    """Return the arguments of Spark's ``DataStreamWriter.trigger``.

    Args:
        commit_interval_ms: The shortest time between the starts of two batches.
        until_latest: Whether the query ends when all records that are there now have been processed.

    >>> commit_trigger(100, until_latest=False)
    {'processingTime': '100 milliseconds'}
    """
    return {"availableNow": True} if until_latest else {"processingTime": f"{commit_interval_ms} milliseconds"}
