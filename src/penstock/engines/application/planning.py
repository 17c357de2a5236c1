"""A planned application: its topology and settings, with the physical plan over the topics of its log."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING, Any

from penstock.engines.application.locations import Locations
from penstock.engines.application.stored_plans import read_stored_plan
from penstock.errors import CoPartitionError, UnknownTopicError
from penstock.log.ensure_topic import ensure_topic
from penstock.log.url import kafka_servers
from penstock.topology.plan.evolution import plan_after
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import PhysicalPlan
from penstock.topology.plan.plan_json import StoredPlan, document_of, fingerprint_of

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.topology.plan.internal_topics import Changelog
    from penstock.topology.topology import Topology

__all__ = ["PlannedApp", "create_missing", "create_sources", "plan_for"]


@dataclass(frozen=True)
class PlannedApp:
    """An application on the driver, as it starts or as its state is repaired.

    Attributes:
        topology: The topology, as built.
        config: The application's settings.
        plan: The plan of the topology over the existing topics.
        log: The application's log.
    """

    topology: Topology
    config: StreamsConfig
    plan: PhysicalPlan
    log: TopicLog

    @property
    def application(self) -> str:
        """The ``application.id``."""
        return self.plan.application_id

    @cached_property
    def places(self) -> Locations:
        """The locations of the application's state."""
        return Locations.of(self.config, self.log)

    @property
    def checkpoint(self) -> str:
        """The checkpoint location."""
        return self.places.checkpoint

    @cached_property
    def document(self) -> dict[str, Any]:
        """The facts of the plan that a checkpoint depends on."""
        return document_of(self.plan, self.topology, self.config)

    @cached_property
    def fingerprint(self) -> str:
        """The checksum of `document`."""
        return fingerprint_of(self.document)

    @cached_property
    def changelogs(self) -> tuple[Changelog, ...]:
        """The changelog topics that the application writes; none if ``penstock.changelog.enabled`` is off."""
        is_on = self.config["penstock.changelog.enabled"]
        return tuple(changelogs_of(self.topology, self.plan, self.config)) if is_on else ()

    @property
    def loss_fails(self) -> bool:
        """True if ``penstock.data.loss`` is "fail"."""
        return bool(self.config["penstock.data.loss"] == "fail")


def plan_for(
    topology: Topology, config: StreamsConfig, log: TopicLog, stored: StoredPlan | None = None
) -> PhysicalPlan:
    """Make the physical plan over the existing topics; raise UnknownTopicError or CoPartitionError.

    Sub-topologies keep the ids, and internal topics the partition counts, that they have in the checkpoint.

    Args:
        topology: The topology.
        config: The application's settings.
        log: The application's log.
        stored: The earlier plan to continue from; None: the one in the checkpoint.
    """
    partition_counts = dataframe_topic_partitions(topology, config) | {t.name: t.partitions for t in log.topics()}
    stored = stored or read_stored_plan(Locations.of(config, log).checkpoint)
    try:
        return plan_after(stored, topology, config["application.id"], partition_counts)
    except UnknownTopicError as error:
        topic = error.facts.get("topic")
        if topic is None:  # a pattern that matches nothing
            raise
        with suppress(UnknownTopicError):
            log.topic(str(topic))  # a log that hides topics from some users raises an error that says so
        raise UnknownTopicError(error.message, hint=_how_to_create(str(topic), config), **error.facts) from None


def dataframe_topic_partitions(topology: Topology, config: StreamsConfig) -> dict[str, int]:
    """Return the partition counts with which the topics of DataFrames are created."""
    usual = int(config["num.partitions"])
    return {source.topic: source.partitions or usual for source in topology.dataframes.values()}


def _how_to_create(topic: str, config: StreamsConfig) -> str:
    url = str(config["bootstrap.servers"])
    where = kafka_servers(url) or url.removeprefix("sqlite:///")
    return (
        f"Create it before the start: penstock topics create {topic} -b {quote(where)}; or set "
        "penstock.source.partitions, and the start creates what is missing."
    )


def create_sources(topology: Topology, config: StreamsConfig, log: TopicLog) -> None:
    """Create missing source topics if ``penstock.source.partitions`` is set."""
    partitions = int(config["penstock.source.partitions"])
    if partitions == 0:
        return
    fed = {source.topic for source in topology.dataframes.values()}  # made with settings of their own
    existing = {topic.name for topic in log.topics()}
    topics = dict.fromkeys(topic for node in topology.sources if not node.internal for topic in node.topics)
    for topic in topics:
        if topic not in existing and topic not in fed:
            ensure_topic(log, topic, partitions)


def create_missing(topology: Topology, config: StreamsConfig, log: TopicLog) -> bool:
    """Create the missing topics that the application writes: sinks, the dead letter topic, topics of DataFrames.

    Returns:
        Whether any topic was created.

    Raises:
        CoPartitionError: An internal topic exists already, with another number of partitions than the topology says.
    """
    existing = {t.name: t.partitions for t in log.topics()}
    _check_internal(topology, existing)
    feeds = {
        name: count for name, count in dataframe_topic_partitions(topology, config).items() if name not in existing
    }
    for topic, partitions in feeds.items():
        settings = {name: str(value) for name, value in config.with_prefix("topic.").items()}
        ensure_topic(log, topic, partitions, {"retention.ms": "-1", **settings})
    output_topics = [n.topic for n in topology.sinks if n.topic is not None and not n.internal]
    output_topics.append(config.get("errors.dead.letter.queue.topic.name") or "")
    provided = {*existing, *feeds, *topology.internal_topics}
    sinks = [t for t in dict.fromkeys(output_topics) if t and t not in provided]
    for topic in sinks:
        ensure_topic(log, topic, int(config["num.partitions"]))
    return bool(feeds or sinks)


def _check_internal(topology: Topology, existing: Mapping[str, int]) -> None:
    for source in topology.dataframes.values():
        there = existing.get(source.topic)
        if source.partitions is not None and there is not None and there != source.partitions:
            raise CoPartitionError(
                f"the internal topic {source.topic!r} has {there} partitions, but the topology says "
                f"{source.partitions}",
                hint="Keep the number that it has, or call KafkaStreams.reset(), which deletes it, and start again.",
                topic=source.topic,
            )
