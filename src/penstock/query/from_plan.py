"""The committed state of a checkpoint of which nothing else is known: no topology, no settings."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, StateError
from penstock.query.committed import CommittedState
from penstock.query.source import QUERYABLE
from penstock.serde import Serdes
from penstock.state.documents import read_document
from penstock.topology.stores import StoreSpec

__all__ = ["specs_in_plan", "state_of_checkpoint", "stores_for_plan"]

_FACTS = (
    "kind", "persistent", "timestamped", "window_size_ms", "retention_ms", "retain_duplicates", "history_ms",
    "max_entries", "ttl_ms", "time_ordered",
)  # fmt: skip


def stores_for_plan(specs: Mapping[str, StoreSpec]) -> dict[str, dict[str, Any]]:
    """What the checkpoint notes of stores, for those who read them without the topology."""
    return {
        name: {fact: getattr(spec, fact) for fact in _FACTS}
        | {side: str(getattr(getattr(spec, side), "name", "")) for side in ("key_serde", "value_serde")}
        for name, spec in sorted(specs.items())
        if spec.kind in QUERYABLE
    }


def specs_in_plan(stores: Mapping[str, Mapping[str, Any]]) -> dict[str, StoreSpec]:
    """The stores of a plan, as far as their serdes have names; those of others show bytes."""
    found = {}
    for name, facts in stores.items():
        given = {fact: value for fact, value in facts.items() if fact in _FACTS}
        given |= {side: _serde(facts.get(side)) for side in ("key_serde", "value_serde")}
        found[name] = StoreSpec(name, **given)
    return found


def _serde(name: str | None) -> Any:
    try:
        return Serdes.bytes() if name is None else Serdes.of(name)
    except ConfigError:
        return Serdes.bytes()


def state_of_checkpoint(checkpoint: str, own_root: str | Path | None = None) -> CommittedState:
    """The state, by the plan in the checkpoint.

    Args:
        checkpoint: The checkpoint location.
        own_root: A directory for replicas; by default one in the system's temporary directory.

    Raises:
        StateError: There is no plan.
    """
    location = checkpoint.rstrip("/")
    if "://" not in location:
        location = str(Path(location).expanduser().absolute())
    text = read_document(location, "plan.json")
    if text is None:
        raise StateError(
            f"there is no checkpoint of an application at {checkpoint}",
            hint="It is the directory that has plan.json in it: penstock.checkpoint.location, "
            "or <state.dir>/<application.id>/checkpoint.",
            checkpoint=checkpoint,
        )
    document = json.loads(text)
    place = hashlib.blake2b(location.encode(), digest_size=6).hexdigest()
    root = Path(tempfile.gettempdir()) / "penstock-queries" / place if own_root is None else Path(own_root)
    beside = Path(location).with_name("replicas")
    worker_root = beside if "://" not in location and beside.is_dir() else None
    specs = specs_in_plan(document.get("stores") or document["plan"]["stores"])
    return CommittedState(
        location,
        document["plan"]["application"],
        specs,
        own_root=root,
        worker_root=worker_root,
        global_stores=document.get("global_stores", ()),
    )
