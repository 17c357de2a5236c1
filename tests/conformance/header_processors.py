"""The processors of recorded cases over stores that keep headers: a value is a command, and what they forward the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from functions import text
from penstock.query import KeyQuery, StateQueryRequest
from penstock.serde.windowed import Window, Windowed
from penstock.state.views import AggregationWithHeaders, ValueTimestampHeaders

__all__ = ["HeaderSteps", "entry_text"]


def entry_text(entry: Any) -> str:
    """An entry as text: value@timestamp[name=text;...], of a session store without the timestamp."""
    if entry is None:
        return "null"
    headers = "".join(
        f"{name}={text(None if value is None else value.decode())};" for name, value in getattr(entry, "headers", ())
    )
    if isinstance(entry, AggregationWithHeaders):
        return f"{text(entry.aggregation)}[{headers}]"
    if not hasattr(entry, "timestamp"):
        return text(entry)
    return f"{text(entry.value)}@{entry.timestamp}" + (f"[{headers}]" if hasattr(entry, "headers") else "")


def _listed(entries: Iterable[tuple[Any, Any]]) -> str:
    return " ".join(f"{text(key)}={entry_text(entry)}" for key, entry in entries)


class HeaderSteps:
    """One method for each name."""

    f: dict[str, Any]
    store: Any
    running: dict[str, Any]

    def forward(self, r: Any, value: Any) -> None:
        """Send on a record with another value."""
        raise NotImplementedError

    def isolation_log(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        name, levels = self.f["store"], ("READ_UNCOMMITTED", "READ_COMMITTED")
        self.store.put(k, v)
        shown = [f"store={entry_text(self.store.get(k))}"]
        shown += [f"{level.lower()}={entry_text(self.store.read_only(level).get(k))}" for level in levels]
        for level in levels:
            request = StateQueryRequest.in_store(name).with_query(KeyQuery.with_key(k)).with_isolation_level(level)
            answer = self.running["driver"].query(request).partition_results[0]
            found = answer.failure_reason.value if answer.is_failure else entry_text(answer.result)
            shown.append(f"query_{level.lower()}={found}")
        self.forward(r, " ".join(shown))

    def headers_log(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        name, *words = ("delete" if v is None else text(v)).split(":")
        low, high = (*(word or None for word in words), None, None)[:2]
        store = self.store

        def entry(headers: Any) -> ValueTimestampHeaders:
            return ValueTimestampHeaders(words[0], r.timestamp, headers)

        def put_all() -> None:
            second = (*r.headers, ("second", words[0].encode()))
            store.put_many(
                [(k, entry(r.headers)), (text(k) + "2", ValueTimestampHeaders(words[0], r.timestamp + 1, second))]
            )

        changes = {
            "put": lambda: store.put(k, entry(r.headers)),
            "put_plain": lambda: store.put(k, entry(())),
            "put_null": lambda: store.put(k, None),
            "put_all": put_all,
        }
        if name in changes:
            changes[name]()
            self.forward(r, "ok")
            return
        answers = {
            "delete": lambda: entry_text(store.delete(k)),
            "put_if_absent": lambda: entry_text(store.put_if_absent(k, entry(r.headers))),
            "get": lambda: entry_text(store.get(k)),
            "range": lambda: _listed(store.range(low, high)),
            "reverse": lambda: _listed(store.reverse_range(low, high)),
            "prefix": lambda: _listed(store.prefix_scan(words[0])),
            "all": lambda: _listed(store.all()),
            "reverse_all": lambda: _listed(store.reverse_all()),
        }
        self.forward(r, answers[name]())

    def window_headers_log(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        size, ts, store = self.f["size_ms"], r.timestamp, self.store
        start, first, last = ts - ts % size, max(0, ts - 3 * size), ts + size
        name, *words = ("put_null" if v is None else text(v)).split(":")
        low, high = (*(word or None for word in words), None, None)[:2]
        if name in ("put", "put_null"):
            store.put(k, None if name == "put_null" else ValueTimestampHeaders(words[0], ts, r.headers), start)
            self.forward(r, "ok")
            return
        answers = {
            "at": lambda: entry_text(store.fetch(k, start)),
            "fetch": lambda: _listed(store.fetch_range(k, first, last)),
            "back": lambda: _listed(store.fetch_range(k, first, last, reverse=True)),
            "keys": lambda: _listed(store.fetch_key_range(low, high, first, last)),
            "all": lambda: _listed(store.all()),
            "back_all": lambda: _listed(store.all(reverse=True)),
            "fetch_all": lambda: _listed(store.fetch_all(first, last)),
        }
        self.forward(r, answers[name]())

    def session_headers_log(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        gap, ts, store = self.f["gap_ms"], r.timestamp, self.store
        first, last = max(0, ts - gap), ts + gap
        name, *words = ("remove" if v is None else text(v)).split(":")
        low, high = (*(word or None for word in words), None, None)[:2]
        if name in ("put", "remove"):
            found = list(store.find_sessions(k, first, last))
            start, end, merged = ts, ts, ""
            for session, entry in found:
                start, end = min(start, session.window.start), max(end, session.window.end)
                merged += text(entry.aggregation) + "+"
                store.remove(session)
            if name == "put":
                value = (merged + words[0])[-self.f.get("keep", 24) :]
                store.put(Windowed(k, Window(start, end)), AggregationWithHeaders(value, r.headers))
            self.forward(r, _listed(found))
            return
        answers = {
            "find": lambda: _listed(store.find_sessions(k, first, last)),
            "fetch": lambda: _listed(store.fetch(k)),
            "back": lambda: _listed(store.fetch(k, reverse=True)),
            "keys": lambda: _listed(store.fetch_key_range(low, high)),
            "one": lambda: entry_text(store.fetch_session(k, ts, ts)),
        }
        self.forward(r, answers[name]())
