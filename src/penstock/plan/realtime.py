"""Whether a topology can run in real-time mode, and if not, why."""

from __future__ import annotations

from penstock.plan.plan import PhysicalPlan
from penstock.topology.topology import Topology

__all__ = ["realtime_refusal"]


def realtime_refusal(plan: PhysicalPlan, topology: Topology, *, is_kafka: bool) -> str | None:
    """Why ``processing.mode=realtime`` cannot run this; None: it can.

    Real-time mode hands each record to the task of its partition at once. There is no shuffle in it, so a record must
    not have to meet others that arrive elsewhere.

    Args:
        plan: The physical plan.
        topology: The topology that it is of.
        is_kafka: Whether the log is Kafka.
    """
    if not is_kafka:
        return "it reads Kafka through Spark's connector, and the log is an embedded one"
    if plan.levels > 1:
        topics = ", ".join(plan.internal_topics)
        return f"it runs one stage, and this topology has {plan.levels}: records pass through {topics}"
    if plan.global_topics:
        return f"it has no global tables, and this topology reads {', '.join(plan.global_topics)} as one"
    if topology.dataframes:
        return f"it reads topics only, and this topology reads the DataFrame {', '.join(topology.dataframes)}"
    for sub in plan.subtopologies:
        if len(sub.external_topics) > 1:
            together = ", ".join(sub.external_topics)
            return f"it gives each task one topic, and sub-topology {sub.id} reads {together} together"
    return None
