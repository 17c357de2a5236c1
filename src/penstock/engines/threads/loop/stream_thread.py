"""The loop of a stream thread: fetch, process, write, commit.

One step of the loop polls the log, hands the records to the buffers of their tasks, lets every task process what is
ready, and sends what they write. When ``commit.interval.ms`` has passed since the last commit, or much is waiting, a
step ends with one:

1. the log commits all records sent since the last commit, changelog records and the positions of the tasks in one
   transaction; at least once the outputs are in the log already;
2. each replica takes over the writes of its task, with the positions that they stand for.

Nothing but the log says how far a thread has come. If anything raises, the thread ends, and the next one begins from
the committed positions with the state at that commit; what a replica lacks it reads from its changelog.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from penstock.base.log_lines import Work, own_logger
from penstock.engines.threads.loop.commit import (
    Commit,
    CommitSchedule,
    Purger,
    RefusedRecords,
    notes_of,
    parts_of_output,
)
from penstock.engines.threads.loop.global_state import GlobalState, open_globals
from penstock.engines.threads.loop.pace import Pace, merged_by_time, pace_groups
from penstock.engines.threads.loop.task import ActiveTask
from penstock.engines.threads.loop.thread_environment import AskedOnce, ThreadHooks, ThreadLog
from penstock.engines.threads.loop.thread_figures import StepTimes, TaskFigures, ThreadFigures
from penstock.engines.threads.replicas.restoring import restored_places
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.errors import InvalidStateError, LogError, OffsetOutOfRangeError, UnknownTopicError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.groups.offset_regressions import gone_back, gone_back_error, gone_back_text
from penstock.runtime.context import TaskEnvironment
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.loop.pace import PaceGroup
    from penstock.log.base import Fetched, TopicLog
    from penstock.log.thread_clients import Fetcher, Part, Writer

__all__ = ["StreamThread", "ThreadHooks", "ThreadLog"]

_log = own_logger(__name__)
_PENDING_BYTES = 64 << 20  # output above which a commit does not wait for its time
_PENDING_RECORDS = 1_000_000  # likewise records that have been processed, as the writes to stores are in memory
_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.005, 0.02  # between two looks for records while outputs wait for a commit
_LOOKS = 2  # of one commit interval, at least
_LITTLE_S = 0.002  # of work in a turn: less is as well done in one look as in two
_WAITING_S = 0.1  # the longest wait for records while others wait in their buffers
_HELD_S = 0.005  # between two looks whether other threads have caught up
_AWAITED_S = 0.1  # the commit interval while others may wait for this thread's commits, if it is longer
_REHEARSED, _REHEARSAL_S = 50, 0.25  # records of a partition of each topic, and the wait for them
_MANY_RECORDS = 500  # of a look, after which the next one follows at once
_UNSENT_S = 0.1  # in a turn that takes longer, what its tasks have written is sent in between


class StreamThread:
    """A loop that runs some of an application's tasks (Kafka: ``StreamThread``).

    Args:
        app: The application.
        log: The log.
        writer: The identity of the thread's producer.
        tasks: The tasks.
        hooks: The parts of the process that it uses.
    """

    def __init__(
        self,
        app: ThreadApp,
        log: ThreadLog,
        writer: Writer,
        tasks: Sequence[TaskId],
        hooks: ThreadHooks | None = None,
    ) -> None:
        self._app = app
        self._log = log
        self._writer = writer
        self._notes = notes_of(writer)
        self._ids = tuple(tasks)
        self._hooks = hooks or ThreadHooks()
        config = app.config
        self._interval_s = int(config["commit.interval.ms"]) / 1000
        self._schedule = CommitSchedule(self._interval_s, writer.thread)
        self._look_s = min(max(self._interval_s / _LOOKS, _SHORTEST_LOOK_S), _LONGEST_LOOK_S)
        self._most_buffered = int(config["buffered.records.per.partition"])
        self._most_bytes = int(config["input.buffer.max.bytes"])
        self._purger = Purger(log, app.repartition_topics, int(config["repartition.purge.interval.ms"]))
        self._resources = ExitStack()
        self._fetcher: Fetcher | None = None
        self._open_commit: Commit | None = None
        self._globals: GlobalState | None = None
        self._environment = TaskEnvironment(self._hooks.sensor)
        self._replicas: dict[TaskId, TaskReplica] = {}
        self._tasks: dict[TaskId, ActiveTask] = {}
        self._polled: dict[TopicPartition, int] = {}  # the offset after what has been fetched
        self._readers: dict[TopicPartition, ActiveTask] = {}
        self._loaded: dict[TaskId, ActiveTask] = {}  # with records in their buffers
        self._ticking: dict[TaskId, ActiveTask] = {}  # that time alone makes do something
        self._touched: dict[TaskId, ActiveTask] = {}  # with something to commit
        self._paused: set[TopicPartition] = set()
        self._pace = Pace(pace_groups(app.topology, app.plan), self._hooks.pace, self._hooks.clock)
        self._written: dict[PaceGroup, list[tuple[TaskId, list[Part]]]] = {}  # in this turn, by tasks of a group
        self._unsent: list[tuple[Part, str]] = []  # in this turn, by tasks without a group, and their names
        self._sent_s = 0.0
        self._records = 0  # processed since the last commit
        self._is_busy = False  # whether there is more to process without waiting
        self._arrived = 0  # records, at the last look for them
        self._looked_s = self._worked_s = self._committed_s = 0.0
        self._commits = 0
        self._began_ms = self._committed_ms = 0
        self._times = StepTimes()

    def start(self) -> None:
        """Fence earlier threads of this name, restore the state, and begin to fetch at the committed positions.

        Raises:
            FencedError: A newer instance of the application has taken over.
            StateError: The state cannot be restored.
        """
        with self._resources:
            # First the producer: from here on nobody else commits for these tasks.
            producer = self._log.commit_producer(self._writer)
            self._resources.callback(producer.close)
            self._open_commit = Commit(producer, RefusedRecords.of(self._app))
            views = None
            if self._app.plan.global_topics:
                self._globals, followed = open_globals(self._app, self._hooks, self._log)
                self._resources.callback(self._globals.close)
                self._polled |= followed
                views = self._globals.views
            sensor, until_latest = self._hooks.sensor, self._hooks.until_latest
            keeps_times = self._notes.keeps_partition_times
            self._environment = TaskEnvironment(
                sensor, self._hooks.clock(), views, until_latest, keeps_partition_times=keeps_times
            )
            self._fetcher = self._log.fetcher(self._writer.application)
            self._resources.callback(self._fetcher.close)
            self._resources.callback(self._close_tasks)
            self._begin(self._ids, {})
            self._committed_s = self._schedule.since(time.monotonic())
            self._began_ms = self._hooks.clock()
            self._resources = self._resources.pop_all()

    def step(self, timeout_s: float) -> bool:
        """Fetch, process, send, and commit if it is time.

        Args:
            timeout_s: The longest time to wait for records. It waits shorter if a commit or a punctuation is due.

        Returns:
            Whether anything was processed or committed.
        """
        if self._globals is not None and (followed := self._globals.look()) is not None:
            self._polled |= followed  # the thread that wrote them has gone
            self._polling.assign(self._polled)
        timeout_s -= self._linger(timeout_s)
        with self._times.step("poll"):
            arrived = self._polling.poll(self._time_to_wait(timeout_s))
        self._arrived = sum(fetched.records.num_rows for fetched in arrived.values())
        for tp, fetched in arrived.items():
            self._polled[tp] = fetched.next_offset
            self._add(tp, fetched)
        ends = self._polling.ends()
        now_ms, began = self._hooks.clock(), time.monotonic()
        self._sent_s = began
        limits = self._pace.limits(self._tasks.values(), ends)
        did = [
            self._process(task, now_ms, ends, limits.get(task.id)) for task in (self._loaded | self._ticking).values()
        ]
        self._send_written()
        self._is_busy = any(did)
        self._loaded = {id_: task for id_, task in self._loaded.items() if task.buffers.records}
        self._pause()
        self._looked_s = time.monotonic()
        self._worked_s = self._looked_s - began
        has_committed = self._is_commit_due()
        if has_committed:
            self.commit()
        self._purger.begin_if_due()
        if not self._touched:
            self._pace.report(self._tasks.values(), ends)
        return has_committed or self._is_busy

    def wake(self) -> None:
        """End the wait of a step, or of the next one; from any thread."""
        if (fetcher := self._fetcher) is not None:
            fetcher.wake()

    def commit(self, leaving: Iterable[TaskId] = ()) -> None:
        """Commit everything that has been processed, with the positions and the state.

        Args:
            leaving: Tasks that leave the thread then.

        Raises:
            ProductionError: The log refuses records, and production.exception.handler says fail.
            FencedError: A newer thread or instance has taken over.
        """
        self._committed_s = self._schedule.since(time.monotonic())
        self._records = 0
        last = set(leaving)
        self._touched |= {id_: self._tasks[id_] for id_ in last if self._tasks[id_].has_unnoted}
        if not self._touched:
            return
        touched, self._touched = list(self._touched.values()), {}
        now_ms = self._hooks.clock()
        moved = {task.id: task.moved(some=self._notes.are_fenced) for task in touched}
        with self._times.step("send"):
            if not self._writer.exactly_once:
                self._commit.flush()
            for task in touched:
                if task.is_changed or task.id in last:
                    self._commit.collect(task.changes(now_ms, is_last=task.id in last), str(task.id))
        self._hooks.reach("sent")
        offsets = {
            tp: OffsetAndMetadata(offset, self._notes.text(self._app, task.id, task.replica.state.meta, tp))
            for task in touched
            for tp, offset in moved[task.id].items()
        }
        with self._times.step("commit"):
            following = self._commit.complete(offsets)
        self._hooks.reach("committed")
        with self._times.step("replicas"):
            for task in touched:
                task.commit(following, moved[task.id])
                self._hooks.reach(f"kept {task.id}")
        self._commits += 1
        self._committed_ms = self._hooks.clock()
        self._purger.note({tp: each.offset for tp, each in offsets.items()})

    def close(self, *, commit: bool) -> None:
        """End the thread.

        Args:
            commit: Whether to commit what has been processed; not after an error.
        """
        try:
            if commit and self._fetcher is not None:
                self.commit(leaving=self._tasks)
        finally:
            self._resources.close()
            self._fetcher = self._open_commit = None
            self._purger.close()

    def rehearse(self) -> None:
        """Ask the log once what it will be asked when a task comes, whose outputs wait for the answers.

        Else the first task of a new process waits for all that is made at first use: connections, and code.
        """
        plan, topics = self._app.plan, sorted(self._app.changelogs.values())
        sources = sorted(
            {tp.topic for sub in plan.subtopologies if sub.tasks for tp in plan.sources(TaskId(sub.id, 0))}
        )
        try:
            self._log.group_offsets(self._app.application_id)
            for topic in topics:
                self._log.topic(topic)
            if topics:
                self._log.end_offsets(topics)
            if sources and not self._polled:  # else what comes of global tables would be lost
                firsts, ends = self._log.beginning_offsets(sources), self._log.end_offsets(sources)
                filled = {tp.topic: tp for tp, end in ends.items() if end > firsts.get(tp, end)}
                self._polling.assign({tp: max(firsts[tp], ends[tp] - _REHEARSED) for tp in filled.values()})
                self._polling.poll(_REHEARSAL_S)
        except (LogError, UnknownTopicError, OffsetOutOfRangeError) as error:  # it may be well when a task comes
            _log.debug("nothing is rehearsed: %s", error.message)
        self._polling.assign(self._polled)

    def add(self, app: ThreadApp, tasks: Mapping[TaskId, TaskReplica | None]) -> None:
        """Take over tasks; the owner before has let go of them after its last commit, or can commit no more.

        Args:
            app: The application, whose plan may have more tasks than before.
            tasks: The tasks, each with its replica, if that is open and has been caught up already.
        """
        self._app = app
        self._pace.groups = pace_groups(app.topology, app.plan)
        if tasks:
            self._begin(tuple(tasks), tasks)

    def remove(self, tasks: Iterable[TaskId]) -> dict[TaskId, TaskReplica]:
        """Commit, and give up these tasks; return their replicas, still open, for the caller to close."""
        tasks = list(tasks)
        self.commit(leaving=tasks)
        gone = {}
        for id_ in tasks:
            task = self._tasks.pop(id_)
            for tp in task.committed:
                del self._readers[tp], self._polled[tp]
                self._paused.discard(tp)
            for each in (self._loaded, self._ticking, self._touched):
                each.pop(id_, None)
            task.close()
            gone[id_] = self._replicas.pop(id_)
            gone[id_].discard()
        self._polling.assign(self._polled)
        return gone

    def store(self, task: TaskId, name: str) -> Any:
        """Return the typed view of a task's store, with the writes that are not committed yet."""
        if self._globals is not None and name in self._app.topology.global_stores:
            return self._globals.views.view(self._app.topology.stores[name])
        return self._tasks[task].store(name)

    @property
    def follows_globals(self) -> bool:
        """Whether there are global stores, which it follows also without tasks."""
        return self._globals is not None

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record to process, by partition."""
        return {tp: at for task in self._tasks.values() for tp, at in task.buffers.positions().items()}

    def reads_from(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether a task takes in the records of that offset next; restores read source topics before that."""
        return tp in self._readers and self._polled.get(tp, offset + 1) <= offset

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The committed offsets, by partition."""
        return {tp: offset for task in self._tasks.values() for tp, offset in task.committed.items()}

    def doing(self) -> dict[str, Any] | None:
        """Return the step that it is in, its task, and for how many seconds; from any thread."""
        return self._times.doing()

    def figures(self) -> ThreadFigures:
        """Return the figures since the start."""
        return ThreadFigures(
            tuple(TaskFigures.of(task) for task in self._tasks.values()),
            self.positions,
            self.committed,
            dict(self._polling.ends()),
            sum(task.buffers.bytes for task in self._tasks.values()),
            self._commit.pending_bytes,
            self._commits,
            dict(self._times.seconds),
            self._began_ms,
            self._committed_ms,
            {} if self._globals is None else self._globals.views.sizes(),
        )

    def _begin(self, tasks: Sequence[TaskId], replicas: Mapping[TaskId, TaskReplica | None]) -> None:
        """Restore tasks, and fetch their partitions too."""
        # The last owner, which may be a thread that lives, has committed before offsets and changelogs show it.
        sources = [tp for task in tasks for tp in self._app.plan.sources(task)]
        group = self._log.group_offsets(self._app.application_id, sources) if sources else {}
        if places := [tp for task in tasks for tp in restored_places(self._app, task)]:
            self._log.settled_ends(places)
        committed = {tp: each.offset for tp, each in group.items()}
        positions = self._start_positions(sources, committed)
        log = cast("ThreadLog", AskedOnce(self._log))  # the changelogs of these tasks have no other writer now
        for id_ in tasks:
            replica = self._replicas[id_] = replicas.get(id_) or TaskReplica.open(self._app, id_)
            back = self._gone_back(id_, replica, group, log)
            newer = {tp: offset for tp, (_, offset) in back.items()}
            numbers = self._notes.numbers(self._app, id_, group)
            replica.restore(log, {**committed, **newer} if newer else committed, self._hooks.on_restore, numbers)
            positions |= newer
            own = {tp: positions[tp] for tp in self._app.plan.sources(id_)}
            task = self._tasks[id_] = ActiveTask(self._app, id_, replica, own, self._environment)
            if newer:  # which the next commit commits, though nothing may have come
                task.committed |= {tp: at for tp, (at, _) in back.items()}
                self._touched[id_] = task
            self._readers |= dict.fromkeys(own, task)
            if task.ticks:
                self._ticking[id_] = task
        self._polled |= positions
        self._polling.assign(self._polled)

    def _gone_back(
        self, id_: TaskId, replica: TaskReplica, group: Mapping[TopicPartition, OffsetAndMetadata], log: TopicLog
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the partitions whose committed offsets are behind those of the task's rows, with both.

        Raises:
            CheckpointMismatchError: There are some, and ``penstock.data.loss`` is "fail".
        """
        sources = set(self._app.plan.sources(id_))
        inputs = {tp: at for tp, at in replica.known_inputs(log).items() if tp in sources}
        if all(tp in group and group[tp].offset >= at.offset for tp, at in inputs.items()):
            return {}
        topics = sorted({tp.topic for tp in inputs})
        firsts, ends = self._log.beginning_offsets(topics), self._log.end_offsets(topics)
        back = gone_back(inputs, group, firsts, ends)
        who = f"the state of task {id_}"
        if back and self._app.config["penstock.data.loss"] == "fail":
            raise gone_back_error(self._app.application_id, who, back)
        if back:
            _log.warning("%s; it continues from there", gone_back_text(self._app.application_id, who, back))
        return back

    def _close_tasks(self) -> None:
        with ExitStack() as closing:
            for replica in self._replicas.values():
                closing.callback(replica.close)
            for task in self._tasks.values():
                closing.callback(task.close)
            self._replicas, self._tasks = {}, {}

    def _start_positions(
        self, places: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the positions of partitions; those without a committed one begin at the beginning."""
        missing = sorted({tp.topic for tp in places if tp not in committed})
        beginnings = self._log.beginning_offsets(missing) if missing else {}
        return {tp: committed.get(tp, beginnings.get(tp, 0)) for tp in places}

    def _linger(self, longest_s: float) -> float:
        """Let a few more records arrive, until the next look for them or the end of the interval; return for how long.

        Exactly once nobody sees an output before the commit: to process each record by itself would only cost. After a
        commit, too: what comes next is committed only at the end of its interval.
        """
        if self._writer.exactly_once and not self._loaded and self._arrived < _MANY_RECORDS:
            look_s = _LONGEST_LOOK_S if self._worked_s < _LITTLE_S else self._look_s
            until_s = min(self._looked_s + look_s, self._committed_s + self._interval_s)
            if (pause_s := min(until_s - time.monotonic(), longest_s)) > 0:
                time.sleep(pause_s)
                return pause_s
        return 0.0

    def _add(self, tp: TopicPartition, fetched: Fetched) -> None:
        task = self._readers.get(tp)
        if task is not None:
            task.add(tp, fetched)
            (self._loaded if task.buffers.records else self._touched)[task.id] = task
        elif self._globals is not None:
            with self._times.step("process"):
                self._globals.add(tp, fetched)

    def _process(self, task: ActiveTask, now_ms: int, ends: Mapping[TopicPartition, int], until_ms: int | None) -> bool:
        if self._unsent and task.took_s > _UNSENT_S:  # the others' outputs do not wait for it
            with self._times.step("send"):
                self._send_unsent()
        with Work(task=str(task.id), batch=self._commits), self._times.step("process", str(task.id)):
            before = task.records_in
            output = task.process(now_ms, ends, until_ms)
        if output is None:
            return False
        self._touched[task.id] = task
        self._hooks.reach("processed")
        with self._times.step("send"):
            parts, group = parts_of_output(self._app, output.records), self._pace.groups.get(task.id.subtopology)
            if group is not None:
                self._written.setdefault(group, []).append((task.id, parts))
            else:
                self._unsent += [(part, str(task.id)) for part in parts]
                if time.monotonic() - self._sent_s > _UNSENT_S:
                    self._send_unsent()
        self._records += task.records_in - before
        return True

    def _send_written(self) -> None:
        """Send what tasks have written in this turn; those of a group in the order of time."""
        if self._unsent:
            with self._times.step("send"):
                self._send_unsent()
        written, self._written = self._written, {}
        for group, parts_of_tasks in written.items():
            with self._times.step("send"):
                for names, parts in merged_by_time(parts_of_tasks, group.topics):
                    self._commit.send(parts, [names] * len(parts))

    def _send_unsent(self) -> None:
        """Send what tasks without a group have written: by one call, so that they share requests and their answers."""
        unsent, self._unsent = self._unsent, []
        self._commit.send([part for part, _ in unsent], [task for _, task in unsent])
        self._sent_s = time.monotonic()

    def _time_to_wait(self, timeout_s: float) -> float:
        if self._is_busy and self._loaded:
            return 0.0
        if self._pace.is_held and self._loaded:
            timeout_s = min(timeout_s, _HELD_S)
        elif self._loaded:  # as for the end of another partition, which a poll learns while it waits
            timeout_s = min(timeout_s, _WAITING_S)
        if self._touched:
            timeout_s = min(timeout_s, self._committed_s + self._present_interval_s - time.monotonic())
        now_ms = self._hooks.clock()
        for task in (self._loaded | self._ticking).values():
            wakes_at = task.wakes_at_ms(now_ms)
            if wakes_at is not None:
                timeout_s = min(timeout_s, (wakes_at - now_ms) / 1000)
        return max(timeout_s, 0.0)

    def _is_commit_due(self) -> bool:
        if self._commit.pending_bytes > _PENDING_BYTES or self._records > _PENDING_RECORDS:
            return True
        if self._pace.is_held and self._loaded and self._touched:
            return True  # other threads may wait for this commit, as this one waits for theirs
        return time.monotonic() - self._committed_s >= self._present_interval_s and bool(self._touched)

    @property
    def _present_interval_s(self) -> float:
        return min(self._interval_s, _AWAITED_S) if self._pace.is_awaited else self._interval_s

    def _pause(self) -> None:
        """Pause partitions that have much in their buffers; one whose records are awaited is never paused."""
        buffered = [task.buffers for task in self._loaded.values()]
        is_full = sum(each.bytes for each in buffered) > self._most_bytes
        paused = {tp for each in buffered for tp in each.longer_than(0 if is_full else self._most_buffered)}
        if paused != self._paused:
            self._polling.pause(paused - self._paused)
            self._polling.resume(self._paused - paused)
            self._paused = paused

    @property
    def _polling(self) -> Fetcher:
        return self._fetcher if self._fetcher is not None else _not_running()

    @property
    def _commit(self) -> Commit:
        return self._open_commit if self._open_commit is not None else _not_running()


def _not_running() -> Any:
    raise InvalidStateError("this stream thread does not run", hint="Start it; after close(), create a new one.")
