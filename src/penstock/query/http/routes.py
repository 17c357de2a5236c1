"""The HTTP interface: a FastAPI application for a `QueryService`. Importing it needs the extra ``query``."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeAlias

import httpx
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from penstock.base.log_lines import own_logger
from penstock.base.version import __version__
from penstock.errors import PenstockError
from penstock.query.http.answers import PAGE_ENTRIES, Encoding, Freshness, Paging, refused
from penstock.query.http.service import QueryService
from penstock.query.instances import unreachable_text
from penstock.query.position import Position, PositionBound
from penstock.serving.json_interface import EscapedJson, api_page

__all__ = ["Route", "make_app", "shown_refusal"]

_log = own_logger(__name__)
MAX_WAIT_MS = 30_000
MAX_WAITERS = 32
_LOOK_S = 0.05
_FORWARDED = "x-penstock-forwarded"
_FORWARD_TIMEOUT_S = 10.0
Route: TypeAlias = Literal["local", "forward", "redirect"]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=PAGE_ENTRIES)]
Lower: TypeAlias = Annotated[str | None, Query(alias="from")]
Upper: TypeAlias = Annotated[str | None, Query(alias="to")]
_LAST = 2**63 - 1
_CODES = {500: "STORE_EXCEPTION", 503: "TOO_BUSY"}
Since: TypeAlias = Annotated[int | None, Query(alias="from", ge=0, le=_LAST)]
Until: TypeAlias = Annotated[int | None, Query(alias="to", ge=0, le=_LAST)]
Instant: TypeAlias = Annotated[int | None, Query(ge=0, le=_LAST)]


def _forward(encoding: Encoding = "auto", limit: Limit = 100, cursor: str | None = None) -> Paging:
    return Paging(encoding, limit=limit, cursor=cursor)


def _either_way(
    encoding: Encoding = "auto",
    *,
    reverse: bool = False,
    limit: Limit = 100,
    cursor: str | None = None,
) -> Paging:
    return Paging(encoding, reverse, limit, cursor)


def _asked(request: Request, *, stale: bool = False) -> QueryService:
    """Return the service that answers: with ``stale`` from the nearest copy, however far it is behind."""
    service: QueryService = request.app.state.service
    return service.stale() if stale else service


Forward: TypeAlias = Annotated[Paging, Depends(_forward)]
Asked: TypeAlias = Annotated[QueryService, Depends(_asked)]
EitherWay: TypeAlias = Annotated[Paging, Depends(_either_way)]


def make_app(service: QueryService, *, route: Route = "local") -> FastAPI:
    """Make the application.

    Args:
        service: The service that answers.
        route: The handling of a query of keys while another instance runs the application: answer it from the
            committed state, forward it there, or redirect. A request may choose with ``?route=``.
    """
    app = FastAPI(
        title=f"Penstock queries: {service.state.application_id}",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        default_response_class=EscapedJson,
    )

    app.state.service = service
    waiting = 0
    unreachable: set[str] = set()  # instances of which that has been said

    async def fresh(
        min_position: str | None = None,
        max_staleness_ms: Annotated[int | None, Query(ge=0, le=_LAST)] = None,
        wait_ms: Annotated[int, Query(ge=0, le=MAX_WAIT_MS)] = 0,
    ) -> None:
        """Wait, without a thread, until the committed state is as fresh as the request requires."""
        nonlocal waiting
        if min_position is None and max_staleness_ms is None:
            return
        bound = PositionBound.unbounded() if min_position is None else PositionBound.at(_position(min_position))
        freshness = Freshness(bound, max_staleness_ms)
        deadline = time.monotonic() + wait_ms / 1000
        while (missing := await run_in_threadpool(service.not_fresh, freshness)) is not None:
            if time.monotonic() >= deadline:
                raise missing
            if waiting >= MAX_WAITERS:
                raise refused(
                    f"{waiting} requests are waiting for fresher state", "Try again, or do not wait.", "TOO_BUSY", 503
                )
            waiting += 1
            try:
                await asyncio.sleep(_LOOK_S)
            finally:
                waiting -= 1

    store = "/stores/{name}"
    freshly = [Depends(fresh)]

    @app.get("/")
    def about() -> dict[str, Any]:
        return service.about()

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return Response(api_page(app.openapi()), media_type="text/html")

    @app.get("/health")
    def health() -> Response:
        document = service.health()
        is_stuck = any(alert["name"] == "stuck" for alert in document.get("alerts", ()))
        return EscapedJson(document, 503 if is_stuck else 200)

    @app.get("/ready")
    def ready() -> Response:
        document = service.readiness()
        return EscapedJson(document, 200 if document["ready"] else 503)

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(service.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/metrics/json")
    def metrics_json(matching: Annotated[str, Query(max_length=200)] = "") -> dict[str, Any]:
        return service.metrics_json(matching)

    @app.get("/stores")
    def stores() -> list[dict[str, Any]]:
        return service.stores()

    @app.get(store)
    def one_store(name: str) -> dict[str, Any]:
        return service.store(name)

    @app.get(store + "/keys/{key:path}", dependencies=freshly)
    def get(name: str, key: str, asked: Asked, encoding: Encoding = "auto", as_of: Instant = None) -> dict[str, Any]:
        return asked.get(name, key, encoding, as_of)

    @app.get(store + "/versions/{key:path}", dependencies=freshly)
    def versions(
        name: str, key: str, *, low: Since = None, high: Until = None, paging: Forward, asked: Asked
    ) -> dict[str, Any]:
        return asked.versions(name, key, low, high, paging)

    @app.get(store + "/range", dependencies=freshly)
    def key_range(
        name: str, *, low: Lower = None, high: Upper = None, paging: EitherWay, asked: Asked
    ) -> dict[str, Any]:
        return asked.range(name, low, high, paging)

    @app.get(store + "/prefix", dependencies=freshly)
    def prefix(name: str, prefix: str, *, paging: Forward, asked: Asked) -> dict[str, Any]:
        return asked.prefix(name, prefix, paging)

    @app.get(store + "/windows", dependencies=freshly)
    def windows(
        name: str, *, key: str | None = None, low: Since = None, high: Until = None, paging: EitherWay, asked: Asked
    ) -> dict[str, Any]:
        return asked.windows(name, key, low, high, paging)

    @app.get(store + "/sessions", dependencies=freshly)
    def sessions(
        name: str, *, key: str | None = None, low: Since = None, high: Until = None, paging: Forward, asked: Asked
    ) -> dict[str, Any]:
        return asked.sessions(name, key, low, high, paging)

    @app.get("/lags")
    def lags() -> dict[str, dict[str, dict[str, int]]]:
        return service.lags()

    @app.get("/metadata/{name}/{key:path}")
    def metadata(name: str, key: str, encoding: Encoding = "auto") -> dict[str, Any]:
        return service.metadata(name, key, encoding)

    @app.middleware("http")
    async def to_the_active(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        requested_route = request.query_params.get("route", route)
        if requested_route == "local" or not request.url.path.startswith("/stores/") or _FORWARDED in request.headers:
            return await answer(request)
        if requested_route not in ("forward", "redirect"):
            return _refusal(refused(
                f"route={requested_route!r} is unknown", "Use local, forward or redirect.", "BAD_REQUEST", 400
            ))  # fmt: skip
        active = await run_in_threadpool(service.instances.active)
        if (
            not service.may_forward
            or service.is_active()
            or active is None
            or not active.serves_http
            or active.host_info == service.host
        ):
            return await answer(request)
        path = request.scope["raw_path"].decode("ascii")  # undecoded: a key may contain %2F, or % itself
        query = f"?{request.url.query}" if request.url.query else ""
        target = f"{active.url}{path}{query}"
        if requested_route == "redirect":
            body = {"active_host": str(active.host_info), "location": target}
            return EscapedJson(body, 307, {"location": target})
        try:
            async with httpx.AsyncClient(timeout=_FORWARD_TIMEOUT_S, trust_env=False) as client:
                response = await client.get(target, headers={_FORWARDED: str(service.host or "?")})
        except httpx.HTTPError as error:  # this instance has the committed state as well
            if active.url not in unreachable:
                unreachable.add(active.url)
                _log.warning("%s", unreachable_text(active, str(error) or type(error).__name__))
            return await answer(request)
        unreachable.discard(active.url)
        return Response(response.content, response.status_code, {_FORWARDED: "1"}, response.headers.get("content-type"))

    @app.exception_handler(PenstockError)
    def on_error(request: Request, error: PenstockError) -> Response:  # noqa: ARG001 - FastAPI's signature
        return _refusal(error)

    @app.exception_handler(RequestValidationError)
    def on_bad_request(request: Request, error: RequestValidationError) -> Response:  # noqa: ARG001
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return _refusal(refused(
            f"{where}: {first['msg']}", "The parameters are described at /docs.", "BAD_REQUEST", 400
        ))  # fmt: skip

    return app


def _refusal(error: PenstockError) -> Response:
    facts = error.facts
    status = int(str(facts.get("status", 500)))
    body = {"code": facts.get("code", "STORE_EXCEPTION"), "message": error.message, "hint": error.hint}
    answer: Any = facts.get("answer", {})
    return EscapedJson({**answer, "error": body}, status, {"retry-after": "1"} if status == 503 else None)


def shown_refusal(status: int, message: str) -> dict[str, Any]:
    """Make the document of a refusal by the guard of all servers."""
    return {"error": {"code": _CODES.get(status, "BAD_REQUEST"), "message": message, "hint": ""}}


def _position(text: str) -> Position:
    try:
        return Position.from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise refused(
            f"min_position={text!r} is not a position",
            'It is JSON such as {"orders": {"0": 17}}: topic, partition, offset of a record.',
            "BAD_REQUEST",
            400,
        ) from error
