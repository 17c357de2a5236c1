"""The registry as an HTTP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.serde.registry.model import BadDocumentError, parse_object
from penstock.serde.registry.routes import ROUTES, handle
from penstock.serde.registry.service import Registry

if TYPE_CHECKING:
    from fastapi import FastAPI

    from penstock.serving import Certificate, HttpServer

__all__ = ["CONTENT_TYPE", "application", "server"]

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_METHODS = ["GET", "POST", "PUT", "DELETE"]
_BODY_BYTES = 4 << 20


def application(registry: Registry) -> FastAPI:
    """Make the registry's ASGI application; ``/docs`` lists its endpoints.

    Raises:
        ConfigError: FastAPI is not installed.
    """
    try:
        from fastapi import FastAPI, Request, Response
        from starlette.concurrency import run_in_threadpool
    except ImportError as error:
        raise ConfigError(
            f"the registry needs FastAPI: {error}", hint='Run: pip install "penstock[registry]"'
        ) from error
    import json

    from penstock.serving.json_interface import api_page

    title = "Schema registry: Confluent's REST interface, by Penstock"
    app = FastAPI(title=title, docs_url=None, redoc_url=None)

    async def docs() -> Response:
        return Response(api_page(app.openapi()), media_type="text/html")

    async def answer(request: Request) -> Response:
        try:
            document = parse_object(await request.body())
        except BadDocumentError as error:
            status, reply = 400, shown_refusal(400, str(error))
        else:
            path = request.scope.get("raw_path", request.url.path.encode()).decode("latin-1").partition("?")[0]
            query = dict(request.query_params)
            # Comparing schemas takes a while, and must not hold up other requests.
            status, reply = await run_in_threadpool(handle, registry, request.method, path, query, document)
        return Response(json.dumps(reply), status, None, CONTENT_TYPE)

    # FastAPI's own docs come first; a subject with a slash in it (%2F) fits only the last route.
    answer.__annotations__ = {"request": Request, "return": Response}
    app.add_api_route("/docs", docs, include_in_schema=False, response_class=Response)
    docs.__annotations__ = {"return": Response}
    for route in ROUTES:
        name = f"{route.method} {route.path}"
        app.add_api_route(
            route.path, answer, methods=[route.method], name=name, operation_id=name, response_class=Response
        )
    app.add_api_route("/{path:path}", answer, methods=_METHODS, include_in_schema=False, response_class=Response)
    return app


def shown_refusal(status: int, message: str) -> dict[str, Any]:
    """Make the JSON document of a refusal in the form of Confluent's registry."""
    return {"error_code": status, "message": message}


def server(
    registry: Registry,
    host: str = "127.0.0.1",
    port: int = 8081,
    *,
    users: Mapping[str, str] | None = None,
    certificate: Certificate | None = None,
) -> HttpServer:
    """Make a server that listens and does not serve yet: call its ``run()`` or ``start()``.

    Args:
        registry: The registry to serve.
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        users: Passwords by user name, also for ``/docs``; None serves requests without a password.
        certificate: The server's certificate, to serve HTTPS; None serves HTTP.

    Raises:
        ConfigError: FastAPI is not installed.
        EnvironmentProblemError: The port is taken, or the certificate cannot be read.
    """
    app = application(registry)
    from penstock.serving import CHANGING, READING, AccessRules, HttpServer, Limits, listen

    return HttpServer(
        app,
        listen(host, port, "registry"),
        access=AccessRules(frozenset({host.lower()}), users, "registry", methods=READING | CHANGING),
        limits=Limits(body_bytes=_BODY_BYTES),
        certificate=certificate,
        shown=shown_refusal,
        content_type=CONTENT_TYPE,
    )
