"""Two applications at one port: one below a prefix of the addresses, the other at all others."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.serving.access import READING
from penstock.serving.guard import Application, Receive, Scope, Send

__all__ = ["Beside", "Mounted"]


@dataclass(frozen=True, slots=True)
class Beside:
    """An application beside the one that has a port, and what the guard of both must let through for it.

    Attributes:
        prefix: The prefix of its addresses, such as ``/ui``.
        application: The ASGI application.
        methods: The methods that it serves.
        mark: See `penstock.serving.AccessRules`.
        body_bytes: The largest body of its requests.
        streams: The requests that it may serve at once, as open pages do, besides those of the other one.
    """

    prefix: str
    application: Application
    methods: frozenset[str] = READING
    mark: str = ""
    body_bytes: int = 0
    streams: int = 0


class Mounted:
    """An ASGI application that passes requests below a prefix to one application, and all others to another.

    Args:
        main: The application of all other addresses.
        beside: The application below its prefix.
    """

    def __init__(self, main: Application, beside: Beside) -> None:
        self._main, self._beside = main, beside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        prefix, path = self._beside.prefix, scope.get("path", "")
        if path == prefix:
            query = scope.get("query_string", b"")
            location = prefix.encode() + b"/" + (b"?" + query if query else b"")
            headers = [(b"location", location), (b"content-length", b"0"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 307, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        elif path.startswith(f"{prefix}/") and scope.get("method") not in self._beside.methods:
            allowed = ", ".join(sorted(self._beside.methods)).encode()
            headers = [(b"allow", allowed), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 405, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        elif path.startswith(f"{prefix}/"):
            await self._beside.application({**scope, "root_path": prefix}, receive, send)
        else:
            await self._main(scope, receive, send)
