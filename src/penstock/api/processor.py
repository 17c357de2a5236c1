"""The Processor API: what a user implements, and what the task hands to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from penstock.durations import DurationLike
from penstock.errors import TopologyError
from penstock.topology.stores import StoreSpec

__all__ = [
    "Cancellable",
    "FixedKeyProcessor",
    "FixedKeyRecord",
    "Headers",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Punctuator",
    "Record",
    "RecordMetadata",
]

K = TypeVar("K")
V = TypeVar("V")

Headers = tuple[tuple[str, bytes | None], ...]
PunctuationType = Literal["stream_time", "wall_clock_time"]
Punctuator = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """A record as a processor sees it: Kafka's ``Record`` and ``FixedKeyRecord``. Immutable.

    >>> Record("a", 1, 5).with_value(2)
    Record(key='a', value=2, timestamp=5, headers=())
    """

    key: K
    value: V
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record[Any, V]:
        """The same record under another key."""
        return replace(self, key=key)

    def with_value(self, value: Any) -> Record[K, Any]:
        """The same record with another value."""
        return replace(self, value=value)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """The same record at another time, in milliseconds."""
        if timestamp < 0:
            raise ValueError(f"a record's timestamp is at least 0, not {timestamp}")
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """The same record with these headers in place of its own."""
        return replace(self, headers=tuple(headers))

    def with_header(self, name: str, value: bytes | None) -> Record[K, V]:
        """The same record with one more header at the end."""
        return replace(self, headers=(*self.headers, (name, value)))


@dataclass(frozen=True, slots=True)
class FixedKeyRecord(Record[K, V]):
    """A record whose key stays: what a `FixedKeyProcessor` gets and forwards."""

    def with_key(self, key: Any) -> Record[Any, V]:  # noqa: ARG002
        """Not allowed here.

        Raises:
            TopologyError: Always.
        """
        raise TopologyError("a FixedKeyProcessor keeps the key", hint="Use process() and a Processor to change keys.")


class RecordMetadata(NamedTuple):
    """Where the input record came from."""

    topic: str
    partition: int
    offset: int


class Cancellable(Protocol):
    """A schedule that can be stopped."""

    def cancel(self) -> None:
        """No further calls."""
        ...


class ProcessorContext(Protocol):
    """The task, as a processor sees it: Kafka's ``ProcessorContext`` and ``FixedKeyProcessorContext``."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> str:
        """``<sub-topology>_<partition>``."""
        ...

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Sends a record to all children, or to the one of that name."""
        ...

    def get_state_store(self, name: str) -> Any:
        """A store connected to this processor (or any global store)."""
        ...

    def schedule(self, interval: DurationLike, type: PunctuationType, callback: Punctuator) -> Cancellable:  # noqa: A002
        """Calls ``callback(timestamp_ms)`` at every interval of stream time or wall-clock time."""
        ...

    def current_stream_time_ms(self) -> int:
        """The largest timestamp that the task has processed; -1 before the first record."""
        ...

    def current_system_time_ms(self) -> int:
        """The wall-clock time."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Where the present record came from; None inside a punctuation."""
        ...

    def commit(self) -> None:
        """Asks for a commit soon; every batch ends with one."""
        ...


class Processor(Generic[K, V]):
    """What ``KStream.process`` takes: a class (or any zero-argument callable) that makes one of these per task.

    >>> class Loud(Processor[str, str]):
    ...     def process(self, record):
    ...         self.context.forward(record.with_value(record.value.upper()))
    """

    context: ProcessorContext

    @classmethod
    def stores(cls) -> Iterable[StoreSpec]:
        """Stores that come with the processor and need not be added (``ConnectedStoreProvider.stores``)."""
        return ()

    def init(self, context: ProcessorContext) -> None:
        """Called once before the first record; keep the context, get stores, schedule punctuation."""
        self.context = context

    def process(self, record: Record[K, V]) -> None:  # noqa: ARG002 - for subclasses
        """Called for each record."""
        raise TypeError(f"{type(self).__name__} has no method process(record)")

    def close(self) -> None:
        """Called when the task ends."""


class FixedKeyProcessor(Processor[K, V]):
    """What ``KStream.process_values`` takes: a processor of `FixedKeyRecord`, whose key it cannot change.

    >>> class Trim(FixedKeyProcessor[str, str]):
    ...     def process(self, record):
    ...         self.context.forward(record.with_value(record.value.strip()))
    """
