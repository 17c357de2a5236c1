"""Errors as ksqlDB's documents: a type, a code whose first three digits are the HTTP status, a message."""

from __future__ import annotations

from typing import Any

from penstock.errors import ConfigError, PenstockError, SqlError

__all__ = ["BadRequestError", "RefusedStatementError", "document", "shown_refusal", "status_of"]

BAD_REQUEST = 40000
BAD_STATEMENT = 40001
QUERY_ENDPOINT = 40002
NOT_FOUND = 40400
TOO_MANY = 42900
SERVER_ERROR = 50000


class BadRequestError(PenstockError):
    """A request that the server cannot take.

    Cause: A body that is not JSON, lacks a field, or has a value of another type; an id that the server does not know.

    Remedy: Send what the message asks for; docs/sql/server.md has an example for each endpoint.
    """

    def __init__(self, message: str, code: int = BAD_REQUEST) -> None:
        super().__init__(message)
        self.code = code


class RefusedStatementError(PenstockError):
    """A statement of a request that was refused, with the answers of those before it.

    Cause: The statement; the error that it holds has the reason.

    Remedy: Correct the statement. Those before it have run.
    """

    def __init__(self, error: PenstockError, statement: str, entities: list[dict[str, Any]], code: int) -> None:
        super().__init__(str(error))
        self.statement = statement
        self.entities = entities
        self.code = code


def document(error: PenstockError) -> dict[str, Any]:
    """Return the document of an error.

    >>> document(BadRequestError("no body"))["error_code"]
    40000
    """
    if isinstance(error, RefusedStatementError):
        details = {"statementText": error.statement, "entities": error.entities}
        return {**_document("statement_error", error.code, error.message), **details}
    if isinstance(error, BadRequestError):
        return _document("generic_error", error.code, error.message)
    if isinstance(error, SqlError | ConfigError):
        return _document("statement_error", BAD_STATEMENT, str(error))
    return _document("generic_error", SERVER_ERROR, str(error))


def _document(kind: str, code: int, message: str) -> dict[str, Any]:
    return {"@type": kind, "error_code": code, "message": message, "stackTrace": []}


def status_of(problem: dict[str, Any]) -> int:
    """Return the HTTP status of an error's document."""
    return int(problem["error_code"]) // 100


def shown_refusal(status: int, message: str) -> dict[str, Any]:
    """Return the document of a request that is refused before it is looked at."""
    return _document("generic_error", status * 100, message)
