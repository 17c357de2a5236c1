"""The committed state of a checkpoint alone, without topology or settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, StateError
from penstock.query.committed.state import CommittedState, QueriedStores
from penstock.query.committed.tasks import ReplicaFolders
from penstock.query.source import QUERYABLE
from penstock.serde import Serdes
from penstock.state.documents import read_document
from penstock.state.own_folder import state_home
from penstock.topology.stores import StoreSpec

__all__ = ["specs_in_plan", "state_of_checkpoint", "stores_for_plan"]

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
    """Open the state, by the plan in the checkpoint.

    Args:
        checkpoint: The checkpoint location.
        own_root: A directory for replicas; by default one in the user's directory of state.

    Raises:
        StateError: There is no plan; or the application runs in continuous mode, where the state is in its log.
    """
    location = checkpoint.rstrip("/")
    if "://" not in location:
        location = str(Path(location).expanduser().absolute())
    mode = read_document(location, "mode.json")
    if mode is not None and json.loads(mode).get("mode") == "continuous":
        raise StateError(
            f"the application at {checkpoint} runs in continuous mode: its state is in its log, not in the checkpoint",
            hint="Name its topology, and the log unless its settings do: penstock query MODULE:TOPOLOGY STORE "
            "--bootstrap-servers LOG.",
            checkpoint=checkpoint,
        )
    text = read_document(location, "plan.json")
    if text is None:
        raise StateError(
            f"there is no checkpoint of an application at {checkpoint}",
            hint="It is the directory with plan.json: penstock.checkpoint.location, "
            "<state.dir>/<application.id>/checkpoint, or by default <log file>.penstock/<application.id>/checkpoint.",
            checkpoint=checkpoint,
        )
    document = json.loads(text)
    place = hashlib.blake2b(location.encode(), digest_size=6).hexdigest()
    root = state_home() / "penstock" / "queries" / place if own_root is None else Path(own_root)
    beside = Path(location).with_name("replicas")
    worker_root = beside if "://" not in location and beside.is_dir() else None
    specs = specs_in_plan(document.get("stores") or document["plan"]["stores"])
    stores = QueriedStores(specs, frozenset(document.get("global_stores", ())))
    return CommittedState(location, document["plan"]["application"], stores, ReplicaFolders(root, worker_root))
