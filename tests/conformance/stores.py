"""Stores of a case: those that it adds for its processors, and the rows of any."""

from __future__ import annotations

from typing import Any

from inputs import header_rows
from penstock.api.stores import Stores
from penstock.state.views import AggregationWithHeaders
from penstock.topology.stores import StoreSpec
from things import NotBuilt, Spec, plain, serde

__all__ = ["rows_of", "store_spec"]


def store_spec(n: Spec) -> StoreSpec:
    """What the fields of ``addStateStore``, ``addGlobalStore`` and ``addReadOnlyStateStore`` describe."""
    serdes = {"key_serde": serde(n["key"]), "value_serde": serde(n["value"])}
    supplier = "in_memory" if n.get("store_type") == "in_memory" else n.get("supplier", "headers")
    where = {**serdes, "persistent": supplier != "in_memory"}
    name = n["store"]
    spec = _spec(n, name, serdes, where, supplier)
    if "caching" in n:
        spec = spec.with_caching_enabled() if n["caching"] else spec.with_caching_disabled()
    return spec.with_logging_disabled() if n.get("logging") is False else spec


def _spec(n: Spec, name: str, serdes: Spec, where: Spec, supplier: str) -> StoreSpec:
    shown = {"supplier": supplier if supplier in ("timestamped", "plain") else "headers"}
    times = {
        "retention": n.get("retention_ms"),
        "size": n.get("size_ms"),
        "retain_duplicates": n.get("duplicates", False),
    }
    match n["type"]:
        case "timestamped_headers":
            return Stores.timestamped_with_headers(name, max_entries=n.get("max"), **where, **shown)
        case "window_headers":
            return Stores.window_with_headers(name, **times, **where, **shown)
        case "session_headers":
            return Stores.session_with_headers(name, retention=n["retention_ms"], **where, **shown)
        case "timestamped_window":
            return Stores.timestamped_window(name, **times, **where)
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


def rows_of(spec: StoreSpec, view: Any) -> list[Spec]:
    """All rows of a store, as they stand in the case."""
    if spec.kind == "versioned":
        return [row for key, _ in view.all() for row in _versions(view, key)]
    rows: list[Spec] = []
    for key, found in view.all():
        row: Spec = plain(key) if spec.kind in ("window", "session") else {"key": plain(key)}
        if spec.kind == "window":
            del row["end"]
        if getattr(found, "headers", ()):
            row["headers"] = header_rows(found.headers)
        if isinstance(found, AggregationWithHeaders):
            rows.append({**row, "value": found.aggregation})
        elif spec.timestamped or spec.kind == "timestamped":
            rows.append({**row, "value": found.value, "timestamp": found.timestamp})
        else:
            rows.append({**row, "value": found})
    return rows


def _versions(view: Any, key: Any) -> list[Spec]:
    """The versions of a key, back from the latest one until a deletion or the end of history.

    The Java store knows when each ended, but its outer layer, which is what the cases show, does not tell.
    """
    rows: list[Spec] = []
    found = view.get(key)
    while found is not None:
        rows.append({"key": plain(key), "value": found.value, "timestamp": found.timestamp, "valid_to": None})
        found = view.get(key, found.timestamp - 1) if found.timestamp else None
    return rows
