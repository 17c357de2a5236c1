"""Opening a topic log by its URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.base.argument_checks import check_given
from penstock.base.log_lines import hide, own_logger
from penstock.base.secrets import secret_texts
from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.log.base import TopicLog
from penstock.log.embedded.log import open_embedded
from penstock.log.url import kafka_servers

__all__ = ["open_log", "warn_of_plain_text"]

_log = own_logger(__name__)


def open_log(url: str | Path, settings: Mapping[str, Any] | None = None) -> TopicLog:
    """Open a topic log: a Kafka cluster, or an embedded log, whose file is created if there is none.

    Args:
        url: Kafka: ``host:9092[,host2:9092]`` or ``kafka://host:9092``. Embedded: ``sqlite:///relative.db``,
            ``sqlite:////absolute.db``, a path, or ``memory://name``: a log that this process shares by its
            name until ``drop_memory_log`` or the process's end. ``memory://`` without a name is private.
            Settings of an embedded log: ``?synchronous=full|normal|off`` (how durable a commit is; the default
            ``full`` survives a power cut), ``compression=lz4|none``.
        settings: Settings of Kafka's clients, by their Java names: ``security.protocol``, ``sasl.*``, ``ssl.*``, ...

    Raises:
        ConfigError: If the URL is wrong.
        LogError: If the file cannot be opened or is not a log.
        EnvironmentProblemError: If it is Kafka, and the Kafka client is not installed.
    """
    hint = "For example sqlite:///logs.db or localhost:9092."
    check_given(url, (str, Path), "the log's URL", "a text or a path", hint, ConfigError)
    if isinstance(url, Path):
        return open_embedded(str(url))
    hide(secret_texts(settings or {}))
    servers = kafka_servers(url)
    if servers is not None:
        return _kafka_log(servers, settings)
    return open_embedded(url)


def warn_of_plain_text(url: str, settings: Mapping[str, Any] | None = None) -> None:
    """Log a warning if passwords or tokens go to Kafka in plain text; called in the process that users watch."""
    servers = kafka_servers(url)
    if servers is None:
        return
    from penstock.log.kafka.client_settings import ClientSettings

    if ClientSettings.of(servers, settings).exposes_login:
        _log.warning(
            "The password (or token) goes to %s in plain text: anyone who can see the network can read it. "
            "Use a listener with TLS: security.protocol=SASL_SSL.",
            servers,
        )


def _kafka_log(servers: str, settings: Mapping[str, Any] | None) -> TopicLog:
    try:
        from penstock.log.kafka.log import KafkaLog
    except ImportError as error:
        raise EnvironmentProblemError(
            f"the log {servers} is Kafka, but the Kafka client is missing: {error}",
            hint='Install it: pip install "penstock[kafka]".',
        ) from error
    return KafkaLog(servers, settings)
