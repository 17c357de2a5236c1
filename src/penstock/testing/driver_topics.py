"""The topics and records of a test: Kafka's TestInputTopic, TestOutputTopic and TestRecord."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from penstock.base.argument_checks import check_given, check_whole
from penstock.base.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.base.java_names import with_java_names
from penstock.base.terminal.html import facts_html, table_html
from penstock.base.terminal.human_numbers import counted, time_of
from penstock.errors import InvalidStateError, TopologyError
from penstock.runtime.rows import Headers
from penstock.serde.bound_serdes import (
    CurrentHeaders,
    RecordHeaders,
    header_frame,
    in_task,
    joined,
    schema_at_front,
    split,
    uses_headers,
)
from penstock.state.views.keyvalue import shown

if TYPE_CHECKING:
    from penstock.runtime.rows import RawRecord
    from penstock.serde.base import Serde
    from penstock.topology.topology import Topology

__all__ = ["RecordPort", "StatePort", "TestInputTopic", "TestOutputTopic", "TestRecord"]


class RecordPort(Protocol):
    """The input and output of records, as bytes."""

    @property
    def wall_clock_ms(self) -> int: ...

    def pipe_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Any = (),
        partition: int | None = None,
    ) -> None: ...

    def read_raw(self, topic: str, partition: int | None = None) -> RawRecord | None: ...

    def peek_raw(self, topic: str) -> tuple[RawRecord, ...]: ...

    def queue_size(self, topic: str) -> int: ...

    def partition_count(self, topic: str) -> int: ...

    def produced_topic_names(self) -> set[str]: ...


class StatePort(Protocol):
    """The stores, and the offsets of the last records that wrote to them."""

    topology: Topology

    def get_state_store(self, name: str, partition: int | None = None) -> Any: ...

    def committed_store(self, name: str, partition: int | None = None) -> Any: ...

    def partitions_of(self, store: str) -> int: ...

    def position_of(self, store: str) -> dict[str, dict[int, int]]: ...


K = TypeVar("K")
V = TypeVar("V")
HeadersLike = Mapping[str, Any] | Iterable[tuple[str, Any]]


@with_java_names
@dataclass(frozen=True, slots=True)
class TestRecord(Generic[K, V]):
    """A record of an output topic. ``headers`` are (name, bytes) pairs; records of other partitions are equal too.

    A record that was read from a topic of one partition names none. So where it is piped, its key chooses.
    """

    __test__ = False

    key: K
    value: V
    timestamp: int
    headers: Headers = ()
    partition: int | None = field(default=None, compare=False)


@with_java_names
class TestInputTopic(Generic[K, V]):
    """A source topic of the topology, which the test writes to: Kafka's ``TestInputTopic``.

    Args:
        driver: The test driver.
        name: The name of the topic.
        key_serde: The serde of keys.
        value_serde: The serde of values.
        auto_advance: The time by which the topic's own clock advances after each record without a timestamp.
    """

    __test__ = False

    def __init__(
        self,
        driver: RecordPort,
        name: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        auto_advance: DurationLike = 0,
    ) -> None:
        self._driver = driver
        self._name = name
        self._key_serde, self._value_serde, self._current = _with_headers(key_serde, value_serde)
        self._has_frames = _have_frames(self._key_serde, self._value_serde)
        self._auto_advance_ms = duration_ms(auto_advance, "auto_advance")
        self._now_ms = driver.wall_clock_ms

    def pipe(
        self,
        value: V | None = None,
        key: K | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        partition: int | None = None,
    ) -> None:
        """Write one record, which is processed at once, or with its batch.

        Args:
            value: The value; None is a tombstone.
            key: The key.
            timestamp: Milliseconds, an ISO text or a datetime; None uses the topic's own clock, which starts at the
                driver's wall clock.
            headers: (name, value) pairs; texts are encoded as UTF-8.
            partition: The partition, of a topic of several; None: that of the key, as Kafka's producer chooses it, or
                the next in turn without a key.
        """
        if timestamp is None:
            stamp = self._now_ms
            self._now_ms += self._auto_advance_ms
        else:
            stamp = timestamp_ms(timestamp)
        record_headers = _headers(headers)
        if self._current is not None:
            self._current.headers = RecordHeaders(record_headers)
        key_data, value_data = self._key_serde.serialize(key), self._value_serde.serialize(value)
        if self._current is not None:
            record_headers = tuple(self._current.headers)
        if self._has_frames:
            key_data, record_headers = _to_headers(self._key_serde, key_data, record_headers, "key")
            value_data, record_headers = _to_headers(self._value_serde, value_data, record_headers, "value")
        self._driver.pipe_raw(self._name, key_data, value_data, stamp, record_headers, partition)

    def pipe_many(
        self, records: Iterable[TestRecord[Any, Any] | tuple[Any, Any] | tuple[Any, Any, TimestampLike]]
    ) -> None:
        """Write records in order: TestRecord objects, (key, value) or (key, value, timestamp) tuples.

        Records go to the partition that they name; others to that of their key, see `pipe`.
        """
        check_given(records, Iterable, "pipe_many(): records", "a list of records", 'For example [("key", "value")].')
        for record in records:
            check_given(record, (TestRecord, tuple, list), "a record", "a TestRecord or (key, value[, timestamp])")
            if isinstance(record, TestRecord):
                self.pipe(record.value, record.key, record.timestamp, record.headers, record.partition)
            else:
                self.pipe(record[1], record[0], *record[2:])

    def _repr_html_(self) -> str:
        """Return the topic and its serdes as HTML for notebooks."""
        serdes = {"key": getattr(self._key_serde, "name", ""), "value": getattr(self._value_serde, "name", "")}
        return facts_html(f"{self._name}: input", serdes)

    def advance_time(self, duration: DurationLike) -> None:
        """Advance the topic's own clock, which sets the timestamps of records without one."""
        self._now_ms += duration_ms(duration)


def _with_headers(
    key_serde: Serde[Any], value_serde: Serde[Any]
) -> tuple[Serde[Any], Serde[Any], CurrentHeaders | None]:
    """Return serdes, and where they find the headers of a record; None if they look at none."""
    if not (uses_headers(key_serde) or uses_headers(value_serde)):
        return key_serde, value_serde, None
    current = CurrentHeaders()
    return in_task(key_serde, current), in_task(value_serde, current), current


_PAIRS = 'pairs or a mapping, as {"trace": b"1"}'


def _headers(headers: HeadersLike | None) -> Headers:
    if not headers:
        return ()
    check_given(headers, Iterable, "headers", _PAIRS)
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise TopologyError(f"headers must be {_PAIRS}, not {headers!r}")
    for name, value in pairs:
        check_given(name, str, "the name of a header", "a text", f"Headers are {_PAIRS}.")
        check_given(
            value, (str, bytes, type(None)), f"header {name!r}", "bytes, a text or None", f"Headers are {_PAIRS}."
        )
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def _have_frames(*serdes: Serde[Any]) -> bool:
    """Return whether the ids of schemas may stand in headers."""
    return any(schema_at_front(serde) is not None for serde in serdes)


def _to_headers(serde: Serde[Any], data: bytes | None, headers: Headers, part: str) -> tuple[bytes | None, Headers]:
    """Move the id of a schema into the headers, if the serde writes it there."""
    frame = None if data is None else header_frame(serde)
    if frame is None:
        return data, headers
    rest, (record_headers,) = split(pa.array([data], pa.large_binary()), frame, [headers], part)
    return rest[0].as_py(), record_headers


def _from_headers(serde: Serde[Any], data: bytes | None, headers: Headers, part: str) -> tuple[bytes | None, Headers]:
    """Return the bytes with the id of their schema in front."""
    if schema_at_front(serde) is None:
        return data, headers
    whole, (rest,) = joined(pa.array([data], pa.large_binary()), [headers], part)
    return whole[0].as_py(), rest


@with_java_names
class TestOutputTopic(Generic[K, V]):
    """An output topic of the topology, whose records the test reads once: Kafka's ``TestOutputTopic``."""

    __test__ = False

    def __init__(self, driver: RecordPort, name: str, key_serde: Serde[Any], value_serde: Serde[Any]) -> None:
        self._driver = driver
        self._name = name
        self._key_serde, self._value_serde, self._current = _with_headers(key_serde, value_serde)
        self._has_frames = _have_frames(self._key_serde, self._value_serde)
        self._has_partitions: bool | None = None  # known with the first record

    def read_record(self) -> TestRecord[K, V]:
        """Read the next record.

        Raises:
            InvalidStateError: The topic has no unread record.
        """
        raw = self._driver.read_raw(self._name)
        if raw is None:
            written = ", ".join(sorted(self._driver.produced_topic_names())) or "none"
            raise InvalidStateError(
                f"output topic {self._name!r} has no record to read",
                hint=f"Check is_empty() first, or flush() if batch_size is set. Topics written so far: {written}.",
                topic=self._name,
            )
        return self._record(raw)

    def _record(self, raw: RawRecord) -> TestRecord[K, V]:
        key_data, value_data, headers = raw.key, raw.value, raw.headers
        if headers and self._has_frames:
            key_data, headers = _from_headers(self._key_serde, key_data, headers, "key")
            value_data, headers = _from_headers(self._value_serde, value_data, headers, "value")
        if self._current is not None:
            self._current.headers = RecordHeaders(headers)
        key: Any = self._key_serde.deserialize(key_data)
        value: Any = self._value_serde.deserialize(value_data)
        if self._has_partitions is None:
            self._has_partitions = self._driver.partition_count(self._name) > 1
        return TestRecord(key, value, raw.timestamp, headers, raw.partition if self._has_partitions else None)

    def read_partition(self, partition: int) -> list[TestRecord[K, V]]:
        """Read all remaining records of a partition, in its order; those of others stay.

        >>> from penstock import StreamsBuilder
        >>> from penstock.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("words").to("copies")
        >>> serdes = {"default.key.serde": "string", "default.value.serde": "string"}
        >>> with TopologyTestDriver(builder.build(), serdes) as driver:
        ...     driver.input_topic("words", partitions=3).pipe_many([("ann", "a"), ("bob", "b"), ("cid", "c")])
        ...     copies = driver.output_topic("copies")
        ...     [[record.key for record in copies.read_partition(number)] for number in range(3)]
        [['bob', 'cid'], [], ['ann']]
        """
        check_whole(partition, "read_partition(): partition", 0)
        count = self._driver.partition_count(self._name)
        if partition >= count:
            raise TopologyError(
                f"topic {self._name!r} has no partition {partition}",
                hint=f"Its partitions are 0 to {count - 1}.",
                topic=self._name,
            )
        records = []
        while (raw := self._driver.read_raw(self._name, partition)) is not None:
            records.append(self._record(raw))
        return records

    def read_value(self) -> V:
        """Read the value of the next record."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """Read the key and the value of the next record."""
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Read all remaining records."""
        records = []
        while not self.is_empty():
            records.append(self.read_record())
        return records

    def read_values_to_list(self) -> list[V]:
        """Read the values of all remaining records."""
        return [record.value for record in self.read_records_to_list()]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Read the keys and values of all remaining records."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Read all remaining records, and return the last value of each key."""
        return dict(self.read_key_values_to_list())

    def _repr_html_(self) -> str:
        """Return the unread records as HTML for notebooks; they stay unread."""
        left = [self._record(raw) for raw in self._driver.peek_raw(self._name)]
        rows = ([time_of(record.timestamp), shown(record.key), shown(record.value)] for record in left)
        return table_html(f"{self._name}: {counted(len(left), 'record')} to read", ["time", "key", "value"], rows)

    def is_empty(self) -> bool:
        """Return whether all records have been read."""
        return self._driver.queue_size(self._name) == 0

    @property
    def size(self) -> int:
        """The number of unread records."""
        return self._driver.queue_size(self._name)

    def __len__(self) -> int:
        return self.size
