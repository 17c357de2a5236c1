"""The metrics of the loop: Kafka's thread, which stands for the micro-batches or for all stream threads."""

from __future__ import annotations

from penstock.metrics.name import RecordingLevel
from penstock.metrics.shapes import MeterDefinition, MetricDefinition, calls, joined, ratio, spread, total

__all__ = [
    "BLOCKED",
    "COMMIT",
    "COMMIT_RATIO",
    "POLL",
    "POLLED",
    "POLL_RATIO",
    "PROCESS_RATIO",
    "PUNCTUATE",
    "PUNCTUATE_RATIO",
    "RESTORED",
    "RESTORE_CALLS",
    "TASK_CLOSED",
    "TASK_CREATED",
    "THREAD_PROCESSED",
    "THREAD_PROCESS_LATENCY",
]

THREAD = "stream-thread-metrics"
UPDATER = "stream-state-updater-metrics"
_INFO = RecordingLevel.INFO
_OF_ONE = "of a micro-batch, or of a second of stream threads"

THREAD_PROCESSED = MeterDefinition(
    THREAD,
    _INFO,
    (
        MetricDefinition("process-rate", "rate of a sum", "Records processed, per second."),
        MetricDefinition("process-total", "sum", "Records processed, since the start."),
        MetricDefinition("process-records-avg", "avg", f"The mean number of records {_OF_ONE}."),
        MetricDefinition("process-records-max", "max", f"The largest number of records {_OF_ONE}."),
    ),
)
THREAD_PROCESS_LATENCY = spread(
    THREAD, _INFO, "process-latency", "time to process a record in milliseconds. A batch counts by its mean"
)
POLLED = spread(
    THREAD, _INFO, "poll-records", "number of records that a micro-batch, or a second of stream threads, has read"
)
COMMIT = joined(
    spread(
        THREAD,
        _INFO,
        "commit-latency",
        "time in milliseconds that the slowest task of a batch published its changes and wrote its outputs",
    ),
    calls(THREAD, _INFO, "commit", "Micro-batches, or looks at stream threads, that committed something"),
)
POLL = joined(
    spread(THREAD, _INFO, "poll-latency", "time in milliseconds that the slowest task of a batch read its input"),
    calls(THREAD, _INFO, "poll", "Micro-batches, or looks at stream threads, that did something"),
)
PUNCTUATE = joined(
    spread(THREAD, _INFO, "punctuate-latency", "time of a punctuation in milliseconds"),
    calls(THREAD, _INFO, "punctuate", "Punctuations"),
)
TASK_CREATED = calls(THREAD, _INFO, "task-created", "Tasks that a worker opened. Each move to another worker counts")
TASK_CLOSED = calls(
    THREAD,
    _INFO,
    "task-closed",
    "Tasks that a worker closed. They had moved to another worker, or had not run for long",
)
BLOCKED = total(
    THREAD,
    _INFO,
    "blocked-time-ns-total",
    "Nanoseconds that tasks read from the log and wrote to it, summed over all tasks.",
)
POLL_RATIO = ratio(THREAD, _INFO, "poll-ratio", "The share of time that the slowest task of each batch read its input.")
PROCESS_RATIO = ratio(
    THREAD, _INFO, "process-ratio", "The share of time that the slowest task of each batch processed."
)
PUNCTUATE_RATIO = ratio(
    THREAD, _INFO, "punctuate-ratio", "The share of time that punctuations took, summed over all tasks."
)
COMMIT_RATIO = ratio(
    THREAD,
    _INFO,
    "commit-ratio",
    "The share of time that the slowest task of each batch published its changes and wrote its outputs.",
)
RESTORE_CALLS = MeterDefinition(
    UPDATER,
    _INFO,
    (
        MetricDefinition(
            "restore-call-rate",
            "rate of calls",
            "Catch-ups of replicas with the segments of the checkpoint or with changelogs, per second.",
        ),
    ),
)
RESTORED = MeterDefinition(
    UPDATER,
    _INFO,
    (
        MetricDefinition(
            "restore-records-rate",
            "rate of a sum",
            "Changes that were applied to replicas which were behind, per second.",
        ),
    ),
)
