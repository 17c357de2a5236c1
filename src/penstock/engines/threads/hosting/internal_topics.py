"""The topics that an application in continuous mode needs: repartition topics and changelogs, as in Kafka Streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.engines.application.changelog_topics import fit_partitions
from penstock.errors import CheckpointMismatchError, CoPartitionError
from penstock.log.ensure_topic import ensure_topic
from penstock.log.streams_groups.offset_metadata import OffsetMetadata
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
    """
    log = app.log
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
        if each.topic in there and not has_run and not _is_of_kafka_streams(log, app.application):
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


def _check_empty(log: TopicLog, application: str, topic: str) -> None:
    if log.beginning_offsets([topic]) != log.end_offsets([topic]):
        raise CheckpointMismatchError(
            f"{application!r} starts from nothing, but the changelog topic {topic} has records of an earlier run "
            "of which Penstock's continuous mode knows nothing",
            hint="Give the application another application.id, or reset it.",
            topic=topic,
        )
