"""The exception handlers that a case can ask for, and what they saw."""

from __future__ import annotations

from typing import Any

from functions import text
from inputs import header_rows
from java_errors import java_error, message_of, name_of
from penstock.runtime.dead_letters import DeadLetter, ErrorContext
from penstock.runtime.exception_handlers import Response
from things import plain

__all__ = ["handlers_of"]

Spec = dict[str, Any]


def handlers_of(case: Spec, side: list[Spec]) -> dict[str, Any]:
    """The settings of the case's own handlers."""
    settings: dict[str, Any] = {}
    for kind, spec in case.get("handlers", {}).items():
        if spec.get("old"):
            settings[f"{kind}.exception.handler"] = _old(kind, spec, side)
        else:
            settings[f"{kind}.exception.handler"] = CaseHandler(kind, spec, side)
    return settings


def _old(kind: str, spec: Spec, side: list[Spec]) -> Any:
    """A handler that only says what is to happen, and asks for no dead letters."""

    def handle(context: ErrorContext, record: Any, error: Exception) -> str:
        _note(side, kind, context, record, error, refused=kind == "production" and context.origin is None)
        return "continue" if _decision(spec, error) == "resume" else "fail"

    return handle


class CaseHandler:
    """What a handler of a case does."""

    def __init__(self, kind: str, spec: Spec, side: list[Spec]) -> None:
        self.kind = kind
        self.spec = spec
        self.side = side

    def handle_error(self, context: ErrorContext, record: Any, error: Exception) -> Response | None:
        return self._answer(context, record, error)

    def handle_serialization_error(
        self, context: ErrorContext, record: Any, error: Exception, origin: str
    ) -> Response | None:
        assert origin == context.origin
        return self._answer(context, record, error)

    def _answer(self, context: ErrorContext, record: Any, error: Exception) -> Response | None:
        _note(self.side, self.kind, context, record, error)
        letters = [
            DeadLetter(each["topic"], context.raw_key, f"dead: {message_of(error)}".encode(), each.get("timestamp"))
            for each in self.spec.get("dlq", ())
        ]
        match _decision(self.spec, error):
            case "resume":
                return Response.resume(letters)
            case "fail":
                return Response.fail(letters)
            case "retry":
                return Response.retry()
            case "null":
                return None
            case _:
                raise java_error("java.lang.IllegalArgumentException", "the handler fails")


def _decision(spec: Spec, error: Exception) -> str:
    if "fail_if" in spec and spec["fail_if"] in str(message_of(error)):
        return "fail"
    return str(spec["respond"])


def _note(
    side: list[Spec], kind: str, context: ErrorContext, record: Any, error: Exception, *, refused: bool = False
) -> None:
    where: Spec = {
        "topic": context.topic,
        "partition": context.partition,
        "offset": context.offset,
        "timestamp": context.timestamp,
        "node": context.node,
        "task": context.task,
        "source_key": plain(context.raw_key),
        "source_value": plain(context.raw_value),
    }
    if context.headers:
        where["headers"] = header_rows(context.headers)
    row: Spec = {
        "topic": f"@handler:{kind}",
        "exception": name_of(error),
        "message": message_of(error),
        "context": where,
    }
    if not refused:
        row["record"] = None if record is None else _record(record)
        if kind == "production":
            row["record"]["to"] = record.topic
    if context.origin is not None:
        row["origin"] = context.origin.upper()
    side.append(row)


def _record(record: Any) -> Spec:
    shown: Spec = {"key": _shown(record.key), "value": _shown(record.value), "timestamp": record.timestamp}
    if record.headers:
        shown["headers"] = header_rows(record.headers)
    return shown


def _shown(x: Any) -> Any:
    if type(x).__name__ == "Change":
        return {"new": _shown(x.new), "old": _shown(x.old)}
    if x is None or isinstance(x, str | int | bytes) or hasattr(x, "window"):
        return plain(x)
    return f"<{type(x).__name__}>" if not hasattr(x, "timestamp") else text(x)
