"""Interactive queries: reading the committed state of an application while it runs, and when it does not."""

from __future__ import annotations

from penstock.query.placement import LagInfo
from penstock.query.position import Position, PositionBound
from penstock.query.queries import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    QueryResult,
    RangeQuery,
    ReadOnlyRecord,
    StateQueryRequest,
    StateQueryResult,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.query.stores import QueryableStoreTypes, StoreQueryParameters

__all__ = [
    "FailureReason",
    "KeyQuery",
    "LagInfo",
    "MultiVersionedKeyQuery",
    "Position",
    "PositionBound",
    "PrefixQuery",
    "QueryResult",
    "QueryableStoreTypes",
    "RangeQuery",
    "ReadOnlyRecord",
    "StateQueryRequest",
    "StateQueryResult",
    "StoreQueryParameters",
    "TimestampedKeyQuery",
    "TimestampedKeyWithHeadersQuery",
    "TimestampedRangeQuery",
    "TimestampedRangeWithHeadersQuery",
    "TimestampedWindowKeyWithHeadersQuery",
    "TimestampedWindowRangeWithHeadersQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]
