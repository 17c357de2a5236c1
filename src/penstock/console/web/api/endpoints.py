"""The addresses of the JSON interface, and how their answers and errors are sent."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from penstock.console.exposed_application import ExposedQueries
from penstock.console.web.api import applications, parts, topic_endpoints, writes
from penstock.console.web.api.parts import complete, connectors, query, statements
from penstock.console.web.api.streams import application_events, tail_events
from penstock.console.web.live import Channels, TooManyStreamsError
from penstock.console.web.page import NotThereError, Visit
from penstock.console.web.site import Site
from penstock.console.web.visitors import Role
from penstock.errors import (
    AuthorizationError,
    FencedError,
    InvalidStateError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    PenstockError,
    SchemaRegistryError,
    UnknownTopicError,
)
from penstock.serving import VISITOR
from penstock.serving.guard import Receive, Scope, Send
from penstock.serving.json_interface import EscapedJson

__all__ = ["PREFIX", "api_routes", "on_error", "problem"]

PREFIX = "/api/v1"
Read = Callable[[Visit], Any]
Change = Callable[[Visit, Mapping[str, Any]], Any]

_READS: tuple[tuple[str, Read], ...] = (
    ("/apps", applications.applications),
    ("/apps/{app}", applications.application),
    ("/apps/{app}/batches", applications.batches),
    ("/apps/{app}/batches/{number}", applications.batch),
    ("/apps/{app}/top", applications.top),
    ("/apps/{app}/tasks", applications.tasks),
    ("/apps/{app}/restores", applications.restores),
    ("/apps/{app}/nodes/{node:path}", applications.node),
    ("/apps/{app}/errors", applications.errors),
    ("/apps/{app}/stores", applications.stores),
    ("/topics", topic_endpoints.topics),
    ("/topics/{name}", topic_endpoints.topic),
    ("/topics/{name}/messages", topic_endpoints.messages),
    ("/topics/{name}/export", topic_endpoints.export),
    ("/topics/{name}/{number:int}/{offset:int}", topic_endpoints.message),
    ("/groups", topic_endpoints.groups),
    ("/groups/{name:path}", topic_endpoints.group),
    ("/connectors", connectors),
    ("/schemas", parts.subjects),
    ("/schemas/subject", parts.subject),
    ("/sql/complete", complete),
    ("/sql", query),
    ("/alerts", applications.alerts),
    ("/metrics", applications.metrics),
    ("/health", applications.health),
    ("/ready", applications.ready),
)
_CHANGES: tuple[tuple[str, str, Role, Change], ...] = (
    ("/groups/{name:path}/reset", "reset group {name}", Role.OPERATOR, writes.reset),
    ("/topics/{name}/messages", "send a message to {name}", Role.ADMIN, writes.produce),
    ("/apps/{app}/stop", "stop {app}", Role.OPERATOR, writes.stop),
    ("/connectors/{name:path}/restart", "restart connector {name}", Role.OPERATOR, writes.restart_connector),
    ("/connectors/{name:path}/pause", "pause or resume connector {name}", Role.OPERATOR, writes.pause_connector),
    ("/connectors/{name:path}/config", "change connector {name}", Role.ADMIN, writes.configure_connector),
    ("/connectors", "create a connector", Role.ADMIN, writes.create_connector),
    ("/topics/{name}/config", "change topic {name}", Role.ADMIN, writes.alter_topic),
    ("/topics/{name}/partitions", "add partitions to {name}", Role.ADMIN, writes.add_partitions),
    ("/topics/{name}/delete", "delete topic {name}", Role.ADMIN, writes.delete_topic),
    ("/topics", "create a topic", Role.ADMIN, writes.create_topic),
    ("/schemas/delete", "delete a schema", Role.ADMIN, parts.delete),
    ("/schemas/restore", "restore a schema", Role.ADMIN, parts.restore),
    ("/schemas/compatibility", "change the compatibility of a subject", Role.ADMIN, parts.set_compatibility),
    ("/schemas", "register a schema", Role.ADMIN, parts.register),
)
_STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (NotThereError, 404),
    (UnknownTopicError, 404),
    (OffsetOutOfRangeError, 404),
    (FencedError, 409),
    (InvalidStateError, 409),
    (AuthorizationError, 403),
    (LogUnavailableError, 503),
)
_PASSED_ON = (404, 409, 422)  # of what a schema registry answers


def api_routes(site: Site, channels: Channels) -> Mount:
    """Make the routes.

    Args:
        site: What the console shows.
        channels: The streams of the console, which count those of the interface, too.
    """

    def visit_of(request: Request) -> Visit:
        names = {name: str(value) for name, value in request.path_params.items()}
        visitor = request.scope.get(VISITOR, site.permissions.everybody)
        return Visit(site, request.url.path, {**request.query_params, **names}, visitor)

    def who_of(request: Request, visit: Visit) -> str:
        return writes.who_of(visit, request.client.host if request.client else "?")

    def reading(work: Read) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return topic_endpoints.as_response(await run_in_threadpool(work, visit_of(request)))

        return answer

    def changing(what: str, role: Role, work: Change) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            visit = visit_of(request)
            data = await request.body()
            said = re.sub(r"[^ -~]", "?", what.format(**visit.parameters))[:300]
            is_plan = visit.flag("dry_run")

            def do() -> Any:
                return work(visit, writes.body_of(data))

            def plan() -> Any:
                writes.require(visit, role)
                return do()

            who = who_of(request, visit)
            outcome = await run_in_threadpool(plan if is_plan else lambda: writes.changed(visit, role, who, said, do))
            return topic_endpoints.as_response(outcome)

        return answer

    async def sql(request: Request) -> Response:
        visit = visit_of(request)
        who = who_of(request, visit)
        return topic_endpoints.as_response(
            await run_in_threadpool(statements, visit, writes.body_of(await request.body()), who)
        )

    async def topology(request: Request) -> Response:
        application = await run_in_threadpool(lambda: visit_of(request).application)
        drawing = None if application is None else await run_in_threadpool(application.topology)
        if drawing is None:
            raise NotThereError("the topology is not known", hint="It is available when the application has started.")
        body = json.dumps(drawing).encode()
        tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, 200, headers, "application/json")

    def streaming(make: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if channels.is_full():
                raise TooManyStreamsError
            events = await run_in_threadpool(make, request)
            headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
            return StreamingResponse(events, media_type="text/event-stream", headers=headers)

        return answer

    def live(request: Request) -> Any:
        visit = visit_of(request)
        if visit.application is None:
            raise NotThereError("the log has no application", hint="Start one with penstock run.")
        return application_events(visit, request.headers.get("last-event-id", visit.get("seen")), channels.count)

    def tail(request: Request) -> Any:
        visit = visit_of(request)
        topic_endpoints.require_topic(visit)
        return tail_events(visit, channels.count)

    routes: list[Any] = [
        Route("/apps/{app}/topology", topology),
        Route("/apps/{app}/live", streaming(live)),
        Route("/topics/{name}/tail", streaming(tail)),
        Mount("/apps/{app}/stores", _Stores(site)),
        Route("/sql", sql, methods=["POST"]),
    ]
    routes += [Route(path, changing(what, role, work), methods=["POST"]) for path, what, role, work in _CHANGES]
    routes += [Route(path, reading(work)) for path, work in _READS]
    return Mount(PREFIX, routes=[*routes, Route("/{path:path}", _missing)])


class _Stores:
    """The routes of the query service, for the stores of each application."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._served: dict[str, tuple[Any, Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        from penstock.query.http.routes import make_app

        name = scope["path_params"]["app"]
        application = Visit(self._site, "", {"app": name}).application
        assert application is not None  # noqa: S101 - it is named
        service = await run_in_threadpool(application.queries)
        origin = service.origin if isinstance(service, ExposedQueries) else service
        served = self._served.get(name)
        if served is None or served[0] is not origin:
            served = self._served[name] = (origin, make_app(service))
        root = scope["root_path"].removesuffix("/stores")
        await served[1]({**scope, "root_path": root}, receive, send)


async def _missing(request: Request) -> Response:
    raise NotThereError(f"there is no {request.url.path[:100]}", hint="docs/how-to/console.md lists the addresses.")


async def on_error(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    """Answer with an error."""
    if isinstance(error, TooManyStreamsError):
        return problem(503, "too many open pages", "Close some, or try again.")
    assert isinstance(error, PenstockError)  # noqa: S101 - registered for it
    text_position = {name: error.facts[name] for name in ("line", "column") if isinstance(error.facts.get(name), int)}
    return problem(_status_of(error), error.message, error.hint, text_position)


def _status_of(error: PenstockError) -> int:
    status = error.facts.get("status")
    if isinstance(error, SchemaRegistryError):  # its 401 is about the console's own credentials, not the visitor's
        return int(str(status)) if status in _PASSED_ON else 502
    by_kind = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
    return by_kind if status is None else int(str(status))


def problem(status: int, message: str, hint: str, place: Mapping[str, Any] = MappingProxyType({})) -> Response:
    """Return an error as JSON; ``place`` is the line and the column of a text that it is about."""
    return EscapedJson({"error": {"code": status, "message": message, "hint": hint, **place}}, status)
