"""Uvicorn's HTTP protocol with deadlines: a connection that sends nothing, or half a request, is closed. And HTTP/2."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.serving.guard import Limits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # of HTTP/2

__all__ = ["guarded_protocol"]


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

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
            else:
                self._within(limits.idle_s)

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
                    peers = Peers(self.scheme or "http", self.server, self.client)
                    self._http2 = Http2(self.transport, self.app, limits, peers, self.tasks)
            if self._http2 is not None:
                self._http2.data_received(data)
                return
            if not self._is_receiving and not self._is_answering():
                self._is_receiving = True  # once a request: a byte now and then does not put the deadline off
                self._within(limits.receive_s)
            super().data_received(data)
            if self._is_answering():
                self._is_receiving = False
                self._within(None)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing() and not self._is_answering():
                self._is_receiving = False
                self._within(limits.idle_s)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._within(limits.send_s)
            if self._http2 is not None:
                self._http2.writable.clear()

        def resume_writing(self) -> None:
            super().resume_writing()
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
            self.transport.abort()

    return Guarded
