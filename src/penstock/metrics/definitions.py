"""The metrics of tasks, nodes, topics, stores, threads and clients: Kafka's groups, names, levels and units."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.metrics.metric import (
    MeterDefinition,
    MetricDefinition,
    RecordingLevel,
    calls,
    joined,
    ratio,
    said,
    spread,
    sums,
    total,
)

__all__ = [
    "ACTIVE_RATIO",
    "BLOCKED",
    "BYTES_CONSUMED",
    "BYTES_PRODUCED",
    "BYTES_WRITTEN",
    "CALLS",
    "COMMIT",
    "COMMIT_RATIO",
    "CONSUMED",
    "DROPPED",
    "E2E_LATENCY",
    "EMITTED_FINALLY",
    "EMIT_LATENCY",
    "FED",
    "FUNCTION_ERRORS",
    "LATENESS",
    "NODE_PROCESSED",
    "OWN",
    "POLL",
    "POLLED",
    "POLLS",
    "POLL_RATIO",
    "PROCESSED",
    "PROCESS_LATENCY",
    "PROCESS_RATIO",
    "PRODUCED",
    "PUNCTUATE",
    "PUNCTUATED",
    "PUNCTUATE_RATIO",
    "RECORDS_A_FETCH",
    "RECORDS_A_REQUEST",
    "RECORDS_CONSUMED",
    "RECORDS_PRODUCED",
    "RESTORE",
    "RESTORED",
    "RESTORED_CHANGES",
    "RESTORE_CALLS",
    "STATE",
    "STORE_COMMIT",
    "SUPPRESSED",
    "SUPPRESSION_EMITTED",
    "TASK_CLOSED",
    "TASK_CREATED",
    "THREAD_PROCESSED",
    "THREAD_PROCESS_LATENCY",
    "UNCHANGED",
    "Feed",
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


STATE = "stream-state-metrics"
OWN = "penstock-metrics"  # Penstock's own


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
STORE_COMMIT = _timed(
    "commit", f"Micro-batches, or commits of stream threads, that changed the store: a commit{_OF_ALL}"
)
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


THREAD = "stream-thread-metrics"
UPDATER = "stream-state-updater-metrics"
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


_FETCHES, _COORDINATOR, _CONSUMER = "consumer-fetch-manager-metrics", "consumer-coordinator-metrics", "consumer-metrics"
_PRODUCER, _PRODUCED_TOPIC = "producer-metrics", "producer-topic-metrics"
_NETWORK = {"consumer": _CONSUMER, "producer": _PRODUCER, "admin": "admin-client-metrics"}
_SHARED = ". Threads share connections between reading and writing"


@dataclass(frozen=True, slots=True)
class Feed:
    """The metrics that one kind of counted value feeds.

    Attributes:
        meter: The metrics.
        unit: What a value is multiplied by.
        by_topic: Whether each topic has metrics of its own.
    """

    meter: MeterDefinition
    unit: float = 1.0
    by_topic: bool = False


def _meter(group: str, *metrics: tuple[str, str, str]) -> MeterDefinition:
    return MeterDefinition(group, _INFO, tuple(MetricDefinition(*each) for each in metrics))


def _pair(group: str, name: str, what: str) -> MeterDefinition:
    """Define the rate and the total of values."""
    return sums(group, _INFO, name, what)


def _edges(group: str, name: str, what: str) -> MeterDefinition:
    """Define the mean and the largest value."""
    return spread(group, _INFO, name, what)


def _calls(group: str, name: str, what: str) -> MeterDefinition:
    """Define the rate and the total of calls."""
    return calls(group, _INFO, name, what)


def _network(client: str) -> dict[tuple[str, str], tuple[Feed, ...]]:
    group = _NETWORK[client]
    both = _calls(group, "network-io", "Requests and answers of all workers")
    requests = joined(
        _calls(group, "request", "Requests of all workers"),
        _edges(group, "request-size", "number of bytes of a request"),
        _pair(group, "outgoing-byte", "Bytes of the requests of all workers"),
    )
    answers = joined(
        _calls(group, "response", "Answers to all workers"),
        _pair(group, "incoming-byte", "Bytes of the answers to all workers"),
    )
    opened = _pair(group, "connection-creation", f"Connections that this client came to use, of all workers{_SHARED}")
    closed = _pair(group, "connection-close", f"Connections that were closed after this client used them{_SHARED}")
    let_in = _pair(group, "successful-authentication", "Connections of this client that the broker has let in")
    refused = _pair(group, "failed-authentication", "Connections that the broker has refused, of any client")
    return {
        (client, "request-bytes"): (Feed(requests), Feed(both)),
        (client, "answer-bytes"): (Feed(answers), Feed(both)),
        (client, "connections-made"): (Feed(opened),),
        (client, "connections-closed"): (Feed(closed),),
        (client, "authentications"): (Feed(let_in),),
        (client, "failed-authentications"): (Feed(refused),),
    }


_NS_OF_MS = 1e6
_THROTTLED = "time in milliseconds by which the broker has throttled an answer"
_OFFSETS = "of the group's offsets by the driver"
_FETCH = joined(
    _calls(_FETCHES, "fetch", "Fetch requests of all workers"),
    _edges(
        _FETCHES,
        "fetch-latency",
        "time in milliseconds from a fetch to its answer. As it is sent ahead, the answer waits behind decoding",
    ),
)
_RANGE_READS = _calls(_FETCHES, "fetch", "Reads of ranges of the embedded log, of all workers")
_COMMITS = joined(
    _calls(_COORDINATOR, "commit", f"Commits {_OFFSETS}. They are for tools: positions are in the checkpoint"),
    _edges(_COORDINATOR, "commit-latency", f"time in milliseconds of a commit {_OFFSETS}"),
)
_LEASE = "the application's lease"
_HEARTBEATS = joined(
    _calls(_COORDINATOR, "heartbeat", f"Renewals of {_LEASE}. There is one every five seconds"),
    spread(_COORDINATOR, _INFO, "heartbeat-response-time", f"time in milliseconds of a renewal of {_LEASE}", "max"),
)
_REBALANCES = joined(
    _meter(
        _COORDINATOR,
        ("rebalance-rate-per-hour", "calls an hour", "New plans and restarts, per hour. See rebalance-total."),
        (
            "rebalance-total",
            "count",
            "New plans, as topics or executors changed, and restarts after a lost process, since the start.",
        ),
        ("rebalance-latency-total", "sum", "The milliseconds of all new plans and restarts."),
    ),
    _edges(_COORDINATOR, "rebalance-latency", "time in milliseconds of a new plan or a restart"),
)
_FAILED_REBALANCES = _meter(
    _COORDINATOR,
    ("failed-rebalance-rate-per-hour", "calls an hour", "New plans and restarts that ended in an error, per hour."),
    ("failed-rebalance-total", "count", "New plans and restarts that ended in an error, since the start."),
)
_RETRIED = "Records of produce requests that were sent again"
_REFUSED = "Records that the log refused and that were left out. The production handler said so"
_COMPRESSION = "The compressed size of record batches over their size before."


def _ns_total(group: str, name: str, what: str) -> tuple[Feed, ...]:
    return (Feed(_meter(group, (name, "sum", f"The nanoseconds of {what}.")), _NS_OF_MS),)


FED: dict[tuple[str, str], tuple[Feed, ...]] = {
    **_network("consumer"),
    **_network("producer"),
    **_network("admin"),
    ("consumer", "fetch-ms"): (Feed(_FETCH),),
    ("consumer", "range-reads"): (Feed(_RANGE_READS),),
    ("consumer", "fetch-bytes"): (Feed(_edges(_FETCHES, "fetch-size", "number of bytes of an answer to a fetch")),),
    ("consumer", "throttle-ms"): (Feed(_edges(_FETCHES, "fetch-throttle-time", _THROTTLED)),),
    ("consumer", "commit-ms"): (
        Feed(_COMMITS),
        *_ns_total(_CONSUMER, "commit-sync-time-ns-total", "the driver's commits of the group's offsets"),
    ),
    ("consumer", "committed-ms"): _ns_total(
        _CONSUMER, "committed-time-ns-total", "look-ups of the group's committed offsets"
    ),
    ("consumer", "heartbeat-ms"): (Feed(_HEARTBEATS),),
    ("consumer", "rebalance-ms"): (Feed(_REBALANCES),),
    ("consumer", "failed-rebalances"): (Feed(_FAILED_REBALANCES),),
    ("producer", "batch-bytes"): (
        Feed(_edges(_PRODUCER, "batch-size", "size of a record batch in bytes")),
        Feed(_pair(_PRODUCED_TOPIC, "byte", "Bytes of record batches"), by_topic=True),
    ),
    ("producer", "compression"): (
        Feed(_meter(_PRODUCER, ("compression-rate-avg", "avg", _COMPRESSION))),
        Feed(_meter(_PRODUCED_TOPIC, ("compression-rate", "avg", _COMPRESSION)), by_topic=True),
    ),
    ("producer", "record-bytes"): (Feed(_edges(_PRODUCER, "record-size", "bytes of a record's key and value")),),
    ("producer", "produce-ms"): (
        Feed(_edges(_PRODUCER, "request-latency", "time in milliseconds from a produce request to its answer")),
    ),
    ("producer", "throttle-ms"): (Feed(_edges(_PRODUCER, "produce-throttle-time", _THROTTLED)),),
    ("producer", "retried-records"): (
        Feed(_pair(_PRODUCER, "record-retry", _RETRIED)),
        Feed(_pair(_PRODUCED_TOPIC, "record-retry", _RETRIED), by_topic=True),
    ),
    ("producer", "failed-records"): (
        Feed(_pair(_PRODUCER, "record-error", _REFUSED)),
        Feed(_pair(_PRODUCED_TOPIC, "record-error", _REFUSED), by_topic=True),
    ),
    ("producer", "commit-txn-ms"): _ns_total(_PRODUCER, "txn-commit-time-ns-total", "commits of transactions"),
    ("producer", "abort-txn-ms"): _ns_total(_PRODUCER, "txn-abort-time-ns-total", "aborts of transactions"),
    ("producer", "init-txn-ms"): _ns_total(_PRODUCER, "txn-init-time-ns-total", "requests for producer ids"),
}

CONSUMED = tuple(
    Feed(meter, by_topic=by_topic)
    for by_topic in (False, True)
    for meter in (
        _pair(_FETCHES, "records-consumed", "Records that source nodes have read"),
        _pair(_FETCHES, "bytes-consumed", "Bytes that source nodes have read"),
    )
)
PRODUCED = (
    Feed(_pair(_PRODUCER, "record-send", "Records that sink nodes have written")),
    Feed(_pair(_PRODUCED_TOPIC, "record-send", "Records that sink nodes have written"), by_topic=True),
)
RECORDS_A_FETCH = _meter(_FETCHES, ("records-per-request-avg", "avg", "Records that were read for each fetch request."))
RECORDS_A_REQUEST = _meter(_PRODUCER, ("records-per-request-avg", "avg", "Records for each produce request."))
POLLS = (
    _edges(
        _CONSUMER,
        "time-between-poll",
        "time in milliseconds between the starts of two micro-batches, or of two looks at stream threads",
    ),
    _meter(
        _CONSUMER, ("poll-idle-ratio-avg", "avg", "The share of time between two micro-batches, when nothing runs.")
    ),
)
