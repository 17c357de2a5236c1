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

THREAD_PROCESSED = MeterDefinition(
    THREAD,
    _INFO,
    (
        MetricDefinition("process-rate", "rate of a sum", "Records processed a second."),
        MetricDefinition("process-total", "sum", "Records processed since the start."),
        MetricDefinition("process-records-avg", "avg", "The mean number of records of an iteration."),
        MetricDefinition("process-records-max", "max", "The largest number of records of an iteration."),
    ),
)
THREAD_PROCESS_LATENCY = spread(
    THREAD, _INFO, "process-latency", "time to process a record, in milliseconds; of batches, by their means"
)
POLLED = spread(THREAD, _INFO, "poll-records", "number of records of a micro-batch, or of a second of stream threads")
COMMIT = MeterDefinition(
    THREAD,
    _INFO,
    (
        *spread(THREAD, _INFO, "commit-latency", "time of a commit, in milliseconds").metrics,
        *calls(THREAD, _INFO, "commit", "Commits").metrics,
    ),
)
POLL = joined(
    spread(THREAD, _INFO, "poll-latency", "time that the slowest task read its input, in milliseconds"),
    calls(THREAD, _INFO, "poll", "Micro-batches that did something, or looks at stream threads that did"),
)
PUNCTUATE = joined(
    spread(THREAD, _INFO, "punctuate-latency", "time of a punctuation, in milliseconds"),
    calls(THREAD, _INFO, "punctuate", "Punctuations"),
)
TASK_CREATED = calls(THREAD, _INFO, "task-created", "Tasks that a worker opened which did not hold them (moves)")
TASK_CLOSED = calls(THREAD, _INFO, "task-closed", "Tasks that a worker closed: they ran elsewhere, or not for long")
BLOCKED = total(THREAD, _INFO, "blocked-time-ns-total", "Nanoseconds that tasks waited for the log, in sum.")
POLL_RATIO = ratio(THREAD, _INFO, "poll-ratio", "The share of time that the slowest task of each batch spent reading.")
PROCESS_RATIO = ratio(
    THREAD, _INFO, "process-ratio", "The share of time that the slowest task of each batch spent processing."
)
PUNCTUATE_RATIO = ratio(THREAD, _INFO, "punctuate-ratio", "The share of time that punctuations took, of all tasks.")
COMMIT_RATIO = ratio(
    THREAD, _INFO, "commit-ratio", "The share of time that the slowest task of each batch spent publishing and writing."
)
RESTORE_CALLS = MeterDefinition(
    UPDATER,
    _INFO,
    (
        MetricDefinition(
            "restore-call-rate", "rate of calls", "Catch-ups of replicas a second, with segments or changelogs."
        ),
    ),
)
RESTORED = MeterDefinition(
    UPDATER,
    _INFO,
    (MetricDefinition("restore-records-rate", "rate of a sum", "Changes a second that were applied to replicas."),),
)
