"""The registry as an HTTP server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.registry.routes import ROUTES, handle
from penstock.registry.service import Registry

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Server

__all__ = ["CONTENT_TYPE", "application", "server"]

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_METHODS = ["GET", "POST", "PUT", "DELETE"]


def application(registry: Registry, users: Mapping[str, str] | None = None) -> FastAPI:
    """The registry as an ASGI application; ``/docs`` lists what it answers.

    Args:
        registry: What to serve.
        users: Names and passwords of those who may ask; None lets everybody.

    Raises:
        ConfigError: FastAPI is not installed.
    """
    try:
        from fastapi import FastAPI, Request, Response
    except ImportError as error:
        raise ConfigError(
            f"the registry needs FastAPI: {error}", hint='Run: pip install "penstock[registry]"'
        ) from error

    app = FastAPI(title="Schema registry", description="Confluent's REST interface, by Penstock.")

    def shown(status: int, document: Any, headers: dict[str, str] | None = None) -> Response:
        return Response(json.dumps(document), status, headers, CONTENT_TYPE)

    async def answer(request: Request) -> Response:
        if users is not None and not _may(request.headers.get("authorization", ""), users):
            refusal = {"error_code": 401, "message": "Unauthorized"}
            return shown(401, refusal, {"WWW-Authenticate": 'Basic realm="registry"'})
        body = await request.body()
        try:
            document = json.loads(body) if body else {}
        except ValueError:
            return shown(400, {"error_code": 400, "message": "the body is no JSON"})
        if not isinstance(document, dict):
            return shown(400, {"error_code": 400, "message": "the body is no JSON object"})
        path = request.scope.get("raw_path", request.url.path.encode()).decode("ascii").partition("?")[0]
        return shown(*handle(registry, request.method, path, dict(request.query_params), document))

    # FastAPI's own docs come first; a subject with a slash in it (%2F) fits none of the paths, but the last route.
    answer.__annotations__ = {"request": Request, "return": Response}
    for route in ROUTES:
        name = f"{route.method} {route.path}"
        app.add_api_route(
            route.path, answer, methods=[route.method], name=name, operation_id=name, response_class=Response
        )
    app.add_api_route("/{path:path}", answer, methods=_METHODS, include_in_schema=False, response_class=Response)
    return app


def _may(header: str, users: Mapping[str, str]) -> bool:
    """Whether HTTP's basic authorisation names a user and the right password."""
    import base64
    import binascii

    kind, _, encoded = header.partition(" ")
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    wanted = users.get(name)
    return kind.lower() == "basic" and wanted is not None and secrets.compare_digest(password.encode(), wanted.encode())


def server(
    registry: Registry,
    host: str = "127.0.0.1",
    port: int = 8081,
    *,
    users: Mapping[str, str] | None = None,
    certificate: str | None = None,
    key: str | None = None,
) -> Server:
    """A server that is not running yet: call its ``run()``.

    Args:
        registry: What to serve.
        host: Where to listen.
        port: Where to listen; 0 takes a free one.
        users: Names and passwords of those who may ask; None lets everybody.
        certificate: A PEM file: serve HTTPS.
        key: Its private key, unless the certificate's file has it.

    Raises:
        EnvironmentProblemError: The port is taken.
    """
    import socket

    app = application(registry, users)
    import uvicorn

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise EnvironmentProblemError(
                f"the registry cannot listen on {host}:{port}: {error.strerror}", hint="Choose another --port."
            ) from error
    config = uvicorn.Config(
        app, host, port, log_level="warning", ssl_certfile=certificate, ssl_keyfile=key, lifespan="off"
    )
    return uvicorn.Server(config)
