"""The handling of records that fail: Kafka's exception handlers; what they send is in `dead_letters` (KIP-1034).

A handler is "fail" or "continue" (Kafka's ``LogAndFail...``/``LogAndContinue...`` class names mean the same), a
function ``(context, error)`` or ``(context, record, error)`` that returns "fail", "continue" or a Response, or an
object with the methods of Kafka's handlers: ``handle_error(context, record, error)``, and for production also
``handle_serialization_error(context, record, error, origin)``.
"""

from __future__ import annotations

import inspect
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
from penstock.runtime.dead_letters import DeadLetter, ErrorContext, dead_letters_of

if TYPE_CHECKING:
    from penstock.runtime.rows import Headers

__all__ = [
    "Change",
    "Handler",
    "Response",
    "TopicRecord",
    "handler_of",
    "is_decided",
    "is_of_record",
]

Action = Literal["fail", "continue", "retry"]


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
        return Response(action, dead_letters_of(dead_letter_topic, context, error))

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
