"""Uvicorn's HTTP protocol with deadlines: a connection that sends nothing, or half a request, is closed. And HTTP/2.

When there are too many connections, one of those that wait for their clients makes room for the new one: first those
that have sent no whole request, then those that do not take their response, then those between two requests; of these
one of the address that has most of them, the one that has waited longest. So slow clients lose their connections, and
others are served.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.serving.guard import Limits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # of HTTP/2

__all__ = ["guarded_protocol"]


class _Wait(IntEnum):
    """The step of the client that a connection waits for; the first of them makes room first."""

    REQUEST = 0
    READING = 1
    NEXT = 2
    NOTHING = 3


def guarded_protocol(limits: Limits) -> type[H11Protocol]:
    """Make the protocol class of a server with these limits."""
    if limits.streams:
        from penstock.serving.http2 import Http2, Peers

    class Guarded(H11Protocol):
        """A connection: idle, then receiving a request, then responding; Uvicorn itself limits only the idle time."""

        _is_receiving = False
        _deadline: asyncio.TimerHandle | None = None
        _first: bytes | None = b"" if limits.streams else None  # what may become the preface of HTTP/2
        _http2: Http2 | None = None
        _waits = _Wait.REQUEST
        _since = 0.0  # when this wait began

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._now(_Wait.REQUEST)
            self._within(limits.idle_s)
            open_ones = [each for each in self.connections if not each.transport.is_closing()]
            if len(open_ones) > limits.connections:
                _slowest(open_ones, self).drop()

        def drop(self) -> None:
            """Close the connection at once; a response is not written any further."""
            if self.cycle is not None:
                self.cycle.disconnected = True
            self.transport.abort()

        @property
        def waits(self) -> _Wait:
            """What the connection waits for."""
            if self._http2 is None or not self._http2.waits:
                return self._waits
            return min(self._waits, _Wait.NEXT)

        def _now(self, waits: _Wait) -> None:
            self._waits, self._since = waits, self.loop.time()

        def connection_lost(self, exc: Exception | None) -> None:
            self._within(None)
            if self._http2 is not None:
                self._http2.connection_lost()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._first is not None:
                data = self._first + data
                if len(data) < len(PREFACE) and PREFACE.startswith(data):
                    self._first = data
                    return
                self._first = None
                if data.startswith(PREFACE):
                    self._within(None)
                    self._now(_Wait.NOTHING)  # what it waits for is known to its streams
                    peers = Peers(self.scheme or "http", self.server, self.client)
                    self._http2 = Http2(self.transport, self.app, limits, peers, self.tasks)
            if self._http2 is not None:
                self._since = self.loop.time()
                self._http2.data_received(data)
                return
            if not self._is_receiving and not self._is_answering():
                self._is_receiving = True  # once a request: a byte now and then does not put the deadline off
                self._now(_Wait.REQUEST)
                self._within(limits.receive_s)
            super().data_received(data)
            if self._is_answering():
                self._is_receiving = False
                self._now(_Wait.NOTHING)
                self._within(None)

        def send_400_response(self, msg: str) -> None:
            """Answer a request that is not HTTP; who works on its beginning has nobody to answer any more."""
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
            else:  # a response has begun, or was sent before all of the request had come
                self.transport.close()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing() and not self._is_answering():
                self._is_receiving = False
                self._now(_Wait.NEXT)
                self._within(limits.idle_s)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._now(_Wait.READING)
            self._within(limits.send_s)
            if self._http2 is not None:
                self._http2.writable.clear()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._now(_Wait.NOTHING)
            self._within(None)
            if self._http2 is not None:
                self._http2.writable.set()

        def shutdown(self) -> None:
            if self._http2 is None:
                super().shutdown()
            else:
                self._http2.shutdown()

        def _is_answering(self) -> bool:
            return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

        def _within(self, seconds: float | None) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_late)

        def _too_late(self) -> None:
            self._deadline = None
            self.drop()

    return Guarded


def _slowest(connections: Iterable[Any], newest: Any) -> Any:
    """Choose the connection that makes room; the newest one if all others are being answered."""
    waiting = [each for each in connections if each is not newest and each.waits is not _Wait.NOTHING]
    if not waiting:
        return newest
    first = min(each.waits for each in waiting)
    candidates = [each for each in waiting if each.waits is first]
    most = Counter(_address(each) for each in candidates)
    return min(candidates, key=lambda each: (-most[_address(each)], each._since))  # noqa: SLF001 - of this module


def _address(connection: Any) -> str:
    return str(connection.client[0]) if connection.client else ""
