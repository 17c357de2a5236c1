"""Suppliers of processors that bring their stores along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from processors import CaseProcessor
from stores import store_spec
from things import Spec

__all__ = ["supplier_of"]


class _Supplier:
    def __init__(self, spec: Spec, store: Any) -> None:
        self.spec = spec
        self.store = store

    def __call__(self) -> CaseProcessor:
        return CaseProcessor(self.spec)

    def stores(self) -> list[Any]:
        return [self.store]


def supplier_of(n: Spec, own: dict[str, Any], names: list[str], running: dict[str, Any]) -> Callable[[], CaseProcessor]:
    """The supplier of an operator; ``own`` has the stores that suppliers have brought, by name."""
    spec = n["processor"]
    if "own_store" not in n:
        return lambda: CaseProcessor(spec, running)
    store = n["own_store"]
    if store.get("fresh") or store["store"] not in own:
        own[store["store"]] = store_spec(store)
        names.append(store["store"])
    return _Supplier(spec, own[store["store"]])
