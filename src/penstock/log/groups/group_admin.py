"""Administration of consumer groups: list, describe, lag, and moving or deleting their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.terminal.human_numbers import counted
from penstock.errors import FencedError, LogError
from penstock.log.base import GroupMember, TopicLog, TopicPartition
from penstock.log.groups.offset_regressions import RESET_NOTE
from penstock.log.groups.reset_targets import Target, chosen_places, new_offsets, places_of
from penstock.log.leases import held_lease, is_fresh
from penstock.log.time_range import timestamp_at

if TYPE_CHECKING:
    from penstock.log.base import GroupState, Lease

__all__ = ["GroupAdmin", "GroupLag", "GroupSummary", "OffsetMove", "lag", "offset_moves", "seconds_behind"]

_MOST_PARTITIONS = 64  # that are read for their oldest waiting record


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One partition's lag in offsets; gaps in the offsets count too."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int
    lag: int


def lag(log: TopicLog, group: str, topics: Iterable[str] = ()) -> list[GroupLag]:
    """Return a group's lag by partition (Kafka's ``kafka-consumer-groups --describe``).

    Args:
        log: Any topic log.
        group: The group; an application's is its ``application.id``.
        topics: Further topics, without committed offsets: their lag counts from the beginning.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-lag")
        >>> log.create_topic("orders")
        >>> lag(log, "app", ["orders"])[0].lag
        0
    """
    committed = log.committed_offsets(group)
    existing = {topic.name for topic in log.topics()}
    topic_names = {tp.topic for tp in committed if tp.topic in existing}
    topic_names.update(topics)
    lags = []
    for name in sorted(topic_names):
        firsts = log.beginning_offsets([name])
        for tp, end in sorted(log.end_offsets([name]).items()):
            done = committed.get(tp)
            behind = max(end - max(firsts[tp], done or 0), 0)
            lags.append(GroupLag(name, tp.partition, done, end, behind))
    return lags


def seconds_behind(log: TopicLog, waiting: Mapping[TopicPartition, int], now_ms: int) -> dict[TopicPartition, float]:
    """Return the age of the first record that waits in each partition, in seconds.

    Timestamps are usually those of producers, so the age is that of the event. A partition whose records are all
    gone is left out, and so are all but the first 64 partitions.

    Args:
        log: Any topic log.
        waiting: Partitions with lag, and the offset of the next record of each.
        now_ms: The present time.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-behind")
        >>> log.create_topic("orders")
        >>> seconds_behind(log, {TopicPartition("orders", 0): 0}, 5_000)
        {}
    """
    seconds = {}
    for tp, offset in sorted(waiting.items())[:_MOST_PARTITIONS]:
        timestamp = timestamp_at(log, tp.topic, tp.partition, offset)
        if timestamp is not None:
            seconds[tp] = max(0.0, (now_ms - timestamp) / 1000)
    return seconds


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list; the state is Kafka's: Empty, Stable, PreparingRebalance."""

    group: str
    state: str
    members: int
    application: bool


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and its lag; a running application is a member of its own group."""

    group: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupLag, ...]
    application: bool

    def owner(self, topic: str, partition: int) -> GroupMember | None:
        """Return the member that reads a partition."""
        tp = TopicPartition(topic, partition)
        return next((member for member in self.members if tp in member.owned), None)


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """The change of one partition's offset by a reset; ``lag`` is the lag afterwards."""

    topic: str
    partition: int
    before: int | None
    after: int
    lag: int


def offset_moves(
    log: TopicLog, target: Target, places: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
) -> list[OffsetMove]:
    """Plan the moves of these partitions' offsets to a target."""
    return [
        OffsetMove(tp.topic, tp.partition, bounds.committed, after, bounds.end - after)
        for tp, (bounds, after) in new_offsets(log, target, places, committed).items()
    ]


class GroupAdmin:
    """The operations of ``penstock groups``, for any log; Kafka's ``kafka-consumer-groups``.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-groups")
        >>> log.create_topic("orders")
        >>> log.commit_offsets("stock", {TopicPartition("orders", 0): 0})
        >>> [each.group for each in GroupAdmin(log).groups()]
        ['stock']
    """

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    def groups(self) -> list[GroupSummary]:
        """List all groups by name."""
        summaries = []
        for name in self._log.groups():
            state, lease = self._log.group_state(name), self._log.lease(name)
            runs = lease is not None and is_fresh(lease)
            count = len(state.consumers) + runs
            summaries.append(GroupSummary(name, "Stable" if runs else state.state, count, lease is not None))
        return summaries

    def describe(self, group: str) -> GroupDescription:
        """Return a group's state, members and lag.

        Raises:
            LogError: There is no such group.
        """
        state = self._require(group)
        lease = self._log.lease(group)
        members = state.consumers
        rows = tuple(lag(self._log, group, sorted({topic for each in members for topic in each.topics})))
        if lease is not None and is_fresh(lease):
            owned = tuple(TopicPartition(row.topic, row.partition) for row in rows)
            topics = tuple(sorted({row.topic for row in rows}))
            members = (*members, GroupMember(lease.owner, "", "penstock", lease.host, lease.pid, topics, (), owned))
        named = "Stable" if members and state.state == "Empty" else state.state
        return GroupDescription(group, named, state.assignor, members, rows, lease is not None)

    def lag(self, group: str) -> list[GroupLag]:
        """Return the group's lag by partition: where it has committed offsets, and where its members read.

        None of an application that starts, until its first commit.
        """
        state = self._require(group)
        return lag(self._log, group, sorted({topic for each in state.consumers for topic in each.topics}))

    def is_starting(self, group: str) -> bool:
        """Return whether an application runs that has committed no offsets yet."""
        lease = self._log.lease(group)
        return lease is not None and is_fresh(lease) and not self._log.committed_offsets(group)

    def plan_reset(self, group: str, target: Target, topics: Sequence[str] = ()) -> list[OffsetMove]:
        """Plan a reset.

        Args:
            group: The group; it may be new.
            target: The new offsets.
            topics: ``orders``, or ``orders:0,2`` for some partitions; by default all partitions with offsets.
        """
        committed = self._log.committed_offsets(group)
        places = chosen_places(self._log, target, topics, committed)
        if not places:
            self._require(group)
        return offset_moves(self._log, target, places, committed)

    def reset(self, group: str, moves: Sequence[OffsetMove]) -> None:
        """Execute a plan of ``plan_reset``.

        Raises:
            FencedError: The group has members, or the application runs.
        """
        offsets = {TopicPartition(move.topic, move.partition): move.after for move in moves}
        with self.stopped(group) as lease:
            self._log.commit_offsets(group, offsets, RESET_NOTE, lease)

    def delete_offsets(self, group: str, topics: Sequence[str]) -> list[TopicPartition]:
        """Delete the group's offsets in these topics (``orders`` or ``orders:0,2``)."""
        self._require(group)
        committed = self._log.committed_offsets(group)
        places = [tp for tp in places_of(self._log, topics) if tp in committed]
        with self.stopped(group) as lease:
            self._log.delete_offsets(group, places, lease)
        return places

    def delete(self, group: str) -> None:
        """Delete the group and its offsets.

        Raises:
            FencedError: The group has members, or the application runs.
        """
        self._require(group)
        with self.stopped(group) as lease:
            self._log.delete_group(group, lease)

    def is_application(self, group: str) -> bool:
        """Return whether a Penstock application of this ``application.id`` has run on this log."""
        return self._log.lease(group) is not None

    @contextmanager
    def stopped(self, group: str) -> Iterator[Lease | None]:
        """Hold the group stopped: the application cannot start during the block. Yields the lease, if it is one's.

        Raises:
            FencedError: The group has members, or the application runs.
        """
        members = self._log.group_state(group).consumers
        if members:
            first = members[0]
            raise FencedError(
                f"group {group!r} has {counted(len(members), 'member')}: "
                f"{first.client or first.member} on {first.host}",
                hint="Stop its consumers first; a silent one is removed when its session ends.",
                group=group,
            )
        if self._log.lease(group) is None:
            yield None
            return
        with held_lease(self._log, group, "penstock groups") as keeper:
            yield keeper.lease

    def _require(self, group: str) -> GroupState:
        state = self._log.group_state(group)
        lease = self._log.lease(group)
        runs = lease is not None and is_fresh(lease)  # it has no members before it reads
        if not state.members and not runs and group not in self._log.groups():
            group_names = ", ".join(self._log.groups()) or "none"
            raise LogError(f"there is no group {group!r}", hint=f"Groups: {group_names}.", group=group)
        return state
