"""Interactive queries of recorded cases: making them, and their answers as rows of outputs.

Kafka's messages name Java classes, so the reason of a failure is compared, not its text; and an error by its class
(`ERRORS`). Answers are lists here, so what fails in Kafka's iterator is a failure of the store. A position is compared
where Kafka gives one: some of its failures have none.
"""

from __future__ import annotations

from typing import Any

from inputs import header_rows
from penstock.errors import PenstockError
from penstock.query import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    RangeQuery,
    ReadOnlyRecord,
    StateQueryRequest,
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
from penstock.state.views import ValueAndTimestamp, VersionedRecord
from things import Spec, plain

__all__ = ["answer_to", "query_difference"]

ERRORS = {
    "java.lang.NullPointerException": {"StateError", "ConfigError"},
    "java.lang.IllegalArgumentException": {"StateError"},
    "java.lang.UnsupportedOperationException": {"StateError"},
    "org.apache.kafka.streams.errors.StreamsException": {"STORE_EXCEPTION"},
}
BY_KEY = {"key": KeyQuery, "timestamped_key": TimestampedKeyQuery, "headers_key": TimestampedKeyWithHeadersQuery}
RANGES = {
    "range": RangeQuery,
    "timestamped_range": TimestampedRangeQuery,
    "headers_range": TimestampedRangeWithHeadersQuery,
}
WINDOWS = {"window_key": WindowKeyQuery, "headers_window_key": TimestampedWindowKeyWithHeadersQuery}
WINDOW_RANGES = {"window_range": WindowRangeQuery, "headers_window_range": TimestampedWindowRangeWithHeadersQuery}


class Unknown:
    """A query that no store knows."""


def answer_to(driver: Any, q: Spec) -> Spec:
    """The answer to a query, as it stands in the case; ``throws`` has the name of our error."""
    try:
        request = StateQueryRequest(q["store"], _query(q), bound=_bound(q))
        if "isolation" in q:
            request = request.with_isolation_level(q["isolation"])
        if q.get("execution_info"):
            request = request.enable_execution_info()
        answers = driver.query(request)
    except PenstockError as error:
        return {"topic": "@query", "throws": type(error).__name__}
    answer = answers.global_result or answers.partition_results[0]
    row: Spec = {"topic": "@query", "position": answer.position.to_json()}
    if answer.execution_info:
        row["execution_info"] = answer.execution_info
    if answer.is_failure:
        return {**row, "failure": answer.failure_reason.value}
    if isinstance(answer.result, list):
        return {**row, "rows": [_row(entry) for entry in answer.result]}
    return {**row, "result": _value(answer.result)}


def query_difference(what: str, recorded: Spec, row: Spec, *, has_position: bool = True) -> str | None:
    """The first difference between the recorded answer and ours; ``has_position`` says whether positions count."""
    if "throws" in recorded:
        names = ERRORS[recorded["throws"]["error"]]
        ours = row.get("throws", row.get("failure"))
        return None if ours in names else f"{what}: expected {recorded['throws']['error']}, got {row}"
    left_out = {"message", "execution_info", *(() if has_position else ("position",))}
    expected = {name: value for name, value in recorded.items() if name not in left_out}
    got = {name: value for name, value in row.items() if name in expected or name not in ("position", "execution_info")}
    if bool(recorded.get("execution_info")) != bool(row.get("execution_info")):
        return f"{what}: one has execution info: {row}"
    return None if expected == got else f"{what}: expected {expected}, got {got}"


def _query(q: Spec) -> Any:
    kind = q["type"]
    if kind in BY_KEY:
        query = BY_KEY[kind].with_key(q["key"])
        return query.skip_cache() if q.get("skip_cache") else query
    if kind in RANGES:
        query = RANGES[kind].with_range(q.get("lower"), q.get("upper"))
        order = q.get("order")
        return query if order is None else getattr(query, f"with_{order}_keys")()
    if kind in WINDOWS:
        return WINDOWS[kind].with_key_and_window_start_range(q["key"], q["from"], q["to"])
    if kind in WINDOW_RANGES:
        of = WINDOW_RANGES[kind]
        return of.with_window_start_range(q["from"], q["to"]) if q.get("key") is None else of.with_key(q["key"])
    if kind == "versioned_key":
        query = VersionedKeyQuery.with_key(q["key"])
        return query.as_of(q["as_of"]) if "as_of" in q else query
    if kind == "multi_versioned_key":
        query = MultiVersionedKeyQuery.with_key(q["key"])
        query = query.from_time(q["from"]) if "from" in q else query
        query = query.to_time(q["to"]) if "to" in q else query
        order = q.get("order")
        return query if order is None else getattr(query, f"with_{order}_timestamps")()
    return Unknown()


def _bound(q: Spec) -> PositionBound:
    if "bound" not in q:
        return PositionBound.unbounded()
    return PositionBound.at(Position.from_json(q["bound"]))


def _value(x: Any) -> Any:
    if isinstance(x, ValueAndTimestamp):
        return {"value": plain(x.value), "timestamp": x.timestamp}
    if isinstance(x, VersionedRecord):
        return {"value": plain(x.value), "timestamp": x.timestamp, "valid_to": x.valid_to}
    if isinstance(x, ReadOnlyRecord):
        row = {"key": plain(x.key), "value": plain(x.value), "timestamp": x.timestamp}
        return row | ({"headers": header_rows(x.headers)} if x.headers else {})
    return plain(x)


def _row(entry: Any) -> Spec:
    if isinstance(entry, VersionedRecord | ReadOnlyRecord):
        row: Spec = _value(entry)
        return row
    key, value = entry
    shown = _value(value)
    return {"key": plain(key), **(shown if isinstance(value, ValueAndTimestamp) else {"value": shown})}
