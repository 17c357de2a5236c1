"""Uvicorn's HTTP protocol with deadlines: a connection that sends nothing, or half a request, is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.serving.guard import Limits

__all__ = ["guarded_protocol"]


def guarded_protocol(limits: Limits) -> type[H11Protocol]:
    """Make the protocol class of a server with these limits."""

    class Guarded(H11Protocol):
        """A connection: idle, then receiving a request, then responding; Uvicorn itself limits only the idle time."""

        _is_receiving = False
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
            else:
                self._within(limits.idle_s)

        def connection_lost(self, exc: Exception | None) -> None:
            self._within(None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
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

        def resume_writing(self) -> None:
            super().resume_writing()
            self._within(None)

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
