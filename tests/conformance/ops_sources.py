"""Sources, state stores and topics of a case."""

# ruff: noqa: N802 - methods carry the names of the operators in the cases

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import functions as fns
from inputs import header_rows
from partitioners import partitioner
from penstock.api.options import Produced, Repartitioned
from processors import PutProcessor
from stores import store_spec
from things import Operators, Spec, Thing, plain, serde

__all__ = ["SourceOperators"]


class SourceOperators(Operators):
    """Where records come from and go to."""

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
        self.builder.add_state_store(store_spec(n))

    def op_addGlobalStore(self, n: Spec) -> None:
        self.stores.append(n["store"])
        consumed = self.consumed(n, self.topics[n["topic"]])
        self.builder.add_global_store(store_spec(n), n["topic"], lambda: PutProcessor(n), consumed)

    def op_repartition(self, n: Spec) -> Thing:
        x = self.source(n)
        options = Repartitioned(
            n.get("name"), key_serde=serde(x.key, x.size), value_serde=serde(x.value), partitions=n.get("partitions")
        )
        return replace(x, it=x.it.repartition(options))

    def op_to(self, n: Spec) -> None:
        x = self.source(n)
        produced = Produced(
            n.get("name"),
            key_serde=serde(x.key, x.size),
            value_serde=serde(x.value),
            partitioner=partitioner(n, self.side),
        )
        if "topic" in n:
            self.topics[n["topic"]] = replace(x, it=None)
            x.it.to(n["topic"], produced)
            return
        key = fns.key_function(n["topic_fn"])

        def topic_of(k: Any, v: Any, context: Any) -> str:
            if n.get("see_context"):
                self.side.append({"topic": f"@topic_fn:{n['id']}", **_seen(k, v, context)})
            return n["prefix"] + fns.text(key(k, v))

        topic_of.__qualname__ = "TopicFn"  # the name that describe() shows
        for name in n["declares"]:
            self.topics[name] = replace(x, it=None)
        x.it.to(topic_of, produced)


def _seen(key: Any, value: Any, context: Any) -> Spec:
    """What a function that names topics is told."""
    seen = {
        "topic": context.topic,
        "partition": context.partition,
        "offset": context.offset,
        "timestamp": context.timestamp,
        "source_key": plain(context.raw_key),
        "source_value": plain(context.raw_value),
        "headers": header_rows(context.headers),
    }
    return {"key": plain(key), "value": plain(value), "context": seen}
