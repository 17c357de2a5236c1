"""Where a log is: the URL that users write, taken apart."""

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
_FORMS = "use sqlite:///relative.db, sqlite:////absolute.db, a plain path, or memory://name"


@dataclass(frozen=True, slots=True)
class LogUrl:
    """An embedded log's place.

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
    """The servers of a Kafka cluster's URL, as ``bootstrap.servers`` has them; None if it is no Kafka URL.

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
        return ",".join(servers)
    if separator:
        raise ConfigError(f"{url!r} names no Kafka servers", hint="For example kafka://localhost:9092.")
    return None


def parse_log_url(url: str) -> LogUrl:
    """Takes a log's URL apart.

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
