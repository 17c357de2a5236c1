"""Typed views over byte maps, which operators, processors and tests read and write."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeAlias

from penstock.errors import StateError
from penstock.state.maps import ByteMap
from penstock.state.views.change_buffer import ChangeBufferView
from penstock.state.views.header_entries import (
    AggregationWithHeaders,
    HeadersLruView,
    HeadersView,
    ValueTimestampHeaders,
)
from penstock.state.views.join_buffers import OuterJoinView, RecordBufferView
from penstock.state.views.keyvalue import KeyValueView, LruView, TimestampedView, ValueAndTimestamp
from penstock.state.views.retention import ExpiringView
from penstock.state.views.session import SessionView
from penstock.state.views.versioned import VersionedRecord, VersionedView
from penstock.state.views.window import WindowView
from penstock.topology.stores import StoreSpec

__all__ = [
    "AggregationWithHeaders",
    "ChangeBufferView",
    "ExpiringView",
    "HeadersLruView",
    "HeadersView",
    "KeyValueView",
    "LruView",
    "OuterJoinView",
    "RecordBufferView",
    "SessionView",
    "StoreView",
    "TimestampedView",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "VersionedRecord",
    "VersionedView",
    "WindowView",
    "open_view",
]

StoreView: TypeAlias = (
    KeyValueView
    | ExpiringView
    | TimestampedView
    | VersionedView
    | LruView
    | WindowView
    | SessionView
    | ChangeBufferView
    | RecordBufferView
    | OuterJoinView
)


def open_view(
    spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int], cache_bytes: int | None = None
) -> StoreView:
    """Return the view of a store's kind over its byte map.

    Args:
        spec: The store.
        entries: Its rows.
        meta: The task's small numbers; window stores keep their stream time there.
        cache_bytes: The size of the cache of a window or session store, 0 for none; None: as the last writer had it.
    """
    match spec.kind:
        case "key_value" if spec.ttl_ms:
            return ExpiringView(spec, entries, meta)
        case "key_value":
            return KeyValueView(spec, entries)
        case "timestamped":
            return HeadersView(spec, entries) if spec.keeps_headers else TimestampedView(spec, entries)
        case "versioned":
            return VersionedView(spec, entries, meta)
        case "lru":
            return HeadersLruView(spec, entries, meta) if spec.keeps_headers else LruView(spec, entries, meta)
        case "record_buffer":
            return RecordBufferView(spec, entries, meta)
        case "window":
            return WindowView(spec, entries, meta, cache_bytes)
        case "session":
            return SessionView(spec, entries, meta, cache_bytes)
        case "buffer":
            return ChangeBufferView(spec, entries, meta)
        case "outer_join":
            return OuterJoinView(spec, entries)
        case kind:
            raise StateError(
                f"store {spec.name!r} is of kind {kind!r}, which has no view",
                hint="The topology was built by another version of Penstock than the one that runs it.",
                store=spec.name,
            )
