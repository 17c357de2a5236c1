"""The clients of one log in one process; made when first needed."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Mapping
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from penstock.log.kafka.access import Access
from penstock.log.kafka.failures import is_transient
from penstock.log.kafka.settings import ClientSettings
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.kafka.wire.compression import codec_number
from penstock.log.kafka.wire.produce import ProduceLimits

__all__ = ["Clients"]

_log = logging.getLogger(__name__)
_client_log = logging.getLogger(f"{__name__}.librdkafka")
_DEFAULT_PATIENCE_MS = 30_000
_HURRY_S = 3.0
_REQUEST_BYTES = 1_048_588  # Kafka's own default for the largest batch of a topic
_EVERYDAY = (
    "fenced", "old epoch", "Failed to acquire", "Connect to", "Disconnected", "Connection refused", "Receive failed",
    "Send failed", "timed out", "Timed out", "brokers are down", "has been destroyed",
)  # fmt: skip
_TRANSACTION_TIMEOUT_MS = 30_000
_REQUEST_TIMEOUT_MS = 30_000
_BIG_QUEUE = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 262_144}


class Clients:
    """Makes the clients of a log.

    Args:
        servers: ``host:port,...``.
        settings: Kafka's client settings by their Java names.
    """

    def __init__(self, servers: str, settings: Mapping[str, Any]) -> None:
        self.servers = servers
        self.settings = dict(settings)
        self._translated = ClientSettings.of(servers, settings)
        self.hurry = False  # set when the log is about to be closed: nobody waits long for a last word
        self.access = Access(self._translated)
        self._admin: AdminClient | None = None
        self._cluster: Cluster | None = None
        self._lock = threading.Lock()
        self._batch_bytes = 1_000_000
        self.max_request_bytes = int(self._translated.librdkafka("producer").get("message.max.bytes", _REQUEST_BYTES))

    @property
    def patience_s(self) -> float:
        """How long to try again what fails for reasons that may pass."""
        if self.hurry:
            return _HURRY_S
        return int(self.settings.get("task.timeout.ms", _DEFAULT_PATIENCE_MS)) / 1000

    def limit_batches(self, limit_bytes: int) -> None:
        """Producers that are made from now on send batches that a topic of this limit takes."""
        self._batch_bytes = max(1, min(self._batch_bytes, int(0.9 * limit_bytes) - 100))

    def admin(self) -> AdminClient:
        """The one admin client."""
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(self._base("admin"))
            return self._admin

    def cluster(self) -> Cluster:
        """Connections for reading and writing by column."""
        with self._lock:
            if self._cluster is None:
                self._cluster = Cluster(self._translated.kafka_python())
            return self._cluster

    def close(self) -> None:
        """Closes connections; librdkafka's clients close theirs when they are let go."""
        with self._lock:
            cluster, self._cluster, self._admin = self._cluster, None, None
        if cluster is not None:
            cluster.close()

    def limits(self) -> ProduceLimits:
        """Sizes of what producers send that are made from now on."""
        settings = self._translated.jvm("producer")
        return ProduceLimits(
            batch_bytes=min(self._batch_bytes, self.max_request_bytes, int(settings.get("batch.size", 1 << 30))),
            record_bytes=self.max_request_bytes,
            timeout_ms=int(settings.get("request.timeout.ms", _REQUEST_TIMEOUT_MS)),
            codec=codec_number(settings.get("compression.type", "none")),
        )

    @property
    def transaction_timeout_ms(self) -> int:
        """After which the coordinator aborts a transaction that somebody has left open."""
        return int(self._translated.jvm("producer").get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))

    def member(self, own: Mapping[str, Any]) -> Consumer:
        """A consumer for users, which may take part in a group; ``own`` overrides the settings."""
        return Consumer({**self._base("consumer"), "allow.auto.create.topics": False, **own})

    def producer(
        self,
        deliveries: Any,
        transactional_id: str = "",
        *,
        reports_all: bool = False,
        own: Mapping[str, Any] | None = None,
    ) -> Producer:
        """An idempotent producer, a transactional one if it has an id.

        Args:
            deliveries: Called for undelivered records; with ``reports_all`` for the delivered ones too, which is slow.
            transactional_id: Its id.
            reports_all: See ``deliveries``.
            own: More by librdkafka's names, which the settings override.
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
        return Producer(merged)

    def _base(self, kind: Literal["admin", "consumer", "producer"]) -> dict[str, Any]:
        return {
            "reconnect.backoff.max.ms": 1_000,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "error_cb": functools.partial(_note, self.access),
            "logger": _client_log,
            **self._translated.librdkafka(kind),
        }


def _calm(record: logging.LogRecord) -> bool:
    """What librdkafka calls errors, being fenced or a broker that is away, is told by whoever cannot go on."""
    text = record.getMessage()
    if any(each in text for each in _EVERYDAY):
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return record.levelno >= _client_log.getEffectiveLevel()


_client_log.addFilter(_calm)


def _note(access: Access, error: KafkaError) -> None:
    """Librdkafka's own troubles; it goes on by itself unless they are fatal, and then calls fail too."""
    known = access.note(error) or is_transient(error)
    _log.log(logging.DEBUG if known else logging.WARNING, "Kafka client: %s", error.str())
