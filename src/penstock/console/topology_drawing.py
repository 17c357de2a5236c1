"""A topology as the console draws it: boxes, arrows, and how each operator runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.base.version import __version__
from penstock.console.recorder import Watched
from penstock.errors import PenstockError
from penstock.log.processes import own_process
from penstock.topology.description import chart_of
from penstock.topology.nodes import ProcessorNode
from penstock.topology.plan.explain import explain_json, how_it_runs

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application_run import Run
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["alert_settings", "drawing_of", "watched"]

_log = own_logger(__name__)


def alert_settings(config: StreamsConfig) -> dict[str, Any]:
    """Return the limits of alerts, which the record of an application holds."""
    return {
        "state.growth.percent": config["penstock.alerts.state.growth.percent"],
        "hold.ms": config["penstock.alerts.hold.ms"],
    }


def watched(run: Run) -> Watched:
    """Return what a recorder needs of a launched run."""
    log, plan, places, lease, metrics = run.log, run.plan, run.places, run.lease, run.metrics
    assert log and plan and places and metrics  # noqa: S101, PT018 - launched
    host, pid, start = own_process()  # which holds the lease, if there is one
    facts = {
        "mode": run.engine.mode,
        "version": __version__,
        "host": host,
        "pid": pid,
        "process_start": start,
        "epoch": None if lease is None else lease.epoch,
        "guarantee": str(run.config["processing.guarantee"]),
        "interval_ms": run.config["commit.interval.ms"],
        "alerts": alert_settings(run.config),
        "log": log.url,
        "settings": {name: str(value) for name, value in sorted(run.config.masked().items())},
        "tasks": {str(sub.id): sub.tasks for sub in plan.subtopologies},
    }
    return Watched(
        places.checkpoint,
        metrics.lags,
        metrics.beginnings,
        facts,
        lambda: drawing_of(run.topology, plan, _sliced(run, plan), run.config),
        run.engine.phase,
        lambda: [each.document() for each in run.engine.under_way()],
        run.engine.long_steps,
        metrics.catch_up,
        lambda: metrics.restarts,
        has_others=run.engine.shares_tasks,
    )


def _sliced(run: Run, plan: PhysicalPlan) -> Mapping[int, str | None]:
    from penstock.runtime.task import sliced_reasons

    try:
        return sliced_reasons(run.topology, run.config, plan)
    except PenstockError as error:  # the picture does without
        _log.debug("how sub-topologies run is not known: %s", error)
        return {}


def drawing_of(
    topology: Topology,
    plan: PhysicalPlan | None = None,
    sliced: Mapping[int, str | None] | None = None,
    config: StreamsConfig | None = None,
) -> dict[str, Any]:
    """Return the boxes and arrows of a topology, its text and its Mermaid source, for JSON.

    Args:
        topology: The topology.
        plan: Its physical plan, if it is known; internal topics then have the application's prefix.
        sliced: Id in the plan -> the reason why a sub-topology's records go one by one; None: whole batches.
        config: The application's settings; None: their defaults.
    """
    description = topology.describe()
    chart = chart_of(description.subtopologies)
    prefix = "" if plan is None else f"{plan.application_id}-"
    internal = set(topology.internal_topics)
    ids = {} if plan is None else {node: sub.id for sub in plan.subtopologies for node in sub.nodes}
    tasks_of = {box.group: ids[box.name] for box in chart.boxes if box.kind == "node" and box.name in ids}
    operations = {
        node["name"]: node.get("operation") or node["type"]
        for sub in description.to_dict()["sub_topologies"]
        for node in sub["nodes"]
    }
    boxes = []
    for box in chart.boxes:
        facts: dict[str, Any] = {"id": box.id, "kind": box.kind, "name": box.name, "group": box.group}
        if box.kind == "node":
            facts["operation"] = operations.get(box.name, "")
            node = topology.nodes.get(box.name)
            if isinstance(node, ProcessorNode):
                facts["runs"] = how_it_runs(node, topology)
        elif box.kind == "topic" and box.name in internal:
            facts["topic"] = f"{prefix}{box.name}"
        boxes.append(facts)
    return {
        "groups": [
            {
                "id": number,
                "title": title if tasks_of.get(number, number) == number else f"{title}, tasks {tasks_of[number]}_*",
                "sliced": (sliced or {}).get(tasks_of.get(number, number)),
            }
            for number, title in chart.groups.items()
        ],
        "boxes": boxes,
        "arrows": [[a.id, b.id] for a, b in chart.arrows],
        "touches": [[node.id, store.id] for node, store in chart.touches],
        "stores": {name: {"kind": spec.kind, "persistent": spec.persistent} for name, spec in topology.stores.items()},
        "text": str(description),
        "mermaid": description.to_mermaid(),
        "plan": None if plan is None else explain_json(plan, topology, sliced or {}, config),
    }
