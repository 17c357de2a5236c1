"""The metrics that tasks, nodes and topics have: Kafka's groups, names, levels and units."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.metrics.name import RecordingLevel

__all__ = [
    "BYTES_CONSUMED",
    "BYTES_PRODUCED",
    "COMMIT",
    "DROPPED",
    "E2E_LATENCY",
    "EMITTED_FINALLY",
    "FUNCTION_ERRORS",
    "LATENESS",
    "NODE_PROCESSED",
    "POLLED",
    "PROCESS_LATENCY",
    "PROCESSED",
    "PUNCTUATED",
    "RECORDS_CONSUMED",
    "RECORDS_PRODUCED",
    "STATS",
    "SUPPRESSION_EMITTED",
    "THREAD_PROCESSED",
    "THREAD_PROCESS_LATENCY",
    "MeterDefinition",
    "MetricDefinition",
]

STATS = ("sum", "count", "rate of a sum", "rate of calls", "avg", "min", "max")
_INFO, _DEBUG = RecordingLevel.INFO, RecordingLevel.DEBUG

STREAMS = "stream-metrics"
THREAD = "stream-thread-metrics"
TASK = "stream-task-metrics"
NODE = "stream-processor-node-metrics"
TOPIC = "stream-topic-metrics"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric of a meter.

    Attributes:
        name: Its name.
        stat: How it is computed from the recorded values: one of STATS.
        description: Its meaning, in a sentence.
    """

    name: str
    stat: str
    description: str


@dataclass(frozen=True, slots=True)
class MeterDefinition:
    """A measured quantity and its metrics.

    Attributes:
        group: The group of the metrics.
        level: The recording level from which on they exist.
        metrics: The metrics.
    """

    group: str
    level: RecordingLevel
    metrics: tuple[MetricDefinition, ...]


def _calls(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a rate and a total of calls."""
    metrics = (
        MetricDefinition(f"{name}-rate", "rate of calls", f"{what} a second."),
        MetricDefinition(f"{name}-total", "count", f"{what} since the start."),
    )
    return MeterDefinition(group, level, metrics)


def _sums(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a rate and a total of values."""
    metrics = (
        MetricDefinition(f"{name}-rate", "rate of a sum", f"{what} a second."),
        MetricDefinition(f"{name}-total", "sum", f"{what} since the start."),
    )
    return MeterDefinition(group, level, metrics)


def _spread(group: str, level: RecordingLevel, name: str, what: str, stats: str = "avg max") -> MeterDefinition:
    """Define a mean and extremes."""
    words = {"avg": "mean", "min": "smallest", "max": "largest"}
    metrics = tuple(MetricDefinition(f"{name}-{s}", s, f"The {words[s]} {what}.") for s in stats.split())
    return MeterDefinition(group, level, metrics)


def _total(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    return MeterDefinition(group, level, (MetricDefinition(name, "sum", what),))


PROCESSED = _calls(TASK, _DEBUG, "process", "Records that the task has processed")
PROCESS_LATENCY = _spread(
    TASK, _DEBUG, "process-latency", "time to process a record, in nanoseconds; of batches, by their means"
)
DROPPED = _calls(TASK, _INFO, "dropped-records", "Records that were dropped (late, without key, skipped by a handler)")
FUNCTION_ERRORS = _sums(
    TASK, _INFO, "function-errors", "Errors that a function or column of SQL has reported, whose results are null"
)
LATENESS = _spread(TASK, _DEBUG, "record-lateness", "distance of a record's time from stream time, in milliseconds")
PUNCTUATED = MeterDefinition(
    TASK,
    _DEBUG,
    (
        *_spread(TASK, _DEBUG, "punctuate-latency", "time of a punctuation, in nanoseconds").metrics,
        *_calls(TASK, _DEBUG, "punctuate", "Punctuations").metrics,
    ),
)

NODE_PROCESSED = _calls(NODE, _DEBUG, "process", "Records that the source node has read")
E2E_LATENCY = _spread(
    NODE,
    _INFO,
    "record-e2e-latency",
    "time from a record's timestamp to its end in the node, in milliseconds; others see results only after the commit",
    "avg min max",
)
SUPPRESSION_EMITTED = _sums(NODE, _DEBUG, "suppression-emit", "Records that left the suppression buffer")
EMITTED_FINALLY = _sums(NODE, _DEBUG, "window-aggregate-final-emit", "Closed windows that were sent")

RECORDS_CONSUMED = _total(TOPIC, _INFO, "records-consumed-total", "Records that the node has read from the topic.")
BYTES_CONSUMED = _total(
    TOPIC, _INFO, "bytes-consumed-total", "Bytes that the node has read from the topic, with what Kafka adds to each."
)
RECORDS_PRODUCED = _total(TOPIC, _INFO, "records-produced-total", "Records that the node has written to the topic.")
BYTES_PRODUCED = _total(
    TOPIC, _INFO, "bytes-produced-total", "Bytes that the node has written to the topic, with what Kafka adds to each."
)

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
THREAD_PROCESS_LATENCY = _spread(
    THREAD, _INFO, "process-latency", "time to process a record, in milliseconds; of batches, by their means"
)
POLLED = _spread(THREAD, _INFO, "poll-records", "number of records of a micro-batch, or of a second of stream threads")
COMMIT = MeterDefinition(
    THREAD,
    _INFO,
    (
        *_spread(THREAD, _INFO, "commit-latency", "time of a commit, in milliseconds").metrics,
        *_calls(THREAD, _INFO, "commit", "Commits").metrics,
    ),
)
