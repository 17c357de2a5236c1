"""Pieces of answers as plain data, and errors that say what a caller did wrong."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import StateError
from penstock.query.codec import plain
from penstock.query.position import PositionBound
from penstock.query.source import StoreInfo
from penstock.state.views import ValueAndTimestamp, VersionedRecord

__all__ = [
    "Bounds",
    "count_of",
    "described",
    "from_cursor",
    "now_ms",
    "refused",
    "to_cursor",
    "value_of",
    "windowed",
]


def refused(message: str, hint: str, code: str, status: int, **facts: object) -> StateError:
    """An error that says what the caller did wrong, with a code and an HTTP status."""
    return StateError(message, hint=hint, code=code, status=status, **facts)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How fresh an answer must be.

    Attributes:
        position: What must be in the state.
        max_staleness_ms: How long ago the last commit may be.
        wait_ms: How long to wait for that.
    """

    position: PositionBound = field(default_factory=PositionBound.unbounded)
    max_staleness_ms: int | None = None
    wait_ms: int = 0


def described(info: StoreInfo) -> dict[str, Any]:
    """A store."""
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
    """A value, with its times if it has any."""
    if isinstance(value, ValueAndTimestamp):
        return {"value": plain(value.value), "timestamp": value.timestamp}
    if isinstance(value, VersionedRecord):
        return {"value": plain(value.value), "timestamp": value.timestamp, "valid_to": value.valid_to}
    return {"value": plain(value)}


def windowed(entry: tuple[Any, Any]) -> dict[str, Any]:
    """An entry of a window or session store."""
    key, value = entry
    return {"key": plain(key.key), "start": key.window.start, "end": key.window.end, **value_of(value)}


def to_cursor(data: bytes | None) -> str:
    """The cursor behind a key's bytes."""
    return base64.urlsafe_b64encode(data or b"").decode()


def from_cursor(cursor: str | None) -> bytes | None:
    """The way back."""
    try:
        return None if cursor is None else base64.urlsafe_b64decode(cursor)
    except ValueError as error:
        raise _bad_cursor(cursor) from error


def count_of(cursor: str | None) -> int:
    """How many entries a cursor stands behind."""
    if cursor is not None and not cursor.isdecimal():
        raise _bad_cursor(cursor)
    return int(cursor or 0)


def _bad_cursor(cursor: str | None) -> StateError:
    return refused(f"{cursor!r} is no cursor", "Give back `next` of the page before, as it was.", "BAD_CURSOR", 400)


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000
