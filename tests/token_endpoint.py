"""An identity provider that gives tokens without signatures to clients that it knows."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

__all__ = ["TokenEndpoint"]


class TokenEndpoint:
    """Client credentials (RFC 6749, 4.4) by Basic authentication.

    Attributes:
        asked: The forms that came.
    """

    def __init__(self, clients: dict[str, str], lifetime_s: float = 300) -> None:
        self.asked: list[dict[str, list[str]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                pair = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                name, _, secret = pair.partition(":")
                endpoint.asked.append(parse_qs(body.decode()))
                if clients.get(name) == secret:
                    self._answer(200, {"access_token": unsigned(name, lifetime_s), "expires_in": lifetime_s})
                else:
                    self._answer(401, {"error": "invalid_client"})

            def _answer(self, status: int, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def unsigned(subject: str, lifetime_s: float) -> str:
    """A JWT with the algorithm "none"."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + max(1, int(lifetime_s)), "scope": "kafka"}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    ]
    return ".".join([*parts, ""])
