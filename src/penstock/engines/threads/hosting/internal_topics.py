"""The topics that an application in continuous mode needs: repartition topics and changelogs, as in Kafka Streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.engines.application.changelog_topics import fit_partitions
from penstock.errors import CheckpointMismatchError, CoPartitionError, TopologyError
from penstock.log.ensure_topic import ensure_topic
from penstock.log.streams_groups.offset_metadata import OffsetMetadata
from penstock.serde.auto import AutoSerde
from penstock.topology.configured.apply import with_settings
from penstock.topology.plan.changelog_topics import numbers_topic

if TYPE_CHECKING:
    from penstock.engines.application.planned_app import PlannedApp
    from penstock.log.base import TopicLog

__all__ = ["create_internal_topics"]

# Kafka Streams' settings of repartition topics: nothing goes by time, as what is committed is deleted.
_REPARTITION: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": str(50 << 20),
    "message.timestamp.type": "CreateTime",
}


def create_internal_topics(app: PlannedApp, *, has_run: bool) -> None:
    """Create the missing repartition and changelog topics, and the topic of the tasks' numbers.

    Args:
        app: The application; the lease is held.
        has_run: Whether it goes on; else there must be no records in its changelogs, unless a program in Java has
            written them: a Kafka Streams application is taken over, or shared.

    Raises:
        CoPartitionError: A topic of that name has another number of partitions.
        CheckpointMismatchError: The application starts anew, but there are changelogs of an earlier one.
        TopologyError: A Kafka Streams application has internal topics that this one writes in another format.
    """
    log = app.log
    is_taken_over = not has_run and _is_of_kafka_streams(log, app.application)
    if is_taken_over:
        _require_java_serdes(app)
    there = {topic.name for topic in log.topics()}
    topic_settings = {name: str(value) for name, value in app.config.with_prefix("topic.").items()}
    for topic, logical in app.plan.repartition_topics.items():
        partitions = app.plan.partitions[logical]
        count = ensure_topic(log, topic, partitions, {**_REPARTITION, **topic_settings, "cleanup.policy": "delete"})
        if count != partitions:
            raise CoPartitionError(
                f"the repartition topic {topic} has {count} partitions, and the topology needs {partitions}",
                hint="Name the number of partitions with Repartitioned, or reset the application.",
                topic=topic,
            )
    for each in app.changelogs:
        count = ensure_topic(log, each.topic, each.partitions, each.config)
        if each.topic in there and not has_run and not is_taken_over:
            _check_empty(log, app.application, each.topic)
        fit_partitions(each, count, log)
    numbers = numbers_topic(app.application)
    if numbers not in {each.topic for each in app.changelogs}:
        ensure_topic(log, numbers, 1, {"cleanup.policy": "compact", **topic_settings})


def _is_of_kafka_streams(log: TopicLog, application: str) -> bool:
    """Return whether a Kafka Streams program has committed, whose changelogs are as its offsets say.

    Penstock commits such texts only as a member of a group, after it has noted itself. A reset replaces them.
    """
    group = log.group_offsets(application)
    return any(OffsetMetadata.parse(each.metadata) is not None for each in group.values())


def _require_java_serdes(app: PlannedApp) -> None:
    """Check that internal topics, which a program in Java has written and may go on to write, are read as it does."""
    topology = with_settings(app.topology, app.config)
    read = {
        f"repartition topic {topic}": (node.key_serde, node.value_serde)
        for node in topology.sources
        for topic in node.topics
        if topic in topology.internal_topics
    }
    kept = {
        f"store {name}": (spec.key_serde, spec.value_serde) for name, spec in topology.stores.items() if spec.logging
    }
    for what, serdes in {**read, **kept}.items():
        if any(isinstance(serde, AutoSerde) for serde in serdes):
            raise TopologyError(
                f"{app.application!r} is an application of Kafka Streams, and the {what} would be written by "
                "Serdes.auto(), which no Java program reads",
                hint='Name the serdes that it has there: Grouped(key_serde="string", value_serde="string"), '
                'Materialized("name", value_serde="long").',
            )


def _check_empty(log: TopicLog, application: str, topic: str) -> None:
    if log.beginning_offsets([topic]) != log.end_offsets([topic]):
        raise CheckpointMismatchError(
            f"{application!r} starts from nothing, but the changelog topic {topic} has records of an earlier run "
            "of which Penstock's continuous mode knows nothing",
            hint="Give the application another application.id, or reset it.",
            topic=topic,
        )
