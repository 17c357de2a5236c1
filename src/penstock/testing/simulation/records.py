"""Records of source topics for a simulation: encoded by the serdes of the topology, with partitions and times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.base.durations import TimestampLike, timestamp_ms
from penstock.base.nearest_name import did_you_mean
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, PenstockError, SerializationError, TopologyError
from penstock.log.partitioner import KeyPartitioner
from penstock.serde.bound_serdes import bound, configured
from penstock.serde.plain_json import text_of
from penstock.testing.driver_topics import TestInputTopic
from penstock.testing.simulation.run import Input
from penstock.topology.configured import with_settings
from penstock.topology.topology import Topology

__all__ = ["Given", "RecordTexts", "SourceRecords", "described"]

Given = tuple[Any, ...]  # (key, value), (key, value, timestamp) or (key, value, timestamp, headers)
_STEP_MS = 1_000  # between two records without a timestamp
_SHOWN = 80


class SourceRecords:
    """The records of a topology's source topics.

    Args:
        topology: The topology.
        config: The settings, which may have default serdes.
        partitions: The number of partitions of each source topic.
    """

    wall_clock_ms = 0

    def __init__(self, topology: Topology, config: StreamsConfig, partitions: int) -> None:
        self.records: list[Input] = []
        self.partitions = partitions
        self._config = config
        topology = with_settings(topology, config)
        nodes = {topic: node for node in topology.sources if not node.internal for topic in node.topics}
        self.topics = tuple(nodes)
        self._globals = {topic for topic, node in nodes.items() if node.global_store}
        self._nodes = nodes
        self._writers: dict[str, TestInputTopic[Any, Any]] = {}
        self._partitioner = KeyPartitioner()
        self._partition: int | None = None
        self._now_ms = 0

    def add_many(self, topic: str, records: Iterable[Given]) -> None:
        """Add records of a topic: (key, value), (key, value, timestamp) or (key, value, timestamp, headers)."""
        for number, record in enumerate(records, 1):
            if not isinstance(record, tuple | list) or not 2 <= len(record) <= 4:
                raise ConfigError(
                    f"record {number} of {topic} is {record!r}",
                    hint='Give (key, value) or (key, value, timestamp), for example ("ann", 5, 1000).',
                )
            key, value, timestamp, headers = (*record, None, None)[:4]
            self.add(topic, key, value, timestamp, headers)

    def add(
        self,
        topic: str,
        key: Any,
        value: Any,
        timestamp: TimestampLike | None = None,
        headers: Any = None,
        partition: int | None = None,
    ) -> None:
        """Add a record; without a timestamp it comes a second after the one before, without a partition by its key.

        Raises:
            TopologyError: No source reads the topic.
            SerializationError: The serde of the topic does not take the key or the value.
            ConfigError: The topic has no such partition.
        """
        writer = self._writers.get(topic) or self._writer(topic)
        if partition is not None and not 0 <= partition < self.partitions:
            raise ConfigError(
                f"{topic} has no partition {partition} in the simulation, only {self.partitions}, from 0 on",
                hint="Leave the partition out, or simulate more of them (--partitions).",
            )
        self._partition = partition
        time_ms = None if timestamp is None else timestamp_ms(timestamp)
        if time_ms is not None and time_ms < 0:
            raise SerializationError(
                f"the timestamp {time_ms} is before 1970", hint="Times are 0 or more milliseconds."
            )
        self._now_ms = self._now_ms + _STEP_MS if time_ms is None else time_ms
        try:
            writer.pipe(value, key, self._now_ms, headers)
        except SerializationError:
            raise
        except PenstockError as error:
            raise SerializationError(f"a record of {topic} does not fit: {error.message}", hint=error.hint) from error
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            node = self._nodes[topic]
            raise SerializationError(
                f"a record of {topic} does not fit its serdes ({_name(node.key_serde)} and {_name(node.value_serde)}): "
                f"{reason}",
                hint="Are the key and the value those that the topology reads?",
            ) from error

    def _writer(self, topic: str) -> TestInputTopic[Any, Any]:
        node = self._nodes.get(topic)
        if node is None:
            names = ", ".join(sorted(self.topics)) or "none"
            raise TopologyError(
                f"no source reads topic {topic!r}",
                hint=did_you_mean(topic, self.topics) or f"Source topics are {names}.",
                topic=topic,
            )
        key, value = (configured(serde, self._config.given) for serde in (node.key_serde, node.value_serde))
        writer: TestInputTopic[Any, Any] = TestInputTopic(
            self, topic, bound(key, topic, "key"), bound(value, topic, "value")
        )
        return self._writers.setdefault(topic, writer)

    def pipe_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Any = (),
        partition: int | None = None,
    ) -> None:
        """Take a record that is encoded."""
        partition = self._partition if partition is None else partition
        if partition is None:
            partition = self._partitioner.partition(topic, key, self.partitions)
        arrives = -1 if topic in self._globals else None  # what fills global stores is there before all else
        self.records.append(Input(topic, partition, key, value, timestamp, tuple(headers), arrives))

    def inputs(self) -> tuple[Input, ...]:
        """Return all records in the order in which they come.

        Raises:
            ConfigError: There are none.
        """
        if not self.records:
            raise ConfigError(
                "there is no record to simulate with",
                hint=f"Give records of {', '.join(sorted(self.topics))}: a hundred that look like those of production.",
            )
        return tuple(sorted(self.records, key=lambda each: each.order))

    # A test driver's topics ask these of what they write to; nothing is read here.

    def read_raw(self, topic: str, partition: int | None = None) -> None:  # noqa: ARG002
        return None

    def peek_raw(self, topic: str) -> tuple[()]:  # noqa: ARG002
        return ()

    def partition_count(self, topic: str) -> int:  # noqa: ARG002
        """Return the number of partitions of all topics."""
        return self.partitions

    def queue_size(self, topic: str) -> int:  # noqa: ARG002
        return 0

    def produced_topic_names(self) -> set[str]:
        return set()


class RecordTexts:
    """Keys and values of what a topology reads and writes, as texts.

    Args:
        topology: The topology, with the serdes of its settings.
    """

    def __init__(self, topology: Topology) -> None:
        self._serdes: dict[str, tuple[Any, Any]] = {
            topic: (node.key_serde, node.value_serde) for node in topology.sources for topic in node.topics
        }
        self._serdes |= {
            node.topic: (node.key_serde, node.value_serde) for node in topology.sinks if node.topic is not None
        }

    def key(self, topic: str, data: bytes | None) -> str:
        """Return the key of a record of a topic."""
        return self._text(topic, data, 0)

    def value(self, topic: str, data: bytes | None) -> str:
        """Return the value of a record of a topic."""
        return self._text(topic, data, 1)

    def _text(self, topic: str, data: bytes | None, part: int) -> str:
        if data is None:
            return "null"
        serde = self._serdes.get(topic, (None, None))[part]
        if serde is None:
            return _text(data)
        try:
            return _cut(repr(serde.deserialize(data)))
        except Exception:  # noqa: BLE001 - of whatever kind: the bytes show it, too
            return _text(data)


def described(record: Input, inputs: Sequence[Input], texts: RecordTexts) -> str:
    """Name a record: topic, partition, offset, and what is in it."""
    before = [each for each in inputs if (each.topic, each.partition) == (record.topic, record.partition)]
    offset = next(at for at, each in enumerate(before) if each is record)
    address = f"{record.topic}:{record.partition}:{offset}"
    key, value = texts.key(record.topic, record.key), texts.value(record.topic, record.value)
    return f"{address} (key {key}, value {value}, time {record.timestamp})"


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    return _cut(repr(text_of(data[: 4 * _SHOWN])))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _name(serde: Any) -> str:
    return str(getattr(serde, "name", "") or type(serde).__name__)
