"""Opening of an application's log by its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.log.open import open_log, warn_of_plain_text

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog

__all__ = ["log_settings", "open_app_log"]


def open_app_log(config: StreamsConfig) -> TopicLog:
    """Open the log that ``bootstrap.servers`` names.

    Raises:
        ConfigError: It is a log in memory, which other processes cannot open.
    """
    config.require("application.id", "bootstrap.servers")
    url = str(config["bootstrap.servers"])
    if url.startswith("memory:"):
        raise ConfigError(
            f"bootstrap.servers is {url!r}, in the memory of this process, but Spark's workers are other processes",
            hint='Use a file, "sqlite:///penstock.db"; for tests without Spark there is TopologyTestDriver.',
        )
    warn_of_plain_text(url, log_settings(config))
    return open_log(url, log_settings(config))


def log_settings(config: StreamsConfig) -> dict[str, Any]:
    """Select the settings that a log may use: texts and numbers."""
    settings = {name: value for name, value in config.given.items() if isinstance(value, str | int | float)}
    return {"task.timeout.ms": config["task.timeout.ms"], **settings}
