"""The facts of `penstock explain`: the plan for the existing topics, and the execution of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.runtime.task import sliced_reasons
from penstock.topology.plan.explain import explain_json, explain_text
from penstock.topology.plan.plan import plan_of
from penstock.topology.topology import Topology

__all__ = ["explained"]


def explained(
    topology: Topology, config: Mapping[str, Any], partition_counts: Mapping[str, int], partitions: int
) -> tuple[str, dict[str, Any]]:
    """Describe stages, tasks, operators and stores, as text and as plain data.

    Args:
        topology: The topology.
        config: Settings; ``application.id`` may be missing.
        partition_counts: Partition counts of existing topics.
        partitions: The count to assume for other source topics.
    """
    settings = StreamsConfig({"application.id": "app", **config})
    sources = {topic for node in topology.sources if not node.internal for topic in node.topics}
    plan = plan_of(topology, settings["application.id"], {**dict.fromkeys(sources, partitions), **partition_counts})
    sliced = sliced_reasons(topology, settings, plan)
    return explain_text(plan, topology, sliced, settings), explain_json(plan, topology, sliced, settings)
