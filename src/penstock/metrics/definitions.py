"""The metrics that tasks, nodes and topics have: Kafka's groups, names, levels and units."""

from __future__ import annotations

from penstock.metrics.name import RecordingLevel
from penstock.metrics.shapes import MeterDefinition, MetricDefinition, calls, spread, sums, total

__all__ = [
    "ACTIVE_RATIO",
    "BYTES_CONSUMED",
    "BYTES_PRODUCED",
    "DROPPED",
    "E2E_LATENCY",
    "EMIT_LATENCY",
    "EMITTED_FINALLY",
    "FUNCTION_ERRORS",
    "LATENESS",
    "NODE_PROCESSED",
    "PROCESSED",
    "PROCESS_LATENCY",
    "PUNCTUATED",
    "RECORDS_CONSUMED",
    "RECORDS_PRODUCED",
    "RESTORED_CHANGES",
    "SUPPRESSION_EMITTED",
    "UNCHANGED",
]

_INFO, _DEBUG = RecordingLevel.INFO, RecordingLevel.DEBUG

TASK = "stream-task-metrics"
NODE = "stream-processor-node-metrics"
TOPIC = "stream-topic-metrics"

ACTIVE_RATIO = MeterDefinition(
    TASK,
    _INFO,
    (
        MetricDefinition(
            "active-process-ratio",
            "avg",
            "The mean share of this task in the processing of a batch.",
        ),
    ),
)
PROCESSED = calls(TASK, _DEBUG, "process", "Records that the task has processed")
PROCESS_LATENCY = spread(
    TASK, _DEBUG, "process-latency", "time to process a record in nanoseconds. A batch counts by its mean"
)
DROPPED = calls(
    TASK, _INFO, "dropped-records", "Records that were dropped. They were late, had no key, or a handler skipped them"
)
FUNCTION_ERRORS = sums(
    TASK, _INFO, "function-errors", "Errors that a function or column of SQL has reported. Their results are null"
)
LATENESS = spread(TASK, _DEBUG, "record-lateness", "distance of a record's time from stream time in milliseconds")
PUNCTUATED = MeterDefinition(
    TASK,
    _DEBUG,
    (
        *spread(TASK, _DEBUG, "punctuate-latency", "time of a punctuation in nanoseconds").metrics,
        *calls(TASK, _DEBUG, "punctuate", "Punctuations").metrics,
    ),
)

NODE_PROCESSED = calls(NODE, _DEBUG, "process", "Records that the source node has read")
E2E_LATENCY = spread(
    NODE,
    _INFO,
    "record-e2e-latency",
    "time in milliseconds from a record's timestamp until the node has done its batch. Others see it after the commit",
    "avg min max",
)
SUPPRESSION_EMITTED = sums(NODE, _DEBUG, "suppression-emit", "Records that left the suppression buffer")
EMITTED_FINALLY = sums(NODE, _DEBUG, "window-aggregate-final-emit", "Closed windows that were sent")
EMIT_LATENCY = spread(
    NODE,
    _DEBUG,
    "window-aggregate-final-emit-latency",
    "time in milliseconds of the look for closed windows. There is one a batch",
)
UNCHANGED = calls(
    NODE,
    _DEBUG,
    "idempotent-update-skip",
    "Updates of the table that changed nothing and were left out. None is: all are passed on, as in Kafka Streams",
)
RESTORED_CHANGES = sums(
    TASK,
    _DEBUG,
    "restore",
    "Changes of segments, snapshots or changelogs that were applied to the task's replica, which was behind",
)

RECORDS_CONSUMED = total(TOPIC, _INFO, "records-consumed-total", "Records that the node has read from the topic.")
BYTES_CONSUMED = total(
    TOPIC,
    _INFO,
    "bytes-consumed-total",
    "Bytes of the keys, values and headers that the node has read from the topic, and what Kafka adds to each record.",
)
RECORDS_PRODUCED = total(TOPIC, _INFO, "records-produced-total", "Records that the node has written to the topic.")
BYTES_PRODUCED = total(
    TOPIC,
    _INFO,
    "bytes-produced-total",
    "Bytes of the keys, values and headers that the node has written to the topic, and what Kafka adds to each record.",
)
