"""An HTTP server that runs in a thread, or as the only work of its process."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from penstock.base.log_lines import writes_json
from penstock.errors import EnvironmentProblemError
from penstock.serving.access import AccessRules
from penstock.serving.guard import Guard, Limits

__all__ = ["LOOPBACK", "Certificate", "HttpServer", "Listener", "listen"]

LOOPBACK = "127.0.0.1"
_START_S = 20.0
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of a server, to serve HTTPS.

    Attributes:
        file: A PEM file.
        key: The file of the certificate's private key, if it is not in the same file.
    """

    file: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket, and the name of its server for messages and threads, for example "query server"."""

    socket: socket.socket
    name: str

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.socket.getsockname()[1])


class HttpServer:
    """An ASGI application served over HTTP or HTTPS, behind a `Guard`.

    Args:
        application: The ASGI application.
        listener: The socket, as `listen` opens it; the server closes it.
        access: The access rules.
        limits: The limits of what clients may use.
        certificate: Its certificate, to serve HTTPS; None serves HTTP.
        guard: Further arguments of `Guard`: the form of refusals.

    Raises:
        EnvironmentProblemError: The certificate or its key cannot be read.
    """

    def __init__(
        self,
        application: Any,
        listener: Listener,
        *,
        access: AccessRules,
        limits: Limits | None = None,
        certificate: Certificate | None = None,
        **guard: Any,
    ) -> None:
        import uvicorn

        from penstock.serving.protocol import guarded_protocol

        self._listener = listener
        bounds = limits or Limits()
        file = None if certificate is None else certificate.file
        config = uvicorn.Config(
            Guard(application, access=access, limits=bounds, **guard),
            http=guarded_protocol(bounds),
            ws="none",
            lifespan="off",
            log_config=None if writes_json() else uvicorn.config.LOGGING_CONFIG,
            log_level="error",  # a request that is not HTTP is answered with 400, not noted
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=bounds.header_bytes,
            timeout_graceful_shutdown=3,
            ssl_certfile=file,
            ssl_keyfile=None if certificate is None else certificate.key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            listener.socket.close()
            raise EnvironmentProblemError(
                f"the {listener.name} cannot read the certificate {file} or its key: {error}",
                hint="Both are PEM files; the key must be the certificate's and have no passphrase.",
            ) from error
        if bounds.streams and config.ssl is not None:
            config.ssl.set_alpn_protocols(["h2", "http/1.1"])
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._listener.port

    @property
    def is_stopping(self) -> bool:
        """Whether the server is to stop: responses without an end must end themselves."""
        return bool(self._server.should_exit)

    def start(self) -> None:
        """Serve from a thread; return as soon as requests are served.

        Raises:
            EnvironmentProblemError: The server does not start.
        """
        name = f"penstock-{self._listener.name.replace(' ', '-')}"
        sockets = [self._listener.socket]
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), name=name, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.close()
                raise EnvironmentProblemError(
                    f"the {self._listener.name} did not start",
                    hint="The log of the process says why; try another port.",
                )
            time.sleep(0.01)

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM, from the main thread of a process that does nothing else."""
        before = signal.signal(signal.SIGTERM, _end)  # Uvicorn raises the signal again when it has stopped
        try:
            self._server.run([self._listener.socket])
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, before)
            self.close()

    def close(self) -> None:
        """Stop the server; requests in progress have some seconds left."""
        self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)
            self._thread = None
        self._listener.socket.close()


def listen(host: str, port: int, name: str) -> Listener:
    """Open a listening socket.

    Args:
        host: The address.
        port: The port; 0 takes a free one.
        name: The server's name, for messages.

    Raises:
        EnvironmentProblemError: The address or port cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server_socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    server_socket.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # else answers wait 40 ms for an acknowledgement
    server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server_socket.bind((host, port))
        server_socket.listen(128)  # clients that connect before the server runs wait here
    except (OSError, OverflowError) as error:
        server_socket.close()
        why = error.strerror if isinstance(error, OSError) else "a port is a number from 0 to 65535"
        raise EnvironmentProblemError(
            f"the {name} cannot listen on {host}:{port}: {why}", hint="Choose another port, or 0 for a free one."
        ) from error
    return Listener(server_socket, name)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
    raise KeyboardInterrupt
