"""`/inserts-stream`: rows of a request's body into a stream or table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.errors import PenstockError
from penstock.registry.documents import BadDocumentError, parse_object
from penstock.sql.analyse import InsertedRow
from penstock.sql.catalog import DataFormat, Source
from penstock.sql.compile.serdes import format_serde
from penstock.sql.server.problems import BadRequestError, document
from penstock.sql.session import SqlSession
from penstock.sql.session.writing import write_row

__all__ = ["acknowledged", "split_body", "target_of"]


def split_body(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The arguments in the first line of a body, and the lines of its rows.

    Raises:
        BadRequestError: The first line is no JSON object.
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
    """The stream or table of a name, in any case unless it is in backticks.

    Raises:
        BadRequestError: There is none, or its rows cannot be written.
    """
    plain = name[1:-1] if len(name) > 1 and name[0] == name[-1] == "`" else name.upper()
    found = session.catalog.sources.get(plain)
    if found is None:
        near = session.catalog.nearest(plain)
        raise BadRequestError(
            f"Cannot insert values into an unknown stream/table: {plain}" + (f". Did you mean {near}?" if near else "")
        )
    for wrong, why in (
        (found.read_only, "read-only"),
        (found.headers, "of header columns"),
        (found.window, "windowed"),
    ):
        if wrong:
            raise BadRequestError(f"{plain} is {why}, and takes no rows")
    return found


def acknowledged(source: Source, lines: list[bytes], session: SqlSession) -> Iterator[dict[str, Any]]:
    """Write rows, and yield an acknowledgement for each; it ends with the first that is refused."""
    columns = [(column.name, column.type) for column in source.columns]
    serde = format_serde(DataFormat("JSON", wrap=True), columns, "value")
    for number, line in enumerate(lines):
        try:
            write_row(session.log, _row(source, serde.deserialize(_object(line, source))), session.settings.app)
        except PenstockError as error:
            yield {**document(error), "status": "error", "seq": number}
            return
        yield {"status": "ok", "seq": number}


def _object(line: bytes, source: Source) -> bytes:
    """A row as JSON with the names of columns in their case; unknown names are refused."""
    try:
        given = parse_object(line)
    except BadDocumentError as error:
        raise BadRequestError(f"a row is a JSON object by column, and this one is {error}") from error
    known = {column.name for column in source.columns}
    found = {}
    for name, value in given.items():
        plain = name[1:-1] if len(name) > 1 and name[0] == name[-1] == "`" else name
        plain = plain if plain in known else plain.upper()
        if plain not in known:
            raise BadRequestError(f"{source.name} has no column {name}; its columns are {', '.join(sorted(known))}")
        found[plain] = value
    return json.dumps(found).encode()


def _row(source: Source, row: tuple[Any, ...]) -> InsertedRow:
    pairs = list(zip(source.columns, row, strict=True))
    key = tuple(value for column, value in pairs if column.is_key)
    if source.is_table and any(value is None for value in key):
        raise BadRequestError("a row of a table has a value for each column of the primary key")
    values = tuple(value for column, value in pairs if column.role == "VALUE")
    return InsertedRow(source, key if any(value is not None for value in key) else None, values, None)
