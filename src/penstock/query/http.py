"""The HTTP interface: a FastAPI application over a `QueryService`. Importing it needs the extra ``query``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeAlias

import httpx
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from penstock.errors import PenstockError
from penstock.query.answers import Bounds, refused
from penstock.query.codec import Encoding
from penstock.query.position import Position, PositionBound
from penstock.query.service import QueryService
from penstock.version import __version__

__all__ = ["Route", "make_app"]

MAX_LIMIT = 10_000
MAX_WAIT_MS = 30_000
_FORWARDED = "x-penstock-forwarded"
_FORWARD_TIMEOUT_S = 10.0
Route: TypeAlias = Literal["local", "forward", "redirect"]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Lower: TypeAlias = Annotated[str | None, Query(alias="from")]
Upper: TypeAlias = Annotated[str | None, Query(alias="to")]
Since: TypeAlias = Annotated[int | None, Query(alias="from")]
Until: TypeAlias = Annotated[int | None, Query(alias="to")]


def make_app(service: QueryService, *, route: Route = "local") -> FastAPI:
    """The application.

    Args:
        service: Answers.
        route: What an instance does with a query of keys when another one runs the application: answer from the
            committed state all the same, forward it there, or redirect. A request may choose with ``?route=``.
    """
    app = FastAPI(title=f"Penstock queries: {service.state.application_id}", version=__version__, redoc_url=None)

    def fresh(
        min_position: str | None = None,
        max_staleness_ms: Annotated[int | None, Query(ge=0)] = None,
        wait_ms: Annotated[int, Query(ge=0, le=MAX_WAIT_MS)] = 0,
    ) -> None:
        if min_position is not None or max_staleness_ms is not None:
            bound = PositionBound.unbounded() if min_position is None else PositionBound.at(_position(min_position))
            service.wait_for(Bounds(bound, max_staleness_ms, wait_ms))

    store = "/stores/{name}"
    freshly = [Depends(fresh)]

    @app.get("/")
    def about() -> dict[str, Any]:
        return service.about()

    @app.get("/health")
    def health() -> dict[str, Any]:
        found = service.about()
        return {name: found[name] for name in ("application", "role", "batch", "staleness_ms", "records_behind")}

    @app.get("/stores")
    def stores() -> list[dict[str, Any]]:
        return service.stores()

    @app.get(store)
    def one_store(name: str) -> dict[str, Any]:
        return service.store(name)

    @app.get(store + "/keys/{key:path}", dependencies=freshly)
    def get(name: str, key: str, encoding: Encoding = "auto", as_of: int | None = None) -> dict[str, Any]:
        return service.get(name, key, encoding, as_of)

    @app.get(store + "/versions/{key:path}", dependencies=freshly)
    def versions(
        name: str, key: str, low: Since = None, high: Until = None, encoding: Encoding = "auto"
    ) -> dict[str, Any]:
        return service.versions(name, key, low, high, encoding)

    @app.get(store + "/range", dependencies=freshly)
    def key_range(
        name: str,
        *,
        low: Lower = None,
        high: Upper = None,
        encoding: Encoding = "auto",
        reverse: bool = False,
        limit: Limit = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        return service.range(name, low, high, encoding=encoding, reverse=reverse, limit=limit, cursor=cursor)

    @app.get(store + "/prefix", dependencies=freshly)
    def prefix(
        name: str, prefix: str, *, encoding: Encoding = "auto", limit: Limit = 100, cursor: str | None = None
    ) -> dict[str, Any]:
        return service.prefix(name, prefix, encoding=encoding, limit=limit, cursor=cursor)

    @app.get(store + "/windows", dependencies=freshly)
    def windows(
        name: str,
        *,
        key: str | None = None,
        low: Since = None,
        high: Until = None,
        encoding: Encoding = "auto",
        reverse: bool = False,
        limit: Limit = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        return service.windows(name, key, low, high, encoding=encoding, reverse=reverse, limit=limit, cursor=cursor)

    @app.get(store + "/sessions", dependencies=freshly)
    def sessions(
        name: str,
        *,
        key: str | None = None,
        low: Since = None,
        high: Until = None,
        encoding: Encoding = "auto",
        limit: Limit = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        return service.sessions(name, key, low, high, encoding=encoding, limit=limit, cursor=cursor)

    @app.get("/metadata/{name}/{key:path}")
    def metadata(name: str, key: str, encoding: Encoding = "auto") -> dict[str, Any]:
        return service.metadata(name, key, encoding)

    @app.middleware("http")
    async def to_the_active(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        wanted = request.query_params.get("route", route)
        if wanted == "local" or not request.url.path.startswith("/stores/") or _FORWARDED in request.headers:
            return await answer(request)
        if wanted not in ("forward", "redirect"):
            return _refusal(refused(
                f"route={wanted!r} is unknown", "Use local, forward or redirect.", "BAD_REQUEST", 400
            ))  # fmt: skip
        active = await run_in_threadpool(service.instances.active)
        if service.is_active() or active is None or not active.serves_http or active.host_info == service.host:
            return await answer(request)  # nobody is nearer to it than this instance
        target = f"{active.url}{request.url.path}?{request.url.query}"
        if wanted == "redirect":
            body = {"active_host": str(active.host_info), "location": target}
            return JSONResponse(body, 307, {"location": target})
        try:
            async with httpx.AsyncClient(timeout=_FORWARD_TIMEOUT_S, trust_env=False) as client:
                found = await client.get(target, headers={_FORWARDED: str(service.host or "?")})
        except httpx.HTTPError:  # it has just gone: the committed state is here as well
            return await answer(request)
        return Response(found.content, found.status_code, {_FORWARDED: "1"}, found.headers.get("content-type"))

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
    return JSONResponse({**answer, "error": body}, status, {"retry-after": "1"} if status == 503 else None)


def _position(text: str) -> Position:
    try:
        return Position.from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError) as error:
        raise refused(
            f"min_position={text!r} is no position",
            'It is JSON such as {"orders": {"0": 17}}: topic, partition, offset of a record.',
            "BAD_REQUEST",
            400,
        ) from error
