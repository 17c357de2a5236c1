"""The members of an application's group that the stream threads of an instance are, on its driver.

Each thread is a member (KIP-1071). The driver sends the heartbeats of all its threads, and carries to each the tasks
that the group gives it, as the lists that threads know from drivers that have all tasks (`TaskList`). A thread reports
what it has let go of; only then does the group hear of it, and gives the task to another member, of whatever instance.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.threads.assignment import StateHolders, TaskList
from penstock.errors import AppFailedError, PenstockError, TopologyError
from penstock.log.streams_groups.description import (
    JOIN_EPOCH,
    Assignment,
    Endpoint,
    GroupTask,
    StatusCode,
    StreamsHeartbeat,
)
from penstock.log.streams_groups.group_refusals import refusal
from penstock.log.streams_groups.member import MemberFacts, MemberState, StreamsMember
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.thread_state import ThreadState
    from penstock.log.streams_groups.description import StreamsCoordinator

__all__ = ["GroupMembers", "Identities"]

_log = own_logger(__name__)
_NOTHING = Assignment()
_IDLE_S = 1.0
_END_S = 10.0
_LEAVE_MS = 30_000  # a coordinator that has not answered by then finds out by itself
_MANY_FAILURES = 5
_FEWER = 10  # times that all but one member of an instance ask less often
_AWAY = (MemberState.FAILED, MemberState.FENCED)
_GONE = (MemberState.LEFT, MemberState.FAILED)


@dataclass(frozen=True, slots=True)
class Identities:
    """The identities of an instance's members, and the names that the group has for tasks.

    Attributes:
        facts: The facts of a member; ``member`` is a new one for each, ``process`` one for each folder of replicas.
        instance: The id of the instance; of one with static members the same after each start.
        numbers: Sub-topology of the plan -> its number in the topology, by which the group knows it.
        tells_places: Whether the group is one of an embedded log, which asks where the state of tasks is.
        static: The ``group.instance.id``, of which each thread has one of its own; empty: its members are not static.
    """

    facts: MemberFacts
    instance: uuid.UUID
    numbers: Mapping[int, int] = field(default_factory=dict)
    tells_places: bool = False
    static: str = ""

    def member_at(self, thread: str, place: str, endpoint: Endpoint | None) -> MemberFacts:
        """Return the facts of a new member: its thread, the place of its replicas, and where queries reach it."""
        return replace(
            self.facts,
            member=str(uuid.uuid4()),
            process=str(uuid.uuid5(self.instance, place)),
            instance=f"{self.static}-{thread}" if self.static else None,
            endpoint=endpoint,
            place=place if self.tells_places else "",
        )

    def group_task(self, task: TaskId) -> GroupTask | None:
        """Return a task of the plan as the group names it; None if the plan has no such sub-topology any more."""
        number = self.numbers.get(task.subtopology)
        return None if number is None else GroupTask(str(number), task.partition)

    def task(self, task: GroupTask) -> TaskId | None:
        """Return a task of the group as the plan names it; None if the plan does not know its sub-topology."""
        ids = [id_ for id_, number in self.numbers.items() if str(number) == task.subtopology]
        return TaskId(ids[0], task.partition) if ids else None


@dataclass(slots=True)
class _Seat:
    """A thread, and the member that it is.

    Attributes:
        place: The identity of its folder of replicas.
        sent: Its newest list.
        member: The member; None: the thread is not ready yet, or has ended.
        releasing: What its newest list leaves out for others.
        is_ready: Whether it can take tasks.
        is_dropping: Whether its newest list has it close what belongs to others by now.
        shown: The member and the epoch in whose name it was last told to commit.
    """

    place: str
    sent: TaskList
    member: StreamsMember | None = None
    releasing: Assignment = _NOTHING
    is_ready: bool = False
    is_dropping: bool = False
    has_ended: bool = False
    is_outdated: bool = False
    shown: tuple[str, int] = ("", JOIN_EPOCH)


class GroupMembers:
    """The `TaskSharing` of threads that are members of the application's group.

    Args:
        coordinator: The coordinator of the group.
        identities: What the members say of themselves.
        most_ms: The longest time between two heartbeats of the member that looks whether the group has changed; the
            others follow it at once, and ask less often by themselves.
        clock_ms: Returns the time in milliseconds.
        in_background: Whether heartbeats are sent in a thread of its own; else the caller calls `beat`.
        note: Notes the members, each with its ``group.instance.id``, before they join: who finds that their process has
            ended leaves in their name.
        leaving: Members of the epoch before of which the group may not have heard that they have left.
    """

    def __init__(
        self,
        coordinator: StreamsCoordinator,
        identities: Identities,
        most_ms: int | None = None,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        *,
        in_background: bool = True,
        note: Callable[[Mapping[str, str | None]], None] = lambda _: None,
        leaving: Collection[StreamsMember] = (),
    ) -> None:
        self._note = note
        self._coordinator, self._identities = coordinator, identities
        self._most_ms, self._clock_ms, self._in_background = most_ms, clock_ms, in_background
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._seats: dict[str, _Seat] = {}
        self._revisions: dict[str, int] = {}
        until_ms = clock_ms() + _LEAVE_MS
        self._leaving: dict[str, tuple[StreamsMember, int]] = {each.facts.member: (each, until_ms) for each in leaving}
        self._given_up: list[StreamsMember] = []  # static ones that could not say that they leave
        self._job: ContinuousJob | None = None
        self._tell: Callable[[Collection[str]], None] = lambda _: None
        self._fail: Callable[[PenstockError], None] = lambda _: None
        self._has_joined = self._has_ended = self._is_open = self._has_failed = False
        self._endpoint: Endpoint | None = None
        self._unknown: set[GroupTask] = set()
        self._failures = 0
        self._missing = ""
        self._thread: threading.Thread | None = None

    # The epoch's side

    @property
    def lists(self) -> Mapping[str, TaskList]:
        """The newest list of each thread."""
        with self._lock:
            return {name: seat.sent for name, seat in self._seats.items()}

    @property
    def owners(self) -> Mapping[TaskId, str]:
        """The thread of each task that this instance has."""
        with self._lock:
            return {task: name for name, seat in self._seats.items() for task in seat.sent.active}

    @property
    def is_settled(self) -> bool:
        """Whether all threads are members, and have the tasks that the group has given them."""
        with self._lock:
            seats = [seat for seat in self._seats.values() if not seat.has_ended]
            return all(seat.member is not None and seat.member.state is MemberState.STABLE for seat in seats)

    def open_at(self, endpoint: Endpoint | None) -> None:
        """Let threads join, and say where queries reach this instance; None: nowhere."""
        with self._lock:
            self._endpoint, self._is_open = endpoint, True
            self._advance()
            self._changed.notify_all()

    def begin(self, changed: Callable[[Collection[str]], None], fail: Callable[[PenstockError], None]) -> None:
        """Begin the epoch; threads join after `open_at`, when all of the first `place` are ready."""
        self._tell, self._fail = changed, fail

    def place(
        self,
        job: ContinuousJob,
        threads: Mapping[str, ThreadState],
        starting: Collection[str],  # noqa: ARG002 - a thread that is not ready is no member
    ) -> Mapping[str, TaskList]:
        """Have a new thread start with no tasks, and each thread follow a new plan."""
        with self._lock:
            self._job = job
            before = self.lists
            for name, thread in threads.items():
                if name not in self._seats:
                    self._seats[name] = _Seat(thread.spot.place, TaskList(self._next_revision(name)))
            self._advance()
            if self._in_background and self._thread is None and not self._has_ended:
                self._thread = threading.Thread(target=self._run, name="penstock-group-members", daemon=True)
                self._thread.start()
            return self._newer_than(before)

    def probe(
        self, job: ContinuousJob, threads: Mapping[str, ThreadState], starting: Collection[str]
    ) -> Mapping[str, TaskList]:
        """Return nothing: the group hears at once of warm-ups that have caught up."""
        del job, threads, starting
        return {}

    def reported(self, name: str, thread: ThreadState) -> Mapping[str, TaskList]:
        """Tell the group what a thread has let go of, or that it has ended."""
        with self._lock:
            seat, before = self._seats.get(name), self.lists
            if seat is None or thread.revision < 0:
                return {}
            if thread.state == "ended":
                self._leave(seat)
                seat.has_ended = True
            elif seat.member is not None and thread.report.get("fenced") == seat.member.facts.member:
                self._leave(seat)  # it knows first that the group goes on without it; its tasks are closed
                seat.sent, seat.is_dropping = TaskList(self._next_revision(name)), False
            elif seat.member is not None and thread.revision >= seat.sent.revision:
                if seat.is_dropping:
                    seat.member.dropped(self._clock_ms())
                    seat.is_dropping = False
                elif seat.releasing and not thread.held.difference(seat.sent.active):
                    seat.member.released(seat.releasing, self._clock_ms())
                    seat.releasing = _NOTHING
            seat.is_ready = not seat.has_ended
            self._report_copies(seat, thread)
            self._advance()
            self._changed.notify_all()
            return self._newer_than(before)

    def _report_copies(self, seat: _Seat, thread: ThreadState) -> None:
        """Tell the group how far a thread's copies of state go."""
        member = seat.member
        if member is None:
            return
        copies = {self._identities.group_task(task): sums for task, sums in thread.copies.items()}
        offsets = {task: offset for task, (offset, _) in copies.items() if task is not None}
        ends = {task: end for task, (_, end) in copies.items() if task is not None}
        member.report_offsets(offsets, ends, self._clock_ms())

    def restarted(self, name: str) -> None:
        """Have the group give the tasks of a thread's earlier attempt to others; the new one is another member."""
        self.fenced(name)

    def fenced(self, name: str) -> None:
        """Leave the group in the name of a thread that is gone."""
        with self._lock:
            seat = self._seats.pop(name, None)
            if seat is not None:
                self._leave(seat)
                self._changed.notify_all()

    def outdate(self) -> None:
        """Have `place` send each thread a new list."""
        with self._lock:
            for seat in self._seats.values():
                seat.is_outdated = True

    def membership(self, name: str) -> Sequence[Any] | None:
        """Return the member, its epoch and its ``group.instance.id``; None before it has joined."""
        with self._lock:
            seat = self._seats.get(name)
            if seat is None or seat.member is None or seat.member.epoch <= JOIN_EPOCH:
                return None
            return seat.member.facts.member, seat.member.epoch, seat.member.facts.instance or ""

    def tasks(self, job: ContinuousJob) -> Collection[TaskId]:  # noqa: ARG002 - of the interface
        """Return the tasks that the group has given to this instance."""
        return [*self.owners]

    def wants_plan(self) -> bool:
        """Return whether the group has given it tasks that the plan does not know."""
        with self._lock:
            return bool(self._unknown)

    def holders(self, threads: Mapping[str, ThreadState]) -> StateHolders:  # noqa: ARG002 - of the interface
        """Return nothing: the group knows who had which tasks."""
        return StateHolders()

    def end(self) -> None:
        """Leave the group in the name of all threads, none of which runs any more."""
        with self._lock:
            self._has_ended = True
            for seat in self._seats.values():
                self._leave(seat)
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_S)

    def take_leaving(self) -> Collection[StreamsMember]:
        """Return the members of which the group may not have heard that they have left, for the next epoch to say so.

        This one, which has ended, says nothing more.
        """
        with self._lock:
            leaving = [*self._given_up, *(member for member, _ in self._leaving.values())]
            self._given_up.clear()
            self._leaving.clear()
            return leaving

    @property
    def has_left(self) -> bool:
        """Whether the group has heard that all members have left."""
        with self._lock:
            return not self._leaving and not self._present()

    # Heartbeats

    def _run(self) -> None:
        try:
            while (pause_s := self.beat()) is not None:
                with self._lock:
                    if self._next_s() > 0:
                        self._changed.wait(pause_s)
        except Exception as error:  # noqa: BLE001 - without this thread the group takes all tasks away
            _log.exception("the heartbeats of stream threads have ended")
            self._fail(AppFailedError(f"the heartbeats of stream threads have ended: {error}", plan_anew=True))

    def beat(self) -> float | None:
        """Send the heartbeats that are due, and act on the answers; return the seconds to the next, None for none."""
        with self._lock:
            now_ms = self._clock_ms()
            self._choose_who_looks(now_ms)
            # Those that leave first: another member may have the group.instance.id of one.
            members = [*(member for member, _ in self._leaving.values()), *self._present()]
            due = [(each, sent) for each in members if (sent := each.next_heartbeat(now_ms)) is not None]
        for member, heartbeat in due:
            if heartbeat.epoch == JOIN_EPOCH and self._is_leaving(heartbeat.instance):
                member.unanswered(self._clock_ms())  # the group would refuse it for good
            else:
                self._exchange(member, heartbeat)
        with self._lock:
            before = self.lists
            self._forget_left()
            self._advance()
            self._warn_of_missing()
            names = sorted({*self._newer_than(before), *self._shown_anew()})
            refused, error = self._refused(), self._failure()
        if names:
            self._tell(names)
        if refused is not None and not self._has_failed:
            error = self._refusal(refused)
        if error is not None and not self._has_failed:
            self._has_failed = True
            self._fail(error)
        with self._lock:
            return None if self._has_ended and not self._leaving else self._next_s()

    def _next_s(self) -> float:
        """Return the seconds to the next heartbeat, or look."""
        members = [*self._present(), *(member for member, _ in self._leaving.values())]
        dues = [due_ms for each in members if (due_ms := each.due_ms()) is not None]
        return max(0.0, min([_IDLE_S, *((due_ms - self._clock_ms()) / 1000 for due_ms in dues)]))

    def _choose_who_looks(self, now_ms: int) -> None:
        """Have one member ask often whether the group has changed, and the others seldom."""
        able = [each for each in self._present() if each.state not in _AWAY]
        for number, each in enumerate(able):
            if self._most_ms is not None:
                each.ask_within(self._most_ms * (_FEWER if number else 1), now_ms)

    def _exchange(self, member: StreamsMember, heartbeat: StreamsHeartbeat) -> None:
        try:
            answer = self._coordinator.heartbeat(heartbeat)
        except PenstockError as error:
            with self._lock:
                member.unanswered(self._clock_ms())
                self._failures += 1
                level = _log.warning if self._failures == _MANY_FAILURES else _log.debug
            level("heartbeats to group %s are not answered: %s", heartbeat.group, error.message)
            return
        with self._lock:
            self._failures = 0
            before = member.epoch, member.work()
            member.answered(answer, self._clock_ms())
            if (member.epoch, member.work()) != before:
                for each in self._present():
                    if each is not member:
                        each.ask_at_once(self._clock_ms())

    def _present(self) -> list[StreamsMember]:
        return [seat.member for seat in self._seats.values() if seat.member is not None]

    def _leave(self, seat: _Seat) -> None:
        member, seat.member, seat.releasing = seat.member, None, _NOTHING
        if member is not None:
            member.abandon(self._clock_ms())
            self._leaving[member.facts.member] = member, self._clock_ms() + _LEAVE_MS

    def _is_leaving(self, instance: str | None) -> bool:
        """Return whether the group has not heard yet that an earlier member with this ``group.instance.id`` leaves."""
        with self._lock:
            leaving = [member for member, _ in self._leaving.values() if member.state not in _GONE]
        return instance is not None and any(each.facts.instance == instance for each in leaving)

    def _forget_left(self) -> None:
        now_ms = self._clock_ms()
        for name, (member, until_ms) in [*self._leaving.items()]:
            is_static = member.facts.instance is not None
            if member.state in _GONE:
                del self._leaving[name]
            elif now_ms >= until_ms and (self._has_ended or not is_static):  # its successor waits for a static one
                del self._leaving[name]
                self._given_up += [member] if is_static else []

    def _warn_of_missing(self) -> None:
        """Say once why the group gives no tasks away, as long as its topics are missing."""
        status = (each for member in self._present() for each in member.status)
        missing = next((each.detail for each in status if each.code == StatusCode.MISSING_SOURCE_TOPICS), "")
        if missing and missing != self._missing:
            _log.warning(
                "group %s gives no tasks away until its topics are there: %s", self._identities.facts.group, missing
            )
        self._missing = missing

    def _refused(self) -> StreamsMember | None:
        """Return a member that the group refuses for good."""
        return next((each for each in self._present() if each.failure is not None), None)

    def _refusal(self, member: StreamsMember) -> PenstockError:
        """Ask why the group refuses a member; the lock is not held, as the coordinator may be slow."""
        assert member.failure is not None  # noqa: S101 - it is refused
        try:
            return refusal(member.failure, member.facts, self._coordinator)
        except PenstockError as error:
            return error

    def _failure(self) -> PenstockError | None:
        """Return the error for which the instance has to stop."""
        for member in self._present():
            wrong = [each.detail for each in member.status if each.code == StatusCode.INCORRECTLY_PARTITIONED_TOPICS]
            if wrong:
                return TopologyError(
                    f"group {member.facts.group!r} gives no tasks away: {wrong[0]}",
                    hint="Topics that are joined need equal numbers of partitions, and internal topics the number that "
                    "follows from the topics before them: add partitions, or reset the application.",
                )
            if member.shutdown_wanted:
                return AppFailedError(
                    f"a member of group {member.facts.group!r} has asked all instances to shut down",
                    hint="Its log says why. Start the instances again when the reason is gone.",
                )
        return None

    # Tasks

    def _advance(self) -> None:
        """Do what members have to do with their tasks, as far as that is possible now; the lock is held."""
        if self._has_ended:
            return
        seats = [seat for seat in self._seats.values() if not seat.has_ended]
        before = len(self._present())
        if self._has_joined or (self._is_open and seats and all(seat.is_ready for seat in seats)):
            for name, seat in self._seats.items():
                if seat.is_ready and seat.member is None and not seat.has_ended:
                    facts = self._identities.member_at(name, seat.place, self._endpoint)
                    now_ms, count = self._clock_ms(), len(self._seats)
                    seat.member = StreamsMember(facts, now_ms, most_ms=self._most_ms, members=count)
                    self._has_joined = True
        if len(self._present()) > before:
            members = [*(member for member, _ in self._leaving.values()), *self._present()]
            self._note({each.facts.member: each.facts.instance for each in members})
        self._unknown.clear()
        for name, seat in self._seats.items():
            if seat.member is not None:
                self._advance_one(name, seat, seat.member)

    def _advance_one(self, name: str, seat: _Seat, member: StreamsMember) -> None:
        work = member.work()
        if work.drop:
            if not seat.is_dropping:
                seat.sent, seat.releasing = TaskList(self._next_revision(name)), _NOTHING
                seat.is_dropping = True
            return
        if work.acquire and self._is_up_to_date(member):
            member.acquired(work, self._clock_ms())
        kept = member.owned - work.release
        active, standby = self._known(kept.active), self._known(kept.standby | kept.warmup)
        if (active, standby) != (seat.sent.active, seat.sent.standby) or seat.is_outdated:
            seat.sent = TaskList(self._next_revision(name), active, standby, member=member.facts.member)
            seat.is_outdated = False
        seat.releasing = work.release

    def _is_up_to_date(self, member: StreamsMember) -> bool:
        """Return whether the group had heard of all threads here when it answered this one.

        Else the first of them would open all tasks, and close most of them again. One that has to drop its tasks first
        is not waited for, as its thread may be busy for long.
        """
        epochs = [each.epoch for each in self._present() if each.state not in _AWAY]
        return JOIN_EPOCH not in epochs and member.epoch >= max(epochs)

    def _known(self, tasks: Collection[GroupTask]) -> frozenset[TaskId]:
        """Return tasks by the names of the plan, and note those that it does not know."""
        assert self._job is not None  # noqa: S101 - `place` comes first
        counts = {sub.id: sub.tasks for sub in self._job.plan.subtopologies}
        by_name = {task: self._identities.task(task) for task in tasks}
        present = {task: id_ for task, id_ in by_name.items() if id_ and id_.partition < counts.get(id_.subtopology, 0)}
        self._unknown |= by_name.keys() - present.keys()
        return frozenset(id_ for id_ in present.values() if id_ is not None)

    def _shown_anew(self) -> list[str]:
        """Return the threads that are to commit in another name, or at another epoch, than before."""
        names = []
        for name, seat in self._seats.items():
            if seat.member is not None and seat.member.epoch > JOIN_EPOCH:
                shown = seat.member.facts.member, seat.member.epoch
                if shown != seat.shown:
                    seat.shown = shown
                    names.append(name)
        return names

    def _newer_than(self, before: Mapping[str, TaskList]) -> dict[str, TaskList]:
        return {name: each for name, each in self.lists.items() if before.get(name) is not each}

    def _next_revision(self, name: str) -> int:
        self._revisions[name] = self._revisions.get(name, 0) + 1
        return self._revisions[name]
