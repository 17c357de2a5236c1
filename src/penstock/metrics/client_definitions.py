"""The metrics of Kafka's clients: what is counted of each client, and the metrics that are computed from it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.metrics.name import RecordingLevel
from penstock.metrics.shapes import MeterDefinition, MetricDefinition

__all__ = ["CONSUMED", "FED", "POLLS", "PRODUCED", "RECORDS_A_FETCH", "RECORDS_A_REQUEST", "Feed"]

_INFO = RecordingLevel.INFO
_FETCHES, _COORDINATOR, _CONSUMER = "consumer-fetch-manager-metrics", "consumer-coordinator-metrics", "consumer-metrics"
_PRODUCER, _PRODUCED_TOPIC = "producer-metrics", "producer-topic-metrics"
_NETWORK = {"consumer": _CONSUMER, "producer": _PRODUCER, "admin": "admin-client-metrics"}
_SHARED = "; threads share connections between reading and writing"


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
    rate, total = (f"{name}-rate", "rate of a sum", f"{what} a second."), (f"{name}-total", "sum", f"{what}.")
    return _meter(group, rate, total)


def _edges(group: str, name: str, what: str) -> MeterDefinition:
    """Define the mean and the largest value."""
    return _meter(group, (f"{name}-avg", "avg", f"The mean {what}."), (f"{name}-max", "max", f"The largest {what}."))


def _network(client: str) -> dict[tuple[str, str], tuple[Feed, ...]]:
    group = _NETWORK[client]
    both = _meter(
        group,
        ("network-io-rate", "rate of calls", "Requests and answers a second, of all workers."),
        ("network-io-total", "count", "Requests and answers, of all workers."),
    )
    requests = _meter(
        group,
        ("request-rate", "rate of calls", "Requests a second, of all workers."),
        ("request-total", "count", "Requests, of all workers."),
        ("request-size-avg", "avg", "The mean size of a request in bytes."),
        ("request-size-max", "max", "The size of the largest request in bytes."),
        ("outgoing-byte-rate", "rate of a sum", "Bytes of requests a second, of all workers."),
        ("outgoing-byte-total", "sum", "Bytes of requests, of all workers."),
    )
    answers = _meter(
        group,
        ("response-rate", "rate of calls", "Answers a second, of all workers."),
        ("response-total", "count", "Answers, of all workers."),
        ("incoming-byte-rate", "rate of a sum", "Bytes of answers a second, of all workers."),
        ("incoming-byte-total", "sum", "Bytes of answers, of all workers."),
    )
    made = _pair(group, "connection-creation", f"Connections that this client came to use, of all workers{_SHARED}")
    closed = _pair(group, "connection-close", f"Connections that were closed after this client used them{_SHARED}")
    let_in = _pair(group, "successful-authentication", "Connections of this client that the broker has let in")
    refused = _pair(group, "failed-authentication", "Connections that the broker has refused, of any client")
    return {
        (client, "request-bytes"): (Feed(requests), Feed(both)),
        (client, "answer-bytes"): (Feed(answers), Feed(both)),
        (client, "connections-made"): (Feed(made),),
        (client, "connections-closed"): (Feed(closed),),
        (client, "authentications"): (Feed(let_in),),
        (client, "failed-authentications"): (Feed(refused),),
    }


_NS_OF_MS = 1e6
_THROTTLED = "time in milliseconds by which the broker has throttled an answer"
_FETCH = _meter(
    _FETCHES,
    ("fetch-rate", "rate of calls", "Fetch requests a second, of all workers."),
    ("fetch-total", "count", "Fetch requests, of all workers."),
    ("fetch-latency-avg", "avg", "Milliseconds from a fetch to its answer, which waits behind decoding."),
    ("fetch-latency-max", "max", "The longest time from a fetch to its answer, which waits behind decoding."),
)
_RANGE_READS = _meter(
    _FETCHES,
    ("fetch-rate", "rate of calls", "Reads of ranges of the embedded log a second, of all workers."),
    ("fetch-total", "count", "Reads of ranges of the embedded log, of all workers."),
)
_COMMITS = _meter(
    _COORDINATOR,
    ("commit-rate", "rate of calls", "Commits of the group's offsets a second by the driver, for lag tools."),
    ("commit-total", "count", "Commits of the group's offsets by the driver, for lag tools."),
    ("commit-latency-avg", "avg", "The mean time of such a commit in milliseconds."),
    ("commit-latency-max", "max", "The longest time of such a commit in milliseconds."),
)
_HEARTBEATS = _meter(
    _COORDINATOR,
    ("heartbeat-rate", "rate of calls", "Renewals of the application's lease a second."),
    ("heartbeat-total", "count", "Renewals of the application's lease, every five seconds."),
    ("heartbeat-response-time-max", "max", "The longest renewal of the lease in milliseconds."),
)
_REBALANCES = _meter(
    _COORDINATOR,
    ("rebalance-rate-per-hour", "calls an hour", "Plans made anew, and restarts after a lost process, an hour."),
    ("rebalance-total", "count", "Plans made anew, as topics or executors changed, and restarts after a lost process."),
    ("rebalance-latency-avg", "avg", "The mean time of them in milliseconds."),
    ("rebalance-latency-max", "max", "The longest of them in milliseconds."),
    ("rebalance-latency-total", "sum", "The milliseconds of all of them."),
)
_FAILED_REBALANCES = _meter(
    _COORDINATOR,
    ("failed-rebalance-rate-per-hour", "calls an hour", "Plans made anew, and restarts, that failed, an hour."),
    ("failed-rebalance-total", "count", "Plans made anew, and restarts, that ended in an error."),
)
_RETRIED = "Records of requests that were sent again"
_REFUSED = "Records that were left out, as the log refused them and the production handler said continue"
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
    _edges(_CONSUMER, "time-between-poll", "time in milliseconds between the starts of micro-batches, or looks"),
    _meter(_CONSUMER, ("poll-idle-ratio-avg", "avg", "The share of time between micro-batches, when nothing runs.")),
)
