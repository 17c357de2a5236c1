"""State stores: their sizes, and interactive queries."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from penstock.console.web.page import Visit
from penstock.console.web.pages.application_pages import head_of
from penstock.durations import timestamp_ms
from penstock.errors import PenstockError
from penstock.query.http.answers import Paging

__all__ = ["store", "stores"]

_LIMIT = 100


def stores(visit: Visit) -> Mapping[str, Any]:
    """Return the stores with their rows."""
    picture, facts = head_of(visit)
    application = visit.application
    drawing = (application.topology() if application is not None else None) or {}
    described: dict[str, Any] = {}
    problem = None
    if application is not None:
        try:
            described = {each["name"]: each for each in application.queries().stores()}
        except PenstockError as error:
            problem = error
    known = {**drawing.get("stores", {}), **described}
    rows = [
        {
            "name": name,
            "facts": known.get(name, {}),
            "rows": picture.store_rows.get(name),
        }
        for name in sorted({*known, *picture.store_rows})
    ]
    return {**facts, "rows": rows, "problem": problem}


def store(visit: Visit) -> Mapping[str, Any]:
    """Return a store, and the answer to the query that the address has."""
    picture, facts = head_of(visit)
    name = visit.get("name")
    by_task = picture.get("stores", {}).get(name, {})
    shown = {
        **facts,
        "name": name,
        "by_task": by_task,
        "most": max(by_task.values(), default=0),
        "about": None,
        "answer": None,
        "problem": None,
    }
    application = visit.application
    if application is None:
        return shown
    try:
        service = application.queries()
        shown["about"] = service.store(name)
        if visit.get("ask"):
            shown["answer"] = _answer(service, visit, str(shown["about"]["kind"]))
    except PenstockError as error:
        shown["problem"] = error
    return shown


def _answer(service: Any, visit: Visit, kind: str) -> Mapping[str, Any]:
    name, key, paging = visit.get("name"), visit.get("key"), Paging(limit=_LIMIT, cursor=visit.get("cursor") or None)
    low, high = visit.get("from").strip(), visit.get("to").strip()
    if kind in ("window", "session"):
        ask = service.windows if kind == "window" else service.sessions
        return dict(ask(name, key or None, _time(low), _time(high), paging))
    if visit.get("by", "key") == "prefix" and key:
        return dict(service.prefix(name, key, paging))
    if key:
        return {"entries": [service.get(name, key)], "next": None}
    return dict(service.range(name, low or None, high or None, paging))


def _time(text: str) -> int | None:
    if not text:
        return None
    with contextlib.suppress(ValueError):
        return int(text)
    return int(timestamp_ms(text, "the time"))
