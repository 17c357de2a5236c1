"""The plan that a checkpoint was written with: reading, comparing and writing it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.application.locations import former_checkpoint
from penstock.errors import (
    CheckpointMismatchError,
)
from penstock.query.source import stores_for_plan
from penstock.state.checkpoint import PLAN, read_plan, write_document
from penstock.topology.configured import with_settings
from penstock.topology.plan.evolution import require_compatible
from penstock.topology.plan.plan import PhysicalPlan
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.topology.topology import Topology

__all__ = ["note_lost", "read_stored_plan", "reserve_ids", "resumable_plan", "write_stored_plan"]

_log = own_logger(__name__)


def resumable_plan(
    checkpoint: str, document: Mapping[str, Any], plan: PhysicalPlan, log: TopicLog, drop: Collection[str] = ()
) -> StoredPlan | None:
    """Return the plan that the checkpoint was written with; None if the application has not run before.

    Raises:
        CheckpointMismatchError: The application must not go on with this checkpoint.
    """
    stored = read_stored_plan(checkpoint)
    if stored is not None:
        change = require_compatible(stored, document, checkpoint, drop)
        for migration in change.migrations:
            _log.warning("%s", migration)
        for note in change.notes:
            _log.info("%s", note)
        return stored
    left = _left_behind(checkpoint, plan.application_id)
    if log.ledger(plan.application_id):
        raise CheckpointMismatchError(
            f"application {plan.application_id!r} has run before, but its checkpoint {checkpoint} does not exist",
            hint=f"An earlier version kept it in {left}: move it, mv {left} {checkpoint}"
            if left
            else "Set state.dir or penstock.checkpoint.location to where it ran. If it is lost, continue from what the "
            "log holds: penstock state rebuild app.py:topology --without-checkpoint. To start from nothing: penstock "
            "app reset app.py:topology --without-checkpoint.",
            checkpoint=checkpoint,
        )
    if left:
        _log.warning(
            "%s starts from nothing at %s; an application of this name has left a checkpoint in %s, the former default",
            plan.application_id,
            checkpoint,
            left,
        )
    return None


def read_stored_plan(checkpoint: str) -> StoredPlan | None:
    """Read the plan in a checkpoint; None if the application has never run with it.

    Raises:
        CheckpointMismatchError: A reset was cut off while it removed the checkpoint.
    """
    facts = read_plan(checkpoint)
    if facts is None:
        return None
    if facts.get("removed"):
        application = facts["plan"]["application"]
        raise CheckpointMismatchError(
            f"a reset of {application!r} was interrupted, and its checkpoint {checkpoint} is partly deleted",
            hint=f"Run it again: penstock app reset {application} --execute, or KafkaStreams.reset().",
            checkpoint=checkpoint,
        )
    return StoredPlan.of(facts)


def _left_behind(checkpoint: str, application: str) -> Path | None:
    """Find the checkpoint of an application of this name at the former default location, if that is another one."""
    old = former_checkpoint(application)
    try:
        plan = None if str(old) == checkpoint else read_plan(str(old))
    except (OSError, ValueError):  # from anybody: it would only be mentioned
        return None
    return old if plan is not None and plan["plan"]["application"] == application else None


def write_stored_plan(checkpoint: str, stored: StoredPlan, topology: Topology, config: StreamsConfig) -> None:
    """Write the plan, with all that is needed to read the stores or to reset without the topology.

    Args:
        checkpoint: The checkpoint location.
        stored: The plan, with what earlier plans have left.
        topology: The topology.
        config: The settings.
    """
    typed = with_settings(topology, config)
    more = {
        "stores": stores_for_plan(typed.stores),
        "global_stores": sorted(typed.global_stores),
        "dataframes": sorted(source.topic for source in topology.dataframes.values()),
    }
    write_document(checkpoint, PLAN, json.dumps({**stored.facts(), **more}, indent=1))


def note_lost(checkpoint: str, lost: Mapping[str, Collection[str]]) -> None:
    """Note that rows of stores that were taken out are gone.

    Args:
        checkpoint: The checkpoint location.
        lost: Store -> the tasks whose rows of it could not be rebuilt.
    """
    facts = read_plan(checkpoint) if lost else None
    if facts is not None:
        write_document(checkpoint, PLAN, json.dumps({**facts, **StoredPlan.of(facts).losing(lost).facts()}, indent=1))


def reserve_ids(checkpoint: str, last: int) -> None:
    """Note that ids of sub-topologies up to this one may have been used, whatever becomes of the start.

    Args:
        checkpoint: The checkpoint location.
        last: The largest one.
    """
    facts = read_plan(checkpoint)
    if facts is not None:
        write_document(
            checkpoint, PLAN, json.dumps({**facts, "last_id": max(last, facts.get("last_id", -1))}, indent=1)
        )
