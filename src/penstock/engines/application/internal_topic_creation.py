"""The creation of an application's internal topics before a start: changelogs, and in threads repartition topics.

A changelog that was created, or created again, when its store had contents already does not hold all of them: nothing
can be rebuilt from it. So the checkpoint of micro-batches notes the complete ones (``changelogs.json``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, cast

from penstock.base.log_lines import own_logger
from penstock.errors import CheckpointMismatchError, CoPartitionError, TopologyError
from penstock.log.base import TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.leases import check_not_fenced
from penstock.log.streams_groups.offset_metadata import OffsetMetadata
from penstock.log.thread_clients import CHANGELOG_WRITER, Writer
from penstock.serde.self_describing import AutoSerde
from penstock.state.checkpoint import read_document, write_document
from penstock.topology.configured import with_settings
from penstock.topology.plan.internal_topics import changelog_topic, numbers_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.application.planning import PlannedApp
    from penstock.log.base import Lease, TopicLog
    from penstock.log.thread_clients import ThreadClients
    from penstock.topology.plan.internal_topics import Changelog
    from penstock.topology.plan.plan_json import StoredPlan

__all__ = [
    "changelog_writer",
    "complete_changelogs",
    "create_internal_topics",
    "prepare_changelogs",
    "write_complete",
]

_log = own_logger(__name__)
_NOTES = "changelogs.json"
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
            _check_unused(log, app.application, each.topic)
        _fit_partitions(each, count, log)
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


def _check_unused(log: TopicLog, application: str, topic: str) -> None:
    if log.beginning_offsets([topic]) != log.end_offsets([topic]):
        raise CheckpointMismatchError(
            f"{application!r} starts from nothing, but the changelog topic {topic} has records of an earlier run "
            "of which Penstock's continuous mode knows nothing",
            hint="Give the application another application.id, or reset it.",
            topic=topic,
        )


def prepare_changelogs(app: PlannedApp, before: StoredPlan | None, lost: Collection[str] = ()) -> None:
    """Create the missing changelog topics, and note which of all hold the whole contents of their stores.

    Args:
        app: The application; the lease is held.
        before: The plan that the checkpoint was written with; None if the application has never run.
        lost: Existing changelog topics that were deleted or created again since the application wrote them.

    Raises:
        CoPartitionError: A topic of that name has another number of partitions.
        CheckpointMismatchError: The application starts anew, but there are changelogs of an earlier one.
    """
    log = app.log
    there = {topic.name for topic in log.topics()}
    complete = complete_changelogs(app.checkpoint)
    had = {} if before is None else before.homes()
    removed = [name for name in had if name not in app.topology.stores]
    holds_all = complete & {changelog_topic(app.application, name) for name in removed}
    if not any(sub.keeps_state for sub in app.plan.subtopologies):  # what the stores held when they were taken out
        holds_all |= complete & {numbers_topic(app.application)}
    for each in app.changelogs:
        _fit_partitions(each, ensure_topic(log, each.topic, each.partitions, each.config), log)
        if each.topic in there and before is None:
            _check_empty(each, log)
        is_new = each.store not in had if each.store else not had
        if is_new or (each.topic in complete and each.topic in there and each.topic not in lost):
            holds_all.add(each.topic)
        else:
            _log.warning("%s does not hold all of its store: it was created when the store had contents", each.topic)
    if holds_all != complete:
        write_complete(app.checkpoint, holds_all)


def write_complete(checkpoint: str, topics: Iterable[str]) -> None:
    """Note the changelog topics from which their stores can be rebuilt."""
    write_document(checkpoint, _NOTES, json.dumps({"complete": sorted(topics)}))


@contextmanager
def changelog_writer(log: TopicLog, lease: Lease) -> Iterator[Callable[[str, int, pa.RecordBatch], None]]:
    """Write into changelogs what no batch has written; the writer of a newer instance fences this one.

    Yields:
        A function that writes records to a topic's partition, all or none of them.

    Raises:
        FencedError: A newer instance has the lease; nothing is written after that.
    """
    writer, written = Writer(lease.application, CHANGELOG_WRITER, lease.epoch), set()
    with closing(cast("ThreadClients", log).commit_producer(writer)) as producer:

        def write(topic: str, partition: int, records: pa.RecordBatch) -> None:
            check_not_fenced(log.lease(lease.application), lease.application, lease.epoch)
            producer.send([(topic, partition, records)])
            producer.commit({})
            written.add(TopicPartition(topic, partition))

        yield write
        log.settled_ends(written)  # the next reader finds all of it


def complete_changelogs(checkpoint: str) -> set[str]:
    """Read the changelog topics from which their stores can be rebuilt."""
    notes = read_document(checkpoint, _NOTES)
    return set(json.loads(notes)["complete"]) if notes else set()


def _fit_partitions(changelog: Changelog, partitions: int, log: TopicLog) -> None:
    """Add partitions to a changelog if its input topics have grown, and with them the tasks; they never shrink."""
    if partitions < changelog.partitions:
        log.create_partitions(changelog.topic, changelog.partitions)
    elif partitions > changelog.partitions and changelog.store:
        raise CoPartitionError(
            f"changelog topic {changelog.topic} has {partitions} partitions, its tasks are {changelog.partitions}",
            hint="The application's input topics have changed: reset it, or give it another application.id.",
            topic=changelog.topic,
        )


def _check_empty(changelog: Changelog, log: TopicLog) -> None:
    for partition in range(changelog.partitions):
        if log.end_offset(changelog.topic, partition) > log.beginning_offset(changelog.topic, partition):
            raise CheckpointMismatchError(
                f"the application starts from nothing, but changelog topic {changelog.topic} "
                "has records of an earlier one",
                hint="Set state.dir or penstock.checkpoint.location to where it ran, or reset the application.",
                topic=changelog.topic,
            )
