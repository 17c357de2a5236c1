"""Interactive queries: reading the committed state of an application while it runs, and when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
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

# Loaded when first used: each start needs some modules of this package, and few programs query.
__getattr__ = lazy_names(
    __name__,
    {
        "FailureReason": "queries",
        "KeyQuery": "queries",
        "LagInfo": "placement",
        "MultiVersionedKeyQuery": "queries",
        "Position": "position",
        "PositionBound": "position",
        "PrefixQuery": "queries",
        "QueryResult": "queries",
        "QueryableStoreTypes": "stores",
        "RangeQuery": "queries",
        "ReadOnlyRecord": "queries",
        "StateQueryRequest": "queries",
        "StateQueryResult": "queries",
        "StoreQueryParameters": "stores",
        "TimestampedKeyQuery": "queries",
        "TimestampedKeyWithHeadersQuery": "queries",
        "TimestampedRangeQuery": "queries",
        "TimestampedRangeWithHeadersQuery": "queries",
        "TimestampedWindowKeyWithHeadersQuery": "queries",
        "TimestampedWindowRangeWithHeadersQuery": "queries",
        "VersionedKeyQuery": "queries",
        "WindowKeyQuery": "queries",
        "WindowRangeQuery": "queries",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
