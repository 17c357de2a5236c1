"""The console as an ASGI application: routes, headers, errors, pages from templates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from penstock.base.escapes import one_line, visible
from penstock.base.terminal.human_numbers import duration, size, time_of
from penstock.base.version import __version__
from penstock.console.web.api.endpoints import api_routes, on_error, problem
from penstock.console.web.live import Channels, TooManyStreamsError
from penstock.console.web.page import NotThereError, Page, Visit
from penstock.console.web.pages import PAGES
from penstock.console.web.site import Site
from penstock.console.web.visitors import Visitor
from penstock.errors import PenstockError
from penstock.serving import BY_COOKIE, SIGN_OUT, VISITOR
from penstock.serving.guard import Application, Receive, Scope, Send

__all__ = ["FILTERS", "make_console"]

# Path, title and key (after g) of the pages in the head.
MENU = (
    ("/", "Overview", "o"),
    ("/topology", "Topology", "t"),
    ("/batches", "Batches", "b"),
    ("/tasks", "Tasks", "k"),
    ("/topics", "Topics", "p"),
    ("/groups", "Groups", "g"),
    ("/stores", "Stores", "s"),
    ("/errors", "Errors", "e"),
)
_IN_PATHS = "/:@!$&'()*+,;=~"
CONNECTORS, SCHEMAS, SQL = ("/connectors", "Connectors", "c"), ("/schemas", "Schemas", "m"), ("/sql", "SQL", "q")
_NONE = "-"
_UNITS = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
_WIDTH, _HEIGHT = 160.0, 36.0


def _finalized(value: Any) -> Any:
    """Return a value of a template as it is shown; what templates themselves have made is done."""
    return visible(value) if type(value) is str else value


class Renderer:
    """The templates of the console; all values are escaped, and characters that no page shows are visible.

    Args:
        root: The prefix of its addresses.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._environment = Environment(
            loader=PackageLoader("penstock.console.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=_finalized,
        )
        self._environment.filters |= FILTERS

    def body(self, page: Page, visit: Visit) -> str:
        """Render what changes of a page, without its frame; an error of the user becomes a note in it."""
        try:
            facts = page.build(visit)
        except NotThereError:
            raise
        except PenstockError as error:
            return self._render("problem", visit, {"error": visit.site.exposure.error(error)})
        return self._render(page.name, visit, facts)

    def kept(self, page: Page, visit: Visit) -> str:
        """Render what changes of a page that is open; what it shows may be gone meanwhile."""
        try:
            return self.body(page, visit)
        except NotThereError as error:
            return self._render("problem", visit, {"error": error})

    def whole(self, page: Page, visit: Visit) -> str:
        """Render a page with its frame."""
        body = self.body(page, visit)
        return self._render("frame", visit, {"page": page, "body": body, **self._frame(page, visit)})

    def problem(self, visit: Visit, error: PenstockError) -> str:
        """Render a page that says what is wrong."""
        body = self._render("problem", visit, {"error": error})
        page = Page("problem", "Not found", lambda _: {})
        return self._render("frame", visit, {"page": page, "body": body, **self._frame(page, visit)})

    def _frame(self, page: Page, visit: Visit) -> dict[str, Any]:
        names = visit.site.applications.names()
        chosen = visit.application_name
        is_continuous = bool(chosen in names and visit.site.applications.get(chosen).picture().is_continuous)
        return {
            "names": names,
            "chosen": chosen,
            "title": "Threads" if is_continuous and page.name == "batches" else page.title,
            "menu": (
                *(
                    (path, "Threads" if is_continuous and path == "/batches" else title, key)
                    for path, title, key in MENU
                ),
                *([CONNECTORS] if visit.site.connectors is not None else []),
                *([SCHEMAS] if visit.site.schemas is not None else []),
                *([SQL] if visit.site.statements is not None else []),
            ),
            "permissions": visit.site.permissions,
            "version": __version__,
            "identity": visit.site.identity,
            "sign_out": f"{self._root}{SIGN_OUT}" if visit.is_signed_in else "",
            "has_log": visit.site.log is not None,
        }

    def _render(self, name: str, visit: Visit, facts: Mapping[str, Any]) -> str:
        def url(path: str, **parameters: Any) -> str:
            """Return the address of a page, for the same application."""
            chosen = {"app": visit.get("app"), **parameters}
            query = {key: value for key, value in chosen.items() if value not in ("", None)}
            return f"{self._root}{quote(path, safe=_IN_PATHS)}" + (f"?{urlencode(query)}" if query else "")

        template = self._environment.get_template(f"{name}.html")
        return template.render(**facts, url=url, root=self._root, visit=visit)


def whole(value: float | None) -> str:
    """Format a count in full.

    >>> whole(1204113), whole(None)
    ('1,204,113', '-')
    """
    return _NONE if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Format a count or a rate in few characters.

    >>> short(0.25), short(9.96), short(512), short(12480), short(1204113)
    ('0.25', '10', '512', '12.5 k', '1.2 M')
    """
    if value is None:
        return _NONE
    for least, unit in _UNITS:
        if abs(value) >= least:
            return f"{value / (1000 if unit == 'k' else least):,.1f} {unit}"
    if 0 < abs(value) < 9.95:
        return f"{value:.2g}"
    return f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Format a length of time.

    >>> seconds(75), seconds(None)
    ('1 min 15 s', '-')
    """
    return _NONE if value is None else duration(value)


def percent(value: float | None) -> str:
    """Format a share.

    >>> percent(0.614), percent(0.004), percent(0)
    ('61 %', '0.4 %', '0 %')
    """
    if value is None:
        return _NONE
    return f"{value * 100:.1f} %" if 0 < value < 0.01 else f"{value * 100:.0f} %"


def when(value_ms: int | None) -> Markup | str:
    """Return a time as an element that the page shows in the reader's zone; in UTC without scripts."""
    if value_ms is None or value_ms < 0:
        return _NONE
    text = time_of(value_ms)
    try:
        dt.datetime.fromtimestamp(value_ms / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return text
    return Markup('<time datetime="{}">{}</time>').format(text, text)


def ago(value_ms: int | None) -> Markup | str:
    """Return a time as an element that the page shows as an age."""
    element = when(value_ms)
    return element.replace("<time ", Markup("<time data-ago "), 1) if isinstance(element, Markup) else element


def spark(values: Sequence[float | None], label: str = "") -> Markup:
    """Return a line of values as a small picture, scaled from zero to its largest value."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < 2:
        return Markup('<svg class="spark" viewBox="0 0 160 36" aria-hidden="true"></svg>')
    most = max(numbers) or 1
    step = _WIDTH / (len(values) - 1)
    points = [
        f"{number * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * value / most:.1f}"
        for number, value in enumerate(values)
        if value is not None
    ]
    line = " ".join(points)
    first, last = points[0].partition(",")[0], points[-1].partition(",")[0]
    return Markup(
        '<svg class="spark" viewBox="0 0 160 36" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polygon points="{},36 {} {},36"/><polyline points="{}"/></svg>'
    ).format(label, first, line, last, line)


def columns(values: Sequence[int], label: str = "") -> Markup:
    """Return counts as columns of a small picture, scaled from zero to the largest."""
    most, width = max(values, default=0) or 1, _WIDTH / max(len(values), 1)
    bars = Markup("").join(
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            number * width, _HEIGHT - max(_HEIGHT * value / most, 2), width * 0.8, max(_HEIGHT * value / most, 2)
        )
        for number, value in enumerate(values)
        if value
    )
    return Markup(
        '<svg class="columns-chart" viewBox="0 0 160 36" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path d="M0 36H160"/>{}</svg>'
    ).format(label, bars)


def plain(value: Any) -> str:
    """Return the words of a name that was written for programs.

    >>> plain("read_committed")
    'read committed'
    """
    return str(value).replace("_", " ")


def filename(path: str) -> str:
    """Return the last part of a file's path.

    >>> filename("/srv/jobs/weblog.py"), filename("<stdin>")
    ('weblog.py', '<stdin>')
    """
    return path.replace("\\", "/").rpartition("/")[2] or path


def lines(text: str) -> Markup:
    r"""Return a text whose lines stay lines, such as a stack trace; other control characters are visible.

    >>> print(lines("a\n\tb"))
    a
        b
    """
    return Markup("\n").join(visible(each.replace("\t", "    ")) for each in text.splitlines())


FILTERS = {
    "whole": whole,
    "short": short,
    "seconds": seconds,
    "percent": percent,
    "when": when,
    "ago": ago,
    "spark": spark,
    "size": lambda value: _NONE if value is None else size(int(value)),
    "plain": plain,
    "filename": filename,
    "lines": lines,
    "one_line": one_line,
    "columns": columns,
}


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

    def visit_of(path: str, parameters: Mapping[str, str], request: Request) -> tuple[Page, Visit]:
        for form, page in PAGES:
            match = form.fullmatch(path)
            if match is not None:
                page_parameters = {**parameters, **match.groupdict()}
                return page, Visit(site, path, page_parameters, visitor_of(request), BY_COOKIE in request.scope)
        raise NotThereError(f"the console has no page {path[:100]!r}", hint="Choose one at the top of the page.")

    async def show(request: Request) -> Response:
        parameters = dict(request.query_params)
        if len(request.url.query) > _MOST_CHARACTERS:
            return problem(414, "the address is too long", "")
        path = "/" + request.path_params["path"]
        try:
            page, visit = visit_of(path, parameters, request)
            return HTMLResponse(await run_in_threadpool(renderer.whole, page, visit), headers=_FRESH)
        except NotThereError as error:
            no_page = Visit(site, path, {}, visitor_of(request), BY_COOKIE in request.scope)
            return HTMLResponse(await run_in_threadpool(renderer.problem, no_page, error), 404, headers=_FRESH)

    async def live(request: Request) -> Response:
        of = request.query_params.get("of", "/")[:_MOST_CHARACTERS]
        parts = urlsplit(of)
        page, visit = visit_of(parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), request)
        seen = request.headers.get("last-event-id", request.query_params.get("seen", ""))
        stream = channels.open(f"{visit.visitor.role} {of}", page, visit, seen)
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
