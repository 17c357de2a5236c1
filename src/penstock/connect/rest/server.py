"""A worker with its REST interface, as one server."""

from __future__ import annotations

import logging
from pathlib import Path

from penstock.connect.rest.application import ConnectApplication
from penstock.connect.rest.policies import CrossOrigin, WorkerAccess
from penstock.connect.settings import WorkerConfig
from penstock.connect.worker import Worker
from penstock.errors import ConfigError
from penstock.serving.access import AccessRules, parse_users
from penstock.serving.guard import Limits
from penstock.serving.server import Certificate, HttpServer, listen

__all__ = ["WorkerServer"]

_log = logging.getLogger(__name__)
_BODY_BYTES = 16 << 20
_WAIT_S = 120.0


class WorkerServer:
    """A worker and its REST interface.

    Args:
        config: The worker's settings.

    Raises:
        ConfigError: A setting is wrong.
        LogError: The log cannot be opened.
        EnvironmentProblemError: The port cannot be used.
    """

    def __init__(self, config: WorkerConfig) -> None:
        host, port = config.address
        listener = listen(host or "0.0.0.0", port, "Connect worker")  # noqa: S104 - Kafka Connect's default
        try:
            self.worker = Worker(config, config.worker_id(listener.port))
            scheme = "https" if config.secure else "http"
            self.url = f"{scheme}://{self.worker.worker_id}"
            crossing = CrossOrigin(config["access.control.allow.origin"], config["access.control.allow.methods"])
            users = _users(config["penstock.users.file"])
            loopback = host in ("127.0.0.1", "localhost", "::1")
            self._server = HttpServer(
                ConnectApplication(self.worker, self.url),
                listener,
                access=WorkerAccess(AccessRules(users=users), crossing, checks_host=loopback),  # type: ignore[arg-type]
                limits=Limits(body_bytes=_BODY_BYTES, requests=256, receive_s=30.0),
                certificate=_certificate(config),
                shown=lambda status, message: {"error_code": status, "message": message},
            )
        except BaseException:
            listener.socket.close()
            raise

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._server.port

    def start(self) -> None:
        """Begin to work, and serve from a thread.

        Raises:
            LogError: The log cannot be reached.
        """
        self._server.start()
        self.worker.start()

    def wait_until_ready(self, timeout_s: float = _WAIT_S) -> bool:
        """Wait until the worker is in its group and does its share; return whether it is."""
        return self.worker.herder.ready.wait(timeout_s)

    def stop(self) -> None:
        """Stop serving, and stop all connectors and tasks."""
        self._server.close()
        self.worker.stop()


def _users(file: str | None) -> dict[str, str] | None:
    if not file:
        return None
    try:
        return parse_users(Path(file).read_text().splitlines(), file)
    except OSError as error:
        raise ConfigError(
            f"penstock.users.file={file} cannot be read: {error.strerror}", hint="One NAME:PASSWORD a line."
        ) from error


def _certificate(config: WorkerConfig) -> Certificate | None:
    if not config.secure:
        return None
    file = config["ssl.certificate.file"]
    if not file:
        raise ConfigError(
            "a listener is https, but there is no certificate", hint="Set ssl.certificate.file to a PEM file."
        )
    return Certificate(file, config["ssl.key.file"])
