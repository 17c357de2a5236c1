"""Keys of URLs, pages and answers as plain data, and errors for callers."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from penstock.errors import StateError
from penstock.query.placement import LagInfo
from penstock.query.position import PositionBound
from penstock.query.source import StoreInfo
from penstock.serde.base import Serde
from penstock.serde.plain_json import base64_of, plain
from penstock.state.views import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders, VersionedRecord
from penstock.state.views.header_entries import Headers

__all__ = [
    "ENCODINGS",
    "PAGE_ENTRIES",
    "AnswerPage",
    "Encoding",
    "Freshness",
    "Paging",
    "count_of",
    "described",
    "from_cursor",
    "in_time",
    "key_of_cursor",
    "lag_of",
    "page_of",
    "parse",
    "refused",
    "to_cursor",
    "value_of",
    "windowed",
]

Encoding: TypeAlias = Literal["auto", "string", "long", "double", "json", "hex", "base64"]
ENCODINGS: tuple[Encoding, ...] = ("auto", "string", "long", "double", "json", "hex", "base64")
_WHOLE = ("long", "integer", "short", "text_long")


def parse(serde: Serde[Any], text: str, encoding: Encoding = "auto") -> Any:
    """Parse the key in a text.

    >>> from penstock.serde import Serdes
    >>> parse(Serdes.long(), "17"), parse(Serdes.string(), "17"), parse(Serdes.string(), "6869", "hex")
    (17, '17', 'hi')

    Args:
        serde: The store's key serde; with "auto" it decides how to read the text.
        text: The text of the user.
        encoding: "hex" and "base64" are the key's bytes; the others are values.

    Raises:
        StateError: The text is not such a value, or the serde does not accept it.
    """
    read: dict[str, Callable[[str], Any]] = {
        "auto": lambda key_text: _by_serde(serde, key_text),
        "string": str,
        "long": int,
        "double": float,
        "json": json.loads,
        "hex": lambda key_text: serde.deserialize(bytes.fromhex(key_text)),
        "base64": lambda key_text: serde.deserialize(base64.b64decode(key_text, validate=True)),
    }
    try:
        key = read[encoding](text)
        serde.serialize(key)
    except Exception as error:
        raise StateError(
            f"{text!r} is not a key for the serde {serde.name!r} ({encoding}): {_first_line(error)}",
            hint=f"Write it as that type, or choose another encoding: {', '.join(ENCODINGS)}.",
            code="BAD_KEY",
            status=400,
        ) from error
    return key


def _by_serde(serde: Serde[Any], text: str) -> Any:
    name = serde.name
    if name in {"string", "uuid"}:
        return serde.deserialize(text.encode())
    if name == "bytes":
        return text.encode()
    if name in _WHOLE:
        return int(text)
    if name in {"double", "float"}:
        return float(text)
    if name == "boolean":
        return {"true": True, "false": False}[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


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


E = TypeVar("E")

PAGE_ENTRIES = 10_000
PAGE_BYTES = 8 << 20
READ_S = 10.0
_LOOK_EVERY = 256


@dataclass(frozen=True, slots=True)
class AnswerPage:
    """A part of an answer.

    Attributes:
        shown: The entries as plain data.
        last: The last entry as it was read; None if there are none.
        has_more: Whether more entries follow.
    """

    shown: list[dict[str, Any]]
    last: Any
    has_more: bool


def page_of(
    entries: Iterable[E], show: Callable[[E], dict[str, Any]], limit: int, max_bytes: int = PAGE_BYTES
) -> AnswerPage:
    """Collect up to ``limit`` entries, or about ``max_bytes`` of JSON text; at least one entry, if there is any.

    >>> page_of(["a", "b", "c"], lambda e: {"key": e}, 2)
    AnswerPage(shown=[{'key': 'a'}, {'key': 'b'}], last='b', has_more=True)
    """
    shown: list[dict[str, Any]] = []
    last, size = None, 0
    for entry in entries:
        if len(shown) >= limit or size >= max_bytes:
            return AnswerPage(shown, last, has_more=True)
        one = show(entry)
        size += len(json.dumps(one))
        shown.append(one)
        last = entry
    return AnswerPage(shown, last, has_more=False)


def in_time(entries: Iterable[E], seconds: float = READ_S) -> Iterator[E]:
    """Yield entries while reading them takes no longer than this.

    Raises:
        StateError: It takes longer (TOO_MUCH_WORK).
    """
    deadline = time.monotonic() + seconds
    for number, entry in enumerate(entries):
        if number % _LOOK_EVERY == 0 and time.monotonic() > deadline:
            raise refused(
                f"{number:,} entries were read in {seconds:.0f} s, and the query has not ended",
                "Query one key, a shorter range or a shorter time.",
                "TOO_MUCH_WORK",
                503,
            )
        yield entry
