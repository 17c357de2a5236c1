"""How an application reads its topics: from where, how much at a time, and what happens when records are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.config.offset_reset import offset_reset
from penstock.plan.partitions import source_topics

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["Reading", "reading_of"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings of the source.

    Attributes:
        offset_reset: The policy by topic, where there is no committed offset: "earliest", "latest", "none" or
            "by_duration:MS".
        patterned: Topics that are read because they match a pattern; they may go.
        start_ms: A time to start from in place of the policy; None: the policy.
        loss_fails: Whether records that retention took before they were read end the application.
        max_records_per_batch: Of all topics together.
        max_records_per_partition: Of one topic partition, in a batch.
        min_records_per_batch: Batches wait for so many records, but not longer than ``max_wait_ms``.
        max_wait_ms: See there.
        max_batch_ms: How long a batch is to take at most; fewer records are planned while batches take longer. 0: any.
        pause_ms: Between the end of a batch and the start of the next.
    """

    offset_reset: Mapping[str, str] = field(default_factory=dict)
    patterned: frozenset[str] = frozenset()
    start_ms: int | None = None
    loss_fails: bool = True
    max_records_per_batch: int = 500_000
    max_records_per_partition: int = 500_000
    min_records_per_batch: int = 0
    max_wait_ms: int = 0
    max_batch_ms: int = 0
    pause_ms: int = 0


def reading_of(topology: Topology, plan: PhysicalPlan, config: StreamsConfig) -> Reading:
    """What the settings say.

    Args:
        topology: Its sources may have a policy of their own.
        plan: Knows the topics, those that match a pattern too.
        config: The application's settings.
    """
    most = int(config["penstock.max.records.per.batch"])
    topics = source_topics(topology, plan.partitions)
    named = {topic for node in topology.sources for topic in node.topics}
    return Reading(
        offset_reset=_resets(topology, plan, config, topics),
        patterned=frozenset(set(plan.external_topics) - named),
        start_ms=config["penstock.start.timestamp"],
        loss_fails=config["penstock.data.loss"] == "fail",
        max_records_per_batch=most,
        max_records_per_partition=int(config["penstock.max.records.per.partition"] or most),
        min_records_per_batch=int(config["penstock.min.records.per.batch"]),
        max_wait_ms=int(config["penstock.max.wait.ms"]),
        max_batch_ms=int(config["penstock.max.batch.ms"]),
        pause_ms=int(config["penstock.batch.pause.ms"]),
    )


def _resets(
    topology: Topology, plan: PhysicalPlan, config: StreamsConfig, topics: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    resets = dict.fromkeys(plan.external_topics, str(config["auto.offset.reset"]))
    for node in topology.sources:
        if node.offset_reset is not None:
            resets |= dict.fromkeys(topics[node.name], offset_reset(node.offset_reset))
    return resets
