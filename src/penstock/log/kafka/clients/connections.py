"""The clients of one log in one process, made on first use."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.base.log_lines import own_logger
from penstock.config import CONFIG_DEFS
from penstock.errors import ConfigError
from penstock.log.client_interfaces import ProducerOptions
from penstock.log.kafka.client_settings import REQUEST_TIMEOUT_MS, ClientSettings, TransactionTimeouts
from penstock.log.kafka.clients.fetcher import FetchLimits
from penstock.log.kafka.failures import is_transient
from penstock.log.kafka.refused_access import ClusterAccess
from penstock.log.kafka.wire.batch_format import codec_number
from penstock.log.kafka.wire.batch_reader import MOST_UNPACKED_BYTES
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.kafka.wire.fetch import DataWaiter, FetchSizes
from penstock.log.kafka.wire.produce import ProduceLimits

__all__ = ["Clients"]

_N = TypeVar("_N", int, float)

_log = own_logger(__name__)
_client_log = own_logger(f"{__name__}.librdkafka")
_UNPACKED = "penstock.kafka.max.unpacked.bytes"
_DEFAULT_PATIENCE_MS = 30_000
_HURRY_S = 3.0
_REQUEST_BYTES = 1_048_588  # Kafka's own default for the largest batch of a topic
_EVERYDAY = (
    "fenced", "old epoch", "Failed to acquire", "Failed to resolve", "Connect to", "Disconnected", "Connection refused",
    "Receive failed", "Send failed", "timed out", "Timed out", "brokers are down", "has been destroyed",
)  # fmt: skip
_TRANSACTION_TIMEOUT_MS = 30_000
_THREADS_TRANSACTION_TIMEOUT_MS = 10_000  # the default of Kafka Streams: their transactions are short
_FETCH_BYTES, _FETCH_WAIT_MS = 50 << 20, 500  # Kafka's defaults
_PARTITION_FETCH_BYTES = 8 << 20  # Kafka: 1 MB; a thread that is behind processes by column, and the more the better
_BIG_QUEUE = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 262_144}


class Clients:
    """The factory of a log's clients.

    Args:
        servers: ``host:port,...``.
        settings: Kafka's client settings by their Java names.
    """

    def __init__(self, servers: str, settings: Mapping[str, Any]) -> None:
        self.servers = servers
        self.settings = dict(settings)
        self._translated = ClientSettings.of(servers, settings)
        self.hurry = False  # set while the log is closed, and leases are released: such requests may not take long
        self.access = ClusterAccess(self._translated)
        self._admin: AdminClient | None = None
        self._cluster: Cluster | None = None
        self._waiter: DataWaiter | None = None
        self._lock = threading.Lock()
        self._batch_bytes = 1_000_000
        self.timeouts, self.thread_timeouts = (
            TransactionTimeouts(_number(self._translated.jvm("producer"), "transaction.timeout.ms", default_ms))
            for default_ms in (_TRANSACTION_TIMEOUT_MS, _THREADS_TRANSACTION_TIMEOUT_MS)
        )
        self.max_request_bytes = _number(self._translated.librdkafka("producer"), "message.max.bytes", _REQUEST_BYTES)

    @property
    def patience_s(self) -> float:
        """The time in seconds for retries after temporary failures."""
        if self.hurry:
            return _HURRY_S
        return int(self.settings.get("task.timeout.ms", _DEFAULT_PATIENCE_MS)) / 1000

    def limit_batches(self, limit_bytes: int) -> None:
        """Limit the batches of producers made from now on to what a topic with this limit accepts."""
        self._batch_bytes = max(1, min(self._batch_bytes, int(0.9 * limit_bytes) - 100))

    def admin(self) -> AdminClient:
        """Return the admin client."""
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(self._base("admin"))
            return self._admin

    def cluster(self) -> Cluster:
        """Return the connections for reading and writing by column."""
        with self._lock:
            if self._cluster is None:
                self._cluster = self.own_cluster()
            return self._cluster

    def fetch_limits(self) -> FetchLimits:
        """Return the limits of fetches of stream threads."""
        settings = self._translated.jvm("consumer")
        sizes = FetchSizes(
            _number(settings, "fetch.max.bytes", _FETCH_BYTES),
            _number(settings, "max.partition.fetch.bytes", _PARTITION_FETCH_BYTES),
        )
        return FetchLimits(sizes, _number(settings, "fetch.max.wait.ms", _FETCH_WAIT_MS) / 1000)

    def own_cluster(self) -> Cluster:
        """Make connections of one's own, to be closed by their owner."""
        most_bytes = CONFIG_DEFS[_UNPACKED].kind.read(self.settings.get(_UNPACKED, MOST_UNPACKED_BYTES))
        return Cluster(self._translated.kafka_python(), most_bytes)

    def waiter(self) -> DataWaiter:
        """Return the waiter for new records."""
        with self._lock:
            if self._waiter is None:
                self._waiter = DataWaiter(Cluster(self._translated.kafka_python()))
            return self._waiter

    def close(self) -> None:
        """Close connections; librdkafka's clients close theirs when they are garbage-collected."""
        with self._lock:
            held = (self._cluster, self._waiter)
            self._cluster, self._waiter, self._admin = None, None, None
        for each in held:
            if each is not None:
                each.close()

    def limits(self) -> ProduceLimits:
        """Return the size limits of producers made from now on."""
        settings = self._translated.jvm("producer")
        return ProduceLimits(
            batch_bytes=min(self._batch_bytes, self.max_request_bytes, _number(settings, "batch.size", 1 << 30)),
            record_bytes=self.max_request_bytes,
            timeout_ms=_number(settings, "request.timeout.ms", REQUEST_TIMEOUT_MS),
            codec=codec_number(settings.get("compression.type", "none")),
        )

    def tuning(self, options: ProducerOptions) -> tuple[float, int, float]:
        """Return how long a record may wait for others, the bytes of a batch, and the time for retries, in seconds."""
        settings = self._translated.jvm("producer")
        linger_ms = _number(settings, "linger.ms", options.linger_ms, float)
        patience_s = min(self.patience_s, _number(settings, "delivery.timeout.ms", 1 << 31) / 1000)
        return linger_ms / 1000, _number(settings, "batch.size", options.batch_bytes), patience_s

    def only_of_librdkafka(self) -> tuple[str, ...]:
        """List the settings of a producer that only librdkafka's obeys."""
        return self._translated.only_of_librdkafka()

    def member(self, own: Mapping[str, Any]) -> Consumer:
        """Make a consumer for users, which may join a group; ``own`` overrides the settings."""
        return Consumer({**self._base("consumer"), "allow.auto.create.topics": False, **own})

    def producer(
        self,
        deliveries: Any,
        transactional_id: str = "",
        *,
        reports_all: bool = False,
        own: Mapping[str, Any] | None = None,
    ) -> Producer:
        """Make an idempotent producer, a transactional one if it has an id.

        Args:
            deliveries: Called for undelivered records; with ``reports_all`` for the delivered ones too, which is slow.
            transactional_id: Its id.
            reports_all: See `producer`.
            own: More settings by librdkafka's names, which the log's settings override.
        """
        merged: dict[str, Any] = {
            "linger.ms": 20,
            "batch.size": self._batch_bytes,
            "message.max.bytes": _REQUEST_BYTES,
            "batch.num.messages": 100_000,
            **_BIG_QUEUE,
            **(own or {}),
            **self._base("producer"),
            "enable.idempotence": True,
            "acks": "all",
            "on_delivery": deliveries,
            "delivery.report.only.error": not reports_all,
        }
        if transactional_id:
            merged.setdefault("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)
            merged["transactional.id"] = transactional_id
        else:
            merged.pop("transaction.timeout.ms", None)
        try:
            return Producer(merged)
        except KafkaException as error:  # a setting that it does not take
            raise ConfigError(
                f"Kafka's C client refuses the settings of a producer: {error.args[0].str()}",
                hint="See producer.* and the settings of Kafka's clients.",
            ) from error

    def _base(self, kind: Literal["admin", "consumer", "producer"]) -> dict[str, Any]:
        # A producer has request.timeout.ms itself; socket.timeout.ms would limit its transactions as well.
        own = {} if kind == "producer" else {"socket.timeout.ms": REQUEST_TIMEOUT_MS}
        translated = self._translated.librdkafka(kind)
        if (token := translated.get("oauth_cb")) is not None:
            token("")  # librdkafka would wait ten seconds for the first one, and not say why there is none
        return {
            "reconnect.backoff.max.ms": 1_000,
            **own,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "error_cb": functools.partial(_note, self.access),
            "logger": _client_log,
            **translated,
        }


def _number(settings: Mapping[str, Any], name: str, default: float, read: Callable[[Any], _N] = int) -> _N:
    """Return a setting that is a number; librdkafka's name of the largest request is not the one that users know."""
    value, shown = settings.get(name, default), "max.request.size" if name == "message.max.bytes" else name
    try:
        return read(value)
    except ValueError:
        kind = "whole number" if read is int else "number"
        raise ConfigError(
            f"{shown}={value!r} is not a {kind}", hint=f"Give a {kind}, such as {default:g}.", setting=shown
        ) from None


def _calm(record: logging.LogRecord) -> bool:
    """Lower librdkafka's reports of fencing and absent brokers to DEBUG; a failing call raises an error anyway."""
    text = record.getMessage()
    if any(each in text for each in _EVERYDAY):
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return record.levelno >= _client_log.getEffectiveLevel()


_client_log.addFilter(_calm)


def _note(access: ClusterAccess, error: KafkaError) -> None:
    """Log an error of librdkafka's own; it recovers unless the error is fatal, and then calls fail too."""
    is_expected = access.note(error) or is_transient(error)
    _log.log(logging.DEBUG if is_expected else logging.WARNING, "Kafka client: %s", error.str())
