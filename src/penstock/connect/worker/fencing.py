"""Fencing of sources' tasks: before tasks with new configs start, no earlier run can commit anything any more.

A task fences the earlier runs of its own number when it starts. That is not enough when the configs change: a partition
of the source may go from one number to another, or a number may have no successor, while the earlier run is on a worker
that hangs and comes back later. So the leader fences all earlier numbers once nobody runs them any more, and only then
do the new ones start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping

from penstock.connect.plugins import PluginKind
from penstock.connect.settings import WorkerConfig, config_providers
from penstock.connect.storage.config_store import ConfigState
from penstock.connect.tasks.parts import plugins_of, transactional_id
from penstock.log import Producer
from penstock.log.base import TopicLog

__all__ = ["Fencing", "Mark", "Marks"]

Mark = tuple[str, int]
"""A digest of the configs of a connector's tasks, and their number."""

Marks = dict[str, Mark]


class Fencing:
    """The fencing of tasks of sources that deliver exactly once.

    Args:
        config: The worker's settings.
        log: The log.
    """

    def __init__(self, config: WorkerConfig, log: TopicLog) -> None:
        self._config = config
        self._log = log
        self._plugins = plugins_of(tuple(config["plugin.path"]))
        self._providers = config_providers(config.given)
        self._by_connector: dict[str, tuple[tuple[int, int], Mark | None]] = {}

    def mark(self, state: ConfigState, name: str) -> Mark | None:
        """Return what identifies the present configs of a connector's tasks; None: they need no fencing."""
        version = state.revisions.get(name, 0), state.versions.get(name, 0)
        versioned_mark = self._by_connector.get(name)
        if versioned_mark is None or versioned_mark[0] != version:
            versioned_mark = self._by_connector[name] = version, self._made(state, name)
        return versioned_mark[1]

    def fence(self, state: ConfigState, fenced: Mapping[str, Mark], busy: Collection[str]) -> Marks:
        """Fence the earlier runs of all connectors whose tasks have changed, and that nobody runs any more.

        Args:
            state: The configs.
            fenced: What was fenced for last, by connector.
            busy: The connectors of which tasks run or still stop.

        Returns:
            What is fenced for now.

        Raises:
            LogError: The log cannot be used.
        """
        marks = dict(fenced)
        for name in fenced.keys() | state.connectors.keys():
            mark = self.mark(state, name) if name in state.connectors else None
            before = fenced.get(name)
            if mark == before or name in busy:
                continue
            count = state.fencing.get(name, 0) if before is None else before[1]
            for number in range(count):
                Producer(self._log, transactional_id=transactional_id(self._config, (name, number))).close()
            if mark is None:
                marks.pop(name, None)
            else:
                marks[name] = mark
        return marks

    def _made(self, state: ConfigState, name: str) -> Mark | None:
        if self._config["delivery.guarantee"] != "exactly_once":
            return None
        chosen = self._providers.resolve(state.connectors.get(name, {})).get("connector.class") or ""
        try:
            kinds = self._plugins.connector(chosen).kinds
        except LookupError:
            return None
        if PluginKind.SOURCE not in kinds:
            return None
        configs = state.task_configs(name)
        return hashlib.sha256(json.dumps(configs, sort_keys=True).encode()).hexdigest()[:16], len(configs)
