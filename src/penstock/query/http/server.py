"""The query server, in a thread of this process or as a process of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import EnvironmentProblemError
from penstock.query.http.service import QueryService
from penstock.query.metadata import HostInfo, Instance, Registration
from penstock.serving.server import LOOPBACK

if TYPE_CHECKING:
    from penstock.query.http.routes import Route
    from penstock.serving import Beside

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
        advertised: ``application.server``: the address for other instances, if it is another one.
        role: "active" in the process that runs the application.
        route: See `make_app`.
        beside: A further application at the same port.
    """

    def __init__(
        self,
        service: QueryService,
        *,
        address: HostInfo = _LOCAL,
        advertised: HostInfo | None = None,
        role: Any = "standby",
        route: Route = "local",
        beside: Beside | None = None,
    ) -> None:
        require_http_libraries()
        from penstock.query.http.routes import make_app, shown_refusal
        from penstock.serving import READING, AccessRules, HttpServer, Limits, Mounted, listen

        listener = listen(address.host, address.port, "query server")
        self.host_info = HostInfo(address.host, listener.port)
        self._advertised = advertised or self.host_info
        self._service = service
        self._role = role
        self._registration: Registration | None = None
        service.host = self._advertised
        app = make_app(service, route=route)
        hosts = frozenset({address.host.lower(), self._advertised.host.lower()})
        access, limits = AccessRules(hosts, methods=READING), Limits(body_bytes=0)
        if beside is not None:
            access = replace(access, methods=beside.methods, mark=beside.mark)
            limits = replace(limits, body_bytes=beside.body_bytes, requests=limits.requests + beside.streams)
        self._server = HttpServer(
            app if beside is None else Mounted(app, beside),
            listener,
            access=access,
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
        instance = Instance(self._advertised.host, self._advertised.port, self._role)
        self._registration = Registration(self._service.state.checkpoint, instance, self._service.state.place)

    def close(self) -> None:
        """Stop serving; the service stays open."""
        if self._registration is not None:
            self._registration.close()
            self._registration = None
        self._server.close()
