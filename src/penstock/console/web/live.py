"""Open pages that stay up to date: one rendering for all browsers that look at the same page, sent when it changes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from penstock.console.web.page import Page, Visit
from penstock.errors import PenstockError

__all__ = ["Channels", "TooManyStreamsError"]

_LOOK_S = 0.5  # for the end of the server
_PING_S = 15.0
_RETRY_MS = 1000


class TooManyStreamsError(Exception):
    """There is no room for another stream."""


@dataclass(slots=True)
class _Channel:
    """The newest state of one page, and how many streams wait for the next."""

    event: str = ""
    id: str = ""
    readers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Channels:
    """The streams of a console. Each event has the whole state, so a slow browser only misses what lay between.

    Args:
        render: Renders the body of a page; runs in a thread.
        is_stopping: Returns whether streams are to end.
        most: The largest number of streams.
    """

    def __init__(self, render: Callable[[Page, Visit], str], is_stopping: Callable[[], bool], most: int = 128) -> None:
        self._render, self._is_stopping, self._most = render, is_stopping, most
        self._channels: dict[str, _Channel] = {}
        self._others = 0

    def is_full(self) -> bool:
        """Return whether there is no room for another stream."""
        return sum(channel.readers for channel in self._channels.values()) + self._others >= self._most

    def count(self, more: int) -> None:
        """Count streams that are not pages."""
        self._others += more

    def open(self, key: str, page: Page, visit: Visit, seen: str) -> AsyncIterator[str]:
        """Return the stream of a page.

        Args:
            key: What streams of the same page have in common.
            page: The page.
            visit: The look at it.
            seen: The id of the last event that the browser has.

        Raises:
            TooManyStreamsError: There are too many.
        """
        if self.is_full():
            raise TooManyStreamsError
        channel = self._channels.setdefault(key, _Channel())
        channel.readers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._follow(channel, page, visit))
        return self._stream(key, channel, seen)

    async def _stream(self, key: str, channel: _Channel, seen: str) -> AsyncIterator[str]:
        try:
            yield f"retry: {_RETRY_MS}\n\n"
            quiet = 0.0
            while not self._is_stopping():
                if channel.id not in ("", seen):
                    seen, quiet = channel.id, 0.0
                    yield channel.event
                changed = channel.changed
                try:
                    await asyncio.wait_for(changed.wait(), _LOOK_S)
                except TimeoutError:
                    quiet += _LOOK_S
                if quiet >= _PING_S:
                    quiet = 0.0
                    yield ": still here\n\n"
        finally:
            channel.readers -= 1
            if not channel.readers and channel.task is not None:
                channel.task.cancel()
                channel.task = None
                if self._channels.get(key) is channel:
                    del self._channels[key]

    async def _follow(self, channel: _Channel, page: Page, visit: Visit) -> None:
        stamp: object = object()
        while not self._is_stopping():
            newest = await run_in_threadpool(_stamp_of, page, visit)
            if newest is None or newest != stamp:
                stamp = newest
                body = await run_in_threadpool(self._render, page, visit)
                identity = hashlib.blake2b(body.encode(), digest_size=8).hexdigest()
                if identity != channel.id:
                    channel.id = identity
                    channel.event = f"event: body\nid: {identity}\ndata: {json.dumps(body)}\n\n"
                    channel.changed.set()
                    channel.changed = asyncio.Event()
            await asyncio.sleep(page.seconds)


def _stamp_of(page: Page, visit: Visit) -> object:
    """Return the page's stamp; None if what it shows is gone, so that it is rendered and says so."""
    try:
        return page.stamp(visit)
    except PenstockError:
        return None
