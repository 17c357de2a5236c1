"""Stack traces as states and dead letters show them: Kafka's class names, the chain of causes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from penstock.connect.data import java_name

__all__ = ["error_message", "trace_text"]

_MOST_CAUSES = 10


def trace_text(error: BaseException) -> str:
    """Return the stack trace of an error and of its causes.

    >>> from penstock.errors import ConnectError
    >>> print(trace_text(ConnectError("no configs today")))
    org.apache.kafka.connect.errors.ConnectException: no configs today
    """
    parts = []
    for number, each in enumerate(_chain(error)):
        frames = traceback.extract_tb(each.__traceback__)
        lines = [f"\tat {frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames)]
        head = f"{java_name(each)}: {error_message(each)}"
        parts.append("\n".join([head if number == 0 else f"Caused by: {head}", *lines]))
    return "\n".join(parts)


def error_message(error: BaseException) -> str:
    """Return the message of an error, without the hint."""
    return str(getattr(error, "message", None) or error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__
