"""The settings of reading: start positions, the size of batches, and the handling of lost records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.config.offset_reset import offset_reset
from penstock.topology.plan.partitions import source_topics

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["ReadSettings", "read_settings_of"]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of an application's source.

    Attributes:
        offset_reset: The policy by topic, where there is no committed offset: "earliest", "latest", "none" or
            "by_duration:MS".
        patterned: Topics that are read because they match a pattern; they may be deleted.
        start_ms: A time to start from in place of the policy; None: the policy.
        loss_fails: Whether records that retention removed before they were read end the application.
        max_records_per_batch: The most records of all topics together.
        max_bytes_per_batch: The most bytes of all topics together, as estimated; None: any.
        max_records_per_partition: The most records of one topic partition in a batch.
        min_records_per_batch: Batches wait for so many records, but not longer than ``max_wait_ms``.
        max_wait_ms: The longest such wait.
        max_batch_ms: The time that a batch should take at most; smaller ones follow while they take longer. 0: any.
        pause_ms: The pause between the end of a batch and the start of the next.
    """

    offset_reset: Mapping[str, str] = field(default_factory=dict)
    patterned: frozenset[str] = frozenset()
    start_ms: int | None = None
    loss_fails: bool = True
    max_records_per_batch: int = 500_000
    max_bytes_per_batch: int | None = None
    max_records_per_partition: int = 500_000
    min_records_per_batch: int = 0
    max_wait_ms: int = 0
    max_batch_ms: int = 0
    pause_ms: int = 0


def read_settings_of(topology: Topology, plan: PhysicalPlan, config: StreamsConfig) -> ReadSettings:
    """Make the settings of reading from those of the application.

    Args:
        topology: The topology, whose sources may have their own policies.
        plan: The plan with all topics, also those that match a pattern.
        config: The application's settings.
    """
    most = int(config["penstock.max.records.per.batch"])
    topics = source_topics(topology, plan.partitions)
    named = {topic for node in topology.sources for topic in node.topics}
    return ReadSettings(
        offset_reset=_resets(topology, plan, config, topics),
        patterned=frozenset(set(plan.external_topics) - named),
        start_ms=config["penstock.start.timestamp"],
        loss_fails=config["penstock.data.loss"] == "fail",
        max_records_per_batch=most,
        max_bytes_per_batch=int(config["penstock.max.bytes.per.batch"]) or None,
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
