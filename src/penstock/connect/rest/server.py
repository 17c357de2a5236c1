"""A worker with its REST interface, as one server."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from urllib.parse import quote

from penstock.base.log_lines import own_logger
from penstock.connect.rest.application import ConnectApplication
from penstock.connect.rest.connectors import SIGNATURE, SIGNATURE_ALGORITHM, signature
from penstock.connect.rest.forwarding import ask_worker, trust_of
from penstock.connect.rest.json_bodies import JSON
from penstock.connect.rest.response_headers import CrossOrigin, WorkerAccess
from penstock.connect.worker import Worker
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConfigError, LogUnavailableError
from penstock.serving.access import AccessRules, parse_users
from penstock.serving.guard import Limits
from penstock.serving.server import Certificate, HttpServer, listen

__all__ = ["WorkerServer"]

_log = own_logger(__name__)
_BODY_BYTES = 16 << 20
_WAIT_S = 120.0
_PATIENCE_S = 90.0, 10.0  # Kafka Connect's, for requests and for the worker's health
_FIRST_ERROR = 400


class WorkerServer:
    """A worker and its REST interface.

    Args:
        config: The worker's settings.
        patience: The seconds that a request may take, and one for the worker's health.

    Raises:
        ConfigError: A setting is wrong.
        LogError: The log cannot be opened.
        EnvironmentProblemError: The port cannot be used.
    """

    def __init__(self, config: WorkerConfig, patience: tuple[float, float] = _PATIENCE_S) -> None:
        host, port = config.address
        listener = listen(host or "0.0.0.0", port, "Connect worker")  # noqa: S104 - Kafka Connect's default
        try:
            self.worker = Worker(config, config.worker_id(listener.port))
            scheme = "https" if config.secure else "http"
            self.worker.herder.publish_tasks = self._publish_tasks
            self.url = f"{scheme}://{self.worker.worker_id}"
            crossing = CrossOrigin(config["access.control.allow.origin"], config["access.control.allow.methods"])
            self._trust = trust_of(config)
            users = _users(config["penstock.users.file"])
            self._authorization = _authorization(users)
            loopback = host in ("127.0.0.1", "localhost", "::1")
            self._application = ConnectApplication(self.worker, self.url, patience)
            self._server = HttpServer(
                self._application,
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

    def _publish_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Store the configs of a connector's tasks, by way of the leader if that is another worker.

        Raises:
            LogError: The leader cannot be reached, or refuses them.
        """
        herder = self.worker.herder
        if herder.view.leads:
            herder.store_tasks(name, configs)
            return
        key, leader = herder.stores.configs.state.session_key, herder.view.leader
        if key is None or not leader:
            raise LogUnavailableError(f"the tasks of connector {name} wait for a leader of the group")
        body = json.dumps(configs).encode()
        signed = {SIGNATURE: signature(key, body), SIGNATURE_ALGORITHM: "HmacSHA256"}
        headers = {"content-type": JSON, **signed, **self._authorization}
        target = f"/connectors/{quote(name, safe='')}/tasks?forward=false"
        threading.Thread(target=self._ask, args=(leader, target, body, headers), daemon=True).start()

    def _ask(self, leader: str, target: str, body: bytes, headers: dict[str, str]) -> None:
        try:
            answer = ask_worker(leader, ("POST", target), body, headers, trust=self._trust)
        except OSError as error:
            _log.warning("the leader %s cannot be reached: %s", leader, error)
            return
        if answer.status >= _FIRST_ERROR:
            _log.warning("the leader refuses configs of tasks: %s", answer.encoded()[:300])

    def wait_until_ready(self, timeout_s: float = _WAIT_S) -> bool:
        """Wait until the worker is in its group and does its share; return whether it is."""
        return self.worker.herder.ready.wait(timeout_s)

    def stop(self) -> None:
        """Stop serving, and stop all connectors and tasks."""
        self._server.close()
        self._application.close()
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


def _authorization(users: dict[str, str] | None) -> dict[str, str]:
    """Return the header of requests to other workers, which have the same users: the file's first one."""
    if not users:
        return {}
    encoded = base64.b64encode(":".join(next(iter(users.items()))).encode()).decode()
    return {"authorization": f"Basic {encoded}"}


def _certificate(config: WorkerConfig) -> Certificate | None:
    if not config.secure:
        return None
    file = config["ssl.certificate.file"]
    if not file:
        raise ConfigError(
            "a listener is https, but there is no certificate", hint="Set ssl.certificate.file to a PEM file."
        )
    return Certificate(file, config["ssl.key.file"])
