"""What an application needs from its log: topics, and the names that rights are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engines.application.application_mode import MICRO_BATCH
from penstock.log.application_needs import ApplicationNeeds
from penstock.topology.plan.internal_topics import changelogs_of, numbers_topic

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["needs_of"]


def needs_of(topology: Topology, config: StreamsConfig, plan: PhysicalPlan | None) -> ApplicationNeeds:
    """Return what an application needs.

    Args:
        topology: The topology.
        config: The application's settings.
        plan: The plan over the existing topics; None: there is none, as sources are missing.
    """
    application = str(config["application.id"])
    named = [topic for node in topology.sources if not node.internal for topic in node.topics]
    sinks = [node.topic for node in topology.sinks if node.topic is not None and not node.internal]
    dead_letters = config.get("errors.dead.letter.queue.topic.name")
    internal: dict[str, int] = {}
    compacted: list[str] = []
    repartition: list[str] = []
    if plan is not None:
        if config["processing.mode"] != MICRO_BATCH:
            repartition += plan.repartition_topics
            internal |= {topic: plan.partitions[logical] for topic, logical in plan.repartition_topics.items()}
        if config["penstock.changelog.enabled"]:
            changelogs = changelogs_of(topology, plan, config)
            compacted += [each.topic for each in changelogs]
            own_numbers = numbers_topic(application)  # has one partition or more, by the mode
            internal |= {each.topic: 0 if each.topic == own_numbers else each.partitions for each in changelogs}
    return ApplicationNeeds(
        application,
        sources=tuple(dict.fromkeys((*named, *(plan.all_topics if plan is not None else ())))),
        sinks=tuple(dict.fromkeys(topic for topic in (*sinks, dead_letters or "") if topic)),
        internal=internal,
        compacted=tuple(compacted),
        repartition=tuple(repartition),
        replication=int(config["replication.factor"]),
    )
