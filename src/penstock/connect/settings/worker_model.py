"""Kafka Connect's workers: their settings that Penstock's workers do not have."""

from __future__ import annotations

from penstock.connect.config import Model, Refused

__all__ = ["WORKER_MODEL"]

_HTTPS = "Set ssl.certificate.file, ssl.key.file and ssl.ca.file: files of PEM."
_KEYS = "Requests between workers are signed with HmacSHA256."
_METRICS = "the metrics of a worker are at /penstock/metrics, for Prometheus."
_MEMBERS = "a worker's share of the tasks follows the configs at once."

WORKER_MODEL = Model(
    "Kafka Connect's workers",
    refused={
        "rest.extension.classes": "Set penstock.users.file for users with passwords; other extensions do not run here.",
        "listeners.https.": _HTTPS,
        "admin.listeners.": _HTTPS,
        "ssl.client.auth": Refused("Clients are known by penstock.users.file.", unless=("none",)),
        "inter.worker.key.generation.algorithm": Refused(_KEYS, unless=("HmacSHA256",)),
        "inter.worker.signature.algorithm": Refused(_KEYS, unless=("HmacSHA256",)),
        "inter.worker.verification.algorithms": Refused(_KEYS, unless=("HmacSHA256",)),
        "internal.key.converter": "The internal topics hold JSON, as Kafka Connect has it since 2.0.",
        "internal.value.converter": "The internal topics hold JSON, as Kafka Connect has it since 2.0.",
    },
    idle={
        "auto.include.jmx.reporter": _METRICS,
        "metric.reporters": _METRICS,
        "metrics.": _METRICS,
        "connect.protocol": "tasks move one by one, and requests between workers are signed.",
        "inter.worker.key.size": "keys have the size of their algorithm.",
        "plugin.discovery": "plugins are Python's: plugin.path and installed packages.",
        "worker.sync.timeout.ms": _MEMBERS,
        "worker.unsync.backoff.ms": _MEMBERS,
        "rebalance.timeout.ms": _MEMBERS,
        "scheduled.rebalance.max.delay.ms": "others take the tasks of a worker when its session has ended: see "
        "session.timeout.ms.",
        "offset.flush.timeout.ms": "offsets are written with the records, in one transaction.",
        "rest.advertised.listener": "workers know each other by the scheme of listeners.",
        "receive.buffer.bytes": "the system chooses the sizes of its buffers.",
        "send.buffer.bytes": "the system chooses the sizes of its buffers.",
        "socket.connection.setup.timeout.max.ms": "a connection is tried again until the log answers.",
    },
)
