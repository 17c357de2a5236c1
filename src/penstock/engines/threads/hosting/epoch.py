"""An epoch on the driver: its threads from their hello to their end, their tasks, and the sum of their reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.spark.failures import unseal_error
from penstock.engines.threads.hosting.control_channel import Member
from penstock.engines.threads.hosting.thread_state import ThreadState
from penstock.engines.threads.loop.pace import PaceBoard
from penstock.errors import AppFailedError, PenstockError
from penstock.query.placement import Standby, TaskPlaces
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.assignment import StateHolders, TaskList
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.task_sharing import TaskSharing

__all__ = ["Epoch"]

_log = own_logger(__name__)
_GONE_S = 0.3  # without a connection, before a thread is taken for lost: one that broke is made again within
_BUSY_TIMES = 4
_SILENT_S = 3.0  # a thread reports once a second
Send = Callable[[Member, Mapping[str, Any]], bool]


class Epoch:
    """The threads of an epoch. Its methods may be called from any thread.

    Args:
        job: The epoch's job.
        send: Sends a message to a thread.
        sharing: Decides which of its threads have which tasks.
        clock: Returns the time in seconds.

    Attributes:
        job: The epoch's job; with another plan once `extend` was called.
        threads: Its threads that are there, by name.
        error: The error that has ended it.
    """

    def __init__(
        self, job: ContinuousJob, send: Send, sharing: TaskSharing, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.job = job
        self.threads: dict[str, ThreadState] = {}
        self.error: PenstockError | None = None
        self.is_assigned = False
        self._send = send
        self._sharing = sharing
        self._clock = clock
        self._lock = threading.RLock()
        self._began = clock()
        self._is_stopping = False
        self._membership: list[Any] | None = None
        self._pace = PaceBoard()
        self._probed = clock()
        self._has_grown = False
        self._times_waited = 0
        self._asked_s, self._are_launched = 0.0, False
        self._starting: set[str] = set()  # that have come to a running epoch, and cannot take over tasks yet
        self._fencing: dict[
            str, Mapping[str, Any] | None
        ] = {}  # threads that are lost -> the hello of one that is back
        self._crashed: list[tuple[str, frozenset[TaskId]]] = []
        sharing.begin(self._changed, self.fail)

    def on_message(self, member: Member, message: Mapping[str, Any]) -> None:
        """Take a message of one of its threads."""
        with self._lock:
            if member.thread in self._fencing and self._wait(member.thread, message):
                return
            if "hello" in message:
                self._hello(member.thread, message["hello"])
            state = self.threads.get(member.thread)
            if state is None:
                return
            if "gone" in message:
                state.gone = self._clock()
                return
            state.heard = self._clock()
            if "again" in message:
                state.notes = int(message["again"])
            if "report" in message:
                state.report = message["report"]
                state.notes = state.report.get("notes")
                self._deliver(self._sharing.reported(member.thread, state))
                if member.thread in self._starting and state.revision >= 0:
                    self._starting.discard(member.thread)
                    self._place()
            if "pace" in message:
                self._pace.take(member.thread, {int(group): front for group, front in message["pace"].items()})
                self._send_pace()
            if "error" in message:
                self.fail(self.unsealed(str(message["error"])))

    def unsealed(self, text: str) -> PenstockError:
        """Return the error that a thread has sent."""
        sealed_error = unseal_error(text, self.job.error_key)
        return sealed_error or AppFailedError("a stream thread failed, and its error is not signed", details=text)

    def fail(self, error: PenstockError) -> None:
        """Note the error that ends the epoch, unless there is one already, and stop all threads."""
        with self._lock:
            self.error = self.error or error
        self.stop()

    def stop(self) -> None:
        """Ask all threads to commit and end."""
        with self._lock:
            self._is_stopping = True
            for name in self.threads:
                self._send(Member(name, self.job.epoch), {"stop": True})

    def look(self, start_s: float, session_s: float, launched: Callable[[], int] = lambda: 0) -> None:
        """Assign the tasks once the threads are there, move warmed ones; fail the epoch if a thread stays silent.

        Args:
            start_s: The longest time to wait for Spark to start all threads.
            session_s: The longest time that a thread may be silent.
            launched: Returns the number of threads that Spark has started, whose processes may not have come yet: on a
                busy machine they are waited for four times as long.
        """
        with self._lock:
            now = self._clock()
            waited = now - self._began
            missing = self.job.threads - len(self.threads)
            if not self.is_assigned and missing and waited > start_s:
                start_s = self._patience_s(start_s, waited, launched)
            if not self.threads and waited > start_s * (1 + self._times_waited):
                self._times_waited += 1
                _log.warning(
                    "Spark has started none of %d stream threads in %.0f s: other work uses its cores. Give Spark "
                    "more, or let others have fewer (num.stream.threads), or set processing.mode=micro_batch",
                    self.job.threads, waited,
                )  # fmt: skip
            if not self.is_assigned and self.threads and (not missing or waited > start_s):
                if missing:
                    _log.warning(
                        "Spark has started %d of %d stream threads in %.0f s: the tasks go to these. Does other work "
                        "use its cores? Set num.stream.threads to fewer, or give Spark more",
                        len(self.threads), self.job.threads, waited,
                    )  # fmt: skip
                self.is_assigned = True
                self._place()
            elif self.is_assigned and now - self._probed >= self.job.probing_s:
                self._probed = now
                if not self._is_stopping:
                    self._deliver(self._sharing.probe(self.job, self.threads, self._starting))
            late = [name for name, each in self.threads.items() if now - each.heard > session_s]
            late = [name for name in late if self.threads[name].state != "ended"]
        if late and not self._is_stopping:
            self.fail(_silent(late[0], self.threads[late[0]].host, session_s))

    def _patience_s(self, start_s: float, waited: float, launched: Callable[[], int]) -> float:
        """Return for how long to wait for threads that have not come; Spark is asked once a second."""
        if waited - self._asked_s >= 1.0:
            self._asked_s, self._are_launched = waited, launched() >= self.job.threads
        return start_s * _BUSY_TIMES if self._are_launched else start_s

    def lost(self, is_dead: Callable[[ThreadState], bool] = lambda _: False) -> list[str]:
        """Return the threads whose processes are gone, while others run: they are to be fenced, and then `fenced`.

        Where instances share the tasks, those others may be threads of another instance. From now on a thread of such a
        name that comes back waits until it is fenced: a new attempt has no tasks, and so no producer, before.

        Args:
            is_dead: Returns whether the process of a thread without a connection is known to have ended; else a thread
                is lost after some time.
        """
        with self._lock:
            if not self.is_assigned or self._is_stopping:
                return []
            late = self._clock() - _GONE_S
            away = {name: each for name, each in self.threads.items() if each.gone is not None}
            gone = [name for name, each in away.items() if (each.gone or 0.0) < late or is_dead(each)]
            lost = gone if self.job.instance or len(gone) < len(self.threads) else []
            self._fencing |= dict.fromkeys(lost)
            return lost

    def fenced(self, name: str) -> None:
        """Give the tasks of a thread that can commit no more to others; it may come back, with a new producer.

        If its process is there, and only its connection was gone, it cannot commit what it does: the epoch fails.
        """
        with self._lock:
            back = self._fencing.pop(name, None)
            if back is not None and name in self.threads and _attempt_of(back) == self.threads[name].attempt:
                self.fail(_back_too_late(name, self.threads[name].host))  # it is stopped as all others are
            state = self.threads.pop(name, None)
            if state is None:
                return
            _log.warning("%s on %s is gone: its tasks go to other threads", name, state.host)
            self._crashed.append((name, self._tasks_of(name, state)))
            self._starting.discard(name)
            self._pace.forget(name)
            self._sharing.fenced(name)
            if back is not None and _attempt_of(back) != state.attempt:
                self._hello(name, back)
            self._place()

    def _wait(self, name: str, message: Mapping[str, Any]) -> bool:
        """Keep the hello of a thread that is being fenced until it is; return whether the message is done with."""
        if "hello" in message:
            self._fencing[name] = message["hello"]
        elif "gone" in message:
            self._fencing[name] = None
        return "error" not in message

    def take_crashes(self) -> list[tuple[str, frozenset[TaskId]]]:
        """Return the threads whose processes have ended since the last call, with the tasks that they had."""
        with self._lock:
            crashes, self._crashed = self._crashed, []
            return crashes

    def _tasks_of(self, name: str, state: ThreadState) -> frozenset[TaskId]:
        lists = self._sharing.lists
        return state.held | (lists[name].active if name in lists else frozenset())

    def show_membership(self, membership: Sequence[Any]) -> None:
        """Tell all threads in whose name they commit: a `GroupMembership`; empty: it was removed from the group."""
        with self._lock:
            self._membership = list(membership)
            for name in self.threads:
                self._send(Member(name, self.job.epoch), {"member": self._membership})

    def extend(self, job: ContinuousJob) -> None:
        """Go on with a plan that has more tasks, or more topics."""
        with self._lock:
            self.job, self._has_grown = job, True
            for name in self.threads:
                self._send(Member(name, job.epoch), {"plan": job.plan_facts()})
            self._sharing.outdate()
            if self.is_assigned:
                self._place()

    def holders(self) -> StateHolders:
        """Return where the tasks and their state are, for the next epoch."""
        with self._lock:
            return self._sharing.holders(self.threads)

    def tasks(self) -> Collection[TaskId]:
        """Return the tasks that its threads are to run: all of the application, or the share of this instance."""
        with self._lock:
            return self._sharing.tasks(self.job)

    def wants_plan(self) -> bool:
        """Return whether its threads are to have tasks that its plan does not know."""
        with self._lock:
            return self._sharing.wants_plan()

    def needs_looks(self) -> bool:
        """Return whether something is awaited of which nobody tells: tasks that do not run yet, a lost thread."""
        with self._lock:
            are_there = all(each.gone is None for each in self.threads.values())
            return not (self.is_running and are_there) or self._sharing.wants_plan()

    def end(self) -> None:
        """Let others have its tasks: no thread runs any more."""
        self._sharing.end()

    def standbys(self) -> dict[str, dict[str, int | None]]:
        """Return for each task the machines with its standbys, and how many records they lacked at the last look."""
        with self._lock:
            lags: dict[str, dict[str, int | None]] = {}
            for each in self.threads.values():
                for task, lag in each.lags.items():
                    lags.setdefault(str(task), {})[each.host] = lag
            return lags

    def active_hosts(self) -> dict[str, str]:
        """Return the machine of each task."""
        with self._lock:
            threads = self.threads
            return {str(task): threads[name].host for task, name in self._sharing.owners.items() if name in threads}

    def places(self) -> dict[str, TaskPlaces]:
        """Return for each task the places with its state."""
        with self._lock:
            places_by_task: dict[str, TaskPlaces] = {}
            standbys: dict[TaskId, list[Standby]] = {}
            for each in self.threads.values():
                for task, lag in each.lags.items():
                    standbys.setdefault(task, []).append(Standby(*each.spot, lag))
            owners = {task: name for task, name in self._sharing.owners.items() if name in self.threads}
            for task in sorted({*owners, *standbys}):
                host, owner_place = self.threads[owners[task]].spot if task in owners else ("", "")
                places_by_task[str(task)] = TaskPlaces(host, owner_place, tuple(standbys.get(task, ())))
            return places_by_task

    @property
    def has_ended(self) -> bool:
        """Whether all threads have been asked to end, and have committed and ended."""
        with self._lock:
            ended = [each for each in self.threads.values() if each.state == "ended"]
            return self._is_stopping and len(ended) == self.job.threads

    def awaited(self) -> list[str]:
        """Return the threads whose last commit the end of the epoch waits for.

        Not those that have nothing to commit, as they are starting, nor those that have not been heard for some time:
        their process is paused or out of reach, and what they do later fails at its commit.
        """
        with self._lock:
            late = self._clock() - _SILENT_S
            return [
                name
                for name, each in self.threads.items()
                if each.state != "ended" and each.gone is None and each.heard > late and name not in self._starting
            ]

    @property
    def is_running(self) -> bool:
        """Whether all threads process records, the state of their tasks restored."""
        with self._lock:
            return (
                self.is_assigned
                and bool(self.threads)
                and self._sharing.is_settled
                and all(self._has_done(name, each) for name, each in self.threads.items())
            )

    def _has_done(self, name: str, state: ThreadState) -> bool:
        """Return whether a thread runs all tasks of its newest list."""
        newest = self._sharing.lists.get(name)
        return state.state == "ended" or (
            state.state == "running" and newest is not None and state.revision >= newest.revision
        )

    def _hello(self, name: str, facts: Mapping[str, Any]) -> None:
        before = self.threads.get(name)
        place = str(facts.get("place", ""))
        state = ThreadState(str(facts["host"]), int(facts["pid"]), self._clock(), place, attempt=_attempt_of(facts))
        state.on_disk = frozenset(map(TaskId.parse, facts.get("on_disk", ())))
        is_same = before is not None and before.attempt == state.attempt
        if before is not None and is_same:
            state.report, state.notes = before.report, before.notes
            self._pace.repeat(name)
        elif before is not None:
            self._crashed.append((name, self._tasks_of(name, before)))
            self._pace.forget(name)
        self.threads[name] = state
        member = Member(name, self.job.epoch)
        if self._membership is not None:
            self._send(member, {"member": self._membership})
        if self._has_grown:
            self._send(member, {"plan": self.job.plan_facts()})
        if self.is_assigned:
            if not is_same:
                self._sharing.restarted(name)
            if name in self._sharing.lists:
                self._deliver({name: self._sharing.lists[name]})
            if not is_same:
                if name not in self._sharing.owners.values():
                    self._starting.add(name)
                self._place()
        if self._is_stopping:
            self._send(member, {"stop": True})

    def _place(self) -> None:
        """Have the tasks shared among the threads that are there, and send the lists that change."""
        if self.threads:
            self._deliver(self._sharing.place(self.job, self.threads, self._starting))

    def _changed(self, names: Collection[str]) -> None:
        """Send threads their newest lists, which have changed meanwhile."""
        with self._lock:
            lists = self._sharing.lists
            self._deliver({name: lists[name] for name in names if name in lists and name in self.threads})

    def _deliver(self, lists: Mapping[str, TaskList]) -> None:
        for name, each in lists.items():
            if name in self._fencing:  # a new attempt gets tasks, and so a producer, only when it is fenced
                continue
            member, membership = Member(name, self.job.epoch), self._sharing.membership(name)
            if membership is not None:  # first: the thread commits in its name
                self._send(member, {"member": list(membership)})
            if not self._is_stopping:
                active, standby = _names(each.active), _names(each.standby)
                message = {"revision": each.revision, "active": active, "standby": standby}
                self._send(member, {"assign": {**message, "member": each.member} if each.member else message})
        if not self._is_stopping:
            self._send_pace()

    def _send_pace(self) -> None:
        """Send each thread the fronts of the others, where they have changed."""
        running = [name for name, each in self._sharing.lists.items() if each.active and name in self.threads]
        for name, fronts in self._pace.news(running).items():
            self._send(Member(name, self.job.epoch), {"pace": fronts})


def _names(tasks: Iterable[TaskId]) -> list[str]:
    return [str(task) for task in sorted(tasks)]


def _attempt_of(facts: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return the process and the attempt of a thread; Spark may start it again in the same process."""
    return str(facts["host"]), int(facts["pid"]), int(facts.get("attempt", 0))


def _back_too_late(name: str, host: str) -> AppFailedError:
    return AppFailedError(
        f"{name} on {host} had lost its connection to the driver, and returned when other threads had its tasks",
        hint="The network to its machine may be slow. All threads begin again from what is committed.",
        lost_process=True,
        thread=name,
    )


def _silent(name: str, host: str, session_s: float) -> AppFailedError:
    return AppFailedError(
        f"{name} on {host} has not reported for {session_s:.0f} s (session.timeout.ms)",
        hint="Its machine or network may have failed, or its process was stopped. Its tasks move to other threads.",
        lost_process=True,
        thread=name,
    )
