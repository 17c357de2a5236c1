"""Checkpoints: the offsets of groups, translated so that a group that goes over to the target misses no record."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.log_lines import own_logger
from penstock.connect.data import BytesError
from penstock.connect.mirror.flows import Flow
from penstock.connect.mirror.mirror_records import Checkpoint, OffsetSync
from penstock.connect.mirror.offset_syncs import COMPACTED, OffsetSyncStore, append_pairs, syncs_topic
from penstock.errors import LogError, LogUnavailableError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic

__all__ = ["MirrorCheckpoint", "mirrored_groups"]

_log = own_logger(__name__)


def mirrored_groups(flow: Flow, source: TopicLog) -> list[str]:
    """Return the groups of the source cluster that are wanted and have offsets in mirrored topics, in order."""
    group_filter, topics = flow.groups, flow.topics

    def reads(group: str) -> bool:
        return any(topics.takes(tp.topic) for tp in source.group_offsets(group))

    return sorted(group for group in source.groups() if group_filter.takes(group) and reads(group))


class MirrorCheckpoint:
    """The groups of one flow.

    Args:
        flow: The flow.
        source: The source's log.
        target: The target's log.
    """

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._flow, self._source, self._target = flow, source, target
        self._syncs_log, self._syncs_topic = syncs_topic(flow, source, target)
        self._policy, self._topics = flow.policy, flow.topics
        self.topic = self._policy.checkpoints_topic(flow.source.alias)
        ensure_topic(target, self.topic, 1, COMPACTED | flow.copies("checkpoints.topic.replication.factor"))
        settings = COMPACTED | flow.copies("offset-syncs.topic.replication.factor")
        ensure_topic(self._syncs_log, self._syncs_topic, 1, settings)
        self._groups: list[str] = []
        self._last = self._written()
        self._store = OffsetSyncStore(
            must_read_to_end=False
        )  # what was written before is known, if only that nothing was
        self._read_to = self._syncs_log.beginning_offset(self._syncs_topic, 0)
        self._read_syncs()
        self._store.finish_loading()

    def refresh(self) -> None:
        """Look for the groups whose offsets are translated."""
        self._groups = mirrored_groups(self._flow, self._source)

    def emit(self) -> list[Checkpoint]:
        """Translate the offsets of the groups that were found; write those that have moved, and return them."""
        moved = self.moved(self._groups)
        append_pairs(self._target, self.topic, [(mark.key(), mark.value()) for mark in moved])
        return moved

    def commit_all(self) -> None:
        """Commit in the target what was translated so far, as `commit` does it for some groups."""
        self.commit({mark.group for mark in self._last.values()})

    def moved(self, groups: Iterable[str]) -> list[Checkpoint]:
        """Translate the offsets of groups, and return those that have moved since the last time."""
        self._read_syncs()
        marks = [mark for group in groups for mark in self._of(group)]
        moved = [mark for mark in marks if self._moves(mark)]
        for mark in moved:
            self._last[mark.group, mark.tp] = mark
        return moved

    def commit(self, groups: Iterable[str]) -> None:
        """Commit the translated offsets of groups in the target, for those that have no members there."""
        for group in groups:
            self._commit(group)

    def _of(self, group: str) -> list[Checkpoint]:
        marks = []
        for tp, committed in self._source.group_offsets(group).items():
            if not self._topics.takes(tp.topic):
                continue
            downstream = self._store.translate(tp, committed.offset)
            if downstream is None or downstream < 0:
                continue
            remote = TopicPartition(self._policy.remote_topic(self._flow.source.alias, tp.topic), tp.partition)
            marks.append(Checkpoint(group, remote, committed.offset, downstream, committed.metadata))
        return marks

    def _moves(self, mark: Checkpoint) -> bool:
        """Return whether it differs from the last one; a later state of the syncs alone must not take a group back."""
        last = self._last.get((mark.group, mark.tp))
        if last is None or mark.upstream < last.upstream:
            return True  # the group has been reset upstream
        return mark.downstream > last.downstream

    def _commit(self, group: str) -> None:
        """Commit downstream for a group that has no members there, never behind what it has there."""
        if self._target.group_state(group).members:
            return
        there = self._target.committed_offsets(group)
        marks = [mark for (name, _), mark in self._last.items() if name == group]
        ahead = {mark.tp: mark.downstream for mark in marks if mark.downstream > there.get(mark.tp, -1)}
        if ahead:
            try:
                self._target.commit_offsets(group, ahead)
            except LogUnavailableError:
                raise
            except LogError as error:  # it has got members meanwhile, or its application runs
                _log.warning("the offsets of group %r are not brought over: %s", group, error.message)

    def _written(self) -> dict[tuple[str, TopicPartition], Checkpoint]:
        checkpoints = {}
        end, at = self._target.end_offset(self.topic, 0), self._target.beginning_offset(self.topic, 0)
        while at < end:
            fetched = self._target.read(self.topic, 0, at)
            for row in fetched.records.select(["key", "value"]).to_pylist():
                try:
                    mark = Checkpoint.read(row["key"] or b"", row["value"] or b"")
                except BytesError:
                    continue  # a tombstone, or something else's
                checkpoints[mark.group, mark.tp] = mark
            if fetched.next_offset <= at:
                break
            at = fetched.next_offset
        return checkpoints

    def _read_syncs(self) -> None:
        end = self._syncs_log.end_offset(self._syncs_topic, 0)
        while self._read_to < end:
            fetched = self._syncs_log.read(self._syncs_topic, 0, self._read_to)
            for row in fetched.records.select(["key", "value"]).to_pylist():
                try:
                    self._store.add(OffsetSync.read(row["key"] or b"", row["value"] or b""))
                except BytesError:
                    continue
            if fetched.next_offset <= self._read_to:
                break
            self._read_to = fetched.next_offset
