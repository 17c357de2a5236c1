"""The output of ``explain``: stages, tasks, stores, topics, and the way in which each operator runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.base.terminal.human_numbers import counted
from penstock.config import StreamsConfig
from penstock.topology.configured import fields_known_above, fields_read
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.definitions import (
    MapAsync,
    Operation,
    Process,
    StreamAggregate,
    Suppress,
    TableAggregate,
    TableTransformValues,
    WindowedAggregate,
)
from penstock.topology.operations.functions import ColumnFunction, functions_of
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology
from penstock.topology.topology import Topology

__all__ = ["explain_json", "explain_text", "how_it_runs"]


def explain_json(
    plan: PhysicalPlan,
    topology: Topology,
    sliced: Mapping[int, str | None],
    config: StreamsConfig | None = None,
) -> dict[str, Any]:
    """Return the plan as plain data.

    Args:
        plan: The physical plan.
        topology: The plan's topology.
        sliced: Sub-topology -> the reason why its records go one by one; None: whole batches by column.
        config: The application's settings; None: their defaults.
    """
    return {
        "application_id": plan.application_id,
        "mode": (config or StreamsConfig())["processing.mode"],
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
        "internal_topics": {name: plan.partitions[topic] for name, topic in plan.repartition_topics.items()},
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
    """Return "columns", or the Python functions called per record, or the work that goes row by row, and when."""
    operation = node.operation
    if isinstance(operation, Process):
        return "a Processor, called for each record"
    if isinstance(operation, TableTransformValues):
        return "a ValueTransformerWithKey, called for each change"
    calls = [
        f.location
        for f in functions_of(operation)
        if not (f.is_expression or isinstance(f.fn, ColumnFunction) or _is_known(f.fn))
    ]
    if isinstance(operation, MapAsync):
        return f"awaits {calls[0]} for each record, up to {operation.limit} at once"
    how = f"calls {', '.join(calls)} for each record" if calls else "columns"
    exception = _row_by_row(operation, topology)
    how = f"{how}; row by row {exception}" if exception else how
    unchecked = _unchecked_fields(node, topology)
    return f"{how}; {unchecked}" if unchecked else how


def _unchecked_fields(node: ProcessorNode, topology: Topology) -> str:
    """Return the fields that are looked up in values without a schema; empty: there are none."""
    read = fields_read(topology.nodes, node)
    if not read or fields_known_above(topology.nodes, node) is not None:
        return ""
    return f"no schema says whether the values have {', '.join(sorted(read))}: what is missing counts as null"


def _row_by_row(operation: Operation, topology: Topology) -> str:
    """Return when an operator's own work goes row by row, slower and with the same results; empty: never."""
    if isinstance(operation, Suppress) and (operation.max_records is not None or operation.max_bytes is not None):
        return "in a batch that could fill its buffer"
    if isinstance(operation, WindowedAggregate) and operation.windows.kind in ("session", "sliding"):
        return "for keys whose records are out of order"
    if isinstance(operation, StreamAggregate | TableAggregate) and topology.stores[operation.store].kind == "versioned":
        return "as its store is versioned"
    return ""


def _is_known(fn: Any) -> bool:
    """Return whether this is a built-in aggregator that runs over columns."""
    return bool(getattr(fn, "by_column", False))


def explain_text(
    plan: PhysicalPlan,
    topology: Topology,
    sliced: Mapping[int, str | None],
    config: StreamsConfig | None = None,
) -> str:
    """Return the plan as text; arguments as in `explain_json`."""
    facts = explain_json(plan, topology, sliced, config)
    has_threads = facts["mode"] == "continuous"
    lines = [f"Application {facts['application_id']}", "Stream threads" if has_threads else "Micro-batches"]
    behind = "reads repartition topics" if has_threads else "after a shuffle by task"
    for stage in facts["stages"]:
        how = behind if stage["shuffle"] else "reads the log" if has_threads else "reads the log, no shuffle"
        lines.append(f"\nStage {stage['stage']} ({how})")
        for sub in stage["subtopologies"]:
            lines += _lines(sub, topology)
    if facts["internal_topics"]:
        how = "topics of the log" if has_threads else "Spark's shuffle, not written"
        lines.append(f"\nRepartition topics ({how})")
        lines += [f"  {name}: {counted(count, 'partition')}" for name, count in facts["internal_topics"].items()]
    if facts["global_topics"]:
        until = "" if has_threads else ", read up to the same offsets by all tasks of a batch"
        lines.append(f"\nGlobal tables (one copy on each machine{until})")
        lines += [f"  {name}: {counted(count, 'partition')}" for name, count in facts["global_topics"].items()]
    if facts["optimizations"]:
        lines.append("\nOptimised (topology.optimization)")
        lines += [f"  {one['what']} ({one['rule']})" for one in facts["optimizations"]]
    return "\n".join(lines)


def _lines(sub: Mapping[str, Any], topology: Topology) -> Iterator[str]:
    yield f"  Sub-topology {sub['id']}: {sub['tasks']} tasks"
    for topic, count in sub["reads"].items():
        yield f"    reads  {topic} ({counted(count, 'partition')})"
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
