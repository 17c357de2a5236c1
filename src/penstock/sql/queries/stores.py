"""Access to the state of persistent queries: by store, key, range and window.

`StoreAccess` is all that pull queries ask for. `SqlStoreAccess` has it through interactive queries, which a test driver
and a running application answer alike: of its stores now the one, of committed state the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from penstock.errors import StateError
from penstock.query import (
    RangeQuery,
    StateQueryRequest,
    StateQueryResult,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.serde.windowed import Window, Windowed

__all__ = ["FOREVER", "SqlStoreAccess", "StoreAccess", "MaterializedRow"]

FOREVER = 2**63 - 1  # milliseconds


class MaterializedRow(NamedTuple):
    """An entry of a store: the key (`Windowed` where it has windows), the value, its time in milliseconds."""

    key: Any
    value: Any
    timestamp: int


class StoreAccess(Protocol):
    """Read access to stores by their names; each call reads one state of the store."""

    def get(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        """Return the entry of a key of a store without windows; nothing if there is none."""
        ...

    def range(self, store: str, lower: Any, upper: Any) -> Iterator[MaterializedRow]:
        """Return the entries from one key to another, both included, by the bytes of keys; None is open."""
        ...

    def windows(self, store: str, key: Any, starts: tuple[int, int], size_ms: int) -> Iterator[MaterializedRow]:
        """Return the windows that start in a range of times, both included; of all keys if the key is None."""
        ...

    def sessions(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        """Return the sessions of a key, or of all keys if it is None."""
        ...


class SqlStoreAccess:
    """`StoreAccess` by interactive queries.

    Args:
        query: ``KafkaStreams.query`` or ``TopologyTestDriver.query``.

    Attributes:
        unwritten: Whether a store has been asked that has no committed state yet.
    """

    def __init__(self, query: Callable[[StateQueryRequest], StateQueryResult]) -> None:
        self._query = query
        self.unwritten = False

    def get(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        for entry in self._results(store, TimestampedKeyQuery(key)):
            yield MaterializedRow(key, entry.value, entry.timestamp)

    def range(self, store: str, lower: Any, upper: Any) -> Iterator[MaterializedRow]:
        query: RangeQuery = TimestampedRangeQuery(lower, upper)
        for entries in self._results(store, query):
            for key, entry in entries:
                yield MaterializedRow(key, entry.value, entry.timestamp)

    def windows(self, store: str, key: Any, starts: tuple[int, int], size_ms: int) -> Iterator[MaterializedRow]:
        if key is None:
            for entries in self._results(store, WindowRangeQuery(None, *starts)):
                for windowed, entry in entries:
                    yield MaterializedRow(windowed, entry.value, entry.timestamp)
            return
        for entries in self._results(store, WindowKeyQuery(key, *starts)):
            for start, entry in entries:
                yield MaterializedRow(Windowed(key, Window(start, start + size_ms)), entry.value, entry.timestamp)

    def sessions(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        for entries in self._results(store, WindowRangeQuery(key)):
            for windowed, aggregate in entries:
                yield MaterializedRow(windowed, aggregate, windowed.window.end)

    def _results(self, store: str, query: Any) -> Iterator[Any]:
        answer = self._query(StateQueryRequest(store, query))
        results = [*answer.partition_results.values()]
        if answer.global_result is not None:
            results.append(answer.global_result)
        for result in results:
            if result.failure_reason is not None and result.failure_reason.value == "NOT_PRESENT":
                self.unwritten = True  # no batch has been committed yet
                continue
            if result.failure_reason is not None:
                raise StateError(
                    f"store {store!r} cannot be read: {result.failure_message}",
                    hint=f"The reason is {result.failure_reason.value}.",
                    store=store,
                )
            if result.result is not None:
                yield result.result
