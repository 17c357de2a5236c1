"""The facts behind `penstock explain`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.plan.plan import PhysicalPlan, PlannedSubTopology, plan_of
from penstock.topology.functions import Function
from penstock.topology.nodes import ProcessorNode
from penstock.topology.topology import Topology

__all__ = ["explained"]


def explained(
    topology: Topology, config: Mapping[str, Any], known: Mapping[str, int], partitions: int
) -> dict[str, Any]:
    """Stages, tasks, operators and stores as plain data.

    Args:
        topology: The topology.
        config: Settings; ``application.id`` may be missing.
        known: Partition counts of existing topics.
        partitions: The count to assume for other source topics.
    """
    settings = StreamsConfig({"application.id": "app", **config})
    sources = {topic for node in topology.sources if not node.internal for topic in node.topics}
    counts = {**dict.fromkeys(sources, partitions), **known}
    plan = plan_of(topology, settings["application.id"], counts)
    return {
        "application": plan.application_id,
        "stages": [_stage(topology, plan, level, settings) for level in range(plan.levels)],
        "stores": [
            {
                "name": store.name,
                "kind": store.kind,
                "kept": "on disk" if store.persistent else "in memory",
                "changelog": f"{plan.application_id}-{store.name}-changelog" if store.logging else "none",
            }
            for store in topology.stores.values()
        ],
    }


def _stage(topology: Topology, plan: PhysicalPlan, level: int, settings: StreamsConfig) -> dict[str, Any]:
    what = "reads topics" if level == 0 else "takes rows from the stage before, shuffled by task"
    subs = [sub for sub in plan.subtopologies if level in sub.levels]
    return {"stage": level, "what": what, "subtopologies": [_sub(topology, plan, sub, settings) for sub in subs]}


def _sub(topology: Topology, plan: PhysicalPlan, sub: PlannedSubTopology, settings: StreamsConfig) -> dict[str, Any]:
    nodes = [topology.nodes[name] for name in sub.nodes]
    operators = [node for node in nodes if isinstance(node, ProcessorNode)]
    reason = _sliced(topology, plan, sub, settings)
    return {
        "id": sub.id,
        "tasks": sub.tasks,
        "reads": [*sub.external_topics, *sub.internal_topics],
        "writes": list(sub.sink_topics),
        "processing": "whole batches by column" if reason is None else f"record by record: {reason}",
        "operators": [
            {"node": node.name, "operation": type(node.operation).__name__, "how": _how(node)} for node in operators
        ],
    }


def _sliced(topology: Topology, plan: PhysicalPlan, sub: PlannedSubTopology, settings: StreamsConfig) -> str | None:
    """Why the task cuts its batches into single records; None when it does not. Asks a task made for the purpose."""
    from penstock.runtime.task import StreamTask
    from penstock.state.memory import MemoryTaskState

    state = MemoryTaskState([topology.stores[name] for name in sub.stores])
    task = StreamTask(topology, settings, f"{sub.id}_0", state, nodes=sub.nodes, partitions=plan.partitions)
    return task.sliced_reason


def _how(node: ProcessorNode) -> str:
    functions = list(_functions(node.operation))
    python = [f.name for f in functions if not f.is_expression]
    if python:
        return f"columns, with the Python function {', '.join(dict.fromkeys(python))} called for each row"
    return "columns, vectorised" + (" (expression)" if functions else "")


def _functions(value: Any) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _functions(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _functions(item)
