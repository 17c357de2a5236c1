"""The console as an ASGI application: routes, headers, errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from penstock.console.web.api.endpoints import api_routes, on_error, problem
from penstock.console.web.live import Channels, TooManyStreamsError
from penstock.console.web.page import NotThereError, Page, Visit
from penstock.console.web.pages import PAGES
from penstock.console.web.rendering import Renderer
from penstock.console.web.site import Site
from penstock.console.web.visitors import Visitor
from penstock.errors import PenstockError
from penstock.serving import VISITOR
from penstock.serving.guard import Application, Receive, Scope, Send

__all__ = ["make_console"]

_STATIC = Path(__file__).parent / "static"
_MOST_CHARACTERS = 4_000  # of an address
_POLICY = (
    b"default-src 'self'; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    b"form-action 'self'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_FRESH = {"cache-control": "no-store"}
_LEAST_PACKED = 1_000  # bytes


class _Static(StaticFiles):
    """Files of the package: browsers keep them, and ask each time whether they are still the same."""

    def file_response(self, *arguments: Any, **keywords: Any) -> Response:
        response = super().file_response(*arguments, **keywords)
        response.headers["cache-control"] = "no-cache"
        return response


def make_console(site: Site, streams: int = 128) -> Application:
    """Make the application.

    Args:
        site: What it shows.
        streams: The largest number of open pages that are kept up to date.
    """
    renderer = Renderer(site.root)
    channels = Channels(renderer.kept, lambda: site.is_stopping(), streams)  # noqa: PLW0108 - set later

    def visitor_of(request: Request) -> Visitor:
        return cast("Visitor", request.scope.get(VISITOR, site.permissions.everybody))

    def visit_of(path: str, parameters: Mapping[str, str], visitor: Visitor) -> tuple[Page, Visit]:
        for form, page in PAGES:
            match = form.fullmatch(path)
            if match is not None:
                return page, Visit(site, path, {**parameters, **match.groupdict()}, visitor)
        raise NotThereError(f"the console has no page {path[:100]!r}", hint="Choose one at the top of the page.")

    async def show(request: Request) -> Response:
        parameters = dict(request.query_params)
        if len(request.url.query) > _MOST_CHARACTERS:
            return problem(414, "the address is too long", "")
        path = "/" + request.path_params["path"]
        try:
            page, visit = visit_of(path, parameters, visitor_of(request))
            return HTMLResponse(await run_in_threadpool(renderer.whole, page, visit), headers=_FRESH)
        except NotThereError as error:
            no_page = Visit(site, path, {}, visitor_of(request))
            return HTMLResponse(await run_in_threadpool(renderer.problem, no_page, error), 404, headers=_FRESH)

    async def live(request: Request) -> Response:
        of = request.query_params.get("of", "/")[:_MOST_CHARACTERS]
        parts = urlsplit(of)
        visitor = visitor_of(request)
        page, visit = visit_of(parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), visitor)
        seen = request.headers.get("last-event-id", request.query_params.get("seen", ""))
        stream = channels.open(f"{visitor.role} {of}", page, visit, seen)
        return StreamingResponse(stream, media_type="text/event-stream", headers={**_FRESH, "x-accel-buffering": "no"})

    routes = [
        Route("/live", live),
        api_routes(site, channels),
        Mount("/static", _Static(directory=_STATIC)),
        Route("/{path:path}", show),
    ]

    async def failed(request: Request, error: Exception) -> Response:
        shown = site.exposure.error(error) if isinstance(error, PenstockError) else error
        return await on_error(request, shown)

    handlers: Any = {PenstockError: failed, TooManyStreamsError: failed}
    packed = [Middleware(GZipMiddleware, minimum_size=_LEAST_PACKED, compresslevel=5)]  # it leaves events as they are
    return _with_headers(Starlette(routes=routes, exception_handlers=handlers, middleware=packed))


def _with_headers(application: Application) -> Application:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await application(scope, receive, headed)

    return serve
