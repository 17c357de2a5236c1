"""State stores: their sizes, and interactive queries."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.durations import timestamp_ms
from penstock.base.escapes import json_text, visible
from penstock.console.request_limits import CELL_CHARACTERS, SHOWN_CHARACTERS, cut
from penstock.console.web.page import Visit
from penstock.console.web.pages.application_pages import head_of
from penstock.errors import ConfigError, PenstockError
from penstock.query.http.answers import ENCODINGS, Encoding, Paging

if TYPE_CHECKING:
    from penstock.query.http.service import QueryService

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
            problem = visit.site.exposure.error(error)
    by_name = {**drawing.get("stores", {}), **described}
    rows = [
        {
            "name": name,
            "facts": by_name.get(name, {}),
            "rows": picture.store_rows.get(name),
        }
        for name in sorted({*by_name, *picture.store_rows})
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
        "ways": {},
        "encodings": ENCODINGS,
        "answer": None,
        "problem": None,
    }
    application = visit.application
    if application is None:
        return shown
    try:
        service = application.queries()
        shown["about"] = service.store(name)
        shown["ways"] = _WAYS[str(shown["about"]["kind"])]
        if visit.get("ask"):
            shown["answer"] = _shown(_answer(service, visit, str(shown["about"]["kind"])))
    except PenstockError as error:
        shown["problem"] = visit.site.exposure.error(error)
    return shown


_KEYED = {"key": "one key", "prefix": "prefix", "range": "range of keys", "all": "all"}
_TIMED = {"key": "one key", "all": "all keys"}
_WAYS = {
    "key_value": _KEYED,
    "timestamped": _KEYED,
    "lru": _KEYED,
    "versioned": {"key": "newest of a key", "versions": "versions of a key"},
    "window": _TIMED,
    "session": _TIMED,
}


def _answer(service: QueryService, visit: Visit, kind: str) -> Mapping[str, Any]:
    name, key = visit.get("name"), visit.get("key")
    way = visit.get("by") or ("key" if key else "all" if "all" in _WAYS[kind] else "key")
    if way not in _WAYS[kind]:
        raise ConfigError(
            f"{name!r} cannot be asked by {way[:30]!r}", hint=f"This store answers by {', '.join(_WAYS[kind])}."
        )
    if way in ("key", "prefix", "versions") and not key:
        raise ConfigError(
            f"the {'prefix' if way == 'prefix' else 'key'} is empty", hint="Enter one, or query all entries."
        )
    encoding = _encoding(visit.get("encoding") or "auto")
    paging = Paging(encoding, limit=_LIMIT, cursor=visit.get("cursor") or None)
    low, high = visit.get("from").strip(), visit.get("to").strip()
    if kind in ("window", "session"):
        ask = service.windows if kind == "window" else service.sessions
        return ask(name, key if way == "key" else None, _time(low, "from"), _time(high, "to"), paging)
    if way == "versions":
        return service.versions(name, key, _time(low, "from"), _time(high, "to"), paging)
    if way == "prefix":
        return service.prefix(name, key, paging)
    if way == "key":
        as_of = _time(low, "from") if kind == "versioned" else None
        return {"entries": [service.get(name, key, encoding, as_of)], "next": None}
    if way == "all":
        return service.range(name, None, None, paging)
    return service.range(name, low or None, high or None, paging)


def _shown(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer with its keys and values as texts, those of a list cut where they are large."""
    entries = answer["entries"]
    most = SHOWN_CHARACTERS if len(entries) == 1 else CELL_CHARACTERS
    rows = []
    for each in entries:
        key = _text(each["key"] if "key" in each else answer.get("key"))
        value = _text(each["value"])
        is_cut = len(value) > most or len(key) > most
        rows.append(
            {
                **each,
                "whole_key": key,
                "key": cut(visible(key), most),
                "value": cut(visible(value), most),
                "is_cut": is_cut,
            }
        )
    return {**answer, "entries": rows}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _encoding(text: str) -> Encoding:
    for each in ENCODINGS:
        if each == text:
            return each
    raise ConfigError(f"keys cannot be read as {text[:30]!r}", hint=f"Use {', '.join(ENCODINGS)}.")


def _time(text: str, what: str) -> int | None:
    if not text:
        return None
    with contextlib.suppress(ValueError):
        return int(text)
    return int(timestamp_ms(text, what))
