"""Execution of a query on a typed view."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.base.argument_checks import check_given
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import PenstockError, StateError
from penstock.query.position import Position
from penstock.query.queries import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    Query,
    QueryResult,
    RangeQuery,
    ReadOnlyRecord,
    StateQueryRequest,
    StateQueryResult,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.query.source import GLOBAL, IsolatedSource, StateSource, StoreInfo, StoreSnapshot, unknown_store
from penstock.serde.windowed import Window, Windowed
from penstock.state.views import (
    AggregationWithHeaders,
    SessionView,
    TimestampedView,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedView,
    WindowView,
)
from penstock.state.views.keyvalue import OrderedView

__all__ = ["UnknownQueryError", "check_request", "execute", "plain_entries", "position_of", "run_query"]

_FIRST = 0
_LAST = 2**63 - 1


class UnknownQueryError(Exception):
    """The store does not support this type of query; internal to this package."""


class UnsupportedQueryError(Exception):
    """The store answers queries of this type with an error, as Kafka's does; internal to this package."""


def execute(view: Any, query: Query) -> Any:
    """Execute a query on one partition's view; entries are returned as a list.

    Raises:
        UnknownQueryError: The query is for stores of another kind.
    """
    if getattr(query, "with_headers", False) or isinstance(query, TimestampedKeyWithHeadersQuery):
        return _with_headers(view, query)
    match query:
        case KeyQuery() | RangeQuery() if isinstance(view, VersionedView) and not getattr(
            query, "with_timestamps", False
        ):
            raise UnsupportedQueryError(type(query).__name__)
        case KeyQuery() if isinstance(view, OrderedView):
            return without_times(view, view.get(query.key))
        case TimestampedKeyQuery() if isinstance(view, TimestampedView):
            return _timed(view.get(query.key))
        case RangeQuery() if isinstance(view, OrderedView):
            if query.with_timestamps and not isinstance(view, TimestampedView):
                raise UnknownQueryError
            entries = _range(view, query)
            return list(_all_timed(entries) if query.with_timestamps else plain_entries(view, entries))
        case PrefixQuery() if isinstance(view, OrderedView):
            return list(plain_entries(view, view.prefix_scan(query.prefix, query.serde)))
        case WindowKeyQuery() if isinstance(view, WindowView):
            return _windows(view, view.fetch_range(query.key, query.time_from, query.time_to))
        case WindowRangeQuery() if isinstance(view, WindowView) and query.time_from is not None:
            return _windows(view, view.fetch_all(query.time_from, _LAST if query.time_to is None else query.time_to))
        case WindowRangeQuery() if isinstance(view, SessionView) and query.time_from is None:
            sessions = view.fetch_key_range() if query.key is None else view.fetch(query.key)
            return [(session, _value(entry)) for session, entry in sessions]
        case VersionedKeyQuery() if isinstance(view, VersionedView):
            return view.get(query.key, query.as_of_ms)
        case MultiVersionedKeyQuery() if isinstance(view, VersionedView):
            low = _FIRST if query.from_ms is None else query.from_ms
            versions = list(view.between(query.key, low, _LAST if query.to_ms is None else query.to_ms))
            return versions[::-1] if query.order == "ascending" else versions
    raise UnknownQueryError


def _range(view: OrderedView, query: RangeQuery) -> Iterator[tuple[Any, Any]]:
    read = view.reverse_range if query.order == "descending" else view.range
    return read(query.lower, query.upper)


def _with_headers(view: Any, query: Query) -> Any:
    """Execute a query for records with headers."""
    if not view.spec.keeps_headers:
        raise UnknownQueryError
    match query:
        case TimestampedKeyWithHeadersQuery() if isinstance(view, OrderedView):
            return _record(query.key, view.get(query.key))
        case RangeQuery() if isinstance(view, OrderedView):
            return [_record(key, entry) for key, entry in _range(view, query)]
        case WindowKeyQuery() if isinstance(view, WindowView):
            size = view.spec.window_size_ms
            windows = view.fetch_range(query.key, query.time_from, query.time_to)
            return [_record(Windowed(query.key, Window(start, start + size)), entry) for start, entry in windows]
        case WindowRangeQuery() if isinstance(view, WindowView) and query.time_from is not None:
            last = _LAST if query.time_to is None else query.time_to
            return [_record(window, entry) for window, entry in view.fetch_all(query.time_from, last)]
        case WindowRangeQuery() if isinstance(view, SessionView) and query.key is not None:
            return [
                ReadOnlyRecord(session, entry.aggregation, session.window.end, entry.headers)
                for session, entry in view.fetch(query.key)
            ]
    raise UnknownQueryError


def _record(key: Any, entry: ValueTimestampHeaders | None) -> ReadOnlyRecord | None:
    if entry is None:
        return None
    if entry.timestamp < 0:
        raise StateError(
            f"the entry under {key!r} has timestamp {entry.timestamp}, with which no record can be made",
            hint="The store's supplier keeps no timestamps: query it without headers.",
        )
    return ReadOnlyRecord(key, *entry)


def _timed(entry: Any) -> Any:
    """Return an entry without its headers."""
    return ValueAndTimestamp(entry.value, entry.timestamp) if isinstance(entry, ValueTimestampHeaders) else entry


def _all_timed(entries: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    return ((key, _timed(entry)) for key, entry in entries)


def _windows(view: WindowView, entries: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return windows without headers, and without timestamps where the store's supplier keeps none."""
    if view.spec.keeps_headers and view.spec.shows == "values":
        return [(key, entry.value) for key, entry in entries]
    return list(_all_timed(entries))


def _value(entry: Any) -> Any:
    """Return the value of an entry that may have a timestamp and headers."""
    if isinstance(entry, ValueAndTimestamp | ValueTimestampHeaders):
        return entry.value
    return entry.aggregation if isinstance(entry, AggregationWithHeaders) else entry


def without_times(view: Any, entry: Any) -> Any:
    """Return the value of an entry of a store."""
    return _value(entry) if isinstance(view, TimestampedView) or view.spec.keeps_headers else entry


def plain_entries(view: Any, entries: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Return entries without timestamps and headers, as a table read as a plain store."""
    if not isinstance(view, TimestampedView) and not view.spec.keeps_headers:
        return iter(entries)
    return ((key, _value(entry)) for key, entry in entries)


def run_query(source: StateSource, request: StateQueryRequest, *, is_active: bool) -> StateQueryResult:
    """Execute a request, partition by partition, all at the end of the same batch.

    Args:
        source: The state.
        request: The request.
        is_active: Whether the application runs in this process.

    Raises:
        StateError: There is no such store, or it is versioned and the query is not.
    """
    check_request(request)
    stores = source.stores()
    info = stores.get(request.store)
    if info is None:
        raise unknown_store(request.store, stores)
    partitions = set(range(info.partitions) if request.partitions is None else request.partitions)
    missing = set() if info.is_global else {number for number in partitions if not 0 <= number < info.partitions}
    result = StateQueryResult({number: _no_partition(number, info) for number in missing})
    if request.requires_active and not is_active:
        reason, text = FailureReason.NOT_ACTIVE, "the application does not run in this process"
        result.partition_results |= {n: QueryResult.for_failure(reason, text) for n in partitions - missing}
        return result
    started = time.perf_counter()
    try:
        numbers = None if info.is_global else sorted(partitions - missing)
        if request.isolation_level is not None and isinstance(source, IsolatedSource):
            source = source.isolated(request.isolation_level)
        with source.reading(request.store, numbers) as reading:
            opened = time.perf_counter() - started
            if info.is_global:
                result.global_result = _answer(reading, GLOBAL, info, request, opened)
            else:
                for number in sorted(partitions - missing):
                    result.partition_results[number] = _answer(reading, number, info, request, opened)
    except UnsupportedQueryError as error:
        raise StateError(
            f"store {request.store!r} keeps versions and does not support a {error}",
            hint="Query it with a VersionedKeyQuery or a MultiVersionedKeyQuery.",
            store=request.store,
        ) from None
    except PenstockError as error:
        failed = QueryResult.for_failure(FailureReason.STORE_EXCEPTION, str(error))
        if info.is_global:
            result.global_result = failed
        result.partition_results |= dict.fromkeys(() if info.is_global else partitions - missing, failed)
    return result


def check_request(request: object) -> None:
    """Raise TopologyError unless the value is a request."""
    hint = 'For example StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("linux")).'
    check_given(request, StateQueryRequest, "query(): request", "a StateQueryRequest", hint)


def _answer(
    reading: StoreSnapshot, number: int, info: StoreInfo, request: StateQueryRequest, opened_s: float
) -> QueryResult:
    position = position_of(reading, number, info)
    bounded = number if info.is_direct and not info.is_global else None
    started = time.perf_counter()
    if not request.bound.allows(position, bounded):
        answer = QueryResult.for_failure(
            FailureReason.NOT_UP_TO_BOUND,
            f"partition {number} of {request.store!r} is at {position.to_json()}, "
            f"not yet at {request.bound.position.to_json()}",
        )
    elif number not in reading.views:
        text = "no batch has been committed yet"
        answer = QueryResult.for_failure(FailureReason.NOT_PRESENT, text)
    else:
        answer = _executed(reading.views[number], request)
    answer.position, answer.batch = position, reading.batch
    answer.read_from = reading.sources.get(number, "")
    if request.has_execution_info:
        spent = (time.perf_counter() - started) * 1e6
        where = reading.sources.get(number, "nothing")
        answer.execution_info = [
            f"batch {reading.batch} of partition {number} opened in {opened_s * 1e6:.0f} us, from: {where}",
            f"{type(request.query).__name__} on {with_article(info.spec.kind)} store in {spent:.0f} us",
        ]
    return answer


def _executed(view: Any, request: StateQueryRequest) -> QueryResult:
    try:
        return QueryResult.for_result(execute(view, request.query))  # type: ignore[arg-type] # None is unknown too
    except UnknownQueryError:
        return QueryResult.for_failure(
            FailureReason.UNKNOWN_QUERY_TYPE,
            f"store {request.store!r} is of kind {view.spec.kind!r} and does not answer "
            f"{with_article(type(request.query).__name__)}",
        )
    except UnsupportedQueryError:
        raise
    except Exception as error:  # noqa: BLE001 - serdes are the user's
        return QueryResult.for_failure(FailureReason.STORE_EXCEPTION, f"{type(error).__name__}: {error}")


def position_of(reading: StoreSnapshot, number: int, info: StoreInfo) -> Position:
    """Return the part of the batch's position on which a partition of a store depends."""
    if info.is_direct and not info.is_global:
        return reading.position.of_partition(info.topics, number)
    return reading.position


def _no_partition(number: int, info: StoreInfo) -> QueryResult:
    return QueryResult.for_failure(
        FailureReason.DOES_NOT_EXIST,
        f"store {info.spec.name!r} has no partition {number}: they are 0 to {info.partitions - 1}",
    )
