"""The handling of records that fail: Kafka's exception handlers and the dead letter queue (KIP-1034).

A handler is "fail" or "continue" (Kafka's ``LogAndFail...``/``LogAndContinue...`` class names mean the same), or a
callable ``fn(context: ErrorContext, error: Exception)`` that returns "fail", "continue" or a Response.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import ConfigError
from penstock.runtime.record import Headers

__all__ = ["DeadLetter", "ErrorContext", "Handler", "Response", "handler_of", "error_headers"]

_MOST_CHARACTERS = 30_000  # of a header: messages quote values, and a dead letter has to fit into its topic
Action = Literal["fail", "continue"]


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The record that failed, and its place. ``raw_key`` and ``raw_value`` are the source record's bytes.

    For a punctuation ``topic`` is None, ``partition`` and ``offset`` are -1.
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


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record for a dead letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class Response:
    """A handler's decision, and the records for dead letter topics."""

    action: Action
    dead_letters: tuple[DeadLetter, ...] = ()


Handler = Callable[[ErrorContext, Exception], Response]


def error_headers(context: ErrorContext, error: Exception) -> Headers:
    """Return the record's own headers, then those that KIP-1034 adds."""
    stack = "".join(traceback.format_exception(error))
    message = "".join(traceback.format_exception_only(error)) if _is_silent(error) else str(error)
    facts = (
        ("exception", f"{type(error).__module__}.{type(error).__qualname__}"),
        ("message", message),
        ("stacktrace", stack),
        ("topic", context.topic or ""),
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


def _bytes_of(text: str) -> bytes:
    """Return a header's bytes: bounded, as messages quote values, and encodable whatever the text contains."""
    shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return shown.encode("utf-8", "backslashreplace")


def handler_of(setting: Any, name: str, dead_letter_topic: str | None) -> Handler:
    """Return the handler that a setting names."""
    if isinstance(setting, type):
        setting = setting()
    if callable(setting):
        return _custom(setting, name)
    text = str(setting).rsplit(".", 1)[-1].lower()
    if text == "continue" or "andcontinue" in text:
        action: Action = "continue"
    elif text == "fail" or "andfail" in text or text.startswith("default"):
        action = "fail"
    else:
        raise ConfigError(
            f"{name}: {setting!r} is not an exception handler", hint='Give "fail", "continue" or a function.'
        )
    return lambda context, error: Response(action, _letters(dead_letter_topic, context, error))


def _letters(topic: str | None, context: ErrorContext, error: Exception) -> tuple[DeadLetter, ...]:
    if not topic:
        return ()
    headers = error_headers(context, error)
    return (DeadLetter(topic, context.raw_key, context.raw_value, context.timestamp, headers),)


def _custom(fn: Callable[[ErrorContext, Exception], Any], name: str) -> Handler:
    def handle(context: ErrorContext, error: Exception) -> Response:
        decision = fn(context, error)
        if isinstance(decision, Response):
            return decision
        if decision in ("fail", "continue"):
            return Response(decision)
        raise ConfigError(f"{name} returned {decision!r}", hint='A handler returns "fail", "continue" or a Response.')

    return handle
