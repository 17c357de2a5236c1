"""Results of queries as text: ksqlDB's forms of `/query` and of `/query-stream`, made chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from penstock.base.escapes import json_text
from penstock.errors import PenstockError
from penstock.sql.formats.json_text import json_writer
from penstock.sql.queries.answer import Answer
from penstock.sql.queries.plans import ResultRow
from penstock.sql.server.problems import document

__all__ = ["ArrayForm", "DelimitedForm", "Form", "ObjectForm", "chunks"]

MOST_ROWS = 500  # in one chunk


class Form(Protocol):
    """The form of a result."""

    content_type: str

    def begin(self, answer: Answer) -> str:
        """Return what stands before the rows."""
        ...

    def row(self, row: ResultRow, texts: list[str]) -> str:
        """Return a row, whose values are JSON texts."""
        ...

    def end(self, answer: Answer) -> str:
        """Return what stands behind the rows."""
        ...

    def failed(self, error: PenstockError) -> str:
        """Return what stands in place of further rows after an error."""
        ...


class ObjectForm:
    """A JSON array of objects with ``header``, ``row`` and ``finalMessage``: the form of `/query`."""

    content_type = "application/vnd.ksql.v1+json"

    def begin(self, answer: Answer) -> str:
        header = {"queryId": answer.results.query_id, "schema": answer.results.schema()}
        return f"[{_dumps({'header': header})}"

    def row(self, row: ResultRow, texts: list[str]) -> str:
        mark = ',"tombstone":true' if row.tombstone else ""
        return f',\n{{"row":{{"columns":[{",".join(texts)}]{mark}}}}}'

    def end(self, answer: Answer) -> str:
        ended = answer.results.ended
        return f",\n{_dumps({'finalMessage': ended})}]\n" if ended else "]\n"

    def failed(self, error: PenstockError) -> str:
        return f",\n{_dumps({'errorMessage': document(error)})}]\n"


class DelimitedForm:
    """A line with the names and types of the columns, then a JSON array a line: the form of `/query-stream`."""

    content_type = "application/vnd.ksqlapi.delimited.v1"

    def begin(self, answer: Answer) -> str:
        return f"{_dumps(_columns(answer))}\n"

    def row(self, row: ResultRow, texts: list[str]) -> str:
        del row
        return f"[{','.join(texts)}]\n"

    def end(self, answer: Answer) -> str:
        del answer
        return ""

    def failed(self, error: PenstockError) -> str:
        return f"{_dumps(document(error))}\n"


class ArrayForm:
    """The lines of `DelimitedForm` as one JSON array."""

    content_type = "application/json"

    def begin(self, answer: Answer) -> str:
        return f"[{_dumps(_columns(answer))}"

    def row(self, row: ResultRow, texts: list[str]) -> str:
        del row
        return f",\n[{','.join(texts)}]"

    def end(self, answer: Answer) -> str:
        del answer
        return "]\n"

    def failed(self, error: PenstockError) -> str:
        return f",\n{_dumps(document(error))}]\n"


def _columns(answer: Answer) -> dict[str, object]:
    columns = answer.results.columns
    return {
        "queryId": answer.results.query_id if answer.runs_on else None,
        "columnNames": [column.name for column in columns],
        "columnTypes": [str(column.type) for column in columns],
    }


def _dumps(content: object) -> str:
    return json_text(content, separators=(",", ":"))


def chunks(answer: Answer, form: Form) -> Iterator[str]:
    """Yield a result as text; an empty text whenever no row comes for a while.

    An error after the beginning becomes part of the text, as the status has been sent.
    """
    writers = [json_writer(column.type) for column in answer.results.columns]
    lines: list[str] = []
    rows = answer.rows()
    first: list[ResultRow | None] = []
    for row in rows:
        first.append(row)
        break  # an error of the first row is one of the request
    yield form.begin(answer)
    try:
        for row in _both(first, rows):
            if row is not None:
                texts = [write(value) for write, value in zip(writers, row.values, strict=True)]
                lines.append(form.row(row, texts))
            if row is None or len(lines) >= MOST_ROWS:
                yield "".join(lines)
                lines.clear()
    except PenstockError as error:
        yield "".join([*lines, form.failed(error)])
        return
    yield "".join([*lines, form.end(answer)])


def _both(first: list[ResultRow | None], rest: Iterator[ResultRow | None]) -> Iterator[ResultRow | None]:
    yield from first
    yield from rest
