"""URLs of logs and their parts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from penstock.errors import ConfigError

__all__ = ["LogUrl", "kafka_servers", "parse_log_url"]

_SETTINGS: dict[str, tuple[str, ...]] = {
    "synchronous": ("full", "normal", "off"),
    "compression": ("lz4", "none"),
}
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):\d{1,5}")
_BARE_HOST = re.compile(r"localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\]")
_FORMS = "use sqlite:///relative.db, sqlite:////absolute.db, a plain path, or memory://name"


@dataclass(frozen=True, slots=True)
class LogUrl:
    """The parts of an embedded log's URL.

    Attributes:
        url: The canonical form; paths are absolute, so that it means the same in every process.
        path: The file; None for a log in memory.
        name: The name of a log in memory.
        settings: Settings of the URL's query.
    """

    url: str
    path: Path | None = None
    name: str = ""
    settings: dict[str, str] = field(default_factory=dict)


def kafka_servers(url: str) -> str | None:
    """Return the servers of a Kafka cluster's URL in the form of ``bootstrap.servers``; None if it is not a Kafka URL.

    Example:
        >>> kafka_servers("localhost:9092"), kafka_servers("kafka://a:9092,b:9092"), kafka_servers("logs.db")
        ('localhost:9092', 'a:9092,b:9092', None)
    """
    text = str(url)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "kafka":
        return None
    servers = [each.strip() for each in (rest if separator else text).split(",")]
    if all(_SERVER.fullmatch(each) for each in servers):
        for each in servers:
            port = int(each.rpartition(":")[2])
            if not 1 <= port <= 65_535:
                raise ConfigError(
                    f"bootstrap.servers: {each!r} has the port {port}",
                    hint="Ports go from 1 to 65535; Kafka's is 9092.",
                )
        return ",".join(servers)
    if not separator and _BARE_HOST.fullmatch(text):
        raise ConfigError(
            f"bootstrap.servers: {text!r} is a host without a port",
            hint=f"Give the port, {text}:9092, or ./{text} if you mean a file of that name.",
        )
    if separator:
        raise ConfigError(f"{url!r} names no Kafka servers", hint="For example kafka://localhost:9092.")
    return None


def parse_log_url(url: str) -> LogUrl:
    """Parse the URL of an embedded log.

    Example:
        >>> parse_log_url("memory://orders").name
        'orders'

    Raises:
        ConfigError: If it is not the URL of an embedded log.
    """
    text, _, query = str(url).partition("?")
    settings = _settings(url, query)
    suffix = "?" + "&".join(f"{key}={value}" for key, value in sorted(settings.items())) if settings else ""
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "memory":
        return LogUrl(url=f"memory://{rest}{suffix}", name=rest, settings=settings)
    if separator and scheme == "sqlite":
        if not rest.startswith("/"):
            raise ConfigError(f"{url!r} names a host: {rest.partition('/')[0]!r}", hint=_FORMS)
        path = Path(unquote(rest[1:]))
    elif separator:
        raise ConfigError(f"{url!r} is not the URL of an embedded log: scheme {scheme!r}", hint=_FORMS)
    else:
        path = Path(text)
    if not path.name:
        raise ConfigError(f"{url!r} names no file", hint=_FORMS)
    path = path.expanduser().absolute()
    return LogUrl(url=f"sqlite:///{path}{suffix}", path=path, settings=settings)


def _settings(url: str, query: str) -> dict[str, str]:
    settings = dict(parse_qsl(query, keep_blank_values=True))
    for key, value in settings.items():
        if key not in _SETTINGS:
            raise ConfigError(f"{url!r}: unknown setting {key!r}", hint=f"settings are {', '.join(_SETTINGS)}")
        if value not in _SETTINGS[key]:
            raise ConfigError(f"{url!r}: {key}={value!r}", hint=f"one of {', '.join(_SETTINGS[key])}")
    return settings
