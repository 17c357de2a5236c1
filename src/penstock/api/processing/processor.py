"""The Processor API: processors and transformers that users derive from, and their context and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

from penstock.api.options import OutKeyOrAny, OutValueOrAny
from penstock.base.durations import DurationLike, TimestampLike
from penstock.base.java_names import with_java_names
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
    "ValueTransformerWithKey",
]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

Headers = tuple[tuple[str, bytes | None], ...]
PunctuationType = Literal["stream_time", "wall_clock_time"]
Punctuator = Callable[[int], None]
"""A function that ``schedule`` calls with a timestamp in milliseconds; Kafka's ``Punctuator``."""


@with_java_names
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

    def with_key(self, key: K2) -> Record[K2, V]:
        """Return the record with another key."""
        return replace(cast("Record[Any, V]", self), key=key)

    def with_value(self, value: V2) -> Record[K, V2]:
        """Return the record with another value."""
        return replace(cast("Record[K, Any]", self), value=value)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """Return the record with another timestamp, in milliseconds."""
        if timestamp < 0:
            raise ValueError(f"a record's timestamp is at least 0, not {timestamp}")
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """Return the record with these headers in place of its own."""
        return replace(self, headers=tuple(headers))

    def with_header(self, name: str, value: bytes | None) -> Record[K, V]:
        """Return the record with one more header at the end."""
        return replace(self, headers=(*self.headers, (name, value)))


@with_java_names
@dataclass(frozen=True, slots=True)
class FixedKeyRecord(Record[K, V]):
    """A record whose key cannot be changed, as a `FixedKeyProcessor` gets and forwards it."""

    def with_key(self, key: K2) -> Record[K2, V]:  # noqa: ARG002
        """Raise an error: the key of this record is fixed.

        Raises:
            TopologyError: Always.
        """
        raise TopologyError("a FixedKeyProcessor keeps the key", hint="Use process() and a Processor to change keys.")


@with_java_names
class RecordMetadata(NamedTuple):
    """The topic, partition and offset of an input record."""

    topic: str | None
    partition: int
    offset: int


class Cancellable(Protocol):
    """A schedule of a punctuator, which can be cancelled."""

    def cancel(self) -> None:
        """Stop the calls."""
        ...


class ProcessorContext(Protocol[OutKeyOrAny, OutValueOrAny]):
    """The view of a processor on its task: Kafka's ``ProcessorContext`` and ``FixedKeyProcessorContext``."""

    @property
    def application_id(self) -> str:
        """The setting ``application.id``."""
        ...

    @property
    def task_id(self) -> str:
        """The id of the task, ``<sub-topology>_<partition>``."""
        ...

    def forward(self, record: Record[OutKeyOrAny, OutValueOrAny], child: str | None = None) -> None:
        """Send a record to all children, or to the child of that name."""
        ...

    def get_state_store(self, name: str) -> Any:
        """Return a store that is connected to this processor, or a global store."""
        ...

    def schedule(
        self,
        interval: DurationLike,
        type: PunctuationType,  # noqa: A002
        callback: Punctuator,
        *,
        start: TimestampLike | None = None,
    ) -> Cancellable:
        """Call ``callback(timestamp_ms)`` at every interval of stream time or wall-clock time.

        With a ``start`` (milliseconds since 1970, an ISO text or a datetime) the first call is at the first time that
        is not before it, and later ones at the start and a multiple of the interval; those that were missed are
        left out. Without one stream time starts at 0, and wall-clock time an interval from now.
        """
        ...

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp that the task has processed; -1 before the first record."""
        ...

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Return the origin of the current record; in a punctuation its topic is None, the numbers are -1."""
        ...

    def commit(self) -> None:
        """Ask for a commit soon. Every batch ends with one."""
        ...


class Processor(Generic[K, V, OutKeyOrAny, OutValueOrAny]):
    """The base class of processors. ``KStream.process`` takes the class; each task makes an object of it.

    The types are those of the keys and values that it gets, and of those that it forwards, as in Java:
    ``Processor[str, str, str, int]``. Without the last two it may forward anything.

    >>> class Loud(Processor[str, str]):
    ...     def process(self, record):
    ...         self.context.forward(record.with_value(record.value.upper()))
    """

    context: ProcessorContext[OutKeyOrAny, OutValueOrAny]

    if not TYPE_CHECKING:  # for type checkers the context is there, and the types have defaults

        def __class_getitem__(cls, types: Any) -> Any:
            """Return the class with these types, and Any for those at the end that have a default."""
            type_arguments = types if isinstance(types, tuple) else (types,)
            missing = cls.__parameters__[len(type_arguments) :]
            if set(missing) <= {OutKeyOrAny, OutValueOrAny}:
                type_arguments += (Any,) * len(missing)
            return super().__class_getitem__(type_arguments)

        def __getattr__(self, name: str) -> Any:
            """Explain why there is no context."""
            kind = type(self).__name__
            if name == "context":
                raise AttributeError(f"{kind} has no context: its init() has to call super().init(context)")
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    @classmethod
    def stores(cls) -> Iterable[StoreSpec]:
        """Return stores that are added together with the processor (``ConnectedStoreProvider.stores``)."""
        return ()

    def init(self, context: ProcessorContext[OutKeyOrAny, OutValueOrAny]) -> None:
        """Prepare for records: keep the context, get stores, schedule punctuators. Called once."""
        self.context = context

    def process(self, record: Record[K, V]) -> None:  # noqa: ARG002 - for subclasses
        """Process a record."""
        raise TypeError(f"{type(self).__name__} has no method process(record)")

    def close(self) -> None:
        """Release resources. Called when the task ends."""


class FixedKeyProcessor(Processor[K, V, K, OutValueOrAny]):
    """The base class of processors that cannot change keys, for ``KStream.process_values``; see `FixedKeyRecord`.

    The types are those of the keys, of the values that it gets, and of the values that it forwards.

    >>> class Trim(FixedKeyProcessor[str, str]):
    ...     def process(self, record):
    ...         self.context.forward(record.with_value(record.value.strip()))
    """


VR = TypeVar("VR")


class TransformerContext(ProcessorContext, Protocol):
    """The view of a transformer on its task: Kafka's ``ProcessorContext`` with the time and headers of the row."""

    def timestamp(self) -> int:
        """Return the time of the row in milliseconds: of its change, also when the table is read later."""
        ...

    def headers(self) -> Headers:
        """Return the headers of the record that changed the row; none when the table is read later."""
        ...


class ValueTransformerWithKey(Generic[K, V, VR]):
    """A function of a table's rows that may use state stores: Kafka's ``ValueTransformerWithKey``.

    Each task makes an object of it. ``transform`` is called for deletions too, with None as the value.

    >>> class Shout(ValueTransformerWithKey[str, str, str]):
    ...     def transform(self, key, value):
    ...         return None if value is None else f"{key} says {value.upper()}"
    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.to_table().transform_values(Shout), [("a", "hi"), ("a", None)])
    [('a', 'a says HI'), ('a', None)]
    """

    context: TransformerContext

    def init(self, context: TransformerContext) -> None:
        """Prepare for rows: keep the context and get stores. It cannot forward or schedule. Called once."""
        self.context = context

    def transform(self, key: K, value: V | None) -> VR | None:  # noqa: ARG002 - for subclasses
        """Return the new value; None deletes the row."""
        raise TypeError(f"{type(self).__name__} has no method transform(key, value)")

    def close(self) -> None:
        """Release resources. Called when the task ends."""
