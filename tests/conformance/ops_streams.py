"""Operators of a case that take records one by one."""

# ruff: noqa: N802 - methods carry the names of the operators in the cases

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import functions as fns
from own_stores import supplier_of
from penstock.api.stream import KStream
from processors import CaseFixedKeyProcessor, processor_type
from things import Operators, Spec, Thing, connected_stores, plain, serde, value_only

__all__ = ["StreamOperators"]


class StreamOperators(Operators):
    """Filters, maps, forks and processors."""

    def op_as(self, n: Spec) -> Thing:
        """Nothing in the topology: the operators that follow take serdes of other types."""
        x = self.source(n)
        return replace(x, key=n.get("key", x.key), value=n.get("value", x.value))

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
        mapper = fn if fns.uses_key(n["fn"]) else value_only(fn)
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
        mapper = fn if fns.inner(n["fn"])["name"] == "with_key" else value_only(fn)
        return replace(x, it=x.it.flat_map_values(mapper, name=n.get("name")), value=fns.values_type(n["fn"], x.value))

    def op_selectKey(self, n: Spec) -> Thing:
        x = self.source(n)
        stream = x.it.select_key(fns.key_function(n["fn"]), name=n.get("name"))
        return replace(x, it=stream) if fns.keeps_key_type(n["fn"]) else Thing(stream, "string", x.value)

    def op_peek(self, n: Spec) -> Thing:
        x = self.source(n)
        return replace(x, it=x.it.peek(self._note(f"@peek:{n['id']}", n), name=n.get("name")))

    def op_foreach(self, n: Spec) -> None:
        x = self.source(n)
        note = self._refuse(n, x) if "fail_send" in n else self._note(f"@foreach:{n['id']}", n)
        x.it.foreach(note, name=n.get("name"))

    def _refuse(self, n: Spec, x: Thing) -> Callable[[Any, Any], None]:
        at, keys, values = fns.predicate(n["at"]), serde(x.key, x.size), serde(x.value)

        def note(key: Any, value: Any) -> None:
            if at(key, value):
                self.refused.append((keys.serialize(key), values.serialize(value), n["fail_send"]))

        return note

    def _note(self, tag: str, n: Spec) -> Callable[[Any, Any], None]:
        def note(key: Any, value: Any) -> None:
            self.side.append({"topic": tag, "key": plain(key), "value": plain(value)})
            fns.throw_at(n, "throw_at", key, value)

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
        connected = [] if "own_store" in n else connected_stores(n, f)
        supplier = supplier_of(n, self.own, self.stores, self.running)
        stream = x.it.process(supplier, connected, name=n.get("name"))
        return replace(x, it=stream, value=processor_type(f, x.value))

    def op_processValues(self, n: Spec) -> Thing:
        x, f = self.source(n), n["processor"]
        stream = x.it.process_values(lambda: CaseFixedKeyProcessor(f), connected_stores(n, f), name=n.get("name"))
        return replace(x, it=stream, value=processor_type(f, x.value))
