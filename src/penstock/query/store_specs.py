"""The stores of an application as its checkpoint describes them, for readers without the topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import ConfigError
from penstock.query.source import QUERYABLE
from penstock.serde import Serdes
from penstock.topology.stores import StoreSpec

__all__ = ["specs_in_plan", "stores_for_plan"]

_FACTS = (
    "kind", "persistent", "timestamped", "window_size_ms", "retention_ms", "retain_duplicates", "history_ms",
    "max_entries", "ttl_ms", "time_ordered",
)  # fmt: skip


def stores_for_plan(specs: Mapping[str, StoreSpec]) -> dict[str, dict[str, Any]]:
    """Describe stores for the checkpoint, for readers without the topology."""
    return {
        name: {fact: getattr(spec, fact) for fact in _FACTS}
        | {side: str(getattr(getattr(spec, side), "name", "")) for side in ("key_serde", "value_serde")}
        for name, spec in sorted(specs.items())
        if spec.kind in QUERYABLE
    }


def specs_in_plan(stores: Mapping[str, Mapping[str, Any]]) -> dict[str, StoreSpec]:
    """Make the stores of a plan; serdes without a name are replaced by bytes."""
    specs = {}
    for name, facts in stores.items():
        spec_facts = {fact: value for fact, value in facts.items() if fact in _FACTS}
        spec_facts |= {side: _serde(facts.get(side)) for side in ("key_serde", "value_serde")}
        specs[name] = StoreSpec(name, **spec_facts)
    return specs


def _serde(name: str | None) -> Any:
    try:
        return Serdes.bytes() if name is None else Serdes.of(name)
    except ConfigError:
        return Serdes.bytes()
