"""An application in a simulation: its driver with its epochs, and the processes of its threads.

The driver and the threads are production code (`Epoch`, `PlacedTasks`, `run_thread` and all below it). What Spark does
is done here: it starts a process for each thread, starts it again, or lets the job fail with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.assignment import StateHolders
from penstock.engines.threads.hosting.crashes import CrashWatch, LostThreads, is_passing
from penstock.engines.threads.hosting.epoch import Epoch
from penstock.engines.threads.hosting.epoch_job import ContinuousJob, thread_name
from penstock.engines.threads.hosting.group_members import GroupMembers, Identities
from penstock.engines.threads.hosting.task_sharing import PlacedTasks
from penstock.engines.threads.hosting.thread_host import run_thread
from penstock.errors import AppFailedError, LogUnavailableError, OffsetOutOfRangeError, PenstockError, StateError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.streams_groups.group import GroupSettings
from penstock.log.streams_groups.member import MemberFacts
from penstock.testing.simulation.brokers import Brokers
from penstock.testing.simulation.connection import Network, SimulatedConnection
from penstock.testing.simulation.control import Channel, SimulatedControlClient
from penstock.testing.simulation.embedded_log import EmbeddedBrokers, EmbeddedConnection, HeartbeatsOverNetwork
from penstock.testing.simulation.machines import Machine
from penstock.testing.simulation.scheduler import Scheduler, SimulatedProcess
from penstock.topology.plan.group_topology import group_topology

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.control_channel import ControlAddress
    from penstock.log.streams_groups.description import StreamsCoordinator
    from penstock.log.thread_clients import Writer
    from penstock.topology.plan.plan import TaskId

__all__ = ["Layout", "SimulatedApplication"]

_SESSION_S = 3.0
_START_S = 0.3
_LATE_STARTS, _LATEST_START_S = 0.3, 2.0
_GRACE_S = 2.0
_SHORT_PATIENCE_S, _PATIENCE_S = (
    4.0,
    7.0,
)  # of threads with a driver that is gone; of instances longer than their session
_LOOK_S = 0.08
_ATTEMPTS = 4  # of Spark at one thread
_GROUP = GroupSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500, task_offset_interval_ms=1_000)
_REBALANCE_MS, _LOOK_MS, _SHORTEST_S = 8_000, 200, 0.005
_CLUSTER = "spark://simulated"  # whose machines say nothing of the ends of processes


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of an application.

    Attributes:
        threads: The number of its threads.
        machines: The number of its machines.
        standbys: ``num.standby.replicas``.
        retries: Whether Spark starts a thread again whose process has ended.
        is_embedded: Whether the log is an embedded one, and no model of brokers.
        instances: The number of instances, each with so many threads and machines; several only over an embedded log.
    """

    threads: int = 1
    machines: int = 1
    standbys: int = 0
    retries: bool = True
    is_embedded: bool = False
    instances: int = 1


@dataclass(eq=False)
class _Started:
    """A thread's process."""

    number: int
    attempt: int
    process: SimulatedProcess
    document: Mapping[str, Any] | None = None
    is_over: bool = False
    is_doubted: bool = False


@dataclass(eq=False)
class SimulatedApplication:
    """An application, from its first start to its end.

    Attributes:
        scheduler: The scheduler.
        brokers: The brokers.
        network: The way to them.
        machines: The machines for its threads.
        app: The planned application.
        app_of_process: Returns the application as a new process loads it.
        layout: Its shape.
        is_done: Returns whether all input is processed and committed.
        settled_s: For how long that must be so before the end.
        instance: Its name, if it is one of several instances that share the tasks as members of a group.
        violations: What must not happen, and has.
        has_ended: Whether it has stopped by itself with all input processed.
    """

    scheduler: Scheduler
    brokers: Brokers | EmbeddedBrokers
    network: Network
    machines: Sequence[Machine]
    app: ThreadApp
    app_of_process: Callable[[], ThreadApp]
    layout: Layout
    is_done: Callable[[], bool]
    settled_s: float
    instance: str = ""
    violations: list[str] = field(default_factory=list)
    has_ended: bool = False
    _epoch: Epoch | None = None
    _sharing: PlacedTasks | GroupMembers | None = None
    _started: list[_Started] = field(default_factory=list)
    _lives: int = 0
    _epochs: int = 0

    def __post_init__(self) -> None:
        patience_s = _PATIENCE_S if self.instance else _SHORT_PATIENCE_S
        self.channel = Channel(self.scheduler, patience_s=patience_s)
        self._names = [thread_name(number) for number in range(self.layout.threads)]
        self._log = (
            EmbeddedConnection(self.brokers, self.network, self._check_commit)
            if isinstance(self.brokers, EmbeddedBrokers)
            else SimulatedConnection(self.brokers, self.network, self._check_commit)
        )

    def connection(self) -> SimulatedConnection | EmbeddedConnection:
        """Return a connection of the present process to the log."""
        return self._log

    def start(self, after_s: float = 0.0) -> None:
        """Start a driver."""
        self._lives += 1
        self.driver = SimulatedProcess(f"{self.instance or 'driver'} {self._lives}", self.machines[0])
        self._id = uuid.UUID(int=self.scheduler.dice.getrandbits(128))
        self.scheduler.spawn(self.driver.name, self.driver, self._drive, after_s)

    def crash(self, process: SimulatedProcess) -> None:
        """Let the process of a thread, or of the driver, end at once."""
        self.scheduler.kill(process)
        self.channel.drop(process)
        if process is self.driver:
            self.channel.is_open = False
            self._epoch = None
            self.start(0.3)
            return
        for each in self._started:
            if each.process is process and not each.is_over:
                each.is_over = True

    def doubt(self, process: SimulatedProcess) -> None:
        """Have Spark take a process for lost that is not, and start its thread once more beside it."""
        for each in self._started:
            if each.process is process:
                each.is_doubted = True

    def processes_on(self, machine: Machine) -> list[SimulatedProcess]:
        """List the processes of threads on a machine that have not ended."""
        return [each.process for each in self._started if each.process.machine is machine and not each.process.is_dead]

    def owner_of(self, task: TaskId) -> SimulatedProcess | None:
        """Return the process of the thread that is to have a task; None if it has ended, or nobody is to."""
        name = None if self._sharing is None else self._sharing.owners.get(task)
        newest = next((each for each in reversed(self._started) if thread_name(each.number) == name), None)
        return None if newest is None or newest.process.is_dead else newest.process

    def has(self, process: SimulatedProcess) -> bool:
        """Return whether a process is the driver's, or a thread's."""
        return process is self.driver or any(each.process is process for each in self._started)

    def _drive(self) -> None:
        self.channel.reopen()
        self.scheduler.spawn(f"{self.driver.name} control", self.driver, self._listen)
        holders = StateHolders()
        crashes = CrashWatch(self._now_s)
        log: Any = self._log
        self._lost = LostThreads(log, crashes, _CLUSTER if self.layout.retries else "local[1]")
        while True:
            job = self._prepare()
            sharing = self._sharing = self._members(job) if self.instance else PlacedTasks(job, holders)
            epoch = self._epoch = Epoch(job, self.channel.send, sharing, self._now_s)
            for number in range(job.threads):
                self._launch(job, number, 0)
            error = self._run(epoch)
            self._end(epoch, has_failed=error is not None)
            holders = epoch.holders()
            error = error or epoch.error
            if error is None:
                self.has_ended = True
                return
            self._judge(error)
            if is_passing(error):
                self._note_end(crashes, epoch, error)
            self.scheduler.wait(0.05)

    def _note_end(self, crashes: CrashWatch, epoch: Epoch, error: PenstockError) -> None:
        """Note the end of an epoch, as the engine does before it begins another one."""
        log: Any = self._log
        try:
            crashes.note_end(epoch, log, error)
        except PenstockError as repeated:  # production ends the application, and somebody starts it again
            self._judge(repeated)

    def _now_s(self) -> float:
        return self.scheduler.now_s

    def _listen(self) -> None:
        """Take the messages of threads, as the threads of the control server do, whatever the driver waits for."""
        while True:
            self._take_messages()
            self.channel.listen()

    def _prepare(self) -> ContinuousJob:
        """Take the lease, and fence all threads of earlier epochs, as `prepare_epoch` does; no instance of several."""
        while True:
            self._epochs += 1
            number = self._epochs
            if self.instance:
                break
            try:
                number = self.network.request("take the lease", self.brokers.take_lease)
                self._log.fence_threads(self.app.application_id, self._names, number)
                break
            except LogUnavailableError:
                self.scheduler.wait(0.2)
        self.scheduler.tell(f"epoch {number} of {self.layout.threads} threads begins")
        return ContinuousJob(
            plan=self.app.plan,
            pickled_app=b"",
            log_url="simulated",
            log_settings={},
            identity="simulated",
            epoch=number,
            threads=self.layout.threads,
            replica_root="",
            changelogs=self.app.changelogs,
            numbers_topic=self.app.numbers_topic,
            control=cast("ControlAddress", self.channel),
            error_key=b"simulated",
            standbys=self.layout.standbys,
            acceptable_lag=5,
            probing_s=0.5,
            instance=str(self._id) if self.instance else "",
        )

    def _members(self, job: ContinuousJob) -> GroupMembers:
        """Return the members of the group that the threads of an epoch are, whose heartbeats an actor sends."""
        app, brokers = self.app, self.brokers
        assert isinstance(brokers, EmbeddedBrokers)  # noqa: S101 - only it has a coordinator of groups
        topology = group_topology(app.topology, app.application_id, app.config)
        facts = MemberFacts(app.application_id, "", "", topology, rebalance_timeout_ms=_REBALANCE_MS)
        coordinator = EmbeddedStreamsCoordinator(brokers.log, _GROUP, self._now_ms)
        numbers = {sub.id: sub.id for sub in job.plan.subtopologies}
        members = GroupMembers(
            cast("StreamsCoordinator", HeartbeatsOverNetwork(coordinator, self.network)),
            Identities(facts, self._id, numbers),
            _LOOK_MS,
            self._now_ms,
            in_background=False,
        )
        members.open_at(None)
        self.scheduler.spawn(f"{self.driver.name} members", self.driver, partial(self._beat, members))
        return members

    def _beat(self, members: GroupMembers) -> None:
        while (pause_s := members.beat()) is not None:
            self.scheduler.wait(max(pause_s, _SHORTEST_S))

    def _now_ms(self) -> int:
        return int(self.scheduler.now_s * 1000)

    def _launch(self, job: ContinuousJob, number: int, attempt: int, after_s: float = 0.0) -> None:
        """Start a thread, as Spark does."""
        moved = self.scheduler.dice.random() < 0.2
        machine = self.machines[(number + attempt * moved) % len(self.machines)]
        of_instance = f"{self.instance}." if self.instance else ""
        process = SimulatedProcess(f"{of_instance}{thread_name(number)}.{job.epoch}.{attempt}@{machine.name}", machine)
        started = _Started(number, attempt, process)
        of_machine = replace(job, replica_root=str(machine.replicas))
        app = replace(self.app_of_process(), replica_root=str(machine.replicas), epoch=job.epoch)
        of_machine.__dict__["app"] = app

        def body() -> None:
            self.scheduler.tell("started")
            started.document = run_thread(of_machine, number, attempt)
            started.is_over = True
            self.scheduler.tell(f"ended: {started.document['ended']}")

        self._started.append(started)
        is_late = self.scheduler.dice.random() < _LATE_STARTS
        after_s += self.scheduler.dice.random() * (_LATEST_START_S if is_late else 0.1)
        self.scheduler.spawn(process.name, process, body, after_s)

    def _run(self, epoch: Epoch) -> PenstockError | None:
        """Run an epoch until all is done, or until an error ends it; return that error."""
        quiet_s: float | None = None
        started = self._started[-epoch.job.threads :]
        while True:
            epoch.look(_START_S, _SESSION_S)
            try:
                self._lost.replace(epoch)
            except PenstockError as error:
                return error
            if epoch.error is not None:
                return epoch.error
            started = self._restart(epoch, started)
            if all(each.is_over for each in started):
                return self._failure_of(epoch, started)
            if any(each.is_over and each.document is None for each in started):
                return AppFailedError("the Spark job failed: a process has ended", lost_process=True)
            if not (epoch.is_running and self.is_done()):
                quiet_s = None
            elif quiet_s is None:
                quiet_s = self.scheduler.now_s
            elif self.scheduler.now_s - quiet_s > self.settled_s:
                return None
            self.scheduler.wait(_LOOK_S)

    def _restart(self, epoch: Epoch, started: list[_Started]) -> list[_Started]:
        """Start threads again whose processes have ended, if Spark does so."""
        if not self.layout.retries:
            return started
        newest = list(started)
        for index, each in enumerate(started):
            has_crashed = each.is_over and each.document is None
            if (has_crashed or each.is_doubted) and each.attempt + 1 < _ATTEMPTS:
                self._launch(epoch.job, each.number, each.attempt + 1, 0.2)
                newest[index] = self._started[-1]
        return newest

    def _take_messages(self) -> None:
        """Hand on the messages that have arrived."""
        for client, message in self.channel.arrived():
            epoch = self._epoch
            if epoch is None or client.member.epoch != epoch.job.epoch:
                self.channel.send(client.member, {"stop": True})
            else:
                epoch.on_message(client.member, message)
                client.has_reported |= "report" in message
                self._check_state(epoch, client)
            if "hello" not in message and "gone" not in message:
                client.acknowledge(message)

    def _check_state(self, epoch: Epoch, client: SimulatedControlClient) -> None:
        """Check that the application does not count as running before each thread that the driver knows has said so."""
        state = epoch.threads.get(client.member.thread)
        is_known = state is not None and state.attempt[2] == client.attempt
        if is_known and not client.has_reported and epoch.is_running:
            self._violate(f"the application is running, though {client.process.name} has not reported yet")

    def _failure_of(self, epoch: Epoch, started: Sequence[_Started]) -> PenstockError:
        """Return the error of an epoch whose processes have all ended."""
        for each in started:
            if each.document is not None and each.document["ended"] == "error":
                return epoch.unsealed(str(each.document["error"]))
        return AppFailedError("all threads have ended", lost_process=True)

    def _end(self, epoch: Epoch, *, has_failed: bool) -> None:
        """Have the threads of an epoch commit and end; those that do not are ended, or are left behind as zombies."""
        epoch.stop()
        deadline = self.scheduler.now_s + _GRACE_S * (1 if has_failed else 3)
        of_epoch = [each for each in self._started if f".{epoch.job.epoch}." in each.process.name]
        while self.scheduler.now_s < deadline and not all(each.is_over for each in of_epoch):
            self.scheduler.wait(_LOOK_S)
        for each in of_epoch:
            is_paused = each.process.paused_until_s > self.scheduler.now_s
            if not each.is_over and not (is_paused and has_failed):
                self.crash(each.process)
        epoch.end()

    def _judge(self, error: PenstockError) -> None:
        """Note an error that no fault explains: production would end the application with it."""
        message = error.message.replace(str(self.machines[0].root.parent), "")  # which differs from run to run
        self.scheduler.tell(f"the epoch has failed: {type(error).__name__}: {message}")
        is_repeated = isinstance(error, AppFailedError) and "positions" in error.facts  # faults may strike so often
        is_full = isinstance(error, StateError) and "No space left" in error.message
        is_lost = isinstance(error, OffsetOutOfRangeError)  # which the preparation of another epoch would refuse
        if is_lost or not (is_passing(error) or is_repeated or is_full):
            self.violations.append(f"unexpected error: {type(error).__name__}: {message}")

    def _check_commit(
        self,
        writer: Writer,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        before: Mapping[TopicPartition, int],
    ) -> None:
        """Check a commit that takes effect."""
        shown = ", ".join(f"{tp.topic}-{tp.partition}:{at.offset}" for tp, at in sorted(offsets.items()))
        self.scheduler.tell(f"committed {shown or 'records'}")
        epoch, sharing = self._epoch, self._sharing
        readers = {tp: task for task in self.app.tasks() for tp in self.app.plan.sources(task)}
        for tp, each in sorted(offsets.items()):
            if each.offset < before.get(tp, -1):
                self._violate(
                    f"{writer.thread} moves {tp.topic}-{tp.partition} back from {before[tp]} to {each.offset}"
                )
            if epoch is None or sharing is None or writer.epoch != epoch.job.epoch:
                continue
            owner = sharing.owners.get(readers[tp])
            if owner is not None and owner != writer.thread:
                self._violate(f"{writer.thread} commits task {readers[tp]}, which {owner} owns")

    def _violate(self, what: str) -> None:
        self.scheduler.tell(f"VIOLATION: {what}")
        self.violations.append(what)
