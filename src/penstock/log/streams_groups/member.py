"""A member of a streams group: what it sends to the coordinator, and what it has to do with its tasks.

It sends nothing by itself and reads no clock, so it runs over any coordinator, and a test can play one. Its owner
(a stream thread) does three things in turn: it sends `next_heartbeat`, hands in the answer (`answered`, or
`unanswered`), and does the `work`, which it confirms (`dropped`, `released`, `acquired`).

The coordinator revokes before it assigns: a task is given to a member only after its owner before has confirmed that it
has let go of it. So a member that confirms too early breaks this; one that is slow only delays the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from penstock.base.backoff import Backoff
from penstock.errors import InvalidStateError
from penstock.log.streams_groups.description import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupTopology,
    HeartbeatAnswer,
    HeartbeatError,
    StatusCode,
    StreamsHeartbeat,
    Tags,
    TaskSums,
)

__all__ = ["PASSING", "GroupFailure", "MemberFacts", "MemberState", "MemberWork", "StreamsMember"]

_AT_ONCE_MS = 0
_EAGER_MS = 100  # between two heartbeats of a member that has joined, or has given tasks up
_EAGER_FOR_MS = 10_000  # the others give up tasks at their next heartbeat
_FIRST_MS = 20  # the same just after it has joined: the outputs of a task that moves wait for its new owner
_SHARED_MS = 5  # the least time between the questions of all members of a process
_FIRST_FOR_MS = 1_500  # by then others that run well have given up what it is to have
_RETRY = Backoff(0.1, 1.0)
_FIRST_EPOCH_OF_ENDPOINTS = -1
# The coordinator has moved, or starts. Kafka 4.3 fails with an unknown error at the endpoint of a member while source
# topics are missing.
PASSING = frozenset({
    HeartbeatError.UNKNOWN_SERVER_ERROR,
    HeartbeatError.COORDINATOR_LOAD_IN_PROGRESS,
    HeartbeatError.COORDINATOR_NOT_AVAILABLE,
    HeartbeatError.NOT_COORDINATOR,
})  # fmt: skip
# The group does not know this member, or not at this epoch: it joins again.
_FENCING = frozenset({
    HeartbeatError.UNKNOWN_MEMBER_ID,
    HeartbeatError.FENCED_MEMBER_EPOCH,
    HeartbeatError.GROUP_ID_NOT_FOUND,
})  # fmt: skip
_NOTHING = Assignment()


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """The facts that a member states when it joins.

    Attributes:
        group: The ``group.id``, which is the ``application.id``.
        member: Its id: a random one, kept for its whole life.
        process: The id of its instance.
        topology: Its topology.
        instance: Its ``group.instance.id``, if it is a static member.
        rack: Its ``client.rack``.
        tags: Its ``client.tag.*``.
        endpoint: Where queries reach its instance.
        rebalance_timeout_ms: How long it may take to give tasks up (``max.poll.interval.ms``).
        place: The identity of its folder of replicas, for an embedded log.
    """

    group: str
    member: str
    process: str
    topology: GroupTopology
    instance: str | None = None
    rack: str | None = None
    tags: Tags = ()
    endpoint: Endpoint | None = None
    rebalance_timeout_ms: int = 300_000
    place: str = ""


class MemberState(Enum):
    """The state of a member."""

    JOINING = "joining"
    """It has no place in the group (yet)."""

    STABLE = "stable"
    """It has the tasks that it was assigned."""

    RECONCILING = "reconciling"
    """It has tasks to give up or to take on."""

    FENCED = "fenced"
    """The group goes on without it: it has to drop its tasks, then it joins again."""

    LEAVING = "leaving"
    """It gives up its tasks, then it says so."""

    LEFT = "left"
    """The group knows that it is gone."""

    FAILED = "failed"
    """The group refuses it: see `StreamsMember.failure`."""


@dataclass(frozen=True, slots=True)
class MemberWork:
    """The steps that a member owes to its tasks, in this order.

    Attributes:
        drop: They belong to others by now: close them without a commit, then call `StreamsMember.dropped`.
        release: Commit and close them, then call `StreamsMember.released`.
        acquire: Open them, then call `StreamsMember.acquired`; empty while there is anything to drop or to release.
            A copy that the member has of an active one is not released before: it becomes the active task.
        life: The number of times that the group has gone on without the member: in another life others may have had
            the tasks in between.
    """

    drop: Assignment = _NOTHING
    release: Assignment = _NOTHING
    acquire: Assignment = _NOTHING
    life: int = 0

    def __bool__(self) -> bool:
        return bool(self.drop or self.release or self.acquire)


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """The reason for which a group refuses a member for good; ``code`` is a `HeartbeatError`, or another of Kafka's."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class _Offsets:
    """The positions of the copies of tasks, and the ends of their changelogs."""

    offsets: TaskSums
    ends: TaskSums


class StreamsMember:
    """A member of a streams group.

    Args:
        facts: What it says of itself.
        now_ms: The present time.
        eager_ms: The time between two heartbeats of a member that waits for tasks.
        eager_for_ms: How long it waits so after it has joined, or given tasks up; nobody says whether more will come.
        most_ms: The longest time between two heartbeats, if the coordinator's own interval is longer.
        members: How many its process has, which share the time of the broker, and of one thread that asks.

    Attributes:
        facts: What it says of itself.
        epoch: Its epoch: it goes with each commit of offsets.
        owned: The tasks that it has.
        status: What is wrong with the group.
        endpoints: The endpoints of all instances.
        shutdown_wanted: Whether a member has asked all to shut the application down.
        failure: Why the group refuses it.
        trouble: Why the last heartbeat failed, if the same may work later.
        acceptable_recovery_lag: The lag at which a warm-up task counts as caught up.
    """

    def __init__(
        self,
        facts: MemberFacts,
        now_ms: int,
        *,
        eager_ms: int = _EAGER_MS,
        eager_for_ms: int = _EAGER_FOR_MS,
        most_ms: int | None = None,
        members: int = 1,
    ) -> None:
        self.facts = facts
        self.epoch = JOIN_EPOCH
        self.owned = _NOTHING
        self.status: tuple[GroupStatus, ...] = ()
        self.endpoints: tuple[EndpointPartitions, ...] = ()
        self.shutdown_wanted = False
        self.failure: GroupFailure | None = None
        self.trouble: GroupFailure | None = None
        self.acceptable_recovery_lag = 0
        self._eager_ms, self._eager_for_ms, self._most_ms = eager_ms, eager_for_ms, most_ms
        self._first_ms = max(_FIRST_MS, members * _SHARED_MS)
        self._eager_until_ms, self._first_until_ms = now_ms + eager_for_ms, now_ms
        self._target: Assignment | None = None  # None: none has come since it joined
        self._to_drop = _NOTHING
        self._due_ms = now_ms
        self._interval_ms = _AT_ONCE_MS
        self._endpoint_epoch = _FIRST_EPOCH_OF_ENDPOINTS
        self._sent: StreamsHeartbeat | None = None  # on its way
        self._reported: Assignment | None = None  # the tasks that the coordinator knows it has; None: none
        self._knows_facts = False  # the coordinator
        self._may_be_known = False  # to the coordinator, since it was fenced
        self._life = 0
        self._hides_endpoint = False
        self._failures = 0
        self._leave_epoch: int | None = None
        self._wants_shutdown = False
        self._offsets: _Offsets | None = None
        self._offsets_ms = now_ms
        self._offsets_sent: _Offsets | None = None
        self._offsets_interval_ms = 0
        self._has_left = False

    @property
    def state(self) -> MemberState:
        """Where it stands."""
        if self._has_left:
            return MemberState.LEFT
        if self.failure is not None:
            return MemberState.FAILED
        if self._to_drop:
            return MemberState.FENCED
        if self._leave_epoch is not None:
            return MemberState.LEAVING
        if self.epoch == JOIN_EPOCH:
            return MemberState.JOINING
        return MemberState.RECONCILING if self.work() else MemberState.STABLE

    def due_ms(self) -> int | None:
        """Return when the next heartbeat is due; None: not before its work is done, an answer comes, or at all."""
        if self._sent is not None or self._to_drop or self._has_left or self.failure is not None:
            return None
        return self._due_ms

    def ask_within(self, most_ms: int, now_ms: int) -> None:
        """Have its heartbeats follow each other within this time, from now on."""
        if most_ms != self._most_ms:
            self._most_ms = most_ms
            self._interval_ms = min(self._interval_ms, most_ms)
            self._advance_to(now_ms + most_ms)

    def ask_at_once(self, now_ms: int) -> None:
        """Have the next heartbeat be due now: something has changed in the group, and tasks may come or go."""
        if self.epoch != JOIN_EPOCH:
            self._eager_until_ms = now_ms + self._eager_for_ms
        self._advance_to(now_ms)

    def _advance_to(self, due_ms: int) -> None:
        if not self._failures:  # else it waits before it tries again
            self._due_ms = min(self._due_ms, due_ms)

    # Heartbeats

    def next_heartbeat(self, now_ms: int) -> StreamsHeartbeat | None:
        """Return the heartbeat to send now; None if none is due. `answered` or `unanswered` must follow."""
        due_ms = self.due_ms()
        if due_ms is None or now_ms < due_ms:
            return None
        if self._leave_epoch is not None and not self.owned:
            if not self._may_be_known:
                self._has_left = True
                return None
            self._sent = StreamsHeartbeat(
                self.facts.group, self.facts.member, self._leave_epoch, self._endpoint_epoch, self.facts.instance
            )
        elif self.epoch == JOIN_EPOCH:
            self._may_be_known = True
            self._sent = self._joining()
        else:
            self._sent = self._staying(now_ms)
        return self._sent

    def _joining(self) -> StreamsHeartbeat:
        return self._with_facts(StreamsHeartbeat(self.facts.group, self.facts.member, JOIN_EPOCH, self._endpoint_epoch))

    def _with_facts(self, heartbeat: StreamsHeartbeat) -> StreamsHeartbeat:
        facts = self.facts
        return replace(
            heartbeat,
            instance=facts.instance,
            rack=facts.rack,
            rebalance_timeout_ms=facts.rebalance_timeout_ms,
            topology=facts.topology if heartbeat.epoch == JOIN_EPOCH else None,
            owned=self.owned,
            process=facts.process,
            endpoint=None if self._hides_endpoint else facts.endpoint,
            tags=facts.tags,
            shutdown=self._wants_shutdown,
            place=facts.place,
        )

    def _staying(self, now_ms: int) -> StreamsHeartbeat:
        heartbeat = StreamsHeartbeat(
            self.facts.group, self.facts.member, self.epoch, self._endpoint_epoch, shutdown=self._wants_shutdown
        )
        if not self._knows_facts:
            heartbeat = self._with_facts(heartbeat)
        elif self._reported != self.owned:
            heartbeat = replace(heartbeat, owned=self.owned)
        offsets = self._due_offsets(now_ms)
        if offsets is not None:
            heartbeat = replace(heartbeat, task_offsets=offsets.offsets, task_end_offsets=offsets.ends)
        return heartbeat

    def answered(self, answer: HeartbeatAnswer, now_ms: int) -> None:
        """Take the answer to the last heartbeat.

        Raises:
            InvalidStateError: No heartbeat is on its way.
        """
        sent = self._taken()
        if answer.error:
            self._refused(sent, answer, now_ms)
            return
        self._failures, self.trouble = 0, None
        if sent.epoch < JOIN_EPOCH:
            self.epoch, self._has_left = answer.epoch, True
            return
        self._knows_facts = not self._hides_endpoint
        self._wants_shutdown = self._wants_shutdown and not sent.shutdown
        if sent.owned is not None:
            self._reported = sent.owned
        if sent.task_offsets is not None:
            self._offsets_sent, self._offsets_ms = _Offsets(sent.task_offsets, sent.task_end_offsets or {}), now_ms
        if self.epoch == JOIN_EPOCH:
            self._first_until_ms = now_ms + _FIRST_FOR_MS
        self.epoch = answer.epoch
        self._interval_ms = min(answer.heartbeat_interval_ms, self._most_ms or answer.heartbeat_interval_ms)
        self.acceptable_recovery_lag = answer.acceptable_recovery_lag
        self._offsets_interval_ms = answer.task_offset_interval_ms
        self.status = answer.status
        self.shutdown_wanted |= any(each.code == StatusCode.SHUTDOWN_APPLICATION for each in answer.status)
        self._endpoint_epoch = answer.endpoint_epoch
        if answer.endpoints is not None:
            self.endpoints = answer.endpoints
        if answer.active is not None or answer.standby is not None or answer.warmup is not None:
            self._assigned(answer)
        self._schedule(now_ms)
        if self._hides_endpoint and not answer.status:
            self._hides_endpoint, self._due_ms = False, now_ms

    def unanswered(self, now_ms: int) -> None:
        """Note that the last heartbeat failed on its way, or that nobody knows whether it arrived.

        The next one says everything again, as the coordinator may know it or not.

        Raises:
            InvalidStateError: No heartbeat is on its way.
        """
        self._taken()
        self._again(now_ms)

    def _taken(self) -> StreamsHeartbeat:
        sent, self._sent = self._sent, None
        if sent is None:
            raise InvalidStateError("no heartbeat is on its way", hint="Call next_heartbeat() first.")
        return sent

    def _again(self, now_ms: int) -> None:
        self._failures += 1
        self._knows_facts, self._reported = False, None
        self._due_ms = now_ms + round(1000 * _RETRY.pause_s(self._failures))

    def _refused(self, sent: StreamsHeartbeat, answer: HeartbeatAnswer, now_ms: int) -> None:
        if answer.error in PASSING:
            self.trouble = GroupFailure(answer.error, answer.message)
            self._hides_endpoint |= answer.error == HeartbeatError.UNKNOWN_SERVER_ERROR
            self._again(now_ms)
        elif answer.error in _FENCING and not _is_of_another_kind(sent, answer):
            if sent.epoch < JOIN_EPOCH:
                self._has_left = True
            else:
                self._fence(now_ms)
        else:
            self._lose()
            self.failure = GroupFailure(answer.error, answer.message)

    def _fence(self, now_ms: int) -> None:
        self._lose()
        self.epoch, self._knows_facts, self._may_be_known = JOIN_EPOCH, False, False
        self._due_ms, self._eager_until_ms = now_ms, now_ms + self._eager_for_ms

    def _lose(self) -> None:
        self._to_drop, self.owned = self._to_drop | self.owned, _NOTHING
        self._target = self._reported = None
        self._life += 1

    def _assigned(self, answer: HeartbeatAnswer) -> None:
        before = self._target or _NOTHING
        target = Assignment(
            before.active if answer.active is None else answer.active,
            before.standby if answer.standby is None else answer.standby,
            before.warmup if answer.warmup is None else answer.warmup,
        )
        if target != self._target:
            self._target, self._reported = target, None  # the coordinator wants to hear that it was understood

    def _schedule(self, now_ms: int) -> None:
        if self._reported != self.owned and not self.work():
            self._due_ms = now_ms  # the confirmation
            return
        pause_ms = self._interval_ms
        if now_ms < self._eager_until_ms:
            pause_ms = min(pause_ms, self._eager_ms)
            if now_ms < self._first_until_ms:
                pause_ms = min(pause_ms, self._first_ms)
        self._due_ms = now_ms + pause_ms

    # Tasks

    def work(self) -> MemberWork:
        """Return what it has to do with its tasks now; nothing while an earlier step is not confirmed."""
        if self._to_drop:
            return MemberWork(drop=self._to_drop, life=self._life)
        target = _NOTHING if self._leave_epoch is not None else self._target
        if target is None or self.failure is not None:
            return MemberWork(life=self._life)
        release = self.owned - target
        release = Assignment(release.active, release.standby - target.active, release.warmup - target.active)
        acquire = _NOTHING if release else target - self.owned
        return MemberWork(release=release, acquire=acquire, life=self._life)

    def dropped(self, now_ms: int) -> None:
        """Confirm that the tasks of `MemberWork.drop` are closed."""
        self._to_drop = _NOTHING
        self._due_ms = min(self._due_ms, now_ms)

    def released(self, tasks: Assignment, now_ms: int) -> None:
        """Confirm that these tasks of `MemberWork.release` are committed and closed: others may have them now."""
        self.owned -= tasks
        self._eager_until_ms = now_ms + self._eager_for_ms
        self._changed(now_ms)

    def acquired(self, work: MemberWork, now_ms: int) -> None:
        """Confirm that the tasks of `MemberWork.acquire` are open.

        Raises:
            InvalidStateError: They are not to be acquired any more: close them again without a commit.
        """
        if work.life != self._life or work.acquire - self.work().acquire:
            raise InvalidStateError(
                f"member {self.facts.member} of group {self.facts.group!r} may not have these tasks any more",
                hint="Close them without a commit.",
            )
        self.owned = (self.owned | work.acquire).promoted()
        self._changed(now_ms)

    def _changed(self, now_ms: int) -> None:
        if not self.work():
            self._due_ms = now_ms

    def report_offsets(self, offsets: TaskSums, ends: TaskSums, now_ms: int) -> None:
        """Say how far the copies of state go, for warm-up tasks that wait to be caught up.

        Args:
            offsets: For each task the sum of the positions in its changelogs.
            ends: The sums of the ends of these changelogs.
            now_ms: The present time.
        """
        before, self._offsets = self._offsets, _Offsets(dict(offsets), dict(ends))
        if self._offsets_interval_ms and self._caught_up(self._offsets) - self._caught_up(before):
            self._offsets_ms = now_ms - self._offsets_interval_ms
            self._due_ms = min(self._due_ms, now_ms)

    def _caught_up(self, offsets: _Offsets | None) -> frozenset[object]:
        if offsets is None:
            return frozenset()
        lags: Mapping[object, int] = {task: offsets.ends.get(task, at) - at for task, at in offsets.offsets.items()}
        return frozenset(t for t in self.owned.warmup if t in lags and lags[t] <= self.acceptable_recovery_lag)

    def _due_offsets(self, now_ms: int) -> _Offsets | None:
        if not self._offsets_interval_ms or now_ms - self._offsets_ms < self._offsets_interval_ms:
            return None
        return self._offsets if self._offsets != self._offsets_sent else None

    # The end

    def leave(self, now_ms: int, *, comes_back: bool = False) -> None:
        """Begin to leave: `work` has all tasks to release, then the heartbeat that says so is due.

        Args:
            now_ms: The present time.
            comes_back: A static member keeps its place until its session ends, for its next start.
        """
        is_static = comes_back and self.facts.instance is not None
        self._leave_epoch = LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH
        if not self.owned:
            self._due_ms = min(self._due_ms, now_ms)

    def abandon(self, now_ms: int) -> None:
        """Leave at once, as the process with its tasks is gone: there is nothing to give up, and nothing to drop.

        A static member keeps its place until its session ends, for its next start.
        """
        self._to_drop = self.owned = _NOTHING
        self._target = self._reported = None
        self._leave_epoch = LEAVE_EPOCH if self.facts.instance is None else LEAVE_STATIC_EPOCH
        self._due_ms = min(self._due_ms, now_ms)

    def ask_for_shutdown(self, now_ms: int) -> None:
        """Ask all members of the group to shut the application down, with the next heartbeat, which is due now."""
        self._wants_shutdown = True
        self._due_ms = min(self._due_ms, now_ms)


def _is_of_another_kind(sent: StreamsHeartbeat, answer: HeartbeatAnswer) -> bool:
    """Return whether there is a group of this name with consumers: a new one would have been created."""
    return sent.epoch == JOIN_EPOCH and answer.error == HeartbeatError.GROUP_ID_NOT_FOUND
