"""The facts of `penstock explain`: the plan for the existing topics, and the execution of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.topology.plan.explain import explain_json, explain_text
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, plan_of
from penstock.topology.topology import Topology

__all__ = ["explained"]


def explained(
    topology: Topology, config: Mapping[str, Any], known: Mapping[str, int], partitions: int
) -> tuple[str, dict[str, Any]]:
    """Describe stages, tasks, operators and stores, as text and as plain data.

    Args:
        topology: The topology.
        config: Settings; ``application.id`` may be missing.
        known: Partition counts of existing topics.
        partitions: The count to assume for other source topics.
    """
    settings = StreamsConfig({"application.id": "app", **config})
    sources = {topic for node in topology.sources if not node.internal for topic in node.topics}
    plan = plan_of(topology, settings["application.id"], {**dict.fromkeys(sources, partitions), **known})
    sliced = {sub.id: _sliced(topology, plan, sub, settings) for sub in plan.subtopologies}
    return explain_text(plan, topology, sliced, settings), explain_json(plan, topology, sliced, settings)


def _sliced(topology: Topology, plan: PhysicalPlan, sub: PlannedSubTopology, settings: StreamsConfig) -> str | None:
    """Return why a task cuts its batches into single records; None if it does not. Makes such a task to find out."""
    from penstock.runtime.task import StreamTask, TaskPart
    from penstock.state.memory import MemoryTaskState

    state = MemoryTaskState([topology.stores[name] for name in sub.stores])
    task = StreamTask(topology, settings, TaskPart(f"{sub.id}_0", plan.partitions, sub.nodes), state)
    return task.sliced_reason
