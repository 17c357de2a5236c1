"""The connectors of a group of workers, for the web console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.escapes import one_line
from penstock.base.secrets import is_secret, shown
from penstock.connect.client import ConnectClient
from penstock.console.sources import ConnectorState
from penstock.errors import ConfigError, ConnectError

__all__ = ["ConnectorsOfWorker"]

_TRACE_CHARACTERS = 4_000


class ConnectorsOfWorker:
    """`penstock.console.sources.Connectors` over a worker's REST interface.

    Args:
        client: The client of the worker.
    """

    def __init__(self, client: ConnectClient) -> None:
        self._client = client

    @property
    def url(self) -> str:
        """The worker's address."""
        return self._client.url

    def all(self) -> list[ConnectorState]:
        """Return all connectors by name."""
        statuses, experimental = self._client.statuses(), self._client.experimental()
        return [_state(name, statuses[name], experimental) for name in sorted(statuses)]

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector reads or writes."""
        return sorted(self._client.topics(name))

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart a connector with its tasks, or only those that have failed."""
        self._client.restart(name, only_failed=only_failed)

    def pause(self, name: str, *, resume: bool) -> None:
        """Pause a connector, or resume it."""
        (self._client.resume if resume else self._client.pause)(name)

    def configure(self, name: str, config: Mapping[str, str], *, dry_run: bool) -> list[str]:
        """Create a connector, or change its settings; masked ones stay as they are."""
        before = self._client.configs().get(name, {})
        wanted = {key: _setting(key, value, before.get(key)) for key, value in config.items()}
        wanted["name"] = name
        problems = self._client.problems(wanted)
        if problems:
            raise ConnectError("; ".join(problems[:5]), hint="Correct the settings.")
        changes = [
            f"{key}: {shown(key, before.get(key, '-'))} -> {shown(key, wanted.get(key, '-'))}"
            for key in sorted({*before, *wanted})
            if before.get(key) != wanted.get(key)
        ]
        if not dry_run and changes:
            self._client.put_config(name, wanted)
        return changes


def _setting(name: str, text: str, before: str | None) -> str:
    r"""Return the value that a line of a form stands for: what is as it was shown is as it was.

    >>> _setting("query", r"SELECT 1\nFROM t", "SELECT 1\nFROM t"), _setting("url", "ftp://u:***@h", "ftp://u:p@h")
    ('SELECT 1\nFROM t', 'ftp://u:p@h')

    Raises:
        ConfigError: It was changed in part, and the rest is not what it was: stars, or escapes of line ends.
    """
    if before is not None and text == one_line(str(shown(name, before))).strip():
        return before
    if text != before and _is_starred(name, text):
        raise ConfigError(f"{name} has stars where a secret was", hint="Write its whole value, or leave it as it was.")
    if before is not None and one_line(before) != before and "\\" in text:
        raise ConfigError(
            f"{name} has escapes in place of line ends or other characters",
            hint="Write it without them, leave it as it was, or change it with penstock connect apply.",
        )
    return text


def _is_starred(name: str, value: str) -> bool:
    return value == "***" if is_secret(name) else "://" in value and "***" in value


def _state(name: str, connector_status: Any, experimental: frozenset[str]) -> ConnectorState:
    info, status = connector_status.get("info", {}), connector_status.get("status", {})
    own = status.get("connector", {})
    return ConnectorState(
        name,
        str(status.get("type") or info.get("type") or "unknown"),
        str(own.get("state", "UNASSIGNED")),
        str(own.get("worker_id", "")),
        [{**task, "trace": str(task.get("trace", ""))[:_TRACE_CHARACTERS]} for task in status.get("tasks", ())],
        {key: str(shown(key, value)) for key, value in sorted(info.get("config", {}).items())},
        str(own.get("trace", ""))[:_TRACE_CHARACTERS],
        any(each.endswith(_class(info)) for each in experimental) if _class(info) else False,
    )


def _class(info: Any) -> str:
    """Return the end of a class's name by which a config names its connector."""
    return str(info.get("config", {}).get("connector.class") or "")
