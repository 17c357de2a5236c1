"""Dead letters: records for the topic of failed records, with the reason in their headers (KIP-1034).

An exception handler asks for them (`exception_handlers`): "fail" and "continue" make one of the source record where
``errors.dead.letter.queue.topic.name`` is set, a handler of the user's any. `TaskContext` collects those of a task's
batch, and they are written with its outputs.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.runtime.rows import Headers

__all__ = ["DeadLetter", "ErrorContext", "Origin", "dead_letters_of", "error_headers"]

_MOST_CHARACTERS = 30_000  # of a header: messages quote values, and a dead letter has to fit into its topic
Origin = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The record that failed, and its place: Kafka's ``ErrorHandlerContext``.

    ``raw_key`` and ``raw_value`` are the source record's bytes; a record that the log refuses has none any more.
    For a punctuation ``topic`` is None, ``partition`` and ``offset`` are -1. ``origin`` is "key" or "value" where a
    record for a topic cannot be encoded.
    """

    task: str
    node: str
    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    raw_key: bytes | None
    raw_value: bytes | None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record for a dead letter topic; without a timestamp it gets that of the clock."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Headers = ()


def dead_letters_of(topic: str | None, context: ErrorContext, error: Exception) -> tuple[DeadLetter, ...]:
    """Return the dead letter of a source record; none where no topic is set."""
    if not topic:
        return ()
    headers = error_headers(context, error)
    return (DeadLetter(topic, context.raw_key, context.raw_value, context.timestamp, headers),)


def error_headers(context: ErrorContext, error: Exception) -> Headers:
    """Return the record's own headers, then those that KIP-1034 adds."""
    stack = "".join(traceback.format_exception(error))
    message = "".join(traceback.format_exception_only(error)) if _is_silent(error) else str(error)
    facts = (
        ("exception", f"{type(error).__module__}.{type(error).__qualname__}"),
        ("message", message or None),
        ("stacktrace", stack),
        ("topic", context.topic),
        ("partition", str(context.partition)),
        ("offset", str(context.offset)),
    )
    return (*context.headers, *((f"__streams.errors.{name}", _bytes_of(text)) for name, text in facts))


def _is_silent(error: Exception) -> bool:
    """Return whether an error of a user's class has no message."""
    try:
        str(error)
    except Exception:  # noqa: BLE001 - whatever its __str__ raises
        return True
    return False


def _bytes_of(text: str | None) -> bytes | None:
    """Return a header's bytes: bounded, as messages quote values, and encodable whatever the text contains."""
    if text is None:
        return None
    shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return shown.encode("utf-8", "backslashreplace")
