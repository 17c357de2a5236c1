"""The handling of records that fail: Kafka's exception handlers and the dead letter queue (KIP-1034).

A handler is "fail" or "continue" (Kafka's ``LogAndFail...``/``LogAndContinue...`` class names mean the same), a
function ``(context, error)`` or ``(context, record, error)`` that returns "fail", "continue" or a Response, or an
object with the methods of Kafka's handlers: ``handle_error(context, record, error)``, and for production also
``handle_serialization_error(context, record, error, origin)``.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from penstock.errors import (
    ConfigError,
    LogUnavailableError,
    PenstockError,
    ProcessingError,
    ProductionError,
    SerializationError,
    TopologyError,
)

if TYPE_CHECKING:
    from penstock.runtime.rows import Headers

__all__ = [
    "Change",
    "DeadLetter",
    "ErrorContext",
    "Handler",
    "Response",
    "TopicRecord",
    "error_headers",
    "handler_of",
    "is_decided",
    "is_of_record",
]

_MOST_CHARACTERS = 30_000  # of a header: messages quote values, and a dead letter has to fit into its topic
Action = Literal["fail", "continue", "retry"]
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


class TopicRecord(NamedTuple):
    """A record of a topic, as a handler gets it: bytes that do not decode, or what cannot be written."""

    topic: str
    key: Any
    value: Any
    timestamp: int
    headers: Headers


class Change(NamedTuple):
    """The value of a table's record, as a handler gets it."""

    new: Any
    old: Any


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record for a dead letter topic; without a timestamp it gets that of the clock."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Response:
    """A handler's decision, and the records for dead letter topics: Kafka's ``Response``.

    >>> Response.resume([DeadLetter("bad", b"k", b"v")]).action
    'continue'
    """

    action: Action
    dead_letters: tuple[DeadLetter, ...] = ()

    @classmethod
    def resume(cls, dead_letters: Iterable[DeadLetter] = ()) -> Self:
        """Leave the record out, and go on."""
        return cls("continue", tuple(dead_letters))

    @classmethod
    def fail(cls, dead_letters: Iterable[DeadLetter] = ()) -> Self:
        """Stop the application with the error."""
        return cls("fail", tuple(dead_letters))

    @classmethod
    def retry(cls) -> Self:
        """Write the record again: for records that the log refuses now, and may take later."""
        return cls("retry")


Handler = Callable[[ErrorContext, Any, Exception], Response]
_OF_RECORDS = (ProcessingError, SerializationError, TopologyError)
_BY_NAME: dict[str, Action] = {"fail": "fail", "continue": "continue", "resume": "continue", "retry": "retry"}


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


def handler_of(
    setting: Any, name: str, dead_letter_topic: str | None, settings: Mapping[str, Any] | None = None
) -> Handler:
    """Return the handler that a setting names; one with the method ``configure`` is called with all settings.

    It raises nothing but the error of a handler that raises itself or returns no answer: that ends the application, and
    no other handler is asked about it (`is_decided`).
    """
    if isinstance(setting, type):
        setting = setting()
    if hasattr(setting, "configure"):
        setting.configure(settings or {})
    if hasattr(setting, "handle_error"):
        return _checked(_by_methods(setting), name)
    if callable(setting):
        return _checked(_by_function(setting), name)
    text = str(setting).rsplit(".", 1)[-1].lower()
    if text == "continue" or "andcontinue" in text:
        action: Action = "continue"
    elif text == "fail" or "andfail" in text or text.startswith("default"):
        action = "fail"
    else:
        raise ConfigError(
            f"{name}: {setting!r} is not an exception handler", hint='Give "fail", "continue" or a function.'
        )

    def handle(context: ErrorContext, record: Any, error: Exception) -> Response:  # noqa: ARG001
        if action == "fail" and _may_pass(error):
            return Response.retry()  # as Kafka's default handler does
        return Response(action, _letters(dead_letter_topic, context, error))

    return handle


def is_decided(error: BaseException) -> bool:
    """Return whether an error has been through a handler: it ends the task, and nobody is asked about it again."""
    return isinstance(error, PenstockError) and bool(error.facts.get("decided"))


def is_of_record(error: Exception) -> bool:
    """Return whether an error may be one record's fault, so that the processing handler can leave that record out."""
    if is_decided(error):
        return False
    return not isinstance(error, PenstockError) or isinstance(error, _OF_RECORDS)


def _may_pass(error: Exception) -> bool:
    """Return whether the log may take later what it refuses now: Kafka's ``RetriableException``."""
    if isinstance(error, ProductionError):
        return str(error.facts.get("code", "")).startswith("UNKNOWN_TOPIC")
    return isinstance(error, LogUnavailableError)


def _letters(topic: str | None, context: ErrorContext, error: Exception) -> tuple[DeadLetter, ...]:
    if not topic:
        return ()
    headers = error_headers(context, error)
    return (DeadLetter(topic, context.raw_key, context.raw_value, context.timestamp, headers),)


def _by_function(fn: Callable[..., Any]) -> Callable[[ErrorContext, Any, Exception], Any]:
    """Return a user's function as one of three arguments."""
    if _takes_record(fn):
        return fn
    return lambda context, record, error: fn(context, error)  # noqa: ARG005


def _takes_record(fn: Callable[..., Any]) -> bool:
    """Return whether a function has to be called with the record too."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) == 3


def _by_methods(handler: Any) -> Callable[[ErrorContext, Any, Exception], Any]:
    """Return a user's object as one function; without ``handle_serialization_error`` such records fail, as in Kafka."""

    def handle(context: ErrorContext, record: Any, error: Exception) -> Any:
        if context.origin is None:
            return handler.handle_error(context, record, error)
        if not hasattr(handler, "handle_serialization_error"):
            return "fail"
        return handler.handle_serialization_error(context, record, error, context.origin)

    return handle


def _checked(ask: Callable[[ErrorContext, Any, Exception], Any], name: str) -> Handler:
    def handle(context: ErrorContext, record: Any, error: Exception) -> Response:
        try:
            decision = ask(context, record, error)
        except Exception as raised:
            raise ProcessingError(
                f"{name} raised {type(raised).__name__}: {raised}, for an error of {context.node}: "
                f"{type(error).__name__}",
                hint='Correct the handler: it returns "fail", "continue" or a Response for every error.',
                node=context.node,
                task=context.task,
                decided=True,
            ) from raised
        if isinstance(decision, Response):
            return decision
        if isinstance(decision, str) and decision in _BY_NAME:
            return Response(_BY_NAME[decision])
        raise ConfigError(
            f"{name} returned {decision!r}",
            hint='A handler returns "fail", "continue" or a Response.',
            decided=True,
        )

    return handle
