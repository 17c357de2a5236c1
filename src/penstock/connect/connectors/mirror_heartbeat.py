"""Heartbeats of the mirror as a connector: Kafka's ``MirrorHeartbeatConnector``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from penstock.connect.api import SourceTask
from penstock.connect.connectors.mirror_base import PACKAGE, ClusterLogs, MirrorConnector
from penstock.connect.data import BYTES, SourceRecord
from penstock.connect.mirror.flows import HEARTBEAT_CONFIG, Flow, connector_flow
from penstock.connect.mirror.offset_syncs import COMPACTED
from penstock.connect.mirror.replication import heartbeat_now
from penstock.log.ensure_topic import ensure_topic

__all__ = ["MirrorHeartbeatConnector", "MirrorHeartbeatTask"]


class MirrorHeartbeatTask(SourceTask):
    """A heartbeat after each ``emit.heartbeats.interval.seconds``."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorHeartbeatTask"

    def start(self, settings: Mapping[str, str]) -> None:
        """Take the config; the first heartbeat comes after one interval."""
        self._flow = connector_flow(settings)
        self._interval_s: int = self._flow.setting("emit.heartbeats.interval.seconds")
        self._due = time.monotonic() + self._interval_s

    def poll(self) -> list[SourceRecord] | None:
        """Return a heartbeat, if one is due."""
        now = time.monotonic()
        if now < self._due:
            return None
        self._due = now + self._interval_s
        heartbeat = heartbeat_now(self._flow)
        return [
            SourceRecord(
                topic=self._flow.policy.heartbeats,
                partition=0,
                key=heartbeat.key(),
                key_schema=BYTES,
                value=heartbeat.value(),
                value_schema=BYTES,
                timestamp=heartbeat.timestamp,
                source_partition=heartbeat.connect_partition(),
                source_offset={"offset": 0},
            )
        ]


class MirrorHeartbeatConnector(MirrorConnector):
    """Heartbeats in the target cluster, which other flows replicate."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorHeartbeatConnector"
    config = HEARTBEAT_CONFIG
    task_class = MirrorHeartbeatTask
    partition_texts = ("sourceClusterAlias", "targetClusterAlias")
    has_partition = False

    def begin(self, flow: Flow, logs: ClusterLogs) -> None:
        """Create the topic of heartbeats."""
        settings = COMPACTED | flow.copies("heartbeats.topic.replication.factor")
        ensure_topic(logs.target, flow.policy.heartbeats, 1, settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:  # noqa: ARG002 - one heart
        """Return the config of the only task; none if heartbeats are switched off."""
        emits = self._flow.setting("enabled") and self._flow.setting("emit.heartbeats.enabled")
        return [dict(self._settings)] if emits else []
