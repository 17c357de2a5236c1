"""Stores that a case adds for its processors."""

from __future__ import annotations

from penstock.api.stores import Stores
from penstock.topology.stores import StoreSpec
from things import NotBuilt, Spec, serde

__all__ = ["store_spec"]


def store_spec(n: Spec) -> StoreSpec:
    """What the fields of ``addStateStore``, ``addGlobalStore`` and ``addReadOnlyStateStore`` describe."""
    serdes = {"key_serde": serde(n["key"]), "value_serde": serde(n["value"])}
    where = {**serdes, "persistent": n.get("store_type") != "in_memory"}
    name = n["store"]
    match n["type"]:
        case "key_value":
            return Stores.key_value(name, **where)
        case "timestamped":
            return Stores.timestamped(name, **where)
        case "lru":
            return Stores.lru(name, n["max"], **serdes)
        case "window":
            return Stores.window(name, retention=n["retention_ms"], size=n["size_ms"], **where)
        case "session":
            return Stores.session(name, retention=n["retention_ms"], **where)
        case "versioned":
            return Stores.versioned(name, history=n["history_ms"], **serdes)
        case kind:
            raise NotBuilt(f"store of type {kind}")
