"""`/inserts-stream`: rows of a request's body into a stream or table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import PenstockError
from penstock.serde.registry.model import BadDocumentError, parse_object
from penstock.sql.analyse import InsertedRow
from penstock.sql.catalog import Source
from penstock.sql.formats.json_values import json_reader, parse_json
from penstock.sql.server.problems import BadRequestError, document
from penstock.sql.session import SqlSession
from penstock.sql.session.writing import write_row
from penstock.sql.types import SqlValueError

__all__ = ["acknowledged", "split_body", "target_of"]


def split_body(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the arguments in the first line of a body, and the lines of its rows.

    Raises:
        BadRequestError: The first line is not a JSON object.
    """
    first, *rest = [line for line in body.splitlines() if line.strip()] or [b""]
    try:
        arguments = parse_object(first)
    except BadDocumentError as error:
        raise BadRequestError(f"the first line of the body has the target of the rows, and is {error}") from error
    if not isinstance(arguments.get("target"), str):
        raise BadRequestError('the first line of the body names no target, as in {"target": "CLICKS"}')
    return arguments, rest


def target_of(name: str, session: SqlSession) -> Source:
    """Return the stream or table of a name, in any case unless it is in backticks.

    Raises:
        BadRequestError: There is none, or its rows cannot be written.
    """
    plain = name[1:-1] if len(name) > 1 and name[0] == name[-1] == "`" else name.upper()
    source = session.catalog.sources.get(plain)
    if source is None:
        meant = did_you_mean(plain, session.catalog.sources)
        raise BadRequestError(
            f"Cannot insert values into an unknown stream/table: {plain}" + (f". {meant}" if meant else "")
        )
    for wrong, why in (
        (source.read_only, "read-only"),
        (source.headers, "of header columns"),
        (source.window, "windowed"),
    ):
        if wrong:
            raise BadRequestError(f"{plain} is {why}, and takes no rows")
    return source


def acknowledged(source: Source, lines: list[bytes], session: SqlSession) -> Iterator[dict[str, Any]]:
    """Write rows, and yield an acknowledgement for each; it ends with the first that is refused."""
    readers = {column.name: json_reader(column.type) for column in source.columns}
    for number, line in enumerate(lines):
        try:
            write_row(session.log, _row(source, _values(line, source, readers)), session.settings.app)
        except PenstockError as error:
            yield {**document(error), "status": "error", "seq": number}
            return
        yield {"status": "ok", "seq": number}


def _values(line: bytes, source: Source, readers: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Return the values of a row by column, decimals exact.

    Raises:
        BadRequestError: The line is not an object, names an unknown column, or a value does not fit its column.
    """
    try:
        parse_object(line)  # within its limits
    except BadDocumentError as error:
        raise BadRequestError(f"a row is a JSON object by column, and this one is {error}") from error
    row = {}
    for name, value in parse_json(line.decode()).items():
        plain = name[1:-1] if len(name) > 1 and name[0] == name[-1] == "`" else name
        plain = plain if plain in readers else plain.upper()
        if plain not in readers:
            raise BadRequestError(f"{source.name} has no column {name}; its columns are {', '.join(sorted(readers))}")
        try:
            row[plain] = readers[plain](value)
        except (SqlValueError, ArithmeticError, RecursionError) as error:
            kind = next(column.type for column in source.columns if column.name == plain)
            raise BadRequestError(f"the value of column {plain} is not {with_article(str(kind))}: {error}") from error
    return row


def _row(source: Source, row: dict[str, Any]) -> InsertedRow:
    pairs = [(column, row.get(column.name)) for column in source.columns]
    key = tuple(value for column, value in pairs if column.is_key)
    if source.is_table and any(value is None for value in key):
        raise BadRequestError("a row of a table has a value for each column of the primary key")
    values = tuple(value for column, value in pairs if column.role == "VALUE")
    return InsertedRow(source, key if any(value is not None for value in key) else None, values, None)
