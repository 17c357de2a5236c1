"""The metrics of an application's clients: the consumer's, the producer's and the admin client's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.version import __version__
from penstock.metrics.definitions import (
    CONSUMED,
    FED,
    POLLS,
    PRODUCED,
    RECORDS_A_FETCH,
    RECORDS_A_REQUEST,
    Feed,
)
from penstock.metrics.metric import MetricName

if TYPE_CHECKING:
    from penstock.metrics.batch_records import BatchRecord
    from penstock.metrics.metric import MeterDefinition, MetricValue
    from penstock.metrics.registry import Meter, MetricRegistry
    from penstock.metrics.task_counts import TaskCounts

__all__ = ["ClientMetrics"]

_GROUPS = {"consumer": "consumer-metrics", "producer": "producer-metrics", "admin": "admin-client-metrics"}
_COORDINATOR, _CONSUMER = "consumer-coordinator-metrics", "consumer-metrics"
# Of a client that talks to brokers these are true zeros until something happens.
_ZEROS = {
    "consumer": ("connections-closed",),
    "producer": ("connections-closed", "retried-records", "failed-records"),
    "admin": ("connections-closed",),
}
_OPEN = "Connections that this client has used and that are open, of all workers; threads share them."


class ClientMetrics:
    """The metrics of the clients in a registry, and their counts.

    A client that talks to no broker, as with an embedded log, has no metrics of requests and connections.

    Args:
        registry: The application's metrics.
        thread_id: The ``thread-id`` of the loop, which the names of consumer and producer begin with.
        clock: The wall clock, in milliseconds.
        partitions: Returns the number of source partitions.

    Attributes:
        restarts: How often the application has been started again after the loss of a process.
    """

    def __init__(
        self, registry: MetricRegistry, thread_id: str, clock: Callable[[], int], partitions: Callable[[], int]
    ) -> None:
        self._registry, self._clock = registry, clock
        self._ids = {
            "consumer": f"{thread_id}-consumer",
            "producer": f"{thread_id}-producer",
            "admin": f"{thread_id.rpartition('-StreamThread-')[0]}-admin",
        }
        self._meters: dict[tuple[MeterDefinition, str], Meter | None] = {}
        self._open: dict[str, int] = {}
        self._latest: dict[str, float] = {}  # by name of the gauge
        self._began_ms: float | None = None
        self._busy_ms = 0.0
        self._requests = (0, 0)  # fetches and produce requests of the newest counts
        self.restarts = 0
        started = clock()
        for client in self._ids:
            self._gauge("commit-id", "app-info", client, "The commit that this was built from.", lambda: "unknown")
            self._gauge(
                "start-time-ms",
                "app-info",
                client,
                "When the application object was made, in milliseconds since 1970.",
                lambda: started,
            )
            self._gauge("version", "app-info", client, "The version of Penstock.", lambda: __version__)
        words = "Partitions of source topics that the application reads."
        self._gauge("assigned-partitions", _COORDINATOR, "consumer", words, partitions)
        for what in ("heartbeat-ms", "rebalance-ms", "failed-rebalances"):
            self._register(FED["consumer", what], "consumer")

    def record(self, counts: Iterable[Sequence[Any]]) -> None:
        """Add what clients have counted (`penstock.log.client_counts`)."""
        fetches = requests = 0
        for client, what, topic, number, total, low, high in counts:
            if what == "restarts":
                self.restarts += number
            elif what == "metadata-at-ms":
                self._note(
                    "metadata-age",
                    "producer-metrics",
                    client,
                    "Seconds since the leaders of partitions were looked up.",
                    high,
                )
            fetches += number if what in ("fetch-ms", "range-reads") else 0
            requests += number if what == "produce-ms" else 0
            self._note_times(client, what)
            if what == "authentications":
                self._register(FED[client, "failed-authentications"], client)
            if what in ("connections-made", "connections-closed"):
                self._count_connections(client, number if what == "connections-made" else -number)
            for feed in FED.get((client, what), ()):
                meter = self._meter(feed, client, topic)
                if meter is not None:
                    meter.record_many(total * feed.unit, number, low * feed.unit, high * feed.unit)
        self._requests = (fetches, requests)

    def record_tasks(self, counts: Iterable[TaskCounts]) -> None:
        """Add the records that tasks have read and written, after `record` has counted their requests."""
        read = written = 0
        for one in counts:
            for (_, topic), values in one.consumed.items():
                self._add(CONSUMED, "consumer", topic, (*values, *values))
                read += values[0]
            for (_, topic), (records, _size) in one.produced.items():
                self._add(PRODUCED, "producer", topic, (records, records))
                if "producer" in self._open:
                    for what in _ZEROS["producer"]:
                        self._register(FED["producer", what], "producer", topic)
                written += records
        pairs = ((RECORDS_A_FETCH, "consumer", read), (RECORDS_A_REQUEST, "producer", written))
        for (definition, client, records), asked in zip(pairs, self._requests, strict=True):
            if asked:
                mean = records / asked
                if (meter := self._meter(Feed(definition), client)) is not None:
                    meter.record_many(records, asked, mean, mean)

    def record_batch(self, batch: BatchRecord) -> None:
        """Add the start of a batch, and the time since the one before."""
        began = batch.ended_ms - 1000 * batch.seconds
        words = "Seconds since the start of the newest micro-batch, or look at stream threads, that did something."
        self._note("last-poll-seconds-ago", _CONSUMER, "consumer", words, began)
        if self._began_ms is not None and began > self._began_ms:
            between, idle = (self._meter(Feed(each), "consumer") for each in POLLS)
            if between is not None and idle is not None:
                between.record(began - self._began_ms)
                idle.record(max(0.0, 1 - self._busy_ms / (began - self._began_ms)))
        self._began_ms, self._busy_ms = began, 1000 * batch.seconds

    def _note_times(self, client: str, what: str) -> None:
        if what == "heartbeat-ms":
            words = "Seconds since the newest renewal of the application's lease."
            self._note("last-heartbeat-seconds-ago", _COORDINATOR, client, words, self._clock())
        elif what == "rebalance-ms":
            words = "Seconds since the newest new plan or restart of the application."
            self._note("last-rebalance-seconds-ago", _COORDINATOR, client, words, self._clock())

    def _count_connections(self, client: str, change: int) -> None:
        if client not in self._open:
            self._open[client] = 0
            for what in _ZEROS[client]:
                self._register(FED[client, what], client)
            self._gauge("connection-count", _GROUPS[client], client, _OPEN, lambda: self._open[client])
        self._open[client] = max(0, self._open[client] + change)

    def _add(self, feeds: Sequence[Feed], client: str, topic: str, values: Sequence[float]) -> None:
        for feed, value in zip(feeds, values, strict=True):
            if (meter := self._meter(feed, client, topic)) is not None:
                meter.record(value)

    def _register(self, feeds: Sequence[Feed], client: str, topic: str = "") -> None:
        for feed in feeds:
            if topic or not feed.by_topic:
                self._meter(feed, client, topic)

    def _meter(self, feed: Feed, client: str, topic: str = "") -> Meter | None:
        at = (feed.meter, topic if feed.by_topic else client)
        if at not in self._meters:
            tags = {"client-id": self._ids[client], **({"topic": topic} if feed.by_topic else {})}
            self._meters[at] = self._registry.meter(feed.meter, tags)
        return self._meters[at]

    def _note(self, name: str, group: str, client: str, words: str, at_ms: float) -> None:
        """Note a time whose age a metric shows in seconds."""
        if name not in self._latest:
            self._gauge(name, group, client, words, lambda: (self._clock() - self._latest[name]) / 1000)
        self._latest[name] = at_ms

    def _gauge(self, name: str, group: str, client: str, words: str, read: Callable[[], MetricValue]) -> None:
        self._registry.gauge(MetricName.of(name, group, {"client-id": self._ids[client]}, words), read)
