"""The mirror's connectors under Kafka's names: ``MirrorSourceConnector`` and those of checkpoints and heartbeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigValue, Model, java_class, validate
from penstock.connect.data import BYTES, OPTIONAL_BYTES, RetriableError, SourceRecord
from penstock.connect.data.records import Header, Headers
from penstock.connect.delivery.source_encoding import CopiedBatch, Copy
from penstock.connect.mirror.checkpoints import MirrorCheckpoint, mirrored_groups
from penstock.connect.mirror.flows import (
    CHECKPOINT_CONFIG,
    HEARTBEAT_CONFIG,
    SOURCE_CONFIG,
    Flow,
    MirrorCluster,
    connector_flow,
)
from penstock.connect.mirror.mirror_records import Checkpoint
from penstock.connect.mirror.offset_syncs import COMPACTED, SyncWriter
from penstock.connect.mirror.remote_topics import AclSync, RemoteTopics
from penstock.connect.mirror.replication import MirrorReader, SourcePiece, as_columns, heartbeat_now, source_partition
from penstock.connect.plugins.registry import KAFKA_VERSION
from penstock.errors import ConnectError, LogUnavailableError, PenstockError
from penstock.log import Delivery, open_log
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.stored_batches import BatchLog

__all__ = ["MirrorCheckpointConnector", "MirrorHeartbeatConnector", "MirrorSourceConnector"]

PACKAGE = "org.apache.kafka.connect.mirror"
CLIENTS = ("security.", "sasl.", "ssl.")
_LEAST_S = 0.1
_STOP_S = 10.0
_log = own_logger(__name__)


_CLUSTERS = "write it with the prefixes source.cluster. and target.cluster.: each cluster has its own."
_TIMES = "the timeouts of the clients are used."
_METRICS = "the metrics of a worker are at /penstock/metrics, for Prometheus."
MIRROR_MODEL = Model(
    "Kafka's MirrorMaker",
    idle={
        "consumer.poll.timeout.ms": _TIMES,
        "admin.timeout.ms": _TIMES,
        "forwarding.admin.class": "topics are created by the connector itself.",
        "metric.": _METRICS,
        "sync.topic.configs.interval.seconds": "settings are copied whenever topics are checked: "
        "refresh.topics.interval.seconds.",
        "security.": _CLUSTERS,
        "ssl.": _CLUSTERS,
        "sasl.": _CLUSTERS,
    },
    own=tuple(f"{side}.cluster.{part}" for side in ("source", "target") for part in ("bootstrap.", *CLIENTS)),
)


class ClusterLogs:
    """The logs of both clusters of a flow.

    Attributes:
        source: The source's log.
        target: The target's log; the same if both are one cluster.
    """

    def __init__(self, flow: Flow) -> None:
        self.source = _open(flow.source)
        try:
            self.target = self.source if _place(flow.source) == _place(flow.target) else _open(flow.target)
        except BaseException:
            self.source.close()
            raise

    def close(self) -> None:
        """Close both."""
        self.source.close()
        if self.target is not self.source:
            self.target.close()


class MirrorConnector(SourceConnector):
    """A connector of the mirror, which divides what it finds in the source cluster among its tasks.

    Attributes:
        partition_texts: The parts of its source partitions that are texts.
        has_partition: Its source partitions have the number of a partition too.
        only_zero: Its source offsets say nothing but that something was written.
    """

    version: ClassVar[str] = KAFKA_VERSION
    model: ClassVar[Model] = MIRROR_MODEL
    partition_texts: ClassVar[tuple[str, ...]]
    has_partition: ClassVar[bool] = True
    only_zero: ClassVar[bool] = True
    _logs: ClusterLogs | None = None
    _threads: tuple[threading.Thread, ...] = ()

    def validate(self, settings: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Validate a config by the definition, in which classes are those of Kafka."""
        return validate(self.config, settings, java_class)

    def start(self, settings: Mapping[str, str]) -> None:
        """Open the clusters, and create what is missing in the target.

        Raises:
            SettingError: A setting is wrong.
            LogError: A cluster refuses.
        """
        self._settings = dict(settings)
        self._flow = connector_flow(settings)
        self._stopped = threading.Event()
        if not self._flow.setting("enabled"):
            return
        self._logs = ClusterLogs(self._flow)
        try:
            self.begin(self._flow, self._logs)
        except BaseException:
            self.stop()
            raise

    def begin(self, flow: Flow, logs: ClusterLogs) -> None:
        """Create topics, and look at the source for the first time."""
        raise NotImplementedError

    def watch(self, look: Callable[[], bool], interval_s: float) -> None:
        """Look at the source again and again; the tasks are configured anew when ``look`` returns that it changed."""

        def watching() -> None:
            while not self._stopped.wait(max(interval_s, _LEAST_S)):
                try:
                    if look():
                        self.context.request_task_reconfiguration()
                except PenstockError as error:
                    _log.warning("%s looks again in %s s: %s", type(self).__name__, interval_s, error)

        thread = threading.Thread(target=watching, name=type(self).__name__, daemon=True)
        self._threads += (thread,)
        thread.start()

    def stop(self) -> None:
        """End the looking, and close the clusters."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_STOP_S)
        self._threads = ()
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def alter_offsets(
        self,
        settings: Mapping[str, str],  # noqa: ARG002 - the offsets alone say whether they are right
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> bool:
        """Check the form of source partitions and offsets; anything may be deleted.

        Raises:
            ConnectError: A partition or an offset is none of this connector's.
        """
        for partition, offset in offsets:
            if offset is None:
                continue
            if partition is None:
                raise ConnectError("Source partitions may not be null")
            for name in self.partition_texts:
                if not isinstance(_part(partition, name), str):
                    raise _wrong_part(partition, name, "a string")
            if self.has_partition and not _is_count(_part(partition, "partition")):
                raise _wrong_part(partition, "partition", "a whole number from 0 on")
            if "offset" not in offset:
                raise ConnectError(f"Source offset {dict(offset)} of {dict(partition)} is missing the 'offset' key")
            value = offset["offset"]
            if not _is_count(value) or (self.only_zero and value):
                expected = "0" if self.only_zero else "a whole number from 0 on"
                raise ConnectError(f"Source offset {value!r} of {dict(partition)} must be {expected}")
        return True


class MirrorTask(SourceTask):
    """A task of the mirror, with the logs of both clusters open."""

    _logs: ClusterLogs | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        """Open the clusters.

        Raises:
            SettingError: A setting is wrong.
            LogError: A cluster refuses.
        """
        flow = connector_flow(settings)
        self._logs = ClusterLogs(flow)
        self.begin(flow, self._logs, settings)

    def begin(self, flow: Flow, logs: ClusterLogs, settings: Mapping[str, str]) -> None:
        """Take what the config assigns to the task."""
        raise NotImplementedError

    def stop(self) -> None:
        """Close the clusters."""
        if self._logs is not None:
            self._logs.close()
            self._logs = None


def report_error(values: dict[str, ConfigValue], name: str, message: str) -> None:
    """Add an error to a setting of a validated config, also if the connector does not define the setting."""
    values.setdefault(name, ConfigValue(name)).errors.append(message)


def _place(cluster: MirrorCluster) -> tuple[str, dict[str, str]]:
    return cluster.servers, dict(cluster.settings)


def _open(cluster: MirrorCluster) -> TopicLog:
    return open_log(cluster.servers, cluster.settings or None)


def _part(partition: Mapping[str, Any], name: str) -> Any:
    if name not in partition:
        raise ConnectError(f"Source partition {dict(partition)} is missing the '{name}' key, which is required")
    return partition[name]


def _wrong_part(partition: Mapping[str, Any], name: str, expected: str) -> ConnectError:
    value = partition[name]
    text = f"Source partition {dict(partition)} has an invalid value {value!r} for the '{name}' key"
    return ConnectError(f"{text}, which must be {expected}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


PARTITIONS, INDEX = "task.assigned.partitions", "task.index"
MOST = 2_000
_MUCH_BYTES = 1 << 20  # after so many there will be more
_SYNCS, _OF_SYNCS = "emit.offset-syncs.enabled", ("offset-syncs-client.", "offset-syncs.topic.")
_UNCOMMITTED = (
    "MirrorSourceConnector can only provide exactly-once guarantees when its source consumer is configured with "
    "isolation.level set to 'read_committed'; otherwise, records from aborted and uncommitted transactions will be "
    "replicated from the source cluster to the target cluster."
)


class MirrorSourceTask(MirrorTask):
    """The records of some partitions of the source cluster."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorSourceTask"

    def begin(self, flow: Flow, logs: ClusterLogs, settings: Mapping[str, str]) -> None:
        """Go to the stored offsets of the partitions."""
        self._flow, self._topics = flow, RemoteTopics(flow, logs.source, logs.target)
        self._syncs = SyncWriter(flow, logs.source, logs.target)
        self._reader, self._source = MirrorReader(logs.source), logs.source
        self._as_stored = isinstance(logs.source, BatchLog) and isinstance(logs.target, BatchLog)
        places = [_partition_of(text) for text in settings.get(PARTITIONS, "").split(",") if text]
        stored = self.context.offset_reader.offsets([source_partition(flow, tp) for tp in places])
        for tp, offset in zip(places, stored, strict=True):
            self._reader.begin(tp, offset)

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next records of each partition: as the source has them, unless a transformation asks for records.

        Raises:
            RetriableError: The source does not answer.
        """
        try:
            return self._copies() if self.context.copies else self._records()
        except LogUnavailableError as error:
            raise RetriableError(f"the source cluster {self._flow.source.alias} does not answer: {error}") from error

    def _copies(self) -> CopiedBatch | None:
        pieces = [piece for of_topic in self._reader.pieces(as_stored=self._as_stored).values() for piece in of_topic]
        for piece in pieces:
            self._reader.move(piece.tp, piece.next_offset)
        more = any(piece.records.nbytes >= _MUCH_BYTES for piece in pieces)
        return CopiedBatch([self._copy(piece) for piece in pieces], more=more) if pieces else None

    def _copy(self, piece: SourcePiece) -> Copy:
        tp, partition = piece.tp, source_partition(self._flow, piece.tp)
        return Copy(
            tp=self._topics.remote(tp),
            records=piece.records,
            count=piece.count,
            source_partition=partition,
            source_offset={"offset": piece.last},
            columns=lambda: as_columns(self._source, piece).records,
            record=partial(self._record, tp, partition),
            written=partial(self._syncs.note_stretches, tp, piece.stretches),
        )

    def _records(self) -> list[SourceRecord] | None:
        records: list[SourceRecord] = []
        reached: dict[TopicPartition, int] = {}
        for tp in self._reader:
            fetched = self._reader.read(tp, MOST)
            if fetched.records.num_rows:
                partition = source_partition(self._flow, tp)
                records += [self._record(tp, partition, row) for row in fetched.records.to_pylist()]
                reached[tp] = fetched.next_offset
        for tp, next_offset in reached.items():  # not before: if a partition fails, the worker polls again
            self._reader.move(tp, next_offset)
        return records or None

    def commit_record(self, record: SourceRecord, delivery: Delivery | None) -> None:
        """Note the offset of a copy; one between records of other producers has none that is known (-1)."""
        partition, offset = record.source_partition, record.source_offset
        if delivery is not None and delivery.offset >= 0 and partition is not None and offset is not None:
            tp = TopicPartition(partition["topic"], partition["partition"])
            self._syncs.note(tp, offset["offset"], delivery.offset)

    def commit(self) -> None:
        """Write the offset syncs that are due."""
        self._syncs.flush()

    def _record(self, tp: TopicPartition, partition: Mapping[str, Any], row: Mapping[str, Any]) -> SourceRecord:
        remote, value = self._topics.remote(tp), row["value"]
        headers = Headers(Header(each["key"], each["value"], OPTIONAL_BYTES) for each in row.get("headers") or ())
        return SourceRecord(
            topic=remote.topic,
            partition=remote.partition,
            key=row["key"],
            key_schema=OPTIONAL_BYTES,
            value=value,
            value_schema=OPTIONAL_BYTES if value is None else BYTES,
            timestamp=row["timestamp"],
            headers=headers,
            source_partition=partition,
            source_offset={"offset": row["offset"]},
        )


class MirrorSourceConnector(MirrorConnector):
    """The topics of the source cluster, copied to the target."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorSourceConnector"
    config = SOURCE_CONFIG
    task_class = MirrorSourceTask
    partition_texts = ("cluster", "topic")
    only_zero = False
    _places: tuple[TopicPartition, ...] = ()

    def validate(self, settings: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Validate a config: exactly once needs committed reads, and settings of offset syncs need offset syncs."""
        values = super().validate(settings)
        if settings.get("exactly.once.support") == "required" and not _reads_committed(settings):
            report_error(values, "exactly.once.support", _UNCOMMITTED)
        name = "emit.offset-syncs.enabled"
        if settings.get(name) == "false" and any(
            each.startswith(("offset-syncs-client.", "offset-syncs.topic.")) for each in settings
        ):
            report_error(
                values, name, f"MirrorSourceConnector can't setup offset-syncs feature while {name} set to false"
            )
        return values

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:
        """Supported with ``consumer.isolation.level=read_committed``."""
        return ExactlyOnce.SUPPORTED if _reads_committed(settings) else ExactlyOnce.UNSUPPORTED

    def begin(self, flow: Flow, logs: ClusterLogs) -> None:
        """Create the topics in the target."""
        SyncWriter(flow, logs.source, logs.target)  # creates its topic before the first task
        topics = RemoteTopics(flow, logs.source, logs.target)

        def look() -> bool:
            before, self._places = self._places, tuple(topics.refresh())
            return before != self._places

        look()
        if flow.setting("refresh.topics.enabled"):
            self.watch(look, flow.setting("refresh.topics.interval.seconds"))
        if flow.setting("sync.topic.acls.enabled"):
            acls = AclSync(flow, logs.source, logs.target)

            def copy_acls() -> bool:
                acls.sync()
                return False  # the tasks stay as they are

            copy_acls()
            self.watch(copy_acls, flow.setting("sync.topic.acls.interval.seconds"))

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the partitions, dealt out to the tasks; no task without partitions."""
        places = [f"{tp.topic}-{tp.partition}" for tp in self._places]
        shares = [places[number::max_tasks] for number in range(min(max_tasks, len(places)))]
        return [
            {**self._settings, PARTITIONS: ",".join(share), INDEX: str(number)} for number, share in enumerate(shares)
        ]


def _reads_committed(settings: Mapping[str, str | None]) -> bool:
    own = settings.get("source.consumer.isolation.level")
    return (own if own is not None else settings.get("consumer.isolation.level")) == "read_committed"


def _partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


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
