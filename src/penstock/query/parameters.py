"""Which store to open, and as what."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.topology.stores import StoreSpec

__all__ = ["QueryableStoreTypes", "StoreQueryParameters", "StoreType"]


@dataclass(frozen=True, slots=True)
class StoreType:
    """Kafka's ``QueryableStoreType``."""

    name: str
    kinds: tuple[str, ...]
    has_timestamps: bool = False

    def fits(self, spec: StoreSpec) -> bool:
        """Whether a store can be read as this."""
        if self.has_timestamps:
            return spec.kind in self.kinds and (spec.kind == "timestamped" or spec.timestamped)
        return spec.kind in self.kinds


class QueryableStoreTypes:
    """Kafka's ``QueryableStoreTypes``: a table is read without its timestamps unless a type asks for them."""

    @staticmethod
    def key_value_store() -> StoreType:
        """Values alone."""
        return StoreType("key-value", ("key_value", "timestamped", "lru"))

    @staticmethod
    def timestamped_key_value_store() -> StoreType:
        """Each value a ``ValueAndTimestamp``."""
        return StoreType("timestamped key-value", ("timestamped",), has_timestamps=True)

    @staticmethod
    def window_store() -> StoreType:
        """Values alone."""
        return StoreType("window", ("window",))

    @staticmethod
    def timestamped_window_store() -> StoreType:
        """Each value a ``ValueAndTimestamp``."""
        return StoreType("timestamped window", ("window",), has_timestamps=True)

    @staticmethod
    def session_store() -> StoreType:
        """Sessions."""
        return StoreType("session", ("session",))

    @staticmethod
    def versioned_store() -> StoreType:
        """Versions; Kafka has no such type."""
        return StoreType("versioned", ("versioned",))


@dataclass(frozen=True, slots=True)
class StoreQueryParameters:
    """Kafka's ``StoreQueryParameters``.

    >>> wanted = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    >>> wanted.with_partition(1).enable_stale_stores().store_name
    'counts'
    """

    store_name: str
    store_type: StoreType | None = None
    partition: int | None = None
    stale_stores: bool = False

    @classmethod
    def from_name_and_type(cls, name: str, store_type: StoreType) -> StoreQueryParameters:
        """Which store, and as what."""
        return cls(name, store_type)

    def with_partition(self, partition: int) -> StoreQueryParameters:
        """Only this partition."""
        return replace(self, partition=partition)

    def enable_stale_stores(self) -> StoreQueryParameters:
        """Also while the application is not running: what was committed last."""
        return replace(self, stale_stores=True)
