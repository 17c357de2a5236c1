"""The specification of a state store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = ["StoreKind", "StoreSpec"]

StoreKind = Literal[
    "key_value", "timestamped", "versioned", "window", "session", "lru", "buffer", "outer_join", "record_buffer"
]


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Kafka's ``StoreBuilder``, as data.

    ``kind`` "timestamped" is a key-value store whose values carry timestamps (all DSL tables); "window" stores
    of the DSL carry timestamps too (``timestamped`` true), those of plain processors do not. "outer_join" is where
    unmatched records of two joined streams wait, "record_buffer" where those of a stream-table join do.
    Times are milliseconds. ``caching`` None follows ``statestore.cache.max.bytes``. ``holds_hashes``: of the left
    table's values, as ``hash_serde`` writes them (the subscriptions of a foreign-key join). ``untyped``: the topology
    names no type, so the application's default has been filled in.
    """

    name: str
    kind: StoreKind
    key_serde: Any
    value_serde: Any
    persistent: bool = True
    timestamped: bool = False
    caching: bool | None = None
    logging: bool = True
    log_config: dict[str, str] = field(default_factory=dict, hash=False)
    window_size_ms: int = 0
    retention_ms: int = 0
    retain_duplicates: bool = False
    history_ms: int = 0
    max_entries: int = 0
    ttl_ms: int = 0
    changelog_topic: str | None = None  # a source topic that serves as changelog (optimised, global)
    holds_hashes: bool = False
    hash_serde: Any = None
    untyped: bool = False
    time_ordered: bool = False  # windows sorted by time first, as Kafka has them for results on window close
    logs_headers: bool = False  # its changelog has the headers of the records that wrote, as those of some joins
    keeps_headers: bool = False  # entries have headers; of a suppress buffer: those of older values in its changelog
    shows: Literal["headers", "timestamps", "values"] = "headers"  # of what entries keep; what older suppliers return
    of_dsl: bool = False  # so that `dsl.store.format` says whether it keeps headers
    is_placed: bool = True  # the program says whether it is on disk or in memory; else `dsl.store.suppliers.class` does

    @property
    def is_restorable(self) -> bool:
        """Whether a topic has all of its contents: its changelog, or a source topic that serves as one."""
        return self.logging or self.changelog_topic is not None

    @property
    def keeps_numbers(self) -> bool:
        """Whether the store, or operators over it, keep numbers with the task: all but plain key-value stores do."""
        return self.kind not in ("key_value", "timestamped") or self.ttl_ms > 0

    def with_caching_enabled(self) -> StoreSpec:
        """Return the same with a cache, if the application has any (``StoreBuilder.withCachingEnabled``)."""
        return replace(self, caching=True)

    def with_caching_disabled(self) -> StoreSpec:
        """Return the same without a cache, the default (``StoreBuilder.withCachingDisabled``)."""
        return replace(self, caching=False)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StoreSpec:
        """Return the same with a changelog topic, of these settings (``StoreBuilder.withLoggingEnabled``)."""
        return replace(self, logging=True, log_config=dict(config or {}))

    def with_logging_disabled(self) -> StoreSpec:
        """Return the same without a changelog topic: only its segments can restore it."""
        return replace(self, logging=False, log_config={})
