"""The plan as JSON, stored with the checkpoint, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.topology.configured.apply import with_stores
from penstock.topology.configured.default_serdes import UntypedDefault
from penstock.topology.plan.plan import PhysicalPlan
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

__all__ = ["FORMAT", "document_of", "fingerprint_of", "with_stable_names"]

FORMAT = 1
_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
_SERDES = ("key_serde", "value_serde", "hash_serde")
_OWN_MODULES = re.compile(r"\bpenstock\.(?:[a-z0-9_]+\.)+(?=_?[A-Z])")


def document_of(plan: PhysicalPlan, topology: Topology, settings: Mapping[str, Any] = _NO_SETTINGS) -> dict[str, Any]:
    """Return the document of a plan: the facts that a checkpoint depends on.

    A checkpoint can be continued if they are the same, or have changed only in known ways. The bodies of functions are
    not part of it: they may change.

    Args:
        plan: The plan.
        topology: The topology, as built.
        settings: The application's: they decide about stores that name no serde, and about the format of stores.
    """
    stores = {name: _store(spec, settings) for name, spec in sorted(topology.stores.items())}
    for name, spec in with_stores(topology, settings).stores.items():
        if spec.keeps_headers and name not in topology.global_stores:  # those are read again into their other format
            stores[name]["keeps_headers"] = True
    defaults = {
        fact: _serde_name(_of(settings[f"default.{fact.replace('_', '.')}"]))
        for fact in ("key_serde", "value_serde")
        if settings.get(f"default.{fact.replace('_', '.')}") is not None
    }
    return {
        "format": FORMAT,
        "application": plan.application_id,
        "subtopologies": {
            str(sub.id): {
                "nodes": list(sub.nodes),
                "topics": sorted(sub.external_topics),
                "internal_topics": sorted(sub.internal_topics),
                "stores": sorted(sub.stores),
                "tasks": sub.tasks,
                "runs": len(sub.levels),
            }
            for sub in plan.subtopologies
        },
        "internal_topics": {topic: plan.partitions[topic] for topic in sorted(plan.internal_topics)},
        "partitions": {topic: plan.partitions[topic] for topic in sorted(plan.external_topics)},
        "stores": stores,
        **({"defaults": defaults} if defaults and any(None in facts.values() for facts in stores.values()) else {}),
    }


def _store(spec: StoreSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    serdes = {fact: getattr(spec, fact) for fact in _SERDES}
    untyped = any(isinstance(serde, UntypedDefault) for serde in serdes.values())
    names = {fact: _auto_or_default(fact, serde, settings) for fact, serde in serdes.items()}
    hashed = names.pop("hash_serde")
    return {
        "kind": spec.kind,
        **names,
        "timestamped": spec.timestamped,
        "window_size_ms": spec.window_size_ms,
        "retention_ms": spec.retention_ms,
        "history_ms": spec.history_ms,
        "retain_duplicates": spec.retain_duplicates,
        "ttl_ms": spec.ttl_ms,
        "persistent": spec.persistent,
        "time_ordered": spec.time_ordered,
        **({"hash_serde": hashed} if spec.holds_hashes else {}),
        **({"untyped": True} if untyped else {}),
    }


def _auto_or_default(fact: str, serde: Any, settings: Mapping[str, Any]) -> str | None:
    """Return the name of a store's serde; None: the application's default."""
    if not isinstance(serde, UntypedDefault):
        return _serde_name(serde)
    default = settings.get("default.key.serde" if fact == "key_serde" else "default.value.serde")
    return "auto" if default is None or settings.get("penstock.untyped.stores") == "auto" else None


def _of(serde: Any) -> Any:
    if serde is None:
        return None
    from penstock.serde import Serdes

    return Serdes.of(serde)


def fingerprint_of(document: dict[str, Any]) -> str:
    """Return a short name of a document's contents."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _serde_name(serde: Any) -> str | None:
    """Return a serde's name; None: the application's default."""
    return None if serde is None else _stable(str(getattr(serde, "name", serde)))


def with_stable_names(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the noted facts of a store, or the defaults, with the names that serdes have in every version."""
    return {fact: _stable(named) if fact in _SERDES and named else named for fact, named in facts.items()}


def _stable(name: str) -> str:
    """Return a serde's name without the modules of this package, which move from version to version.

    >>> _stable("<class 'penstock.serde.subscription_serdes.SubscriptionSerde'>"), _stable("orders.serdes.OrderSerde")
    ("<class 'penstock.SubscriptionSerde'>", 'orders.serdes.OrderSerde')
    """
    return _OWN_MODULES.sub("penstock.", name)
