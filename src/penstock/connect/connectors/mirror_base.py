"""What the mirror's connectors share: the logs of their clusters, a look at the source from time to time, offsets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from penstock.base.log_lines import own_logger
from penstock.connect.api import SourceConnector, SourceTask
from penstock.connect.config import ConfigValue, Model, java_class, validate
from penstock.connect.mirror.flows import Flow, MirrorCluster, connector_flow
from penstock.connect.plugins.registry import KAFKA_VERSION
from penstock.errors import ConnectError, PenstockError
from penstock.log import open_log
from penstock.log.base import TopicLog

__all__ = ["PACKAGE", "ClusterLogs", "MirrorConnector", "MirrorTask", "report_error"]

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
