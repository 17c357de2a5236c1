"""Checkpoints of the mirror as a connector: Kafka's ``MirrorCheckpointConnector``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from penstock.base.clock import unix_ms
from penstock.connect.config import ConfigValue
from penstock.connect.connectors.mirror_base import PACKAGE, ClusterLogs, MirrorConnector, MirrorTask, report_error
from penstock.connect.connectors.mirror_source import INDEX
from penstock.connect.data import BYTES, SourceRecord
from penstock.connect.mirror.checkpoints import MirrorCheckpoint, mirrored_groups
from penstock.connect.mirror.flows import CHECKPOINT_CONFIG, Flow
from penstock.connect.mirror.offset_syncs import COMPACTED
from penstock.connect.mirror.records import Checkpoint
from penstock.log.ensure_topic import ensure_topic

__all__ = ["MirrorCheckpointConnector", "MirrorCheckpointTask"]

GROUPS = "task.assigned.groups"
_EMIT, _SYNC = "emit.checkpoints.interval.seconds", "sync.group.offsets.interval.seconds"


class MirrorCheckpointTask(MirrorTask):
    """The checkpoints of some groups, translated as `MirrorCheckpoint` does it."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorCheckpointTask"

    def begin(self, flow: Flow, logs: ClusterLogs, settings: Mapping[str, str]) -> None:
        """Read what was written before."""
        self._groups = [group for group in settings.get(GROUPS, "").split(",") if group]
        self._flow, self._checkpoints = flow, MirrorCheckpoint(flow, logs.source, logs.target)
        now = time.monotonic()
        self._due = {name: now + flow.setting(name) for name in (_EMIT, _SYNC)}

    def poll(self) -> list[SourceRecord] | None:
        """Return the checkpoints that have moved, if the interval is over.

        Commits the groups' offsets in the target too.
        """
        if self._flow.setting("sync.group.offsets.enabled") and self._is_due(_SYNC):
            self._checkpoints.commit(self._groups)
        if not self._is_due(_EMIT):
            return None
        now = unix_ms()
        return [self._record(mark, now) for mark in self._checkpoints.moved(self._groups)]

    def _is_due(self, name: str) -> bool:
        now = time.monotonic()
        if now < self._due[name]:
            return False
        self._due[name] = now + self._flow.setting(name)
        return True

    def _record(self, mark: Checkpoint, timestamp: int) -> SourceRecord:
        return SourceRecord(
            topic=self._checkpoints.topic,
            partition=0,
            key=mark.key(),
            key_schema=BYTES,
            value=mark.value(),
            value_schema=BYTES,
            timestamp=timestamp,
            source_partition=mark.connect_partition(),
            source_offset={"offset": 0},
        )


class MirrorCheckpointConnector(MirrorConnector):
    """The offsets of groups, translated so that a group that goes over to the target misses no record."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorCheckpointConnector"
    config = CHECKPOINT_CONFIG
    task_class = MirrorCheckpointTask
    partition_texts = ("group", "topic")
    _groups: tuple[str, ...] = ()

    def validate(self, settings: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Validate a config: without offset syncs there is nothing to translate by."""
        values = super().validate(settings)
        if settings.get("enabled") == "false":
            return values
        emits, syncs = "emit.checkpoints.enabled", "emit.offset-syncs.enabled"
        if settings.get(emits) == "false":
            report_error(values, emits, f"MirrorCheckpointConnector can't run with {emits} set to false")
        if settings.get(syncs) == "false":
            report_error(values, syncs, "MirrorCheckpointConnector can't run without offset syncs")
        return values

    def begin(self, flow: Flow, logs: ClusterLogs) -> None:
        """Create the topic of checkpoints, and find the groups."""
        settings = COMPACTED | flow.copies("checkpoints.topic.replication.factor")
        ensure_topic(logs.target, flow.policy.checkpoints_topic(flow.source.alias), 1, settings)

        def look() -> bool:
            before, self._groups = self._groups, tuple(mirrored_groups(flow, logs.source))
            return before != self._groups

        look()
        if flow.setting("refresh.groups.enabled"):
            self.watch(look, flow.setting("refresh.groups.interval.seconds"))

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the groups, dealt out to the tasks; no task without groups."""
        groups = self._groups
        shares = [groups[number::max_tasks] for number in range(min(max_tasks, len(groups)))]
        return [{**self._settings, GROUPS: ",".join(share), INDEX: str(number)} for number, share in enumerate(shares)]
