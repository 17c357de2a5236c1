"""The committed state of a checkpoint alone, without topology or settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engines.application.modes import CONTINUOUS, checkpoint_mode
from penstock.engines.committed.replicated import ReplicatedState, ReplicatedStores
from penstock.engines.committed.state import CommittedState, QueriedStores
from penstock.engines.committed.tasks import ReplicaFolders
from penstock.engines.threads.noted_app import noted_app
from penstock.errors import StateError
from penstock.query.source import specs_in_plan
from penstock.state.documents import read_document
from penstock.state.own_folder import state_home

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["state_of_checkpoint"]


def state_of_checkpoint(
    checkpoint: str, own_root: str | Path | None = None, open_log: Callable[[], TopicLog] | None = None
) -> CommittedState | ReplicatedState:
    """Open the state, by the plan in the checkpoint.

    Args:
        checkpoint: The checkpoint location.
        own_root: A directory for replicas; by default one in the user's directory of state.
        open_log: Opens the application's log, which has the state of an application in continuous mode.

    Raises:
        StateError: There is no plan; or the application runs in continuous mode, and its log is not given.
    """
    location = checkpoint.rstrip("/")
    if "://" not in location:
        location = str(Path(location).expanduser().absolute())
    digest = hashlib.blake2b(location.encode(), digest_size=6).hexdigest()
    root = state_home() / "penstock" / "queries" / digest if own_root is None else Path(own_root)
    beside = Path(location).with_name("replicas")
    worker_root = beside if "://" not in location and beside.is_dir() else None
    if checkpoint_mode(location) == CONTINUOUS:
        return _state_of_log(location, root, worker_root, open_log)
    text = read_document(location, "plan.json")
    if text is None:
        raise StateError(
            f"there is no checkpoint of an application at {checkpoint}",
            hint="It is the directory with plan.json: penstock.checkpoint.location, "
            "<state.dir>/<application.id>/checkpoint, or by default <log file>.penstock/<application.id>/checkpoint.",
            checkpoint=checkpoint,
        )
    document = json.loads(text)
    specs = specs_in_plan(document.get("stores") or document["plan"]["stores"])
    stores = QueriedStores(specs, frozenset(document.get("global_stores", ())))
    return CommittedState(location, document["plan"]["application"], stores, ReplicaFolders(root, worker_root))


def _state_of_log(
    checkpoint: str, root: Path, worker_root: Path | None, open_log: Callable[[], TopicLog] | None
) -> ReplicatedState:
    """Open the state of an application in continuous mode, which only its log has, by the note in its checkpoint."""
    if open_log is None:
        raise StateError(
            f"the application at {checkpoint} runs in continuous mode: its state is in its log, not in the checkpoint",
            hint="Name the log too: --bootstrap-servers LOG.",
            checkpoint=checkpoint,
        )
    replicas = None if worker_root is None else str(worker_root)
    with ExitStack() as closing:
        log = open_log()
        closing.callback(log.close)
        identity = log.identity()
        app = noted_app(checkpoint, identity, replicas)
        if app is None:
            raise StateError(
                f"the checkpoint {checkpoint} does not describe the stores of its application in continuous mode",
                hint="Start the application once with this version, or name its topology: penstock query "
                "MODULE:TOPOLOGY STORE.",
                checkpoint=checkpoint,
            )
        specs = app.topology.stores
        stores = ReplicatedStores(app.application_id, checkpoint, root, specs, replica_root=replicas)
        closing.pop_all()
        return ReplicatedState(stores, lambda: noted_app(checkpoint, identity, replicas), log)
