"""The machines with replicas of tasks."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engines.threads.hosting.engine import ContinuousEngine

__all__ = ["replica_hosts"]


def replica_hosts(engine: object, held: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int | None]]:
    """Return by task the machines with a replica of its state.

    Args:
        engine: The application's engine. In continuous mode it knows the standbys: each with the number of records that
            it lacks, None where that is not known yet, and 0 for the task itself.
        held: Micro-batches: the batch of the replica on each machine when the task last ran there.
    """
    if not isinstance(engine, ContinuousEngine):
        return {task: dict(found) for task, found in held.items()}
    standbys = engine.standbys()
    return {task: {**standbys.get(task, {}), host: 0} for task, host in sorted(engine.active_hosts().items())}
