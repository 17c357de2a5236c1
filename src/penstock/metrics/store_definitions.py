"""The metrics of stores: Kafka's groups, names, levels and units."""

from __future__ import annotations

from penstock.metrics.name import RecordingLevel
from penstock.metrics.shapes import MeterDefinition, MetricDefinition, joined, spread, sums

__all__ = ["BYTES_WRITTEN", "CALLS", "COMMIT", "OWN", "RESTORE", "STATE", "SUPPRESSED"]

STATE = "stream-state-metrics"
OWN = "penstock-metrics"  # Penstock's own
_DEBUG = RecordingLevel.DEBUG


def _timed(name: str, what: str) -> MeterDefinition:
    """Define a rate of calls, and their times in nanoseconds."""
    rate = MetricDefinition(f"{name}-rate", "rate of calls", f"{what} a second.")
    return joined(
        MeterDefinition(STATE, _DEBUG, (rate,)),
        spread(STATE, _DEBUG, f"{name}-latency", "time of one of them in nanoseconds, as the mean of a call of many"),
    )


BYTES_WRITTEN = sums(STATE, _DEBUG, "bytes-written", "Bytes of changed rows, keys and values")
COMMIT = _timed("commit", "Batches or commits that changed the store; the time is that of all stores of the task")
RESTORE = _timed("restore", "Catch-ups of the task's replica with the checkpoint; the time is that of all its stores")
SUPPRESSED = spread(STATE, _DEBUG, "suppression-buffer-count", "number of rows in the buffer before a batch")
CALLS = {
    "get": _timed("get", "Keys that were looked up"),
    "put": _timed("put", "Rows that were written"),
    "delete": _timed("delete", "Rows that were deleted"),
    "range": _timed("range", "Scans between two keys, and of a prefix"),
    "all": _timed("all", "Scans of the whole store"),
    "fetch": _timed("fetch", "Look-ups of windows or sessions, by key or by range"),
}
