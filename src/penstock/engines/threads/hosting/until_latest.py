"""The end of a run until "latest": everything up to the bounds is processed, and nothing is on its way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.topology.plan.plan import PhysicalPlan

__all__ = ["has_reached"]


def has_reached(log: TopicLog, plan: PhysicalPlan, bounds: Mapping[TopicPartition, int]) -> bool:
    """Return whether threads have committed everything up to the bounds, and all that followed from it.

    The committed offsets are fetched before the ends of the repartition topics. What was committed by then has left
    its records in them; so if they end where they are committed, nothing is left to do.

    Args:
        log: The log.
        plan: The plan.
        bounds: The offsets to reach in topics from outside.
    """
    application = plan.application_id
    committed = log.committed_offsets(application)
    if any(committed.get(tp, 0) < bound for tp, bound in bounds.items()):
        return False
    internal = list(plan.repartition_topics)
    if not internal:
        return True
    first, ends = log.beginning_offsets(internal), log.end_offsets(internal)
    if any(committed.get(tp, first[tp]) < end for tp, end in ends.items()):
        return False
    # A transaction's offsets can be seen a moment before its records: each partition of Kafka hears of its end alone.
    return all(
        log.read(tp.topic, tp.partition, end, 1, "read_uncommitted").next_offset <= end for tp, end in ends.items()
    )
