"""The routes, and the server of them behind `penstock.serving`'s guard."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.base.escapes import json_text
from penstock.errors import EnvironmentProblemError, PenstockError
from penstock.serde.plain import plain
from penstock.serde.registry.model import BadDocumentError, parse_object
from penstock.sql.queries.answer import Answer
from penstock.sql.server.inserting import acknowledged, split_body, target_of
from penstock.sql.server.printed import Printed
from penstock.sql.server.problems import BadRequestError, document, shown_refusal, status_of
from penstock.sql.server.rows import ArrayForm, DelimitedForm, Form, ObjectForm, chunks
from penstock.sql.server.service import SqlService

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.serving import Certificate, HttpServer

__all__ = ["CONTENT_TYPE", "application", "server"]

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
