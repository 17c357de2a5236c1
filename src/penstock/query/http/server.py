"""The query server, in a thread of this process or as a process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.query.http.service import QueryService
from penstock.query.instances import HostInfo, Instance, Registration
from penstock.serving.server import LOOPBACK

if TYPE_CHECKING:
    from penstock.query.http.routes import Route
    from penstock.serving import Beside
    from penstock.serving.guard import Application

__all__ = ["QueryServer", "require_http_libraries"]

_LOCAL = HostInfo(LOOPBACK, 0)


def require_http_libraries() -> None:
    """Raise EnvironmentProblemError unless the libraries of the extra ``query`` are installed."""
    try:
        import fastapi  # noqa: F401
        import httpx  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblemError(
            f"queries by HTTP need {error.name}, which is not installed",
            hint='Install it with: pip install "penstock[query]"',
        ) from error


class QueryServer:
    """An HTTP server for a service; it is registered in the checkpoint while it serves.

    Args:
        service: The service that answers.
        address: The address to listen on, by default a free port of the loopback address. Queries need no
            authentication: put a proxy before it.
        advertised: ``application.server``: the address for other instances, if it is another one. As an attribute: that
            address, or its own.
        role: "active" in the process that runs the application.
        route: See `make_app`.
        pages: Further applications at the same port, each below a prefix of its own.

    Raises:
        ConfigError: Two of them have the same prefix, or want requests that change something to be marked differently.
    """

    def __init__(
        self,
        service: QueryService,
        *,
        address: HostInfo = _LOCAL,
        advertised: HostInfo | None = None,
        role: Any = "standby",
        route: Route = "local",
        pages: Sequence[Beside] = (),
    ) -> None:
        require_http_libraries()
        _require_own_prefixes(pages)
        mark = _mark(pages)
        from penstock.query.http.routes import make_app, shown_refusal
        from penstock.serving import READING, AccessRules, HttpServer, Limits, Mounted, listen

        listener = listen(address.host, address.port, "query server")
        self.host_info = HostInfo(address.host, listener.port)
        self.advertised = advertised or self.host_info
        self._service = service
        self._role = role
        self._registration: Registration | None = None
        service.host = self.advertised
        app: Application = make_app(service, route=route)
        hosts = frozenset({address.host.lower(), self.advertised.host.lower()})
        limits = Limits(body_bytes=max((page.body_bytes for page in pages), default=0))
        limits = replace(limits, requests=limits.requests + sum(page.streams for page in pages))
        methods = READING.union(*(page.methods for page in pages))
        self._server = HttpServer(
            reduce(Mounted, pages, app),
            listener,
            access=AccessRules(hosts, methods=methods, mark=mark),
            limits=limits,
            shown=shown_refusal,
        )

    @property
    def is_stopping(self) -> bool:
        """Whether it is to stop: answers without an end must end themselves."""
        return self._server.is_stopping

    @property
    def url(self) -> str:
        """The URL at which it answers."""
        return f"http://{self.host_info}"

    def start(self) -> None:
        """Serve in a thread."""
        try:
            self._server.start()
            self._register()
        except BaseException:
            self.close()
            raise

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM; from the main thread of a process that does nothing else."""
        self._register()
        try:
            self._server.run()
        finally:
            self.close()

    def _register(self) -> None:
        instance = Instance(self.advertised.host, self.advertised.port, self._role)
        self._registration = Registration(self._service.state.checkpoint, instance, self._service.state.place)

    def close(self) -> None:
        """Stop serving; the service stays open."""
        if self._registration is not None:
            self._registration.close()
            self._registration = None
        self._server.close()


def _require_own_prefixes(pages: Sequence[Beside]) -> None:
    for prefix, count in Counter(page.prefix for page in pages).items():
        if count > 1:
            raise ConfigError(
                f"{count} extensions serve {prefix} at the HTTP port of the application",
                hint="Uninstall all but one of them, or give them other prefixes.",
            )


def _mark(pages: Sequence[Beside]) -> str:
    """Return the header that requests must have which change something."""
    marks = sorted({page.mark for page in pages if page.mark})
    if len(marks) > 1:
        raise ConfigError(
            f"extensions at one HTTP port require different headers in writing requests: {', '.join(marks)}",
            hint="Use one header for all of them.",
        )
    return marks[0] if marks else ""
