"""The routes, rows of queries as text, rows that clients insert, and the server behind the guard."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.escapes import json_text
from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import EnvironmentProblemError, PenstockError
from penstock.serde.plain_json import plain
from penstock.serde.registry.model import BadDocumentError, parse_object
from penstock.sql.analyse import InsertedRow
from penstock.sql.catalog import Source
from penstock.sql.formats.json_values import json_reader, json_writer, parse_json
from penstock.sql.queries.answer import Answer
from penstock.sql.queries.plans import ResultRow
from penstock.sql.server.documents import BadRequestError, document, shown_refusal, status_of
from penstock.sql.server.service import Printed, SqlService
from penstock.sql.session import SqlSession
from penstock.sql.session.changing_statements import write_row
from penstock.sql.types import SqlValueError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.serving import Certificate, HttpServer

__all__ = ["Form", "application", "chunks", "server"]

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


CONTENT_TYPE = "application/json"
BODIES = frozenset({"application/x-www-form-urlencoded", DelimitedForm.content_type, ""})
"""Content types of curl's -d and of clients that send rows, or none: what ksqlDB's documentation has clients send."""
_BODY_BYTES = 8 << 20
_STREAMS = 100


def application(service: SqlService) -> Starlette:
    """Make the ASGI application.

    Raises:
        EnvironmentProblemError: Starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response, StreamingResponse
        from starlette.routing import Route
    except ImportError as error:
        raise EnvironmentProblemError(
            f"a server of SQL needs {error.name}, which is not installed",
            hint='Install it with: pip install "penstock[query]"',
        ) from error

    def shown(content: Any, status: int = 200) -> Response:
        return Response(json_text(content, default=plain), status, None, CONTENT_TYPE)

    def endpoint(work: Callable[[Request, dict[str, Any]], Any]) -> Callable[[Request], Any]:
        """Return the endpoint that answers with a document."""

        async def answered(request: Request) -> Response:
            try:
                body = _body(await request.body())
                return shown(await run_in_threadpool(work, request, body))
            except PenstockError as error:
                problem = document(error)
                return shown(problem, status_of(problem))

        return answered

    def query_endpoint(field: str, settings: str, form_of: Callable[[Request], Form]) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            form = form_of(request)
            try:
                body = _body(await request.body())
                answer = await run_in_threadpool(service.query, body, field=field, settings=settings)
                lines = answer.chunks() if isinstance(answer, Printed) else chunks(answer, form)
                try:
                    first = await run_in_threadpool(next, lines)
                except BaseException:
                    service.ended(answer)
                    raise
            except PenstockError as error:
                problem = document(error)
                return shown(problem, status_of(problem))
            content_type = answer.content_type if isinstance(answer, Printed) else form.content_type
            return StreamingResponse(_streamed(first, lines, answer, service), 200, None, content_type)

        return answered

    async def insert(request: Request) -> Response:
        try:
            arguments, lines = split_body(await request.body())
            source = await run_in_threadpool(target_of, arguments["target"], service.session)
        except PenstockError as error:
            problem = document(error)
            return shown(problem, status_of(problem))
        acknowledgements = await run_in_threadpool(lambda: list(acknowledged(source, lines, service.session)))
        if _accepts(request, CONTENT_TYPE):
            return shown(acknowledgements)
        text = "".join(f"{json.dumps(each)}\n" for each in acknowledgements)
        return Response(text, 200, None, DelimitedForm.content_type)

    def form_of_stream(request: Request) -> Form:
        if _accepts(request, ObjectForm.content_type):
            return ObjectForm()
        return ArrayForm() if _accepts(request, ArrayForm.content_type) else DelimitedForm()

    def command(request: Request) -> str:
        return "/".join(request.path_params[name] for name in ("kind", "name", "action"))

    def cluster(request: Request) -> dict[str, Any]:
        host = request.headers.get("host", "")
        alive = {"hostAlive": True, "lastStatusUpdateMs": 0, "activeStandbyPerQuery": {}, "hostStoreLags": {}}
        return {"clusterStatus": {host: alive}}

    routes = [
        Route("/ksql", endpoint(lambda _, body: service.run(body)), methods=["POST"]),
        Route("/query", query_endpoint("ksql", "streamsProperties", lambda _: ObjectForm()), methods=["POST"]),
        Route("/query-stream", query_endpoint("sql", "properties", form_of_stream), methods=["POST"]),
        Route("/inserts-stream", insert, methods=["POST"]),
        Route("/close-query", endpoint(lambda _, body: service.close_query(body)), methods=["POST"]),
        Route("/ksql/terminate", endpoint(lambda _, body: service.terminate(body)), methods=["POST"]),
        Route("/info", endpoint(lambda *_: service.info())),
        Route("/healthcheck", endpoint(lambda *_: service.health())),
        Route("/status", endpoint(lambda *_: service.status())),
        Route("/status/{kind}/{name:path}/{action}", endpoint(lambda request, _: service.status(command(request)))),
        Route(
            "/is_valid_property/{name}",
            endpoint(lambda request, _: service.is_valid_property(request.path_params["name"])),
        ),
        Route("/clusterStatus", endpoint(lambda request, _: cluster(request))),
        Route("/", endpoint(lambda *_: service.info())),
    ]
    routes.append(Route("/{path:path}", endpoint(_missing), methods=["GET", "POST", "PUT", "DELETE"]))
    return Starlette(routes=routes)


def _missing(request: Request, body: Mapping[str, Any]) -> Any:
    del body
    raise BadRequestError(f"there is no {request.url.path[:200]}; docs/sql/server.md lists the endpoints", 40400)


def _body(data: bytes) -> dict[str, Any]:
    try:
        return parse_object(data)
    except BadDocumentError as error:
        raise BadRequestError(f"the body of the request: {error}") from error


def _accepts(request: Request, content_type: str) -> bool:
    return content_type in request.headers.get("accept", "")


async def _streamed(
    first: str, lines: Iterator[str], answer: Answer | Printed, service: SqlService
) -> AsyncIterator[str]:
    """Yield the text of a result, made in threads; the query ends with its text, or when the client has gone."""
    from starlette.concurrency import run_in_threadpool

    try:
        yield first
        while (text := await run_in_threadpool(next, lines, None)) is not None:
            if text:
                yield text
    finally:
        service.ended(answer)


def server(
    service: SqlService,
    host: str = "127.0.0.1",
    port: int = 8088,
    *,
    users: Mapping[str, str] | None = None,
    certificate: Certificate | None = None,
) -> HttpServer:
    """Make a server that listens and does not serve yet: call its ``run()`` or ``start()``.

    Args:
        service: The work of the endpoints.
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        users: Passwords by user name; None serves requests without a password.
        certificate: The server's certificate, to serve HTTPS; None serves HTTP.

    Raises:
        EnvironmentProblemError: Starlette is not installed, the port is taken, or the certificate cannot be read.
    """
    app = application(service)
    from penstock.serving import CHANGING, READING, AccessRules, HttpServer, Limits, listen

    return HttpServer(
        app,
        listen(host, port, "SQL server"),
        access=AccessRules(frozenset({host.lower()}), users, "penstock sql", BODIES, READING | CHANGING),
        limits=Limits(body_bytes=_BODY_BYTES, streams=_STREAMS if find_spec("h2") else 0),
        certificate=certificate,
        shown=shown_refusal,
        content_type=CONTENT_TYPE,
    )
