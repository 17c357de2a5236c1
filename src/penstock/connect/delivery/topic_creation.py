"""Topics that sources write to: they are created as ``topic.creation.*`` of the connector says."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.base.java_text.regex import compile_java
from penstock.config.prefixes import behind_prefix
from penstock.errors import PenstockError, ProductionError
from penstock.log.base import TopicLog
from penstock.log.ensure_topic import ensure_topic

__all__ = ["TopicCreation", "ensure_output_topic"]

_PREFIX, _DEFAULT = "topic.creation.", "default"
_OWN = ("include", "exclude", "partitions", "replication.factor")


def ensure_output_topic(log: TopicLog, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Create the topic that a task writes to, if there is none.

    Raises:
        ProductionError: It is not there and cannot be created.
    """
    try:
        ensure_topic(log, topic, partitions, config)
    except PenstockError as error:
        raise ProductionError(f"the topic {topic!r} cannot be created: {error.message}", hint=error.hint) from error


class TopicCreation:
    """The creation of topics before the first record is written to them.

    Args:
        log: The log.
        config: The connector's config.
        enabled: Whether ``topic.creation.*`` counts (the worker's ``topic.creation.enable``).
    """

    def __init__(self, log: TopicLog, config: Mapping[str, str | None], *, enabled: bool) -> None:
        self._log = log
        self._config = {name: value for name, value in config.items() if name.startswith(_PREFIX) and value is not None}
        self._enabled = enabled
        self._existing: set[str] = set()
        names = (self._config.get(f"{_PREFIX}groups") or "").split(",")
        self._groups = [name.strip() for name in names if name.strip()]

    def ensure(self, topic: str) -> None:
        """Create a topic if there is none.

        Raises:
            ProductionError: It cannot be created.
        """
        if topic in self._existing:
            return
        partitions, settings = self._settings(topic)
        ensure_output_topic(self._log, topic, partitions, settings)
        self._existing.add(topic)

    def _settings(self, topic: str) -> tuple[int, dict[str, str]]:
        if not self._enabled:
            return 1, {}
        group = next((name for name in self._groups if self._includes(name, topic)), _DEFAULT)
        partitions = max(int(self._value(group, "partitions") or 1), 1)
        settings = {**self._topic_settings(_DEFAULT), **self._topic_settings(group)}
        copies = self._value(group, "replication.factor")
        return partitions, settings if copies is None else {**settings, "replication.factor": copies.strip()}

    def _includes(self, group: str, topic: str) -> bool:
        def matches(name: str) -> bool:
            patterns = (self._config.get(f"{_PREFIX}{group}.{name}") or "").split(",")
            return any(compile_java(each.strip()).fullmatch(topic) for each in patterns if each.strip())

        return matches("include") and not matches("exclude")

    def _value(self, group: str, name: str) -> str | None:
        own = self._config.get(f"{_PREFIX}{group}.{name}")
        return own if own is not None else self._config.get(f"{_PREFIX}{_DEFAULT}.{name}")

    def _topic_settings(self, group: str) -> dict[str, str]:
        group_settings = behind_prefix(self._config, f"{_PREFIX}{group}.")
        return {name: value for name, value in group_settings.items() if name not in _OWN}
