"""What a test writes to and reads from: Kafka's TestInputTopic, TestOutputTopic and TestRecord."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from penstock.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import InvalidStateError
from penstock.runtime.rows import Headers
from penstock.serde.binding import header_frame, joined, schema_at_front, split

if TYPE_CHECKING:
    from penstock.serde.base import Serde
    from penstock.testing.driver import TopologyTestDriver

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord"]

K = TypeVar("K")
V = TypeVar("V")
HeadersLike = Mapping[str, Any] | Iterable[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class TestRecord(Generic[K, V]):
    """A record of an output topic. ``headers`` are (name, bytes) pairs."""

    __test__ = False

    key: K
    value: V
    timestamp: int
    headers: Headers = ()


class TestInputTopic(Generic[K, V]):
    """Writes records into a source topic of the topology.

    Args:
        driver: The driver.
        name: The topic.
        key_serde: How keys become bytes.
        value_serde: How values become bytes.
        auto_advance: By how much the topic's own clock moves on after each record without a timestamp.
    """

    __test__ = False

    def __init__(
        self,
        driver: TopologyTestDriver,
        name: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        auto_advance: DurationLike = 0,
    ) -> None:
        self._driver = driver
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._auto_advance_ms = duration_ms(auto_advance, "auto_advance")
        self._now_ms = driver.wall_clock_ms

    def pipe(
        self,
        value: V | None = None,
        key: K | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Writes one record; the topology processes it at once (or with its batch).

        Args:
            value: The value; None is a tombstone.
            key: The key.
            timestamp: Milliseconds, an ISO text or a datetime; None takes the topic's own clock, which starts at the
                driver's wall clock.
            headers: (name, value) pairs; texts are encoded as UTF-8.
        """
        if timestamp is None:
            stamp = self._now_ms
            self._now_ms += self._auto_advance_ms
        else:
            stamp = timestamp_ms(timestamp)
        found = _headers(headers)
        key_data, found = _to_headers(self._key_serde, self._key_serde.serialize(key), found, "key")
        value_data, found = _to_headers(self._value_serde, self._value_serde.serialize(value), found, "value")
        self._driver.pipe_raw(self._name, key_data, value_data, stamp, found)

    def pipe_many(
        self, records: Iterable[TestRecord[Any, Any] | tuple[Any, Any] | tuple[Any, Any, TimestampLike]]
    ) -> None:
        """Writes records in order: TestRecord objects, (key, value) or (key, value, timestamp) tuples."""
        for record in records:
            if isinstance(record, TestRecord):
                self.pipe(record.value, record.key, record.timestamp, record.headers)
            else:
                self.pipe(record[1], record[0], *record[2:])

    def advance_time(self, duration: DurationLike) -> None:
        """Moves the topic's own clock, which gives the timestamps that are not said."""
        self._now_ms += duration_ms(duration)


def _headers(headers: HeadersLike | None) -> Headers:
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def _to_headers(serde: Serde[Any], data: bytes | None, headers: Headers, part: str) -> tuple[bytes | None, Headers]:
    """Moves the id of a schema into the headers, where the serde wants it there."""
    frame = None if data is None else header_frame(serde)
    if frame is None:
        return data, headers
    rest, (found,) = split(pa.array([data], pa.large_binary()), frame, [headers], part)
    return rest[0].as_py(), found


def _from_headers(serde: Serde[Any], data: bytes | None, headers: Headers, part: str) -> tuple[bytes | None, Headers]:
    """The bytes with the id of their schema before them."""
    if not headers or schema_at_front(serde) is None:
        return data, headers
    whole, (rest,) = joined(pa.array([data], pa.large_binary()), [headers], part)
    return whole[0].as_py(), rest


class TestOutputTopic(Generic[K, V]):
    """Reads what the topology wrote to a topic; every record is read once."""

    __test__ = False

    def __init__(self, driver: TopologyTestDriver, name: str, key_serde: Serde[Any], value_serde: Serde[Any]) -> None:
        self._driver = driver
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde

    def read_record(self) -> TestRecord[K, V]:
        """The next record.

        Raises:
            InvalidStateError: The topology has written no (further) record to the topic.
        """
        raw = self._driver.read_raw(self._name)
        if raw is None:
            written = ", ".join(sorted(self._driver.produced_topic_names())) or "none"
            raise InvalidStateError(
                f"output topic {self._name!r} has no record to read",
                hint=f"Check is_empty() first, or flush() if batch_size is set. Topics written so far: {written}.",
                topic=self._name,
            )
        key_data, headers = _from_headers(self._key_serde, raw.key, raw.headers, "key")
        value_data, headers = _from_headers(self._value_serde, raw.value, headers, "value")
        key: Any = self._key_serde.deserialize(key_data)
        value: Any = self._value_serde.deserialize(value_data)
        return TestRecord(key, value, raw.timestamp, headers)

    def read_value(self) -> V:
        """The next record's value."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """The next record's key and value."""
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """All records that are left."""
        records = []
        while not self.is_empty():
            records.append(self.read_record())
        return records

    def read_values_to_list(self) -> list[V]:
        """The values of all records that are left."""
        return [record.value for record in self.read_records_to_list()]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Keys and values of all records that are left."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """The last value of each key among the records that are left."""
        return dict(self.read_key_values_to_list())

    def is_empty(self) -> bool:
        """Whether nothing is left to read."""
        return self.size == 0

    @property
    def size(self) -> int:
        """How many records are left to read."""
        return self._driver.queue_size(self._name)

    def __len__(self) -> int:
        return self.size
