"""Serving queries from a thread of this process, or as a process of its own."""

from __future__ import annotations

import signal
import socket
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.errors import EnvironmentProblemError
from penstock.query.extra import require_web
from penstock.query.metadata import HostInfo, Instance, Registration
from penstock.query.service import QueryService

if TYPE_CHECKING:
    from penstock.query.http import Route

__all__ = ["LOOPBACK", "QueryServer"]

LOOPBACK = "127.0.0.1"
_START_S = 20.0
_BACKLOG = 1024


class QueryServer:
    """An HTTP server over a service; it notes itself in the checkpoint while it serves.

    Args:
        service: Answers.
        host: The address to listen on; the loopback one unless it is to be seen from elsewhere. There is no
            authentication: put a proxy before it.
        port: The port; 0 for a free one.
        advertised: ``application.server``: under which others find it, if not host and port.
        role: "active" for the process that runs the application.
        route: See `make_app`.
    """

    def __init__(
        self,
        service: QueryService,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        advertised: HostInfo | None = None,
        role: Any = "standby",
        route: Route = "local",
    ) -> None:
        require_web()
        self._service = service
        self._socket = _bound(host, port)
        self.host_info = HostInfo(host, self._socket.getsockname()[1])
        self._advertised = advertised or self.host_info
        self._role = role
        self._route: Route = route
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._registration: Registration | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.host_info}"

    def start(self) -> None:
        """Serves from a thread."""
        self._prepare()
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="penstock-http", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.close()
                raise EnvironmentProblemError(
                    f"the query server at {self.url} did not start", hint="Its log says why; try another port."
                )
            time.sleep(0.01)
        self._register()

    def run(self) -> None:
        """Serves until Ctrl-C or SIGTERM; from the main thread of a process that does nothing else."""
        self._prepare()
        self._register()
        before = signal.signal(signal.SIGTERM, _end)  # Uvicorn raises the signal again when it has stopped
        try:
            self._server.run([self._socket])
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, before)
            self.close()

    def _prepare(self) -> None:
        import uvicorn

        from penstock.query.http import make_app

        self._service.host = self._advertised
        app = make_app(self._service, route=self._route)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=3, lifespan="off")
        self._server = uvicorn.Server(config)

    def _register(self) -> None:
        checkpoint = self._service.state.checkpoint
        instance = Instance(self._advertised.host, self._advertised.port, self._role)
        self._registration = Registration(checkpoint, instance)

    def close(self) -> None:
        """Stops serving; the service stays open."""
        if self._registration is not None:
            self._registration.close()
            self._registration = None
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10)
            self._thread = None
        self._socket.close()


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
    raise KeyboardInterrupt


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else answers wait 40 ms for an acknowledgement
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(_BACKLOG)  # so that who is told the address can connect, if only to wait
    except OSError as error:
        made.close()
        raise EnvironmentProblemError(
            f"the query server cannot listen on {host}:{port}: {error.strerror}",
            hint="Choose another port, or 0 for a free one.",
        ) from error
    return made
