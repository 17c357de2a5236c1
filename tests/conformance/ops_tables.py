"""Operators of a case that are verbs of tables alone."""

# ruff: noqa: N802 - methods carry the names of the operators in the cases

from __future__ import annotations

from dataclasses import replace
from typing import Any

from functions import text, throw_at
from penstock import ValueTransformerWithKey
from things import Operators, Spec, Thing, connected_stores, serde

__all__ = ["TableOperators"]


class CaseTransformer(ValueTransformerWithKey[Any, Any, Any]):
    """One method for each name."""

    def __init__(self, spec: Spec) -> None:
        self.f = spec

    def init(self, context: Any) -> None:
        self.store: Any = context.get_state_store(self.f["store"]) if "store" in self.f else None

    def transform(self, key: Any, value: Any) -> Any:
        throw_at(self.f, "throw_at", key, value)
        return getattr(self, self.f["name"])(key, value)

    def append_key(self, key: Any, value: Any) -> Any:
        return None if value is None else f"{text(value)}/{text(key)}"

    def seen_count(self, key: Any, value: Any) -> Any:
        count = (self.store.get(text(key)) or 0) + 1
        self.store.put(text(key), count)
        return None if value is None else f"{text(value)}#{count}"


class TableOperators(Operators):
    """``transformValues``."""

    def op_transformValues(self, n: Spec) -> Thing:
        x, f = self.source(n), n["fn"]
        store = self.optional(n, serde(x.key, x.size), serde("string"))
        table = x.it.transform_values(lambda: CaseTransformer(f), connected_stores(n, f), store, name=n.get("name"))
        return replace(x, it=table, value="string")
