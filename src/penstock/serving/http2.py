"""HTTP/2 on a connection of Uvicorn: its streams as requests of the ASGI application, by the library h2.

Clients begin it without TLS by its preface ("prior knowledge"), with TLS by ALPN. The upgrade of HTTP/1.1 is not
offered: clients that ask for it stay with HTTP/1.1.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from penstock.base.log_lines import own_logger
from penstock.serving.guard import Application, Limits, Message, Scope

__all__ = ["Http2", "Peers"]

MOST_RESETS = 100  # of requests that a client takes back on one connection
OF_CONNECTIONS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_log = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class Peers:
    """Both ends of a connection, as the scopes of its requests have them."""

    scheme: str
    server: tuple[str, int | None] | None
    client: tuple[str, int] | None


class Http2:
    """A connection that speaks HTTP/2.

    Args:
        transport: Its transport.
        application: The ASGI application.
        limits: The limits of what the client may use.
        peers: Both ends.
        tasks: The running requests of the server, to which those of this connection are added.
    """

    def __init__(
        self, transport: asyncio.Transport, application: Application, limits: Limits, peers: Peers, tasks: set[Any]
    ) -> None:
        self.transport = transport
        self.application = application
        self.limits = limits
        self.peers = peers
        self.writable = asyncio.Event()
        self.writable.set()
        self.connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
                SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
            },
        )
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks
        self._streams: dict[int, _Stream] = {}
        self._resets = 0
        self._is_closing = False
        self._idle: asyncio.TimerHandle | None = None
        self.connection.initiate_connection()
        self.flush()
        self._rest()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        try:
            events = self.connection.receive_data(data)
        except ProtocolError:
            self.flush()  # it says goodbye
            self.transport.close()
            return
        for event in events:
            self._handle(event)
        for stream in self._streams.values():
            stream.changed.set()  # a window may have opened
        self.flush()

    def connection_lost(self) -> None:
        """Note that the client has gone."""
        self._cancel_idle()
        for stream in list(self._streams.values()):
            stream.leave()

    @property
    def waits(self) -> bool:
        """Whether it only waits for its client: for a request, the rest of one, or room for a response."""
        return not self.writable.is_set() or not any(stream.is_complete for stream in self._streams.values())

    def shutdown(self) -> None:
        """Close the connection as soon as no request is being answered."""
        self._is_closing = True
        self._rest()

    def flush(self) -> None:
        """Send what there is to send."""
        data = self.connection.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def ended(self, stream: _Stream) -> None:
        """Note that a request has been answered, or is given up."""
        self._streams.pop(stream.number, None)
        self._rest()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event.stream_id or 0, event.headers or [])
            return
        if isinstance(event, ConnectionTerminated):
            self.connection_lost()
            self.transport.close()
            return
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, DataReceived):
            size = event.flow_controlled_length or 0
            if stream is None:
                self.acknowledge(size, event.stream_id or 0)
            else:
                stream.take(event.data or b"", size)
        elif isinstance(event, StreamEnded) and stream is not None:
            stream.complete()
        elif isinstance(event, StreamReset):
            self._resets += 1
            if stream is not None:
                stream.leave()
            if self._resets > MOST_RESETS:
                self._goodbye(ErrorCodes.ENHANCE_YOUR_CALM)

    def _begin(self, number: int, headers: list[tuple[Any, Any]]) -> None:
        self._cancel_idle()
        stream = self._streams[number] = _Stream(self, number, self._scope(headers))
        stream.deadline = self._loop.call_later(self.limits.receive_s, stream.reset)
        task = self._loop.create_task(stream.run())
        task.add_done_callback(self._tasks.discard)
        self._tasks.add(task)

    def _scope(self, headers: list[tuple[bytes, bytes]]) -> Scope:
        pseudo = {name: value for name, value in headers if name.startswith(b":")}
        plain = [(name, value) for name, value in headers if not name.startswith(b":")]
        if b":authority" in pseudo:
            plain = [(b"host", pseudo[b":authority"]), *(pair for pair in plain if pair[0] != b"host")]
        path, _, query = pseudo.get(b":path", b"/").partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "server": self.peers.server,
            "client": self.peers.client,
            "scheme": self.peers.scheme,
            "method": pseudo.get(b":method", b"GET").decode("ascii", "replace"),
            "root_path": "",
            "path": unquote(path.decode("ascii", "replace")),
            "raw_path": path,
            "query_string": query,
            "headers": plain,
            "state": {},
        }

    def acknowledge(self, size: int, number: int) -> None:
        """Let the client send as many bytes again."""
        if size:
            try:
                self.connection.acknowledge_received_data(size, number)
            except ProtocolError:
                return  # the stream has ended
            self.flush()

    def _rest(self) -> None:
        """Without a request, close the connection in a while, or now if the server stops."""
        if self._streams:
            return
        self._cancel_idle()
        if self._is_closing:
            self._goodbye(ErrorCodes.NO_ERROR)
        else:
            self._idle = self._loop.call_later(self.limits.idle_s, self._goodbye, ErrorCodes.NO_ERROR)

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _goodbye(self, why: ErrorCodes) -> None:
        self._cancel_idle()
        if not self.transport.is_closing():
            self.connection.close_connection(why)
            self.flush()
            self.transport.close()


class _Stream:
    """One request: what has come of it, and its response."""

    def __init__(self, owner: Http2, number: int, scope: Scope) -> None:
        self.number = number
        self.body: deque[tuple[bytes, int]] = deque()
        self.changed = asyncio.Event()
        self.deadline: asyncio.TimerHandle | None = None
        self._owner = owner
        self._scope = scope
        self._is_complete = self._is_read = self._has_ended = self._has_left = self._is_over = False

    async def run(self) -> None:
        """Serve the request."""
        try:
            await self._owner.application(self._scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - the guard answers errors of applications: this is one of its own
            _log.exception("a request could not be answered")
        if not self._has_ended:
            self.reset(ErrorCodes.INTERNAL_ERROR)
        self._is_over = True
        while self.body:
            self._owner.acknowledge(self.body.popleft()[1], self.number)
        self._end()

    @property
    def is_complete(self) -> bool:
        """Whether all of the request has come."""
        return self._is_complete

    def take(self, data: bytes, size: int) -> None:
        """Take a part of the body; behind the response the rest of it is dropped, for clients that send it first."""
        if self._is_over:
            self._owner.acknowledge(size, self.number)
        else:
            self.body.append((data, size))

    def _end(self) -> None:
        if self._is_over and (self._is_complete or self._has_left):
            self._owner.ended(self)

    def complete(self) -> None:
        """Note that the client has sent all of its request."""
        self._is_complete = True
        self._forget_deadline()
        self._end()

    def leave(self) -> None:
        """Note that the client does not want the response any more."""
        self._has_left = True
        self._forget_deadline()
        self.changed.set()
        self._end()

    def reset(self, why: ErrorCodes = ErrorCodes.CANCEL) -> None:
        """End the stream, whatever is missing."""
        if not self._has_left:
            with suppress(ProtocolError):  # it has ended by itself
                self._owner.connection.reset_stream(self.number, why)
            self._owner.flush()
        self.leave()

    def _forget_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    async def _receive(self) -> Message:
        while True:
            if self._has_left:
                return {"type": "http.disconnect"}
            if self.body:
                data, size = self.body.popleft()
                self._owner.acknowledge(size, self.number)
                self._is_read = self._is_complete and not self.body
                return {"type": "http.request", "body": data, "more_body": not self._is_read}
            if self._is_complete and not self._is_read:
                self._is_read = True
                return {"type": "http.request", "body": b"", "more_body": False}
            self.changed.clear()
            await self.changed.wait()

    async def _send(self, message: Message) -> None:
        if self._has_left:
            return
        if message["type"] == "http.response.start":
            headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            kept = [(name, value) for name, value in headers if name not in OF_CONNECTIONS]
            self._owner.connection.send_headers(self.number, [(b":status", b"%d" % message["status"]), *kept])
            self._owner.flush()
            return
        body = b"" if self._scope["method"] == "HEAD" else message.get("body", b"")
        await self._write(body, is_last=not message.get("more_body", False))

    async def _write(self, body: bytes, *, is_last: bool) -> None:
        rest = memoryview(body)
        while rest or (is_last and not self._has_ended):
            if not await self._has_room(len(rest)):
                return
            connection = self._owner.connection
            size = min(connection.local_flow_control_window(self.number), connection.max_outbound_frame_size, len(rest))
            part, rest = rest[:size], rest[size:]
            self._has_ended = is_last and not rest
            connection.send_data(self.number, bytes(part), end_stream=self._has_ended)
            self._owner.flush()

    async def _has_room(self, size: int) -> bool:
        """Wait until the client takes bytes; False if it has gone, or takes too long."""
        try:
            async with asyncio.timeout(self._owner.limits.send_s):
                await self._owner.writable.wait()
                while not self._has_left and size and self._window() <= 0:  # SETTINGS may make it negative
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            self.reset()
        return not self._has_left

    def _window(self) -> int:
        return int(self._owner.connection.local_flow_control_window(self.number))
