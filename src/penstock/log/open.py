"""Opens a topic log by its URL."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from penstock.errors import EnvironmentProblemError, LogError
from penstock.log.base import TopicLog
from penstock.log.database import Database
from penstock.log.embedded import EmbeddedLog
from penstock.log.url import kafka_servers, parse_log_url

__all__ = ["drop_memory_log", "open_embedded", "open_log", "reopen"]

_MEMORY: dict[str, Database] = {}
_LOCK = threading.Lock()


def open_log(url: str, settings: Mapping[str, Any] | None = None) -> TopicLog:
    """Opens a topic log: a Kafka cluster, or an embedded log, whose file is created if there is none.

    Args:
        url: Kafka: ``host:9092[,host2:9092]`` or ``kafka://host:9092``. Embedded: ``sqlite:///relative.db``,
            ``sqlite:////absolute.db``, a plain path, or ``memory://name``: a log that everybody in this process shares
            by its name until ``drop_memory_log`` or the process's end. ``memory://`` without a name is private.
            Settings of an embedded one: ``?synchronous=full|normal|off`` (what a commit waits for; the default ``full``
            survives a power cut), ``compression=lz4|none``.
        settings: Of Kafka's clients, by their Java names: ``security.protocol``, ``sasl.*``, ``ssl.*``, ...

    Raises:
        ConfigError: If the URL is wrong.
        LogError: If the file cannot be opened or is not a log.
        EnvironmentProblemError: If it is Kafka, and the Kafka client is not installed.
    """
    servers = kafka_servers(url)
    if servers is not None:
        return _kafka_log(servers, settings)
    return open_embedded(url)


def _kafka_log(servers: str, settings: Mapping[str, Any] | None) -> TopicLog:
    try:
        from penstock.log.kafka.log import KafkaLog
    except ImportError as error:
        raise EnvironmentProblemError(
            f"the log {servers} is Kafka, but the Kafka client is missing: {error}",
            hint='Install it: pip install "penstock[kafka]".',
        ) from error
    return KafkaLog(servers, settings)


def open_embedded(url: str) -> EmbeddedLog:
    """Opens an embedded log; see `open_log`."""
    place = parse_log_url(url)
    if place.path is not None or not place.name:
        database = Database(place)
        return EmbeddedLog(database, on_close=database.close)
    with _LOCK:
        if place.name not in _MEMORY:
            _MEMORY[place.name] = Database(place)
        return EmbeddedLog(_MEMORY[place.name], on_close=lambda: None)


def reopen(url: str, pid: int) -> EmbeddedLog:
    """How a pickled log comes back; one in memory only in the process that pickled it."""
    if parse_log_url(url).path is None and pid != os.getpid():
        raise LogError(
            f"the log {url} lives in the memory of process {pid}, this is process {os.getpid()}",
            hint="use a file (sqlite:///name.db) when several processes share a log",
        )
    return open_embedded(url)


def drop_memory_log(name: str) -> None:
    """Forgets the log in memory of this name; those who have it open get an InvalidStateError."""
    with _LOCK:
        database = _MEMORY.pop(name, None)
    if database is None:
        raise LogError(f"there is no log in memory of the name {name!r}", hint="see open_log")
    database.close()
