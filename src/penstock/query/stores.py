"""Read-only stores over all partitions of an application, returned by ``KafkaStreams.store()``.

Each call reads the newest committed batch. A key is looked up first in its partition by Kafka's partitioner, then in
the others, as its topic may have been written with another partitioner.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.base.argument_checks import check_given, check_whole
from penstock.base.durations import TimestampLike, timestamp_ms
from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.base.terminal.html import MOST_ROWS, facts_html
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import PenstockError, StateError
from penstock.log.partitioner import partition_for
from penstock.query.source import GLOBAL, StateSource, StoreInfo, StoreSnapshot, unknown_store
from penstock.serde.windowed import Windowed
from penstock.state.views import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders, VersionedRecord
from penstock.state.views.keyvalue import entries_html, key_bytes
from penstock.topology.stores import StoreSpec

__all__ = [
    "LookupResult",
    "QueryableStoreTypes",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyStore",
    "ReadOnlyVersionedStore",
    "ReadOnlyWindowStore",
    "StoreQueryParameters",
    "lookup",
    "merged_entries",
    "open_store",
]

Entries = Iterator[tuple[Any, Any]]
Shown = Literal["values", "timestamps", "headers"]


class LookupResult(NamedTuple):
    """The result of a lookup: None if no partition has the key. The snapshot is closed."""

    value: Any
    partition: int
    reading: StoreSnapshot


def lookup(
    source: StateSource, info: StoreInfo, key: Any, read: Callable[[Any], Any], partition: int | None = None
) -> LookupResult:
    """Read a key from the first partition that has it, beginning with the key's own."""
    own = partition_for(key_bytes(info.spec, key), info.partitions)
    if partition is not None or info.is_global or info.partitions == 1:
        order = [[partition or 0]]
    else:
        order = [[own], [number for number in range(info.partitions) if number != own]]
    for numbers in order:
        with source.reading(info.spec.name, numbers) as reading:
            for number in [GLOBAL] if info.is_global else numbers:
                view = reading.views.get(number)
                value = None if view is None else read(view)
                if value is not None:
                    return LookupResult(value, number, reading)
    return LookupResult(None, GLOBAL if info.is_global else order[0][0], reading)


def merged_entries(
    reading: StoreSnapshot, read: Callable[[Any], Iterable[Any]], sort: Callable[[Any], Any] | None, *, reverse: bool
) -> Iterator[Any]:
    """Return the entries of all partitions of a snapshot, ordered by ``sort``, else partition by partition."""
    parts = [iter(read(view)) for _, view in sorted(reading.views.items())]
    if sort is None or len(parts) < 2:
        return chain.from_iterable(parts)
    return iter(heapq.merge(*parts, key=sort, reverse=reverse))


class _Composite:
    """All partitions of a store, or one.

    Args:
        source: The state.
        info: The store.
        partition: The only partition to read.
        shows: The parts of entries that values have: "values" alone, "timestamps" too, or "headers" too.
    """

    def __init__(
        self, source: StateSource, info: StoreInfo, partition: int | None = None, *, shows: Shown = "values"
    ) -> None:
        self.name = info.spec.name
        self._source = source
        self._spec = info.spec
        self._info = info
        self._partition = partition
        self._shows = shows

    def _repr_html_(self) -> str:
        """Render the first entries, partition by partition, for a notebook."""

        def read(most: int) -> Entries:
            entries = self._entries(lambda view: view.first(most), None, reverse=False)
            return ((key, self._value(value)) for key, value in entries)

        return _store_html(self.name, read)

    def _value(self, value: Any) -> Any:
        if self._shows == "headers":
            return value
        if isinstance(value, AggregationWithHeaders):
            return value.aggregation
        if self._shows == "timestamps" and isinstance(value, ValueTimestampHeaders):
            return ValueAndTimestamp(value.value, value.timestamp)
        is_entry = isinstance(value, ValueAndTimestamp | ValueTimestampHeaders)
        return value.value if is_entry and self._shows == "values" else value

    def _lookup(self, key: Any, read: Callable[[Any], Any]) -> Any:
        return lookup(self._source, self._info, key, read, self._partition).value

    def _entries(
        self, read: Callable[[Any], Iterable[Any]], sort: Callable[[Any], Any] | None, *, reverse: bool
    ) -> Any:
        """Yield the entries of all partitions at the end of one committed batch, ordered by ``sort`` if given."""
        with ExitStack() as stack:
            partitions = None if self._partition is None else [self._partition]
            reading: StoreSnapshot = stack.enter_context(self._source.reading(self.name, partitions))
            entries = merged_entries(reading, read, sort, reverse=reverse)
            if reading.is_shared:
                entries = iter(list(entries))
                stack.close()
            yield from entries

    def _by_key(self, entry: tuple[Any, Any]) -> bytes:
        return key_bytes(self._spec, entry[0])


@with_java_names
class ReadOnlyKeyValueStore(_Composite):
    """Kafka's ``ReadOnlyKeyValueStore``; entries of all partitions come in the order of their keys' bytes."""

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        return self._value(self._lookup(key, lambda view: view.get(key)))

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the values of keys, all of one batch; None for missing keys."""
        with self._source.reading(self.name, None if self._partition is None else [self._partition]) as reading:
            values: list[Any] = [None] * len(keys)
            for view in reading.views.values():
                missing = [at for at, value in enumerate(values) if value is None]
                for at, value in zip(missing, view.get_many([keys[at] for at in missing]), strict=True):
                    values[at] = value
            return [self._value(value) for value in values]

    def range(self, low: Any = None, high: Any = None) -> Entries:
        """Return the entries from ``low`` to ``high``, both included; None is open."""
        return self._ordered(lambda view: view.range(low, high), reverse=False)

    def reverse_range(self, low: Any = None, high: Any = None) -> Entries:
        """Like `range`, in reverse order."""
        return self._ordered(lambda view: view.reverse_range(low, high), reverse=True)

    def prefix_scan(self, prefix: Any, serde: Any = None) -> Entries:
        """Return the entries whose key bytes begin with those of ``prefix`` (by ``serde``, else by the key serde)."""
        return self._ordered(lambda view: view.prefix_scan(prefix, serde), reverse=False)

    def all(self) -> Entries:
        """Return all entries."""
        return self._ordered(lambda view: view.all(), reverse=False)

    def reverse_all(self) -> Entries:
        """Return all entries in reverse order."""
        return self._ordered(lambda view: view.reverse_all(), reverse=True)

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        with self._source.reading(self.name, None if self._partition is None else [self._partition]) as reading:
            return sum(view.approximate_num_entries() for view in reading.views.values())

    def _ordered(self, read: Callable[[Any], Iterable[Any]], *, reverse: bool) -> Entries:
        entries: Entries = self._entries(read, self._by_key, reverse=reverse)
        return ((key, self._value(value)) for key, value in entries)


@with_java_names
class ReadOnlyWindowStore(_Composite):
    """Kafka's ``ReadOnlyWindowStore``; times are starts of windows, both ends of a range are included."""

    def fetch(self, key: Any, time_from: TimestampLike, time_to: TimestampLike | None = None) -> Any:
        """Return the value of the window that starts then; with two times, (start, value) of the windows between."""
        low = timestamp_ms(time_from)
        if time_to is None:
            return self._value(self._lookup(key, lambda view: view.fetch(key, low)))
        return iter(self._windows(key, low, timestamp_ms(time_to), reverse=False))

    def backward_fetch(self, key: Any, time_from: TimestampLike, time_to: TimestampLike) -> Entries:
        """Like `fetch` with two times, the newest first."""
        return iter(self._windows(key, timestamp_ms(time_from), timestamp_ms(time_to), reverse=True))

    def fetch_key_range(self, low: Any, high: Any, time_from: TimestampLike, time_to: TimestampLike) -> Entries:
        """Return (windowed key, value) of the keys from ``low`` to ``high``; None is open."""
        first, last = timestamp_ms(time_from), timestamp_ms(time_to)
        return self._all(lambda view: view.fetch_key_range(low, high, first, last))

    def fetch_all(self, time_from: TimestampLike, time_to: TimestampLike) -> Entries:
        """Return (windowed key, value) of all windows that start in this time range."""
        first, last = timestamp_ms(time_from), timestamp_ms(time_to)
        return self._all(lambda view: view.fetch_all(first, last))

    def backward_fetch_all(self, time_from: TimestampLike, time_to: TimestampLike) -> Entries:
        """Like `fetch_all`, in reverse order."""
        first, last = timestamp_ms(time_from), timestamp_ms(time_to)
        return self._all(lambda view: view.fetch_all(first, last, reverse=True))

    def all(self) -> Entries:
        """Return all windows that have not expired."""
        return self._all(lambda view: view.all())

    def backward_all(self) -> Entries:
        """Return all windows in reverse order."""
        return self._all(lambda view: view.all(reverse=True))

    def _windows(self, key: Any, low: int, high: int, *, reverse: bool) -> list[tuple[int, Any]]:
        windows = self._lookup(key, lambda view: list(view.fetch_range(key, low, high, reverse=reverse)) or None)
        return [(start, self._value(value)) for start, value in windows or ()]

    def _all(self, read: Callable[[Any], Iterable[Any]]) -> Entries:
        return ((key, self._value(value)) for key, value in self._entries(read, None, reverse=False))


@with_java_names
class ReadOnlySessionStore(_Composite):
    """Kafka's ``ReadOnlySessionStore``."""

    def fetch(self, key: Any) -> Iterator[tuple[Windowed[Any], Any]]:
        """Return all sessions of a key, ordered by end."""
        return self._sessions(key, lambda view: view.fetch(key))

    def backward_fetch(self, key: Any) -> Iterator[tuple[Windowed[Any], Any]]:
        """Like `fetch`, the newest first."""
        return self._sessions(key, lambda view: view.fetch(key, reverse=True))

    def fetch_session(self, key: Any, start: TimestampLike, end: TimestampLike) -> Any:
        """Return the value of exactly this session, or None."""
        first, last = timestamp_ms(start), timestamp_ms(end)
        return self._value(self._lookup(key, lambda view: view.fetch_session(key, first, last)))

    def find_sessions(
        self, key: Any, earliest_end: TimestampLike, latest_start: TimestampLike
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """Return a key's sessions that end at ``earliest_end`` or later and start at ``latest_start`` or before."""
        first, last = timestamp_ms(earliest_end), timestamp_ms(latest_start)
        return self._sessions(key, lambda view: view.find_sessions(key, first, last))

    def _sessions(self, key: Any, read: Callable[[Any], Iterable[Any]]) -> Iterator[tuple[Windowed[Any], Any]]:
        sessions = self._lookup(key, lambda view: list(read(view)) or None)
        return ((session, self._value(value)) for session, value in sessions or ())

    def fetch_key_range(self, low: Any = None, high: Any = None) -> Entries:
        """Return all sessions of the keys from ``low`` to ``high``; None is open."""
        entries: Entries = self._entries(lambda view: view.fetch_key_range(low, high), None, reverse=False)
        return ((session, self._value(value)) for session, value in entries)

    def all(self) -> Entries:
        """Return all sessions that have not expired."""
        return self.fetch_key_range()


@with_java_names_of("VersionedKeyValueStore")
class ReadOnlyVersionedStore(_Composite):
    """A read-only versioned store; Kafka reads these only by its query types."""

    def get(self, key: Any, as_of: TimestampLike | None = None) -> VersionedRecord | None:
        """Return the latest version of a key, or the one that was valid at a time."""
        time = None if as_of is None else timestamp_ms(as_of)
        version: VersionedRecord | None = self._lookup(key, lambda view: view.get(key, time))
        return version

    def versions(
        self, key: Any, time_from: TimestampLike = 0, time_to: TimestampLike = 2**63 - 1
    ) -> Iterator[VersionedRecord]:
        """Return the versions of a key that were valid in this time range, the newest first."""
        low, high = timestamp_ms(time_from), timestamp_ms(time_to)
        return iter(self._lookup(key, lambda view: list(view.between(key, low, high)) or None) or ())

    def all(self) -> Entries:
        """Return the latest version of each key."""
        entries: Entries = self._entries(lambda view: view.all(), self._by_key, reverse=False)
        return entries


class _Parameters(Protocol):
    """`StoreQueryParameters`, whose module names the stores of this one."""

    @property
    def store_name(self) -> str: ...

    @property
    def store_type(self) -> Any: ...

    @property
    def partition(self) -> int | None: ...


ReadOnlyStore: TypeAlias = ReadOnlyKeyValueStore | ReadOnlyWindowStore | ReadOnlySessionStore | ReadOnlyVersionedStore
_KINDS: dict[str, type[ReadOnlyStore]] = {
    "key_value": ReadOnlyKeyValueStore,
    "timestamped": ReadOnlyKeyValueStore,
    "lru": ReadOnlyKeyValueStore,
    "window": ReadOnlyWindowStore,
    "session": ReadOnlySessionStore,
    "versioned": ReadOnlyVersionedStore,
}


def _store_html(name: str, read: Callable[[int], Entries]) -> str:
    """Render the first entries of a store, or the error if it cannot be read.

    Args:
        name: The name of the store.
        read: Returns so many entries of each partition.
    """
    try:
        return entries_html(name, islice(read(MOST_ROWS + 1), MOST_ROWS + 1))
    except PenstockError as error:  # a cell that only displays something must not fail
        return facts_html(name, {"cannot be read": error.message})


def open_store(source: StateSource, parameters: _Parameters) -> ReadOnlyStore:
    """Open a read-only store.

    Raises:
        StateError: There is no such store or partition, or it is of another type.
    """
    name, stores = parameters.store_name, source.stores()
    info = stores.get(name)
    if info is None:
        raise unknown_store(name, stores)
    kind = parameters.store_type
    if kind is not None and not kind.fits(info.spec):
        raise StateError(
            f"store {name!r} is of kind {info.spec.kind!r}, not {with_article(kind.name)} store",
            hint="Open it by its name alone, or with a matching type of QueryableStoreTypes.",
            store=name,
        )
    partition = parameters.partition
    if partition is not None and not 0 <= partition < info.partitions:
        raise StateError(
            f"store {name!r} has no partition {partition}",
            hint=f"Its partitions are 0 to {info.partitions - 1}.",
            store=name,
        )
    shows: Shown = "values"
    if kind is not None and (kind.has_headers or kind.has_timestamps):
        shows = "headers" if kind.has_headers else "timestamps"
    return _KINDS[info.spec.kind](source, info, partition, shows=shows)


S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreType(Generic[S]):
    """Kafka's ``QueryableStoreType``, with the type of the stores that it opens."""

    name: str
    kinds: tuple[str, ...]
    has_timestamps: bool = False
    has_headers: bool = False

    def fits(self, spec: StoreSpec) -> bool:
        """Return whether a store can be read as this type."""
        if self.has_headers:
            return spec.kind in self.kinds and spec.keeps_headers
        if self.has_timestamps:
            return spec.kind in self.kinds and (spec.kind == "timestamped" or spec.timestamped)
        return spec.kind in self.kinds


@with_java_names
class QueryableStoreTypes:
    """Kafka's ``QueryableStoreTypes``: a table is read without timestamps and headers unless a type asks for them."""

    @staticmethod
    def key_value_store() -> StoreType[ReadOnlyKeyValueStore]:
        """Return the type of key-value stores, read as values alone."""
        return StoreType("key-value", ("key_value", "timestamped", "lru"))

    @staticmethod
    def timestamped_key_value_store() -> StoreType[ReadOnlyKeyValueStore]:
        """Return the type of timestamped key-value stores; each value is a ``ValueAndTimestamp``."""
        return StoreType("timestamped key-value", ("timestamped",), has_timestamps=True)

    @staticmethod
    def timestamped_key_value_store_with_headers() -> StoreType[ReadOnlyKeyValueStore]:
        """Return the type of key-value stores that keep headers; each value is a ``ValueTimestampHeaders``."""
        return StoreType("headers key-value", ("timestamped", "lru"), has_headers=True)

    @staticmethod
    def window_store() -> StoreType[ReadOnlyWindowStore]:
        """Return the type of window stores, read as values alone."""
        return StoreType("window", ("window",))

    @staticmethod
    def timestamped_window_store() -> StoreType[ReadOnlyWindowStore]:
        """Return the type of timestamped window stores; each value is a ``ValueAndTimestamp``."""
        return StoreType("timestamped window", ("window",), has_timestamps=True)

    @staticmethod
    def timestamped_window_store_with_headers() -> StoreType[ReadOnlyWindowStore]:
        """Return the type of window stores that keep headers; each value is a ``ValueTimestampHeaders``."""
        return StoreType("headers window", ("window",), has_headers=True)

    @staticmethod
    def session_store() -> StoreType[ReadOnlySessionStore]:
        """Return the type of session stores."""
        return StoreType("session", ("session",))

    @staticmethod
    def session_store_with_headers() -> StoreType[ReadOnlySessionStore]:
        """Return the type of session stores that keep headers; each value is an ``AggregationWithHeaders``."""
        return StoreType("headers session", ("session",), has_headers=True)

    @staticmethod
    def versioned_store() -> StoreType[ReadOnlyVersionedStore]:
        """Return the type of versioned stores; Kafka has no such type."""
        return StoreType("versioned", ("versioned",))


@with_java_names
@dataclass(frozen=True, slots=True)
class StoreQueryParameters(Generic[S]):
    """Kafka's ``StoreQueryParameters``.

    >>> wanted = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    >>> wanted.with_partition(1).enable_stale_stores().store_name
    'counts'
    """

    store_name: str
    store_type: StoreType[S] | None = None
    partition: int | None = None
    stale_stores: bool = False

    @classmethod
    def from_name_and_type(cls, name: str, store_type: StoreType[T]) -> StoreQueryParameters[T]:
        """Open the store of this name as this type."""
        check_given(name, str, "from_name_and_type(): name", "a text")
        hint = "For example QueryableStoreTypes.key_value_store()."
        check_given(store_type, StoreType, "from_name_and_type(): store_type", "a type of store", hint)
        return StoreQueryParameters(name, store_type)

    def with_partition(self, partition: int) -> StoreQueryParameters[S]:
        """Read only this partition."""
        check_whole(partition, "with_partition(): partition", 0)
        return replace(self, partition=partition)

    def enable_stale_stores(self) -> StoreQueryParameters[S]:
        """Allow older state: while the application does not run, and of the nearest copy in continuous mode."""
        return replace(self, stale_stores=True)
