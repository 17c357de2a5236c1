"""The changelog topics of an application: their creation before a start, and a note of the complete ones.

A changelog that was created, or created again, when its store had contents already does not hold all of them: nothing
can be rebuilt from it. So the checkpoint notes the complete ones (``changelogs.json``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from penstock.base.log_lines import own_logger
from penstock.errors import CheckpointMismatchError, CoPartitionError
from penstock.log.base import TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.fenced_record import FencedRecord, RecordName, StoredRecord, change_record, newest_record
from penstock.log.leases import refuse_newer
from penstock.log.thread_clients import CHANGELOG_WRITER, Writer
from penstock.state.changelog.numbers import APPLICATION
from penstock.state.documents import read_document, write_document
from penstock.topology.plan.changelog_topics import changelog_topic, numbers_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.application.planned_app import PlannedApp
    from penstock.log.base import Lease, TopicLog
    from penstock.log.thread_clients import ThreadClients
    from penstock.topology.plan.changelog_topics import Changelog
    from penstock.topology.plan.stored import StoredPlan

__all__ = [
    "changelog_writer",
    "complete_changelogs",
    "fit_partitions",
    "note_application",
    "prepare_changelogs",
    "read_application",
    "share_application",
    "take_application",
    "write_application",
    "write_complete",
]

_log = own_logger(__name__)
_NOTES = "changelogs.json"


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
        fit_partitions(each, ensure_topic(log, each.topic, each.partitions, each.config), log)
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
            refuse_newer(log.lease(lease.application), lease.application, lease.epoch)
            producer.send([(topic, partition, records)])
            producer.commit({})
            written.add(TopicPartition(topic, partition))

        yield write
        log.settled_ends(written)  # whoever reads next finds all of it


def note_application(app: PlannedApp, stored: StoredPlan, lease: Lease) -> None:
    """Note the plan, and which changelogs are complete, in the topic of numbers too, as a checkpoint may be lost.

    Args:
        app: The application; without changelogs there is nothing to note.
        stored: The plan that is noted in its checkpoint.
        lease: The lease of the application.

    Raises:
        FencedError: A newer instance has taken over, or has changed the note.
    """
    if app.changelogs:
        facts = {"complete": sorted(complete_changelogs(app.checkpoint)), **stored.facts()}
        write_application(app.log, lease, facts)


def take_application(log: TopicLog, lease: Lease) -> dict[str, Any] | None:
    """Read the note of an application as the holder of its lease: no earlier holder can change it any more.

    Raises:
        FencedError: A newer instance has taken over.
    """
    return _facts(_record(log, lease).take())


def write_application(log: TopicLog, lease: Lease, facts: Mapping[str, Any]) -> None:
    """Write the note of an application to the topic of numbers, which exists.

    Raises:
        FencedError: A newer instance has taken over, or has changed the note.
    """
    record = _record(log, lease)
    record.replace(json.dumps(facts).encode(), record.held().version)


def share_application(
    log: TopicLog, application: str, may_follow: Callable[[Mapping[str, Any] | None], bool], facts: Mapping[str, Any]
) -> bool:
    """Write the note of an application whose instances share its tasks, none of which has a lease.

    Args:
        log: The log; the topic of numbers exists.
        application: The ``application.id``.
        may_follow: Returns whether the new note follows from this one.
        facts: The new note.

    Returns:
        Whether the log has it now; False if another instance has written another one since.
    """
    text = json.dumps(facts)
    note = json.loads(text)

    def following(stored: StoredRecord) -> bytes | None:
        before = _facts(stored)
        return text.encode() if before != note and may_follow(before) else None

    return bool(_facts(change_record(log.fenced_record(_name(application)), following)) == note)


def read_application(log: TopicLog, application: str) -> dict[str, Any] | None:
    """Read the last note of `write_application`; None if there is none."""
    topic = numbers_topic(application)
    if topic not in {each.name for each in log.topics()}:
        return None
    return _facts(newest_record(log, topic, APPLICATION))


def _record(log: TopicLog, lease: Lease) -> FencedRecord:
    return log.fenced_record(_name(lease.application), (lease.application, lease.epoch))


def _name(application: str) -> RecordName:
    return RecordName(application, "note", numbers_topic(application), APPLICATION)


def _facts(stored: StoredRecord) -> dict[str, Any] | None:
    return None if stored.value is None else dict(json.loads(stored.value))


def complete_changelogs(checkpoint: str) -> set[str]:
    """Read the changelog topics from which their stores can be rebuilt."""
    notes = read_document(checkpoint, _NOTES)
    return set(json.loads(notes)["complete"]) if notes else set()


def fit_partitions(changelog: Changelog, partitions: int, log: TopicLog) -> None:
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
