"""Interactive queries: reading the committed state of an application while it runs, and when it does not."""

from __future__ import annotations

from penstock.query.parameters import QueryableStoreTypes, StoreQueryParameters
from penstock.query.placement import LagInfo
from penstock.query.position import Position, PositionBound
from penstock.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    RangeQuery,
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
from penstock.query.results import FailureReason, QueryResult, ReadOnlyRecord, StateQueryRequest, StateQueryResult

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
