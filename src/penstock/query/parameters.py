"""The parameters of opening a store: its name and type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.base.argument_checks import check_given, check_whole
from penstock.base.java_names import with_java_names
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from penstock.query.stores import (
        ReadOnlyKeyValueStore,
        ReadOnlySessionStore,
        ReadOnlyVersionedStore,
        ReadOnlyWindowStore,
    )

__all__ = ["QueryableStoreTypes", "StoreQueryParameters", "StoreType"]


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
