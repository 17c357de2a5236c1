"""Parts of answers as plain data, and errors for callers."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import StateError
from penstock.query.http.codec import Encoding
from penstock.query.placement import LagInfo
from penstock.query.position import PositionBound
from penstock.query.source import StoreInfo
from penstock.serde.base import Serde
from penstock.serde.plain import base64_of, plain
from penstock.state.views import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders, VersionedRecord
from penstock.state.views.header_format import Headers

__all__ = [
    "Freshness",
    "Paging",
    "count_of",
    "described",
    "from_cursor",
    "key_of_cursor",
    "lag_of",
    "refused",
    "to_cursor",
    "value_of",
    "windowed",
]

_COUNT_DIGITS = 16


def refused(message: str, hint: str, code: str, status: int, **facts: object) -> StateError:
    """Make an error for the caller, with a code and an HTTP status."""
    return StateError(message, hint=hint, code=code, status=status, **facts)


@dataclass(frozen=True, slots=True)
class Freshness:
    """The required freshness of an answer.

    Attributes:
        position: The least position of the state.
        max_staleness_ms: The longest time since the last commit.
    """

    position: PositionBound = field(default_factory=PositionBound.unbounded)
    max_staleness_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Paging:
    """The encoding of keys in a request, and the wanted part of its answer.

    Attributes:
        encoding: The form in which keys are written.
        reverse: Whether the last entries come first.
        limit: The largest number of entries.
        cursor: ``next`` of the page before; None: the first page.
    """

    encoding: Encoding = "auto"
    reverse: bool = False
    limit: int = 100
    cursor: str | None = None


def described(info: StoreInfo) -> dict[str, Any]:
    """Describe a store."""
    spec = info.spec
    about = {
        "name": spec.name,
        "kind": spec.kind,
        "key_serde": spec.key_serde.name,
        "value_serde": spec.value_serde.name,
        "partitions": info.partitions,
        "global": info.is_global,
    }
    times = {"window_size_ms": spec.window_size_ms, "retention_ms": spec.retention_ms, "history_ms": spec.history_ms}
    return about | {name: value for name, value in times.items() if value}


def value_of(value: Any) -> dict[str, Any]:
    """Convert a value to plain data, with its times and headers if it has any."""
    if isinstance(value, ValueTimestampHeaders):
        return {"value": plain(value.value, base64_of), "timestamp": value.timestamp, **_headers(value.headers)}
    if isinstance(value, AggregationWithHeaders):
        return {"value": plain(value.aggregation, base64_of), **_headers(value.headers)}
    if isinstance(value, ValueAndTimestamp):
        return {"value": plain(value.value, base64_of), "timestamp": value.timestamp}
    if isinstance(value, VersionedRecord):
        return {"value": plain(value.value, base64_of), "timestamp": value.timestamp, "valid_to": value.valid_to}
    return {"value": plain(value, base64_of)}


def _headers(headers: Headers) -> dict[str, Any]:
    return {"headers": [[name, plain(value, base64_of)] for name, value in headers]} if headers else {}


def windowed(entry: tuple[Any, Any]) -> dict[str, Any]:
    """Convert an entry of a window or session store to plain data."""
    key, value = entry
    return {"key": plain(key.key, base64_of), "start": key.window.start, "end": key.window.end, **value_of(value)}


def to_cursor(data: bytes | None) -> str:
    """Encode a key's bytes as a cursor."""
    return base64.urlsafe_b64encode(data or b"").decode()


def from_cursor(cursor: str | None) -> bytes | None:
    """Decode a cursor to a key's bytes; raises StateError (BAD_CURSOR)."""
    try:
        return None if cursor is None else base64.b64decode(cursor, altchars=b"-_", validate=True)
    except ValueError as error:
        raise _bad_cursor(cursor) from error


def key_of_cursor(serde: Serde[Any], cursor: bytes) -> Any:
    """Decode the key in a cursor; raises StateError (BAD_CURSOR)."""
    try:
        key = serde.deserialize(cursor)
        serde.serialize(key)
    except Exception as error:
        raise _bad_cursor(to_cursor(cursor)) from error
    return key


def count_of(cursor: str | None) -> int:
    """Return the number of entries before a cursor."""
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < _COUNT_DIGITS):
        raise _bad_cursor(cursor)
    return int(cursor or 0)


def _bad_cursor(cursor: str | None) -> StateError:
    return refused(f"{cursor!r} is not a cursor", "Pass `next` of the page before unchanged.", "BAD_CURSOR", 400)


def lag_of(lag: LagInfo) -> dict[str, int]:
    """Return the lag of a copy as plain data."""
    at, end = lag.current_offset_position, lag.end_offset_position
    return {"current_offset_position": at, "end_offset_position": end, "offset_lag": lag.offset_lag}
