"""Takeovers: detecting that others have gone on with an application, or reset it, since its checkpoint was written.

A program of Kafka Streams with the same ``application.id`` restores Penstock's changelogs and goes on writing them;
Kafka's reset tool deletes them; a checkpoint may be an older copy. To continue then from the checkpoint would count
twice. So the checkpoint notes the ends and ids of the changelogs, and a start first compares them and the group's
offsets.

If a crash prevented the note, the records themselves are compared: the segments say which are the application's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.spark_log import QUERY, committed_batches, planned_batches
from penstock.errors import CheckpointMismatchError
from penstock.log.base import TopicPartition
from penstock.log.groups.offset_regressions import is_of_batches, set_by_others
from penstock.state.changelog import changelog_format
from penstock.state.checkpoint import read_document, write_document
from penstock.state.segments.chain import follow_chain
from penstock.state.segments.segment import SegmentName
from penstock.state.segments.storage import open_storage, read_segment

if TYPE_CHECKING:
    from penstock.engines.application.planning import PlannedApp
    from penstock.log.base import TopicLog
    from penstock.state.segments.segment import Segment
    from penstock.topology.plan.internal_topics import Changelog
    from penstock.topology.plan.plan_json import Home
    from penstock.topology.topology import Topology

__all__ = [
    "ChangelogEnds",
    "ResetElsewhereError",
    "TakenOverError",
    "check_changelog_ends",
    "check_group",
    "marked_batches",
    "note_changelog_ends",
]

_NAME = "standing.json"
_MARKED = re.compile(r"penstock batch (\d+)")
_MARGIN = 4  # batches: what a broker has committed becomes visible a little later
_log = own_logger(__name__)
Records = set[tuple[bytes | None, bytes | None]]


class TakenOverError(CheckpointMismatchError):
    """Another program has written to the changelogs; its work may be taken up (`taken_up`)."""


class ResetElsewhereError(CheckpointMismatchError):
    """All changelogs are gone and the group was set anew: the application was reset by a tool of Kafka's."""


@dataclass(frozen=True, slots=True)
class ChangelogEnds:
    """The ends of changelog topics.

    Attributes:
        log: The log's id.
        ids: The topics' ids.
        ends: The ends of their partitions.
        batch: Spark's batch that had been committed by then.
    """

    log: str
    ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    batch: int = -1

    @classmethod
    def of(cls, log: TopicLog, topics: Iterable[str]) -> ChangelogEnds:
        """Fetch the present ends of those topics that exist."""
        topics = list(topics)
        ids = log.topic_ids(topics)
        there = {topic.name for topic in log.topics()}
        return cls(log.identity(), ids, log.end_offsets([topic for topic in topics if topic in there]))

    @classmethod
    def noted(cls, checkpoint: str) -> ChangelogEnds | None:
        """Read the ends that a checkpoint has noted; None if it has none."""
        text = read_document(checkpoint, _NAME)
        if text is None:
            return None
        facts = json.loads(text)
        ends = {TopicPartition(topic, int(p)): end for topic, at in facts["ends"].items() for p, end in at.items()}
        return cls(facts["log"], facts["ids"], ends, facts["batch"])


def note_changelog_ends(checkpoint: str, log: TopicLog, topics: Iterable[str], batch: int | None = None) -> None:
    """Note the present ends of changelogs in the checkpoint.

    Args:
        checkpoint: The checkpoint location.
        log: The application's log.
        topics: The changelogs.
        batch: The newest batch that Spark has committed; None: as the checkpoint says.
    """
    if batch is None:
        batch = max(committed_batches(checkpoint), default=-1)
    now = ChangelogEnds.of(log, topics)
    ends: dict[str, dict[str, int]] = {}
    for tp, end in sorted(now.ends.items()):
        ends.setdefault(tp.topic, {})[str(tp.partition)] = end
    write_document(checkpoint, _NAME, json.dumps({"log": now.log, "ids": dict(now.ids), "ends": ends, "batch": batch}))


def check_changelog_ends(app: PlannedApp, homes: Mapping[str, Home] = MappingProxyType({})) -> frozenset[str]:
    """Compare the changelogs with the ends and ids in the checkpoint; call it before missing ones are created.

    Args:
        app: The application; the lease is held.
        homes: The sub-topologies in whose segments stores were written by the earlier plan; as in ``app`` for others.

    Returns:
        The changelogs that were deleted or created again: they do not hold the whole contents of their stores.

    Raises:
        TakenOverError: Somebody else has written to one.
        ResetElsewhereError: Somebody has reset the application.
        CheckpointMismatchError: Somebody has deleted one, and ``loss_fails``.
    """
    log, checkpoint = app.log, app.checkpoint
    by_topic = {each.topic: each for each in app.changelogs}
    noted = ChangelogEnds.noted(checkpoint)
    if noted is None or not by_topic:
        return frozenset()
    now = ChangelogEnds.of(log, by_topic)
    if now.log != noted.log:  # which penstock.data.loss has allowed
        return frozenset(by_topic)
    existing = {tp.topic for tp in now.ends}
    noted_topics = {tp.topic for tp in noted.ends} & by_topic.keys()
    lost = {
        t
        for t in noted_topics
        if t not in existing or (t in noted.ids and now.ids.get(t, noted.ids[t]) != noted.ids[t])
    }
    lost |= {tp.topic for tp, end in noted.ends.items() if tp in now.ends and now.ends[tp] < end}
    if lost and lost == noted_topics and _is_reset(app, noted_topics & existing):
        raise _deleted(ResetElsewhereError, lost, app.application, checkpoint)
    if lost and app.loss_fails:
        raise _deleted(CheckpointMismatchError, lost, app.application, checkpoint)
    if lost:
        _log.warning("%s: deleted, or made again; what its store held before is not in it", ", ".join(sorted(lost)))
    moved = [
        (tp, noted.ends[tp], end)
        for tp, end in sorted(now.ends.items())
        if end > noted.ends.get(tp, end) and tp.topic not in lost and by_topic[tp.topic].store
    ]
    if moved:
        own = _OwnRecords(app, noted.batch, homes)
        for tp, start, end in moved:
            if not own.are(by_topic[tp.topic], tp, start, end):
                raise _taken_over(tp, start, end, app.application, checkpoint)
    return frozenset(lost)


def _is_reset(app: PlannedApp, recreated: Iterable[str]) -> bool:
    """Return True if no offset of the group is the application's own, and changelogs created again are empty."""
    if set(marked_batches(app.log, app.application, app.plan.external_topics).values()) - {None}:
        return False
    topics = list(recreated)
    return app.log.beginning_offsets(topics) == app.log.end_offsets(topics)


class _OwnRecords:
    """The changelog records that the application's segments determine."""

    def __init__(self, app: PlannedApp, since: int, homes: Mapping[str, Home]) -> None:
        written_in = {name: (sub.id, len(sub.levels)) for sub in app.plan.subtopologies for name in sub.stores}
        self._written_in = written_in | {name: (home.subtopology, home.runs) for name, home in homes.items()}
        self._app = app
        self._since = since
        self._ledger = app.log.ledger(app.application)
        group = app.log.group_offsets(app.application)
        read = [tp for tp in group if tp.topic in app.plan.external_topics]
        self._was_moved = bool(set_by_others(read, group, is_of_batches))

    def are(self, changelog: Changelog, tp: TopicPartition, start: int, end: int) -> bool:
        """Return whether all records of a range are the application's own, as far as segments are left to compare.

        Otherwise the group decides: a program that goes on with an application commits its offsets.
        """
        own = self._known(changelog, tp.partition)
        if own is None:
            return not self._was_moved
        for rows in self._app.log.iterate(tp.topic, tp.partition, start, end):
            records = zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
            if any(record not in own for record in records):
                return False
        return True

    def _known(self, changelog: Changelog, partition: int) -> Records | None:
        """Collect the records that the segments since then determine; None if some of the segments are missing."""
        number, runs = self._written_in[changelog.store]
        task = f"{number}_{partition}"
        storage = open_storage(self._app.checkpoint, task)
        names = storage.names()
        snapshots = [name.batch for name in names if name.kind == "snapshot"]
        first = (self._since - _MARGIN) * runs
        # Deltas go when there are two snapshots, or when a task is rebuilt: then none stands before the only one.
        are_removed = bool(snapshots) and snapshots[0] >= first
        if len(snapshots) == 1:
            are_removed &= all(name.batch > snapshots[0] for name in names if name.kind != "snapshot")
        if are_removed or (not names and task in self._ledger) or follow_chain(storage).gap is not None:
            return None
        records: Records = set()
        for name in names:
            segment = read_segment(storage, name) if name.kind != "snapshot" and name.batch >= first else None
            if segment is None:
                continue
            if name.kind == "delta":
                records.update(_records(segment, self._app.topology, changelog))
            elif any(batch >= first and SegmentName(batch, "delta") not in names for batch, _ in segment.links):
                return None  # what a merged segment holds is only the last change of each key
        return records


def _records(segment: Segment, topology: Topology, changelog: Changelog) -> Iterator[tuple[bytes | None, bytes | None]]:
    spec = topology.stores[changelog.store]
    if spec.kind == "versioned":  # its puts are noted with the outputs
        batches = [rows for topic, rows in segment.outputs.items() if topic == changelog.topic]
    else:
        form = changelog_format(spec)
        batches = [form.records(changes, segment.head.meta) for changes in segment.change_batches(changelog.store)]
    for rows in batches:
        yield from zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)


def check_group(checkpoint: str, log: TopicLog, application: str) -> None:
    """Compare the group's offsets with those of the batch that they are marked with.

    Raises:
        CheckpointMismatchError: The checkpoint is an older copy, or of another run of the application.
    """
    planned = planned_batches(f"{checkpoint}/{QUERY}")
    offsets = log.committed_offsets(application)
    marked = {tp: batch for tp, batch in marked_batches(log, application).items() if batch is not None}
    newest = max(marked.values(), default=-1)
    if newest > max(planned, default=-1) + 1:
        raise _does_not_fit(
            f"the group is at batch {newest}, the checkpoint {checkpoint} at batch {max(planned, default=-1)}",
            application,
            checkpoint,
        )
    if newest not in planned:  # a power cut took its note, or it is an idle run's: the ledger knows what was written
        return
    # While there is nothing to do, Spark uses the number of the next batch with the offsets of the last one.
    ends = [_ends_of(checkpoint, batch) for batch in (newest, newest - 1) if batch in planned]
    for tp, batch in sorted(marked.items()):
        offset = offsets.get(tp, -1)
        planned_ends = [each[tp] for each in ends if tp in each]
        if batch == newest and planned_ends and offset not in planned_ends:
            raise _does_not_fit(
                f"batch {batch} has ended at offset {offset} of {tp.topic}-{tp.partition} by the group, and at "
                f"{planned_ends[0]} by the checkpoint {checkpoint}",
                application,
                checkpoint,
            )


def marked_batches(
    log: TopicLog, application: str, topics: Iterable[str] | None = None
) -> dict[TopicPartition, int | None]:
    """Return the batch that has set each offset of the group; None for an offset that others have set, or a reset."""
    names = None if topics is None else set(topics)
    return {
        tp: int(match[1]) if (match := _MARKED.fullmatch(each.metadata)) else None
        for tp, each in log.group_offsets(application).items()
        if names is None or tp.topic in names
    }


def _ends_of(checkpoint: str, batch: int) -> Mapping[TopicPartition, int]:
    text = read_document(checkpoint, f"spark/offsets/{batch}") or ""
    lines = [line for line in text.splitlines() if line.startswith('{"topics"')]
    return SourceOffset.of(json.loads(lines[0])).ends if lines else {}


def _does_not_fit(what: str, application: str, checkpoint: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"the checkpoint of {application!r} does not fit its group's offsets: {what}. It is an older "
        "copy, or of another run",
        hint=f"Bring the newest checkpoint back. To start from nothing: penstock app reset {application}.",
        checkpoint=checkpoint,
    )


def _deleted(
    kind: type[CheckpointMismatchError], topics: Iterable[str], application: str, checkpoint: str
) -> CheckpointMismatchError:
    listed = ", ".join(sorted(topics))
    return kind(
        f"{listed}: deleted, or made again, since {application!r} has written there (as Kafka's application reset tool "
        f"does), and the state in the checkpoint {checkpoint} is what it was",
        hint=f"To start from nothing: penstock app reset {application}. To keep the state, and continue with "
        "changelogs that do not hold all of it, so that nothing can be rebuilt from them: penstock.data.loss=continue.",
        checkpoint=checkpoint,
        topics=sorted(topics),
    )


def _taken_over(tp: TopicPartition, start: int, end: int, application: str, checkpoint: str) -> TakenOverError:
    return TakenOverError(
        f"another program has continued application {application!r}: {tp.topic}-{tp.partition} has records from "
        f"offset {start} to {end} that the state in the checkpoint {checkpoint} does not know",
        hint="Let that program continue, which has the newer state. To start from nothing here: penstock app reset "
        f"{application}.",
        checkpoint=checkpoint,
        topic=tp.topic,
        partition=tp.partition,
        offset=start,
    )
