"""Groupings, windows and aggregations of a case."""

# ruff: noqa: N802 - methods carry the names of the operators in the cases

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import functions as fns
from java_errors import java_error
from penstock.api.options import Grouped, Materialized
from penstock.api.table import KTable
from penstock.api.windowed.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from things import TEXTS, NotBuilt, Operators, Spec, Thing, serde

__all__ = ["AggregationOperators"]


class AggregationOperators(Operators):
    """Everything that folds values, and the tables it gives."""

    def op_toTable(self, n: Spec) -> Thing:
        x = self.source(n)
        store = self.materialized(n, serde(x.key, x.size), serde(x.value))
        return replace(x, it=x.it.to_table(store, name=n.get("name")))

    def op_toStream(self, n: Spec) -> Thing:
        x = self.source(n)
        if "fn" not in n:
            return replace(x, it=x.it.to_stream(name=n.get("name")))
        return Thing(x.it.to_stream(fns.key_function(n["fn"]), name=n.get("name")), "string", x.value)

    def op_groupByKey(self, n: Spec) -> Thing:
        x = self.source(n)
        grouped = Grouped(n.get("name"), key_serde=serde(x.key, x.size), value_serde=serde(x.value))
        return replace(x, it=x.it.group_by_key(grouped))

    def op_groupBy(self, n: Spec) -> Thing:
        x = self.source(n)
        of_table = isinstance(x.it, KTable)
        value = fns.pair_type(n["fn"], x.value) if of_table else x.value
        key = n.get("key", "string")
        fn = fns.pair_function(n["fn"]) if of_table else fns.key_function(n["fn"])
        grouped = Grouped(n.get("name"), key_serde=serde(key), value_serde=serde(value))
        return Thing(x.it.group_by(fn, grouped), key, value)

    def op_windowedBy(self, n: Spec) -> Thing:
        x, w = self.source(n), n["window"]
        match w["type"]:
            case "tumbling":
                windows: Any = TimeWindows.of(w["size_ms"], grace=w["grace_ms"])
            case "hopping":
                windows = TimeWindows.of(w["size_ms"], grace=w["grace_ms"], advance=w["advance_ms"])
            case "unlimited":
                windows = UnlimitedWindows.of(start=w["start_ms"])
            case "sliding":
                windows = SlidingWindows.of(w["size_ms"], grace=w["grace_ms"])
            case "session":
                windows = SessionWindows.of(w["gap_ms"], grace=w["grace_ms"])
            case kind:
                raise NotBuilt(f"{kind} windows")
        grouped = x.it.windowed_by(windows)
        if "emit" in n:
            grouped = grouped.emit_strategy(n["emit"])
        return Thing(grouped, x.key, x.value, getattr(windows, "size_ms", 0))

    def op_count(self, n: Spec) -> Thing:
        return self._aggregated(n, "long", lambda it, store: it.count(store, name=n.get("name")))

    def op_reduce(self, n: Spec) -> Thing:
        functions = [fns.reducer(n[f]) for f in ("fn", "adder", "subtractor") if f in n]
        value = self.source(n).value
        return self._aggregated(n, value, lambda it, store: it.reduce(*functions, store, name=n.get("name")))

    def op_aggregate(self, n: Spec) -> Thing:
        def initial() -> Any:
            if n.get("init_throws"):
                raise java_error("java.lang.IllegalStateException", "boom init")
            return n["init"]

        functions = [fns.aggregator(n[f]) for f in ("fn", "adder", "subtractor") if f in n]
        functions += [fns.merger(n["merger"])] if "merger" in n else []
        value = n.get("value") or fns.literal_type(n["init"])
        return self._aggregated(
            n, value, lambda it, store: it.aggregate(initial, *functions, store, name=n.get("name"))
        )

    def _aggregated(self, n: Spec, value: str, build: Callable[[Any, Materialized], Any]) -> Thing:
        x = self.source(n)
        table = build(x.it, self.materialized(n, serde(x.key if x.key in TEXTS else "string"), serde(value)))
        kind = type(x.it).__name__
        prefixes = {"TimeWindowed": "windowed<string>", "SessionWindowed": "session<string>"}
        key = next((name for prefix, name in prefixes.items() if kind.startswith(prefix)), x.key)
        return Thing(table, key, value, x.size)
