"""Joins of a case; the types of the two inputs say which join it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import functions as fns
from penstock.api.joins.stream_stream import JoinWindows
from penstock.api.options import Joined, StreamJoined, TableJoined
from penstock.api.stream import KStream
from penstock.api.table import GlobalKTable, KTable
from things import NotBuilt, Operators, Spec, Thing, serde, value_only

__all__ = ["JoinOperators"]


class JoinOperators(Operators):
    """``join`` and its kin."""

    def op_join(self, n: Spec) -> Thing:
        left, right = self.source(n, 0), self.source(n, 1)
        if isinstance(left.it, KTable):
            return self._join_tables(n, left, right)
        if isinstance(left.it, KStream) and isinstance(right.it, KStream):
            return self._join_streams(n, left, right)
        if isinstance(right.it, GlobalKTable):
            return self._join_global(n, left, right)
        if not (isinstance(left.it, KStream) and isinstance(right.it, KTable)):
            raise NotBuilt(f"join of {type(left.it).__name__} and {type(right.it).__name__}")
        joined = Joined(
            n.get("name"),
            key_serde=serde(left.key, left.size),
            value_serde=serde(left.value),
            other_value_serde=serde(right.value),
            grace=n.get("grace_ms"),
        )
        verb = left.it.join if n["kind"] == "inner" else left.it.left_join
        return replace(
            left,
            it=verb(right.it, _joiner(n["fn"]), joined),
            value=fns.joiner_type(n["fn"], left.value, right.value),
        )

    def op_fkJoin(self, n: Spec) -> Thing:  # noqa: N802 - methods carry the names of the operators in the cases
        left, right = self.source(n, 0), self.source(n, 1)
        value = fns.joiner_type(n["fn"], left.value, right.value)
        extract = fns.key_function(n["extractor"])
        verb = left.it.join if n["kind"] == "inner" else left.it.left_join
        table = verb(
            right.it,
            _without_key(n["fn"]),
            self.materialized(n, serde(left.key, left.size), serde(value)),
            foreign_key=extract if n.get("extractor_with_key") else value_only(extract),
            joined=TableJoined(n.get("name")),
        )
        return replace(left, it=table, value=value)

    def _join_global(self, n: Spec, left: Thing, right: Thing) -> Thing:
        verb = left.it.join if n["kind"] == "inner" else left.it.left_join
        if n["fn"]["name"] == "mapped_key_pair":
            mapped: Any = _mapped_key_pair
        else:
            mapped = _joiner(n["fn"])
        stream = verb(right.it, mapped, key=fns.key_function(n["key_fn"]), name=n.get("name"))
        return replace(left, it=stream, value=fns.joiner_type(n["fn"], left.value, right.value))

    def _join_tables(self, n: Spec, left: Thing, right: Thing) -> Thing:
        value = fns.joiner_type(n["fn"], left.value, right.value)
        store = self.optional(n, serde(left.key, left.size), serde(value))
        verb = {"inner": "join", "left": "left_join", "outer": "outer_join"}[n["kind"]]
        table = getattr(left.it, verb)(right.it, _without_key(n["fn"]), store, name=n.get("name"))
        return replace(left, it=table, value=value)

    def _join_streams(self, n: Spec, left: Thing, right: Thing) -> Thing:
        joined = StreamJoined(
            n.get("name"),
            key_serde=serde(left.key, left.size),
            value_serde=serde(left.value),
            other_value_serde=serde(right.value),
            store_name=n.get("store"),
            store_type=n.get("store_type"),
        )
        window = n["window"]
        before, after = window["before_ms"], window["after_ms"]
        farthest = max(before, after)
        windows = (
            JoinWindows.of(farthest, grace=window["grace_ms"]) if "grace_ms" in window else JoinWindows.legacy(farthest)
        )
        verb = {"inner": left.it.join, "left": left.it.left_join, "outer": left.it.outer_join}[n["kind"]]
        return replace(
            left,
            it=verb(right.it, _joiner(n["fn"]), windows.before(before).after(after), joined),
            value=fns.joiner_type(n["fn"], left.value, right.value),
        )


def _joiner(f: Spec) -> Callable[..., Any]:
    """The joiner of a stream: it gets the key only if it looks at it."""
    return fns.joiner(f) if fns.joiner_uses_key(f) else _without_key(f)


def _without_key(f: Spec) -> Callable[[Any, Any], Any]:
    joiner = fns.joiner(f)
    return lambda left, right: joiner(None, left, right)


def _mapped_key_pair(key: Any, mapped: Any, left: Any, right: Any) -> str:
    return f"{fns.text(key)}/{fns.text(mapped)}=({fns.text(left)},{fns.text(right)})"
