"""Passing requests on to the worker that has to do them."""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

from penstock.base.log_lines import own_logger
from penstock.connect.rest.json_bodies import JSON, RestAnswer, RestCall
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConfigError

__all__ = ["ask_worker", "forwarded", "trust_of"]

_log = own_logger(__name__)
_PASSED = (
    "content-type",
    "accept",
    "authorization",
    "x-connect-authorization",
    "x-connect-request-signature-algorithm",
)
_TIMEOUT_S = 90.0
_BUSY = "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
_AGAIN = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"


def trust_of(config: WorkerConfig) -> ssl.SSLContext | None:
    """Return what a worker trusts when it asks others.

    The system's authorities, ``ssl.ca.file``, and its own certificate.

    Workers that share a self-signed certificate so need nothing else. None: they speak plain HTTP.

    Raises:
        ConfigError: A file cannot be read.
    """
    if not config.secure:
        return None
    context = ssl.create_default_context()
    for name in ("ssl.ca.file", "ssl.certificate.file"):
        if file := config[name]:
            try:
                context.load_verify_locations(file)
            except OSError as error:  # also what is not a certificate
                raise ConfigError(
                    f"{name}={file} cannot be read: {error.strerror or error}",
                    hint="Give a file of certificates in PEM.",
                ) from error
    return context


def forwarded(call: RestCall, worker: str, trust: ssl.SSLContext | None) -> RestAnswer:
    """Let another worker (``host:port``) answer a request; one that was passed on twice is refused."""
    passes = call.query.get("forward")
    if not worker:
        return _conflict(_BUSY)
    if passes == "false":
        return _conflict(_AGAIN)
    mark = "true" if passes is None else "false"
    path, _, query = call.target.partition("?")
    kept = [part for part in query.split("&") if part and not part.startswith("forward=")]
    target = f"{path}?{'&'.join([*kept, f'forward={mark}'])}"
    headers = {name: value for name, value in call.headers.items() if name in _PASSED}
    try:
        return ask_worker(worker, (call.method, target), call.body, headers, trust=trust)
    except OSError as error:
        _log.warning("worker %s cannot be reached: %s", worker, error)
        return RestAnswer(500, {"error_code": 500, "message": f"IO Error trying to forward REST request: {error}"})


def ask_worker(
    worker: str, request: tuple[str, str], body: bytes, headers: dict[str, str], *, trust: ssl.SSLContext | None
) -> RestAnswer:
    """Send a request (method and target) to another worker (``host:port``), over HTTPS if something is trusted.

    Raises:
        OSError: It cannot be reached.
    """
    parts = urlsplit(f"//{worker}")
    host, port = parts.hostname or "", parts.port or 80
    connection: http.client.HTTPConnection
    if trust is not None:
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=trust)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request(*request, body=body or None, headers=headers)
        response = connection.getresponse()
        content = response.read()
        location = urlsplit(response.headers.get("location", "")).path
        more = {"location": location} if location else {}
        is_json = (response.headers.get("content-type") or "").startswith(JSON)
        return RestAnswer(response.status, None, more, content or None, has_body=bool(content) or is_json)
    except http.client.HTTPException as error:
        raise ConnectionError(f"{worker} does not answer as a worker: {error}") from error
    finally:
        connection.close()


def _conflict(message: str) -> RestAnswer:
    return RestAnswer(409, {"error_code": 409, "message": message})
