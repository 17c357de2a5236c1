"""What ``explain`` shows: stages, tasks, stores, topics, and how each operator runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.plan.plan import PhysicalPlan, PlannedSubTopology
from penstock.plan.realtime import realtime_refusal
from penstock.topology.async_operations import MapAsync
from penstock.topology.functions import Function
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations import Operation, Process, StreamAggregate, TableAggregate, WindowedAggregate
from penstock.topology.suppress import Suppress
from penstock.topology.table_operations import TableTransformValues
from penstock.topology.topology import Topology

__all__ = ["explain_json", "explain_text", "how_it_runs"]


def explain_json(
    plan: PhysicalPlan,
    topology: Topology,
    sliced: Mapping[int, str | None],
    *,
    mode: str = "micro_batch",
    is_kafka: bool = False,
) -> dict[str, Any]:
    """The plan as plain data.

    Args:
        plan: The physical plan.
        topology: The topology that it is of.
        sliced: Sub-topology -> why its records go one by one; None: whole batches by column.
        mode: ``processing.mode``.
        is_kafka: Whether the log is Kafka.
    """
    refusal = realtime_refusal(plan, topology, is_kafka=is_kafka)
    return {
        "application_id": plan.application_id,
        "mode": mode,
        "realtime": {"possible": refusal is None, "reason": refusal},
        "stages": [
            {
                "stage": level,
                "shuffle": level > 0,
                "subtopologies": [
                    _subtopology(s, topology, plan, sliced.get(s.id)) for s in plan.subtopologies if level in s.levels
                ],
            }
            for level in range(plan.levels)
        ],
        "internal_topics": {f"{plan.application_id}-{topic}": plan.partitions[topic] for topic in plan.internal_topics},
        "global_topics": {topic: plan.partitions[topic] for topic in plan.global_topics},
        "optimizations": [{"rule": one.rule, "what": one.what} for one in topology.rewrites],
        "stores": {
            name: {"kind": spec.kind, "persistent": spec.persistent, "retention_ms": spec.retention_ms}
            for name, spec in topology.stores.items()
        },
    }


def _subtopology(sub: PlannedSubTopology, topology: Topology, plan: PhysicalPlan, sliced: str | None) -> dict[str, Any]:
    return {
        "id": sub.id,
        "tasks": sub.tasks,
        "reads": {t: plan.partitions[t] for t in (*sub.external_topics, *sub.internal_topics)},
        "writes": list(sub.sink_topics),
        "stores": list(sub.stores),
        "columnar": sliced is None,
        "sliced_reason": sliced,
        "ticks": sub.ticks,
        "operators": [
            {"name": name, "runs": how_it_runs(node, topology)}
            for name in sub.nodes
            if isinstance(node := topology.nodes[name], ProcessorNode)
        ],
    }


def how_it_runs(node: ProcessorNode, topology: Topology) -> str:
    """Says "columns", or which Python function is called for each record, or what goes row by row and when."""
    operation = node.operation
    if isinstance(operation, Process):
        return "a Processor, called for each record"
    if isinstance(operation, TableTransformValues):
        return "a ValueTransformerWithKey, called for each change"
    calls = [f.location for f in _functions(operation) if not (f.is_expression or _is_known(f.fn))]
    if isinstance(operation, MapAsync):
        return f"awaits {calls[0]} for each record, up to {operation.limit} at once"
    how = f"calls {', '.join(calls)} for each record" if calls else "columns"
    exception = _row_by_row(operation, topology)
    return f"{how}; row by row {exception}" if exception else how


def _row_by_row(operation: Operation, topology: Topology) -> str:
    """When an operator's own work goes row by row, slower and with the same results; empty: never."""
    if isinstance(operation, Suppress) and (operation.max_records is not None or operation.max_bytes is not None):
        return "in a batch that could fill its buffer"
    if isinstance(operation, WindowedAggregate) and operation.windows.kind in ("session", "sliding"):
        return "for keys whose records are out of order"
    if isinstance(operation, StreamAggregate | TableAggregate) and topology.stores[operation.store].kind == "versioned":
        return "as its store is versioned"
    return ""


def _is_known(fn: Any) -> bool:
    """Whether this is a built-in aggregator that runs over columns."""
    return bool(getattr(fn, "by_column", False))


def _functions(value: Any) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _functions(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _functions(getattr(value, field.name))


def explain_text(
    plan: PhysicalPlan,
    topology: Topology,
    sliced: Mapping[int, str | None],
    *,
    mode: str = "micro_batch",
    is_kafka: bool = False,
) -> str:
    """The plan for people; arguments as in `explain_json`."""
    facts = explain_json(plan, topology, sliced, mode=mode, is_kafka=is_kafka)
    lines = [f"Application {facts['application_id']}"]
    lines.append(_mode_line(mode, facts["realtime"]["reason"]))
    for stage in facts["stages"]:
        how = "after a shuffle by task" if stage["shuffle"] else "reads the log, no shuffle"
        lines.append(f"\nStage {stage['stage']} ({how})")
        for sub in stage["subtopologies"]:
            lines += _lines(sub, topology)
    if facts["internal_topics"]:
        lines.append("\nRepartition topics (Spark's shuffle, not written)")
        lines += [f"  {name}: {count} partitions" for name, count in facts["internal_topics"].items()]
    if facts["global_topics"]:
        lines.append("\nGlobal tables (one copy on each machine, read up to the same offsets by all tasks of a batch)")
        lines += [f"  {name}: {count} partitions" for name, count in facts["global_topics"].items()]
    if facts["optimizations"]:
        lines.append("\nOptimised (topology.optimization)")
        lines += [f"  {one['what']} ({one['rule']})" for one in facts["optimizations"]]
    return "\n".join(lines)


def _mode_line(mode: str, refusal: str | None) -> str:
    if mode == "realtime":
        return "Real-time mode, at least once" if refusal is None else f"Real-time mode is refused: {refusal}"
    other = "possible, at least once" if refusal is None else f"not possible: {refusal}"
    return f"Micro-batches (processing.mode=realtime is {other})"


def _lines(sub: Mapping[str, Any], topology: Topology) -> Iterator[str]:
    yield f"  Sub-topology {sub['id']}: {sub['tasks']} tasks"
    for topic, count in sub["reads"].items():
        yield f"    reads  {topic} ({count} partitions)"
    for topic in sub["writes"]:
        yield f"    writes {topic}"
    for name in sub["stores"]:
        spec = topology.stores[name]
        kept = f", kept {spec.retention_ms} ms" if spec.retention_ms else ""
        yield f"    store  {name} ({spec.kind}, {'LMDB' if spec.persistent else 'in memory'}{kept})"
    if sub["columnar"]:
        yield "    runs whole batches by column"
    else:
        yield f"    runs record by record: {sub['sliced_reason']}"
    if sub["ticks"]:
        yield "    looks at the clock when no records come"
    width = max((len(o["name"]) for o in sub["operators"]), default=0)
    for operator in sub["operators"]:
        yield f"      {operator['name']:{width}}  {operator['runs']}"
