"""All flows of a ``mm2.properties`` in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

from penstock.connect.mirror.checkpoints import MirrorCheckpoint
from penstock.connect.mirror.flows import Cluster, Flow, read_flows
from penstock.connect.mirror.replication import MirrorHeartbeat, MirrorSource
from penstock.log.base import TopicLog
from penstock.log.open import open_log

__all__ = ["Mirror"]

Open = Callable[[Cluster], TopicLog]
ALWAYS = 0.0


class Mirror:
    """Copies between clusters as MirrorMaker's driver does.

    Args:
        properties: What ``mm2.properties`` holds.
        open_cluster: Opens the log of a cluster; by default by its ``bootstrap.servers``.

    Raises:
        SettingError: A setting is wrong.

    Example:
        >>> logs = {"a": open_log("memory://"), "b": open_log("memory://")}
        >>> properties = {"clusters": "a,b", "a.bootstrap.servers": "-", "b.bootstrap.servers": "-"}
        >>> with Mirror({**properties, "a->b.enabled": "true"}, lambda cluster: logs[cluster.alias]) as mirror:
        ...     logs["a"].create_topic("orders")
        ...     _ = mirror.run_once()
        ...     [info.name for info in logs["b"].topics() if info.name.endswith("orders")]
        ['a.orders']
    """

    def __init__(self, properties: Mapping[str, str], open_cluster: Open | None = None) -> None:
        opener = open_cluster or (lambda cluster: open_log(cluster.servers, cluster.settings or None))
        flows = read_flows(properties)
        self._logs: dict[str, TopicLog] = {}
        for cluster in {flow.source.alias: flow.source for flow in flows}.values():
            self._logs[cluster.alias] = opener(cluster)
        self.flows = [_Running(flow, self._logs) for flow in flows]

    def run_once(self) -> int:
        """Copy all that is there now, with heartbeats and checkpoints; returns the number of records."""
        copied = 0
        for flow in self.flows:
            copied += flow.round(everything=True)
        return copied

    def run(self, stopped: threading.Event) -> None:
        """Copy until it is stopped.

        Raises:
            LogError: A cluster refuses.
        """
        while not stopped.is_set():
            if not sum(flow.round(everything=False) for flow in self.flows):
                stopped.wait(0.1)

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs.values():
            log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Running:
    """One flow and what is due in it."""

    def __init__(self, flow: Flow, logs: Mapping[str, TopicLog]) -> None:
        self.flow = flow
        source, target = logs[flow.source.alias], logs[flow.target.alias]
        enabled = flow.setting("enabled")
        self.source = MirrorSource(flow, source, target) if enabled else None
        self.heartbeat = MirrorHeartbeat(flow, target) if flow.setting("emit.heartbeats.enabled") else None
        self.checkpoint = None
        if self.source is not None and flow.setting("emit.checkpoints.enabled"):
            self.checkpoint = MirrorCheckpoint(flow, source, target)
        self._due: dict[str, float] = {}

    def round(self, *, everything: bool) -> int:
        copied = 0
        if self.heartbeat is not None and (everything or self._is_due("emit.heartbeats.interval.seconds")):
            self.heartbeat.beat()
        if self.source is not None:
            if everything or self._is_due("refresh.topics.interval.seconds"):
                self.source.refresh()
            while count := self.source.copy():
                copied += count
                if not everything:
                    break
        if self.checkpoint is not None and (everything or self._is_due("emit.checkpoints.interval.seconds")):
            self.checkpoint.emit()
        return copied

    def _is_due(self, name: str) -> bool:
        now = time.monotonic()
        if now < self._due.get(name, ALWAYS):
            return False
        self._due[name] = now + self.flow.setting(name)
        return True
