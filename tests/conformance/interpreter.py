"""Turns a recorded case into a Penstock topology, through the public API."""

# ruff: noqa: N802, N818 - methods carry the names of the operators in the cases

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import functions as fns
from penstock.api.builder import StreamsBuilder
from penstock.api.options import Consumed, Grouped, Joined, Materialized, Produced, Repartitioned
from penstock.api.stores import Stores
from penstock.api.stream import KStream
from penstock.api.table import KTable
from penstock.api.windows import TimeWindows, UnlimitedWindows
from penstock.serde import Serdes
from penstock.serde.windowed import Windowed
from penstock.topology.topology import Topology
from processors import CaseFixedKeyProcessor, CaseProcessor, processor_type

__all__ = ["Interpreted", "NotBuilt", "check_describe", "interpret"]

Spec = dict[str, Any]


class NotBuilt(Exception):
    """The case uses an operator that Penstock does not have yet."""


@dataclass
class Thing:
    """What an id stands for: a stream, a table or a grouping, with the types of its keys and values."""

    it: Any
    key: str
    value: str
    size: int = 0


def serde(type_name: str, size: int = 0) -> Any:
    if type_name == "string":
        return Serdes.string()
    if type_name == "long":
        return Serdes.long()
    if type_name == "windowed<string>":
        return Serdes.time_windowed(Serdes.string(), size)
    raise NotBuilt(f"keys of type {type_name}")


@dataclass
class Interpreted:
    """A case's topology and what a runner needs to feed it and to read it."""

    topology: Topology
    config: dict[str, Any]
    side: list[Spec]
    serdes: dict[str, tuple[Any, Any]]
    stores: list[str]

    def plain(self, x: Any) -> Any:
        """A key or value as it stands in the case."""
        if isinstance(x, Windowed):
            return {"key": self.plain(x.key), "start": x.window.start, "end": x.window.end}
        return x

    def dump_store(self, driver: Any, name: str) -> list[Spec]:
        """All rows of a store, as in the case."""
        spec = self.topology.stores[name]
        rows: list[Spec] = []
        for key, found in driver.store(name).all():
            row: Spec = (
                {"key": key.key, "start": key.window.start} if spec.kind == "window" else {"key": self.plain(key)}
            )
            if spec.timestamped or spec.kind == "timestamped":
                rows.append({**row, "value": found.value, "timestamp": found.timestamp})
            else:
                rows.append({**row, "value": found})
        return rows


@dataclass
class Interpreter:
    """One method for each operator, named as it."""

    case: Spec
    builder: StreamsBuilder = field(default_factory=StreamsBuilder)
    side: list[Spec] = field(default_factory=list)
    things: dict[str, Thing] = field(default_factory=dict)
    topics: dict[str, Thing] = field(default_factory=dict)
    stores: list[str] = field(default_factory=list)

    def run(self) -> Interpreted:
        for name, t in self.case.get("topics", {}).items():
            self.topics[name] = Thing(None, t["key"], t["value"], t.get("window_size_ms", 0))
        for n in self.case["topology"]:
            operator = getattr(self, f"op_{n['op']}", None)
            if operator is None:
                raise NotBuilt(n["op"])
            thing = operator(n)
            if thing is not None:
                self.things[n["id"]] = thing
        config = dict(self.case["config"])
        topology = self.builder.build(config)
        serdes = {name: (serde(t.key, t.size), serde(t.value)) for name, t in self.topics.items()}
        return Interpreted(topology, config, self.side, serdes, self.stores)

    def source(self, n: Spec, number: int = 0) -> Thing:
        ids = n["in"] if isinstance(n["in"], list) else [n["in"]]
        return self.things[ids[number]]

    def materialized(self, n: Spec, key: Any, value: Any) -> Materialized:
        if "store" in n:
            self.stores.append(n["store"])
        return Materialized(
            n.get("store"),
            key_serde=key,
            value_serde=value,
            store_type=n.get("store_type"),
            caching=n.get("caching"),
            retention=n.get("retention_ms"),
            history=n.get("versioned_history_ms"),
        )

    def optional(self, n: Spec, key: Any, value: Any) -> Materialized | None:
        return self.materialized(n, key, value) if "store" in n else None

    def consumed(self, n: Spec, t: Thing) -> Consumed:
        extractor = fns.timestamp_extractor(n["timestamp_extractor"]) if "timestamp_extractor" in n else None
        return Consumed(
            n.get("name"), key_serde=serde(t.key, t.size), value_serde=serde(t.value), timestamp_extractor=extractor
        )

    # ---- sources and stores

    def op_stream(self, n: Spec) -> Thing:
        if "pattern" in n:
            pattern = re.compile(n["pattern"])
            t = next(t for name, t in self.topics.items() if pattern.fullmatch(name))
            return replace(t, it=self.builder.stream(pattern, self.consumed(n, t)))
        names = n.get("topics") or [n["topic"]]
        t = self.topics[names[0]]
        return replace(t, it=self.builder.stream(names, self.consumed(n, t)))

    def op_table(self, n: Spec) -> Thing:
        t = self.topics[n["topic"]]
        store = self.optional(n, serde(t.key, t.size), serde(t.value))
        return replace(t, it=self.builder.table(n["topic"], self.consumed(n, t), store))

    def op_globalTable(self, n: Spec) -> Thing:
        t = self.topics[n["topic"]]
        store = self.optional(n, serde(t.key, t.size), serde(t.value))
        return replace(t, it=self.builder.global_table(n["topic"], self.consumed(n, t), store))

    def op_addStateStore(self, n: Spec) -> None:
        self.stores.append(n["store"])
        serdes = {"key_serde": serde(n["key"]), "value_serde": serde(n["value"])}
        where = {**serdes, "persistent": n.get("store_type") != "in_memory"}
        name = n["store"]
        match n["type"]:
            case "key_value":
                spec = Stores.key_value(name, **where)
            case "timestamped":
                spec = Stores.timestamped(name, **where)
            case "lru":
                spec = Stores.lru(name, n["max"], **serdes)
            case "window":
                spec = Stores.window(name, retention=n["retention_ms"], size=n["size_ms"], **where)
            case "session":
                spec = Stores.session(name, retention=n["retention_ms"], **where)
            case "versioned":
                spec = Stores.versioned(name, history=n["history_ms"], **serdes)
            case kind:
                raise NotBuilt(f"store of type {kind}")
        self.builder.add_state_store(spec)

    # ---- record by record

    def op_filter(self, n: Spec) -> Thing:
        return self._filter(n, "filter")

    def op_filterNot(self, n: Spec) -> Thing:
        return self._filter(n, "filter_not")

    def _filter(self, n: Spec, verb: str) -> Thing:
        x, fn = self.source(n), fns.predicate(n["fn"])
        if isinstance(x.it, KStream):
            return replace(x, it=getattr(x.it, verb)(fn, name=n.get("name")))
        store = self.optional(n, serde(x.key, x.size), serde(x.value))
        return replace(x, it=getattr(x.it, verb)(fn, store, name=n.get("name")))

    def op_mapValues(self, n: Spec) -> Thing:
        x, fn, value = self.source(n), fns.value_function(n["fn"]), fns.value_type(n["fn"], self.source(n).value)
        mapper = fn if fns.uses_key(n["fn"]) else _value_only(fn)
        if isinstance(x.it, KStream):
            return replace(x, it=x.it.map_values(mapper, name=n.get("name")), value=value)
        store = self.optional(n, serde(x.key, x.size), serde(value))
        return replace(x, it=x.it.map_values(mapper, store, name=n.get("name")), value=value)

    def op_map(self, n: Spec) -> Thing:
        x = self.source(n)
        stream = x.it.map(fns.pair_function(n["fn"]), name=n.get("name"))
        return Thing(stream, "string", fns.pair_type(n["fn"], x.value))

    def op_flatMap(self, n: Spec) -> Thing:
        x = self.source(n)
        stream = x.it.flat_map(fns.pairs_function(n["fn"]), name=n.get("name"))
        return Thing(stream, "string", fns.pairs_type(n["fn"], x.value))

    def op_flatMapValues(self, n: Spec) -> Thing:
        x, fn = self.source(n), fns.values_function(n["fn"])
        mapper = fn if n["fn"]["name"] == "with_key" else _value_only(fn)
        return replace(x, it=x.it.flat_map_values(mapper, name=n.get("name")), value=fns.values_type(n["fn"], x.value))

    def op_selectKey(self, n: Spec) -> Thing:
        x = self.source(n)
        stream = x.it.select_key(fns.key_function(n["fn"]), name=n.get("name"))
        return replace(x, it=stream) if fns.keeps_key_type(n["fn"]) else Thing(stream, "string", x.value)

    def op_peek(self, n: Spec) -> Thing:
        x = self.source(n)
        return replace(x, it=x.it.peek(self._note(f"@peek:{n['id']}"), name=n.get("name")))

    def op_foreach(self, n: Spec) -> None:
        self.source(n).it.foreach(self._note(f"@foreach:{n['id']}"), name=n.get("name"))

    def _note(self, tag: str) -> Callable[[Any, Any], None]:
        def note(key: Any, value: Any) -> None:
            plain = Interpreted.plain
            self.side.append({"topic": tag, "key": plain(None, key), "value": plain(None, value)})  # type: ignore[arg-type]

        return note

    def op_merge(self, n: Spec) -> Thing:
        x = self.source(n)
        stream, last = x.it, len(n["in"]) - 1
        for i in range(1, last + 1):
            stream = stream.merge(self.source(n, i).it, name=n.get("name") if i == last else None)
        return replace(x, it=stream)

    def op_split(self, n: Spec) -> None:
        x = self.source(n)
        split, endings = x.it.split(name=n.get("name")), {}
        for i, b in enumerate(n["branches"], 1):
            split = split.branch(fns.predicate(b["predicate"]), name=b.get("name"))
            endings[b["id"]] = b.get("name", str(i))
        default = n.get("default")
        if default is None:
            branches = split.no_default_branch()
        else:
            branches = split.default_branch(name=default.get("name"))
            endings[default["id"]] = default.get("name", "0")
        for id_, ending in endings.items():
            stream = next(s for name, s in branches.items() if name.endswith(ending))
            self.things[id_] = replace(x, it=stream)

    def op_process(self, n: Spec) -> Thing:
        x, f = self.source(n), n["processor"]
        stream = x.it.process(lambda: CaseProcessor(f), _stores(n, f), name=n.get("name"))
        return replace(x, it=stream, value=processor_type(f, x.value))

    def op_processValues(self, n: Spec) -> Thing:
        x, f = self.source(n), n["processor"]
        stream = x.it.process_values(lambda: CaseFixedKeyProcessor(f), _stores(n, f), name=n.get("name"))
        return replace(x, it=stream, value=processor_type(f, x.value))

    # ---- topics

    def op_repartition(self, n: Spec) -> Thing:
        x = self.source(n)
        options = Repartitioned(
            n.get("name"), key_serde=serde(x.key, x.size), value_serde=serde(x.value), partitions=n.get("partitions")
        )
        return replace(x, it=x.it.repartition(options))

    def op_to(self, n: Spec) -> None:
        x = self.source(n)
        produced = Produced(n.get("name"), key_serde=serde(x.key, x.size), value_serde=serde(x.value))
        if "topic" in n:
            self.topics[n["topic"]] = replace(x, it=None)
            x.it.to(n["topic"], produced)
            return
        key = fns.key_function(n["topic_fn"])

        def topic_of(k: Any, v: Any) -> str:
            return n["prefix"] + fns.text(key(k, v))

        topic_of.__qualname__ = "TopicFn"  # the name that describe() shows
        for name in n["declares"]:
            self.topics[name] = replace(x, it=None)
        x.it.to(topic_of, produced)

    # ---- tables and aggregations

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
        fn = fns.pair_function(n["fn"]) if of_table else fns.key_function(n["fn"])
        grouped = Grouped(n.get("name"), key_serde=serde("string"), value_serde=serde(value))
        return Thing(x.it.group_by(fn, grouped), "string", value)

    def op_windowedBy(self, n: Spec) -> Thing:
        x, w = self.source(n), n["window"]
        match w["type"]:
            case "tumbling":
                windows: Any = TimeWindows.of(w["size_ms"], grace=w["grace_ms"])
            case "hopping":
                windows = TimeWindows.of(w["size_ms"], grace=w["grace_ms"], advance=w["advance_ms"])
            case "unlimited":
                windows = UnlimitedWindows.of(start=w["start_ms"])
            case kind:
                raise NotBuilt(f"{kind} windows")
        grouped = x.it.windowed_by(windows)
        if "emit" in n:
            grouped = grouped.emit_strategy(n["emit"])
        return Thing(grouped, x.key, x.value, windows.size_ms)

    def op_count(self, n: Spec) -> Thing:
        return self._aggregated(n, "long", lambda it, store: it.count(store, name=n.get("name")))

    def op_reduce(self, n: Spec) -> Thing:
        functions = [fns.reducer(n[f]) for f in ("fn", "adder", "subtractor") if f in n]
        value = self.source(n).value
        return self._aggregated(n, value, lambda it, store: it.reduce(*functions, store, name=n.get("name")))

    def op_aggregate(self, n: Spec) -> Thing:
        if "merger" in n:
            raise NotBuilt("session windows")
        functions = [fns.aggregator(n[f]) for f in ("fn", "adder", "subtractor") if f in n]
        value = n.get("value") or fns.literal_type(n["init"])
        return self._aggregated(
            n, value, lambda it, store: it.aggregate(lambda: n["init"], *functions, store, name=n.get("name"))
        )

    def _aggregated(self, n: Spec, value: str, build: Callable[[Any, Materialized], Any]) -> Thing:
        x = self.source(n)
        table = build(x.it, self.materialized(n, serde("string"), serde(value)))
        is_windowed = type(x.it).__name__ == "TimeWindowedKStream"
        return Thing(table, "windowed<string>" if is_windowed else x.key, value, x.size)

    def op_join(self, n: Spec) -> Thing:
        left, right = self.source(n, 0), self.source(n, 1)
        if not (isinstance(left.it, KStream) and isinstance(right.it, KTable)):
            raise NotBuilt(f"join of {type(left.it).__name__} and {type(right.it).__name__}")
        if "grace_ms" in n:
            raise NotBuilt("stream-table join with grace")
        joined = Joined(
            n.get("name"),
            key_serde=serde(left.key, left.size),
            value_serde=serde(left.value),
            other_value_serde=serde(right.value),
        )
        verb = left.it.join if n["kind"] == "inner" else left.it.left_join
        return replace(
            left,
            it=verb(right.it, fns.joiner(n["fn"]), joined),
            value=fns.joiner_type(n["fn"], left.value, right.value),
        )


def _value_only(fn: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda value: fn(None, value)


def _stores(n: Spec, f: Spec) -> list[str]:
    return [f["store"]] if "store" in f and not n.get("global_store") else []


def interpret(case: Spec) -> Interpreted:
    """The case's topology; raises NotBuilt where Penstock lacks an operator."""
    return Interpreter(case).run()


def check_describe(case: Spec) -> str | None:
    """The first difference between our description and Java's; None when they are equal."""
    ours, theirs = str(interpret(case).topology.describe()), case["describe"]
    if ours == theirs:
        return None
    pairs = zip([*ours.splitlines(), "(end)"], [*theirs.splitlines(), "(end)"], strict=False)
    for number, (mine, java) in enumerate(pairs, 1):
        if mine != java:
            return f"describe line {number}: {mine!r}, Java {java!r}"
    return "describe: one text is longer"
