"""The place and the owner of a task's state, by which a `penstock.state.task_store.TaskStore` is opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.state.lmdb_replicas.lmdb_replica import MAP_BYTES

__all__ = ["StateOwner", "StatePlace"]


@dataclass(frozen=True)
class StatePlace:
    """The place of an application's state.

    Attributes:
        checkpoint: A path or URI, the same on all executors (see `penstock.state.segments.storage.open_storage`).
        replica_root: A directory of this machine for replicas (``state.dir``).
        map_bytes: The size beyond which a replica's file has to be mapped anew.
        durable: Whether a segment is on the disk before it counts as published.
        storage_options: Settings of the object store.
    """

    checkpoint: str
    replica_root: str | Path
    map_bytes: int = MAP_BYTES
    durable: bool = True
    storage_options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StateOwner:
    """The application that state belongs to.

    Attributes:
        application_id: The ``application.id``; segments of another application are refused.
        fingerprint: Of the topology; segments of another one are refused. Empty: not compared.
        accepts: Fingerprints of earlier topologies that this one may continue.
    """

    application_id: str
    fingerprint: str = ""
    accepts: Collection[str] = ()
