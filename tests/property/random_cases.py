"""Random topologies with random inputs, in the language of the recorded cases: the twin of the Java generator.

A case can be interpreted by tests/conformance, kept as JSON, and given to the Java library. What it adds to the Java one:
versioned tables, joins with grace, processors that look at the time, and everything that depends on headers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

from dice import Dice
from random_functions import RandomFunctions
from random_inputs import random_inputs

import functions as fns

__all__ = ["random_case"]

Spec = dict[str, Any]


@dataclass
class Item:
    """A stream (S), table (T) or global table (G) that later operators may take."""

    id: str
    kind: str
    key: str
    value: str
    depth: int = 0
    used: bool = False
    has_serde: bool = True
    versioned: bool = False


class Generator(RandomFunctions):
    """Grows a topology operator by operator, always of fitting types."""

    def __init__(self, dice: Dice, families: frozenset[str]) -> None:
        super().__init__(dice)
        self.families = families
        self.topology: list[Spec] = []
        self.pool: list[Item] = []
        self.topics: dict[str, Spec] = {}
        self.ids = 0
        self.stores = 0

    def case(self) -> Spec:
        dice = self.dice
        sources, has_stream = 1 + dice.number(3), False
        for i in range(1, sources + 1):
            must_stream = i == sources and not has_stream
            has_stream |= self._source(f"in{i}", stream=must_stream or dice.maybe(0.5), table=not must_stream)
        wanted = 2 + dice.number(8)
        for _ in range(wanted * 3):
            if len(self.topology) >= wanted + sources:
                break
            self._step()
        outputs = 0
        for item in list(self.pool):
            if item.kind == "G" or (item.used and not dice.maybe(0.2)):
                continue
            id_ = item.id if item.kind == "S" else self._add("toStream", {"in": item.id})["id"]
            outputs += 1
            self._add("to", {"in": id_, "topic": f"out{outputs}"})
        config: Spec = {
            "statestore.cache.max.bytes": 0,
            "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
            "__emit.interval.ms.kstreams.windowed.aggregation__": 0,
        }
        if dice.maybe(0.12):
            config["topology.optimization"] = "all"
        case = {"name": "random", "config": config, "topics": self.topics, "topology": self.topology}
        return {**case, "inputs": random_inputs(dice, case)}

    def _has(self, *families: str) -> bool:
        return self.families.issuperset(families)

    def _source(self, topic: str, *, stream: bool, table: bool) -> bool:
        dice = self.dice
        value = "long" if dice.maybe(0.35) else "string"
        self.topics[topic] = {"key": "string", "value": value}
        if stream or not table:
            self._item(self._add("stream", {"topic": topic}), "S", "string", value)
            return True
        if self._has("global") and dice.maybe(0.2):
            self._item(self._store(self._add("globalTable", {"topic": topic}), 0.5), "G", "string", value)
            return False
        n = self._store(self._add("table", {"topic": topic}), 0.5)
        if "store" in n and self._has("versioned") and dice.maybe(0.3):
            n["versioned_history_ms"] = dice.one(60_000, 5_000)
        self._item(n, "T", "string", value)
        return False

    # -- bookkeeping

    def _add(self, op: str, fields: Spec) -> Spec:
        self.ids += 1
        n = {"id": f"x{self.ids}", "op": op, **fields}
        self.topology.append(n)
        return n

    def _item(self, n: Spec, kind: str, key: str, value: str, of: Item | None = None, *, serde: bool = True) -> None:
        item = Item(n["id"], kind, key, value, of.depth + 1 if of else 0, has_serde=serde)
        inherits = (
            of is not None
            and of.versioned
            and kind == "T"
            and n["op"] in ("filter", "filterNot", "mapValues", "transformValues")
        )
        item.versioned = "versioned_history_ms" in n or (inherits and "store" not in n)
        self.pool.append(item)

    def _store(self, n: Spec, share: float) -> Spec:
        if self.dice.maybe(share):
            self.stores += 1
            n["store"] = f"store-{self.stores}"
        return n

    def _other(self, x: Item, kind: str, *, same_type: bool = False) -> Item | None:
        found = [
            i
            for i in self.pool
            if i is not x and i.kind == kind and i.key == "string" and (not same_type or i.value == x.value)
        ]
        if not found:
            return None
        other = self.dice.of(found)
        other.used = True
        return other

    # -- operators

    def _step(self) -> None:
        candidates = [i for i in self.pool if i.kind != "G" and i.depth < 6 for _ in range(1 if i.used else 4)]
        if not candidates:
            return
        x, before = self.dice.of(candidates), len(self.pool)
        if x.kind == "T":
            self._table_step(x)
        elif x.key == "string":
            self._stream_step(x)
        else:
            self._windowed_stream_step(x)
        x.used |= len(self.pool) > before

    def _windowed_stream_step(self, x: Item) -> None:
        match self.dice.number(4):
            case 0:
                self._item(
                    self._add("filter", {"in": x.id, "fn": self.predicate(x.key, x.value)}), "S", x.key, x.value, x
                )
            case 1:
                self._map_values(x)
            case _:
                fn = {"name": self.dice.one("key_to_string", "windowed_key")}
                self._item(self._add("selectKey", {"in": x.id, "fn": fn}), "S", "string", x.value, x)

    def _map_values(self, x: Item) -> None:
        fn = self.value_function(x.key, x.value)
        self._item(self._add("mapValues", {"in": x.id, "fn": fn}), "S", x.key, fns.value_type(fn, x.value), x)

    def _stream_step(self, x: Item) -> None:
        dice = self.dice
        options = [self._stateless] * 8 + [self._merge, self._split, self._repartition, self._to_table]
        options += [self._aggregate_stream] * 5 + [self._stream_table_join] * 2 + [self._process] * 3
        options += [self._cogroup] * self._has("cogroup") + [self._stream_stream_join] * 3 * self._has("stream-stream")
        options += [self._global_join] * self._has("global")
        dice.of(options)(x)

    def _stateless(self, x: Item) -> None:
        dice = self.dice
        match dice.number(8):
            case 0:
                op = dice.one("filter", "filterNot")
                self._item(self._add(op, {"in": x.id, "fn": self.predicate(x.key, x.value)}), "S", x.key, x.value, x)
            case 1 | 2:
                self._map_values(x)
            case 3:
                if dice.maybe(0.3):
                    self._item(self._add("map", {"in": x.id, "fn": {"name": "swap"}}), "S", "string", "string", x)
                    return
                value = self.value_function(x.key, x.value)
                fn = {"name": "kv", "kfn": self.key_function(), "vfn": value}
                self._item(self._add("map", {"in": x.id, "fn": fn}), "S", "string", fns.value_type(value, x.value), x)
            case 4:
                names = ["repeat", "none_if_null"] + ["words"] * (x.value == "string")
                self._item(
                    self._add("flatMapValues", {"in": x.id, "fn": {"name": dice.of(names)}}), "S", x.key, x.value, x
                )
            case 5:
                fn = {"name": "fan_out", "n": 2}
                self._item(self._add("flatMap", {"in": x.id, "fn": fn}), "S", "string", x.value, x)
            case 6:
                self._item(self._add("selectKey", {"in": x.id, "fn": self.key_function()}), "S", "string", x.value, x)
            case _:
                self._item(self._add("peek", {"in": x.id}), "S", x.key, x.value, x)

    def _merge(self, x: Item) -> None:
        y = self._other(x, "S", same_type=True)
        if y is not None:
            self._item(self._add("merge", {"in": [x.id, y.id]}), "S", x.key, x.value, x)

    def _split(self, x: Item) -> None:
        n = self._add("split", {"in": x.id})
        ids = [f"{n['id']}{ending}" for ending in "abc"]
        n["branches"] = [{"id": i, "predicate": self.predicate(x.key, x.value)} for i in ids[:2]]
        if self.dice.maybe(0.6):
            n["default"] = {"id": ids[2]}
        for id_ in ids if "default" in n else ids[:2]:
            self._item({"id": id_, "op": "branch"}, "S", x.key, x.value, x)

    def _repartition(self, x: Item) -> None:
        self._item(self._add("repartition", {"in": x.id}), "S", x.key, x.value, x)

    def _to_table(self, x: Item) -> None:
        n = self._store(self._add("toTable", {"in": x.id}), 0.5)
        if "store" in n and self._has("versioned") and self.dice.maybe(0.2):
            n["versioned_history_ms"] = self.dice.one(60_000, 5_000)
        self._item(n, "T", x.key, x.value, x)

    def _aggregate_stream(self, x: Item) -> None:
        dice = self.dice
        if dice.maybe(0.5):
            grouped = self._add("groupBy", {"in": x.id, "fn": self.key_function()})
        else:
            grouped = self._add("groupByKey", {"in": x.id})
        in_, kind = grouped["id"], ""
        if dice.maybe(0.65):
            window = self.window(self.families)
            in_, kind = self._add("windowedBy", {"in": in_, "window": window})["id"], window["type"]
            if kind != "unlimited" and dice.maybe(0.2):
                self.topology[-1]["emit"] = "on_window_close"
        match dice.number(3):
            case 0:
                n, value = self._add("count", {"in": in_}), "long"
            case 1:
                names = (
                    ("sum", "max", "min")
                    if x.value == "long"
                    else ("concat", "last", "first", "concat", "last_or_null")
                )
                n, value = self._add("reduce", {"in": in_, "fn": {"name": dice.of(names)}}), x.value
            case _:
                n, value = self._aggregate(
                    in_, [{"name": dice.one("trace", "trace_key", "null_at")}], "sum_measure", kind
                )
        self._item(self._store(n, 0.6), "T", _key_of(kind), value, x)

    def _aggregate(self, in_: str, traces: list[Spec], number: str, window: str, **fields: Any) -> tuple[Spec, str]:
        is_long = self.dice.maybe(0.5)
        n = self._add("aggregate", {"in": in_, "init": 0 if is_long else ""})
        names = ("fn",) if len(traces) == 1 else ("adder", "subtractor")
        for name, trace in zip(names, traces, strict=True):
            sign = {"sign": -1} if name == "subtractor" else {}
            n[name] = {"name": number, **sign} if is_long else trace
        if window == "session":
            n["merger"] = {"name": "sum" if is_long else "trace"}
        return n, "long" if is_long else "string"

    def _cogroup(self, x: Item) -> None:
        y = self._other(x, "S")
        if y is None:
            return
        dice, is_long = self.dice, self.dice.maybe(0.5)
        # Named, because Kafka Streams cannot repartition two streams of a cogroup under names of its own.
        groups = [self._add("groupByKey", {"in": i.id, "name": f"group-{self.ids}"})["id"] for i in (x, y)]
        kinds = (
            ({"name": "sum_measure"}, {"name": "count"})
            if is_long
            else ({"name": "trace"}, {"name": "trace", "sep": "*"})
        )
        in_, kind = self._add("cogroup", {"in": groups, "fns": list(kinds)})["id"], ""
        if dice.maybe(0.5):
            window = self.window(self.families)
            in_, kind = self._add("windowedBy", {"in": in_, "window": window})["id"], window["type"]
        n = self._add("aggregate", {"in": in_, "init": 0 if is_long else ""})
        if kind == "session":
            n["merger"] = {"name": "sum" if is_long else "trace"}
        self._item(self._store(n, 0.6), "T", _key_of(kind), "long" if is_long else "string", x)

    def _stream_stream_join(self, x: Item) -> None:
        dice = self.dice
        y = x if dice.maybe(0.12) else self._other(x, "S")
        if y is None:
            return
        before = (1 + dice.number(5)) * 1000
        after = before if dice.maybe(0.6) else dice.number(4) * 1000
        window = {"before_ms": before, "after_ms": after, "grace_ms": dice.one(0, 1000, 5000)}
        self._join(x, y, ("inner", "left", "outer"), "S", window=window)

    def _stream_table_join(self, x: Item) -> None:
        y = self._other(x, "T")
        if y is None:
            return
        n = self._join(x, y, ("inner", "left"), "S")
        table = next(n for n in self.topology if n["id"] == y.id)
        if "versioned_history_ms" in table and self._has("grace") and self.dice.maybe(0.5):
            n["grace_ms"] = self.dice.one(0, 1000, 4000)

    def _global_join(self, x: Item) -> None:
        y = self._other(x, "G")
        if y is not None:
            self._join(x, y, ("inner", "left"), "S", key_fn={"name": self.dice.one("key", "first_char")})

    def _join(self, x: Item, y: Item, kinds: tuple[str, ...], result: str, **fields: Any) -> Spec:
        fn = self.joiner(with_key=result == "S")
        n = self._add("join", {"kind": self.dice.of(kinds), "in": [x.id, y.id], "fn": fn, **fields})
        value = fns.joiner_type(fn, x.value, y.value)
        if result == "T":
            self._store(n, 0.4)
        self._item(n, result, "string", value, x, serde=result == "S" or "store" in n or value == "string")
        return n

    def _process(self, x: Item) -> None:
        dice = self.dice
        self.stores += 1
        store = f"store-{self.stores}"
        op, name, value = dice.one(
            ("process", "running_total", "long"),
            ("processValues", "running_total", "long"),
            ("process", "dedup", x.value),
            ("process", "count_and_punctuate", "long"),
            ("process", "twice", "string"),
            ("processValues", "add_header", x.value),
        )
        f: Spec = {"name": name}
        if name == "add_header":
            f["header"] = "h"
        if name not in ("twice", "add_header"):
            f["store"] = store
            held = x.value if name == "dedup" else "long"
            self._add("addStateStore", {"store": store, "type": "key_value", "key": "string", "value": held})
        if name == "count_and_punctuate":
            f |= {"interval_ms": dice.one(5000, 2000), "time": "stream"}
            if self._has("fields") and dice.maybe(0.3):
                f["times"] = 2
        self._item(self._add(op, {"in": x.id, "processor": f}), "S", x.key, value, x)

    def _table_step(self, x: Item) -> None:
        options = [self._filter_table, self._map_table, self._to_stream, self._to_stream]
        options += [self._suppress] * 2 * self._has("suppress")
        if x.key == "string":
            options += [self._aggregate_table] * 3 + [self._to_stream]
            options += [self._table_join] * 3 * self._has("table-table") + [self._fk_join] * 3 * self._has(
                "foreign-key"
            )
            options += [self._transform] * self._has("transform-values")
        self.dice.of(options)(x)

    def _filter_table(self, x: Item) -> None:
        op = self.dice.one("filter", "filterNot")
        n = self._store(self._add(op, {"in": x.id, "fn": self.predicate(x.key, x.value)}), 0.4)
        self._item(n, "T", x.key, x.value, x, serde=x.has_serde)

    def _map_table(self, x: Item) -> None:
        fn = self.value_function(x.key, x.value)
        n, value = self._store(self._add("mapValues", {"in": x.id, "fn": fn}), 0.4), fns.value_type(fn, x.value)
        self._item(n, "T", x.key, value, x, serde="store" in n or value == "string")

    def _to_stream(self, x: Item) -> None:
        self._item(self._add("toStream", {"in": x.id}), "S", x.key, x.value, x)

    def _transform(self, x: Item) -> None:
        n = self._store(self._add("transformValues", {"in": x.id, "fn": {"name": "append_key"}}), 0.4)
        self._item(n, "T", "string", "string", x)

    def _suppress(self, x: Item) -> None:
        dice = self.dice
        if not x.has_serde or x.versioned:
            return
        if x.key != "string" and dice.maybe(0.6):
            fields: Spec = {"until": "window_closes", "buffer": {}}
        else:
            buffer = {} if dice.maybe(0.5) else {"max_records": 1 + dice.number(3), "when_full": "emit_early"}
            fields = {"until": "time_limit", "limit_ms": (1 + dice.number(6)) * 1000, "buffer": buffer}
        self._item(self._add("suppress", {"in": x.id, **fields}), "T", x.key, x.value, x)

    def _aggregate_table(self, x: Item) -> None:
        dice = self.dice
        if dice.maybe(0.15):
            fn, value = {"name": "swap"}, "string"
        else:
            mapper = {"name": "identity"} if dice.maybe(0.6) else self.value_function(x.key, x.value)
            fn, value = {"name": "kv", "kfn": self.key_function(), "vfn": mapper}, fns.value_type(mapper, x.value)
        grouped = self._add("groupBy", {"in": x.id, "fn": fn})["id"]
        match dice.number(3):
            case 0:
                n, value = self._add("count", {"in": grouped}), "long"
            case 1:
                is_long = value == "long"
                adder = {"name": "sum"} if is_long else {"name": "concat", "sep": "+"}
                subtractor = {"name": "diff"} if is_long else {"name": "concat", "sep": "-"}
                n = self._add("reduce", {"in": grouped, "adder": adder, "subtractor": subtractor})
            case _:
                n, value = self._aggregate(
                    grouped, [{"name": "trace"}, {"name": "trace", "sep": "-"}], "sum_measure", ""
                )
        self._item(self._store(n, 0.6), "T", "string", value, x)

    def _table_join(self, x: Item) -> None:
        y = self._other(x, "T")
        if y is not None:
            self._join(x, y, ("inner", "left", "outer"), "T")

    def _fk_join(self, x: Item) -> None:
        y = self._other(x, "T") if x.value == "string" else None
        if y is None or not y.has_serde:
            return
        fn = self.joiner(with_key=False)
        fields = {
            "kind": self.dice.one("inner", "left"),
            "in": [x.id, y.id],
            "extractor": {"name": "first_char"},
            "fn": fn,
        }
        n = self._store(self._add("fkJoin", fields), 0.5)
        self._item(n, "T", "string", fns.joiner_type(fn, x.value, y.value), x)


def _key_of(window: str) -> str:
    return {"": "string", "session": "session<string>"}.get(window, "windowed<string>")


def random_case(dice: Dice, families: frozenset[str]) -> Spec:
    """A case without outputs: what a topology does is for the caller to find out.

    Args:
        dice: Where choices come from.
        families: Which operators may occur besides the basic ones; see `families.available`.
    """
    return Generator(dice, families).case()
