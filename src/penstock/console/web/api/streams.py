"""Events of the JSON interface: batches, alerts and states of an application; new messages of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from penstock.base.escapes import json_text
from penstock.console.messages import Messages, read_messages
from penstock.console.web.api.applications import line_of
from penstock.console.web.api.topic_endpoints import message_document
from penstock.console.web.page import Visit
from penstock.console.web.pages.log_pages import log_of, message_query
from penstock.serde.plain_json import plain

__all__ = ["application_events", "tail_events"]

_LOOK_S = 0.5
_PING_S = 15.0
_TAIL = 25  # messages a look: 50 a second


def _event(name: str, data: Any, identity: int | None = None) -> str:
    head = "" if identity is None else f"id: {identity}\n"
    return f"event: {name}\n{head}data: {json_text(data, default=plain)}\n\n"


async def _ticks(
    look: Callable[[], list[str]], is_stopping: Callable[[], bool], room: Callable[[int], None]
) -> AsyncIterator[str]:
    """Yield what each look finds, and a comment after 15 seconds without anything."""
    room(1)
    try:
        yield "retry: 1000\n\n"
        quiet = 0.0
        while not is_stopping():
            events = await run_in_threadpool(look)
            quiet = 0.0 if events else quiet + _LOOK_S
            for each in events:
                yield each
            if quiet >= _PING_S:
                quiet = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(_LOOK_S)
    finally:
        room(-1)


def application_events(visit: Visit, seen: str, room: Callable[[int], None]) -> AsyncIterator[str]:
    """Return the events of an application: ``batch`` with its number as id, ``alert`` and ``state`` when they change.

    Args:
        visit: The request.
        seen: The number of the last batch that the reader has; those after it that are kept come first.
        room: Called with 1 when the stream begins, and with -1 when it ends.
    """
    application = visit.application
    last = int(seen) if seen.isdecimal() and len(seen) < 19 else None
    stamp: object = object()
    sent: dict[str, Any] = {}

    def look() -> list[str]:
        nonlocal last, stamp
        if application is None or stamp == (stamp := application.stamp()):
            return []
        picture = application.picture()
        if last is None:
            last = picture.newest.number - 1 if picture.newest else -1
        elif picture.newest is not None and picture.newest.number < last:
            last = -1  # the application has begun anew
        events = []
        for line in picture.lines:
            if line.number > last:
                events.append(_event("batch", line_of(line), line.number))
                last = line.number
        for name, now in (("state", picture.state), ("alert", list(picture.get("alerts", ())))):
            if sent.get(name) != now:
                sent[name] = now
                events.append(_event(name, now))
        return events

    return _ticks(look, visit.site.is_stopping, room)


def tail_events(visit: Visit, room: Callable[[int], None]) -> AsyncIterator[str]:
    """Return the new messages of a topic as events, at most 50 a second; ``left_out`` counts the others."""
    log, name = log_of(visit), visit.get("name")
    ends: dict[Any, int] = dict(log.end_offsets([name]))
    query = replace(message_query(visit), start="newest", cursor="", limit=_TAIL)

    def look() -> list[str]:
        nonlocal ends
        now = dict(log.end_offsets([name]))
        new = sum(now[tp] - ends.get(tp, now[tp]) for tp in now)
        if new <= 0:
            ends = now
            return []
        messages: Messages = read_messages(log, query)
        rows = [
            row
            for row in messages.rows
            if any(p.partition == row["partition"] and row["offset"] >= first for p, first in ends.items())
        ]
        ends = now
        events = [_event("message", message_document(row)) for row in reversed(rows)]
        if new > len(rows) and not query.wanted:
            events.append(_event("left_out", {"messages": new - len(rows)}))
        return events

    return _ticks(look, visit.site.is_stopping, room)
