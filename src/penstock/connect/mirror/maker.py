"""All flows of a ``mm2.properties`` in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.connect.mirror.checkpoints import MirrorCheckpoint
from penstock.connect.mirror.flows import Flow, MirrorCluster, read_flows
from penstock.connect.mirror.remote_topics import AclSync
from penstock.connect.mirror.replication import MirrorHeartbeat, MirrorSource
from penstock.errors import LogUnavailableError, PenstockError
from penstock.log.base import TopicLog
from penstock.log.open import open_log

__all__ = ["Mirror"]

Open = Callable[[MirrorCluster], TopicLog]
ALWAYS = 0.0
_LOOK_S = 0.5
_BACKOFF = Backoff(1.0, 30.0)
_log = own_logger(__name__)


class Mirror:
    """Copying between clusters, as MirrorMaker's driver does it.

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
        """Copy until it is stopped, each flow in a thread of its own. A cluster that does not answer is tried again.

        Raises:
            PenstockError: A cluster refuses, which ends all flows.
        """
        errors: list[PenstockError] = []

        def follow(flow: _Running) -> None:
            try:
                flow.follow(stopped)
            except PenstockError as error:
                errors.append(error)
                stopped.set()

        threads = [threading.Thread(target=follow, args=[flow], name=flow.name, daemon=True) for flow in self.flows]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_S)  # in steps: signals are handled between them
        if errors:
            raise errors[0]

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
        self.acls = AclSync(flow, source, target) if enabled and flow.setting("sync.topic.acls.enabled") else None
        self.name = f"{flow.source.alias}->{flow.target.alias}"
        self._due: dict[str, float] = {}

    def follow(self, stopped: threading.Event) -> None:
        """Copy until it is stopped."""
        failures = 0
        while not stopped.is_set():
            try:
                copied = self.round(everything=False)
                if self.source is not None and not copied:
                    self.source.wait(_LOOK_S)
            except LogUnavailableError as error:
                failures += 1
                pause_s = _BACKOFF.pause_s(failures)
                _log.warning("%s continues in %g s: %s", self.name, pause_s, error)
                if self.source is not None:
                    self.source.begin_anew()
                self._due.clear()
                stopped.wait(pause_s)
            else:
                failures = 0
                if self.source is None:
                    stopped.wait(_LOOK_S)

    def round(self, *, everything: bool) -> int:
        copied = 0
        if self.heartbeat is not None and (everything or self._is_due("emit.heartbeats.interval.seconds")):
            self.heartbeat.beat()
        if self.source is not None:
            if self._looks_for("topics", everything=everything):
                self.source.refresh()
            if self.acls is not None and (everything or self._is_due("sync.topic.acls.interval.seconds")):
                self.acls.sync()
            while count := self.source.copy():
                copied += count
                if not everything:
                    break
        if self.checkpoint is not None:
            self._translate_offsets(self.checkpoint, everything=everything)
        return copied

    def _translate_offsets(self, checkpoint: MirrorCheckpoint, *, everything: bool) -> None:
        if self._looks_for("groups", everything=everything):
            checkpoint.refresh()
        if everything or self._is_due("emit.checkpoints.interval.seconds"):
            checkpoint.emit()
        syncs = self.flow.setting("sync.group.offsets.enabled")
        if syncs and (everything or self._is_due("sync.group.offsets.interval.seconds")):
            checkpoint.commit_all()

    def _looks_for(self, what: str, *, everything: bool) -> bool:
        """Return whether to look for new topics or groups now.

        At the start, and then from time to time if that is enabled.
        """
        interval = f"refresh.{what}.interval.seconds"
        if interval in self._due and not self.flow.setting(f"refresh.{what}.enabled"):
            return False
        return self._is_due(interval) or everything

    def _is_due(self, name: str) -> bool:
        now = time.monotonic()
        if now < self._due.get(name, ALWAYS):
            return False
        self._due[name] = now + self.flow.setting(name)
        return True
