"""The metrics of Kafka's clients: what is counted of each client, and the metrics that are computed from it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.metrics.name import RecordingLevel
from penstock.metrics.shapes import MeterDefinition, MetricDefinition, calls, joined, spread, sums

__all__ = ["CONSUMED", "FED", "POLLS", "PRODUCED", "RECORDS_A_FETCH", "RECORDS_A_REQUEST", "Feed"]

_INFO = RecordingLevel.INFO
_FETCHES, _COORDINATOR, _CONSUMER = "consumer-fetch-manager-metrics", "consumer-coordinator-metrics", "consumer-metrics"
_PRODUCER, _PRODUCED_TOPIC = "producer-metrics", "producer-topic-metrics"
_NETWORK = {"consumer": _CONSUMER, "producer": _PRODUCER, "admin": "admin-client-metrics"}
_SHARED = ". Threads share connections between reading and writing"


@dataclass(frozen=True, slots=True)
class Feed:
    """What one kind of counted value feeds.

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
