"""The metrics of stores: Kafka's groups, names, levels and units."""

from __future__ import annotations

from penstock.metrics.name import RecordingLevel
from penstock.metrics.shapes import MeterDefinition, MetricDefinition, joined, said, spread, sums

__all__ = ["BYTES_WRITTEN", "CALLS", "COMMIT", "OWN", "RESTORE", "STATE", "SUPPRESSED"]

STATE = "stream-state-metrics"
OWN = "penstock-metrics"  # Penstock's own
_DEBUG = RecordingLevel.DEBUG


def _timed(name: str, what: str) -> MeterDefinition:
    """Define a rate of calls, and their times in nanoseconds.

    Args:
        name: Kafka's name of the call.
        what: What the rate counts, and behind a colon what the time is that of.
    """
    counted, timed = what.split(": ")
    rate = MetricDefinition(f"{name}-rate", "rate of calls", said("{}, per second", counted))
    return joined(
        MeterDefinition(STATE, _DEBUG, (rate,)),
        spread(STATE, _DEBUG, f"{name}-latency", f"time in nanoseconds of {timed}"),
    )


_BY_CALLS = ". A call for many of them counts by its mean"
_OF_ALL = ". It is that of all stores of the task together"


BYTES_WRITTEN = sums(
    STATE, _DEBUG, "bytes-written", "Bytes of the keys and values of the rows of this store that changed"
)
COMMIT = _timed("commit", f"Micro-batches, or commits of stream threads, that changed the store: a commit{_OF_ALL}")
RESTORE = _timed("restore", f"Catch-ups of the task's replica with the checkpoint: a catch-up{_OF_ALL}")
SUPPRESSED = spread(
    STATE, _DEBUG, "suppression-buffer-count", "number of rows in the buffer. It is looked at before each batch"
)
CALLS = {
    "get": _timed("get", f"Keys that were looked up: the look-up of a key{_BY_CALLS}"),
    "put": _timed("put", f"Rows that were written: writing a row{_BY_CALLS}"),
    "delete": _timed("delete", f"Rows that were deleted: deleting a row{_BY_CALLS}"),
    "range": _timed("range", f"Scans between two keys or of a prefix: beginning a scan{_BY_CALLS}"),
    "all": _timed("all", f"Scans of the whole store: beginning a scan{_BY_CALLS}"),
    "remove": _timed("remove", f"Sessions that were removed: removing a session{_BY_CALLS}"),
    "fetch": _timed("fetch", f"Look-ups of windows or sessions by key or range: a look-up{_BY_CALLS}"),
}
