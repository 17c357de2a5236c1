"""ASGI layers around applications: access rules, sizes, concurrency; and two applications at one port."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from penstock.base.log_lines import own_logger
from penstock.serving.access import READING, AccessRules, RefusedRequest, is_authority

__all__ = [
    "Application",
    "Beside",
    "Guard",
    "Limits",
    "Mounted",
    "Receive",
    "RefusalShown",
    "Scope",
    "Send",
    "local_address",
]

_log = own_logger(__name__)
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_FOREIGN = re.compile(r"^[/\\\x00-\x20]+")  # browsers read a backslash as a slash, and leave out control characters
_TOO_LARGE = 413
_MOST_DRAINED = 256 << 20
# Of every answer, unless the application sets its own: nothing here is a page that loads or frames anything.
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}
RefusalShown: TypeAlias = Callable[[int, str], Any]
"""Status and text of a refusal -> the JSON document that this server answers with."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of what the clients of an HTTP server may use.

    Attributes:
        connections: Open connections; for any further one, a connection that waits for its client is closed.
        requests: Requests being served or waiting for a thread; any further one gets 503. Those that wait for their
            clients, to send a body or to take a response, do not count.
        header_bytes: Request line and headers together; more gets 400 or 431.
        body_bytes: A request's body; more gets 413.
        receive_s: Seconds in which a whole request must arrive, from its connection's opening or its first byte.
        send_s: Seconds in which a client must receive a response.
        idle_s: Seconds for which a connection without a request stays open.
        streams: Requests at once on one connection of HTTP/2; 0 speaks HTTP/1.1 alone.
    """

    connections: int = 256
    requests: int = 64
    header_bytes: int = 32 * 1024
    body_bytes: int = 1 << 20
    receive_s: float = 10.0
    send_s: float = 60.0
    idle_s: float = 15.0
    streams: int = 0


class _BodyTooLargeError(Exception):
    """The body of a request is larger than allowed; raised and caught in this module only."""


class _NoRoomError(Exception):
    """The error for a request beyond those that may be served at a time; raised and caught in this module only."""


class Guard:
    """An ASGI application that refuses requests before another one sees them, and answers 500 if that one fails.

    Args:
        application: The ASGI application.
        access: The access rules.
        limits: The limits of what clients may use.
        shown: Returns the JSON document of a refusal, from its status and text.
        content_type: The content type of such a document.
    """

    def __init__(
        self,
        application: Application,
        *,
        access: AccessRules,
        limits: Limits,
        shown: RefusalShown = lambda status, message: {"error": {"code": status, "message": message}},
        content_type: str = "application/json",
    ) -> None:
        self._application = application
        self._access = access
        self._limits = limits
        self._shown = shown
        self._content_type = content_type
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if sum(len(name) + len(value) for name, value in headers.items()) > self._limits.header_bytes:
            await self._refuse(RefusedRequest(431, "the headers are too large"), send)
            return
        refusal = self._access.refusal(scope["method"], headers) or _malformed(scope, headers) or self._no_room(headers)
        if refusal is not None:
            if refusal.status == _TOO_LARGE:
                await _drain(receive)
            await self._refuse(refusal, send)
            return
        self._running += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self._running -= 1

    def _no_room(self, headers: MutableMapping[str, str]) -> RefusedRequest | None:
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._limits.body_bytes:
            return self._too_large()
        if self._running >= self._limits.requests:
            return _busy()
        return None

    def _too_large(self) -> RefusedRequest:
        return RefusedRequest(_TOO_LARGE, f"a request's body may have {self._limits.body_bytes:,} bytes")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import ClientDisconnect  # here: limits are read without an HTTP server, too

        has_begun = has_more = is_complete = False
        received = waits = 0

        @contextmanager
        def waiting() -> Iterator[None]:
            nonlocal waits
            self._running -= waits == 0
            waits += 1
            try:
                yield
            finally:
                waits -= 1
                self._running += waits == 0

        async def bounded() -> Message:
            nonlocal received, has_more, is_complete
            if is_complete:  # it waits for the end of the connection, beside its work
                return await receive()
            with waiting():
                message = await receive()
            has_more = bool(message.get("more_body"))
            is_complete = not has_more
            received += len(message.get("body", b""))
            if received > self._limits.body_bytes:
                raise _BodyTooLargeError
            if is_complete and self._running > self._limits.requests:
                raise _NoRoomError  # others have come while this one waited
            return message

        async def noted(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = _headed(message.get("headers", ()))
            with waiting():
                await send(message)
                if message.get("more_body"):
                    await asyncio.sleep(0)  # others have a turn, however fast this response is written

        try:
            await self._application(scope, bounded, noted)
        except _BodyTooLargeError:
            if has_more:
                await _drain(receive)
            refusal = self._too_large()
        except _NoRoomError:
            refusal = _busy()
        except ClientDisconnect:
            return  # nobody is there to answer
        except Exception:  # noqa: BLE001 - whatever the application raises, the client gets an answer
            _log.exception("%s %s could not be answered", scope["method"], scope["path"][:200])
            refusal = RefusedRequest(500, "an error of the server; its log has the cause")
        else:
            return
        if not has_begun:
            await self._refuse(refusal, send)

    async def _refuse(self, refusal: RefusedRequest, send: Send) -> None:
        body = json.dumps(self._shown(refusal.status, refusal.message)).encode()
        headers = [("content-type", self._content_type), ("content-length", str(len(body))), *refusal.headers]
        if refusal.status in {_TOO_LARGE, 503}:
            headers.append(("connection", "close"))
        raw = _headed([(name.encode(), value.encode("latin-1")) for name, value in headers])
        await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


def local_address(path: str, query: str = "") -> str:
    r"""Return an address of this server for a ``Location`` header, whatever the path holds.

    >>> local_address("//evil.example/a b"), local_address("/\\evil.example"), local_address("/ui/\r\nX: y", "a=1")
    ('/evil.example/a%20b', '/evil.example', '/ui/%0D%0AX%3A%20y?a=1')

    Args:
        path: The path, with its escapes decoded; two slashes at its begin, or what browsers read as such, would name
            another host.
        query: The encoded query.
    """
    return "/" + quote(_FOREIGN.sub("", path), safe="/") + (f"?{query}" if query else "")


def _busy() -> RefusedRequest:
    return RefusedRequest(503, "too many requests at once; try again", (("retry-after", "1"),))


def _malformed(scope: Scope, headers: MutableMapping[str, str]) -> RefusedRequest | None:
    """Refuse what only a broken or hostile client sends: a host that is none, the address of another server."""
    host = headers.get("host", "")
    if host and not is_authority(host):
        return RefusedRequest(400, "the Host header is not a name or an address with a port")
    if not scope["path"].startswith("/") and scope["method"] != "OPTIONS":
        return RefusedRequest(400, "the target of a request is a path that begins with a slash")
    return None


async def _drain(receive: Receive) -> None:
    """Read a body that is refused, up to a bound: many clients read no answer before they have sent all of theirs."""
    left = _MOST_DRAINED
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


def _headed(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add the headers of every answer that are not among these; a control character in a value would end it."""
    cleaned = [(name, _CONTROL.sub(b"?", value)) for name, value in headers]
    names = {name.lower() for name, _ in cleaned}
    return [*cleaned, *((name, value) for name, value in _HEADERS.items() if name not in names)]


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
