"""An application in a simulation: its driver with its epochs, and the processes of its threads.

The driver and the threads are production code (`Epoch`, `PlacedTasks`, `run_thread` and all below it). What Spark does
is done here: it starts a process for each thread, starts it again, or lets the job fail with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.assignment.task_assignor import StateHolders
from penstock.engines.threads.hosting.epoch import Epoch
from penstock.engines.threads.hosting.job import ContinuousJob, thread_name
from penstock.engines.threads.hosting.task_sharing import PlacedTasks
from penstock.engines.threads.hosting.thread_host import run_thread
from penstock.errors import AppFailedError, FencedError, LogUnavailableError, PenstockError, StateError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.testing.simulation.brokers import Brokers
from penstock.testing.simulation.connection import BrokerConnection, Network
from penstock.testing.simulation.control import Channel
from penstock.testing.simulation.machines import Machine
from penstock.testing.simulation.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.control_client import ControlAddress
    from penstock.log.thread_clients import Writer

__all__ = ["Application", "Layout"]

_SESSION_S = 3.0
_START_S = 0.3
_LATE_STARTS, _LATEST_START_S = 0.3, 2.0
_GRACE_S = 2.0
_LOOK_S = 0.02
_PASSING = (FencedError, LogUnavailableError)  # after which an application begins a new epoch
_ATTEMPTS = 4  # of Spark at one thread


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of an application.

    Attributes:
        threads: The number of its threads.
        machines: The number of its machines.
        standbys: ``num.standby.replicas``.
        retries: Whether Spark starts a thread again whose process has ended.
    """

    threads: int = 1
    machines: int = 1
    standbys: int = 0
    retries: bool = True


@dataclass(eq=False)
class _Started:
    """A thread's process."""

    number: int
    attempt: int
    process: Process
    document: Mapping[str, Any] | None = None
    is_over: bool = False
    is_doubted: bool = False


@dataclass(eq=False)
class Application:
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
        violations: What must not happen, and has.
        has_ended: Whether it has stopped by itself with all input processed.
    """

    scheduler: Scheduler
    brokers: Brokers
    network: Network
    machines: Sequence[Machine]
    app: ThreadApp
    app_of_process: Callable[[], ThreadApp]
    layout: Layout
    is_done: Callable[[], bool]
    settled_s: float
    violations: list[str] = field(default_factory=list)
    has_ended: bool = False
    _epoch: Epoch | None = None
    _sharing: PlacedTasks | None = None
    _started: list[_Started] = field(default_factory=list)
    _lives: int = 0

    def __post_init__(self) -> None:
        self.channel = Channel(self.scheduler)
        self._names = [thread_name(number) for number in range(self.layout.threads)]
        self._log = BrokerConnection(self.brokers, self.network, self._check_commit)

    def connection(self) -> BrokerConnection:
        """Return a connection of the present process to the log."""
        return self._log

    def start(self, after_s: float = 0.0) -> None:
        """Start a driver."""
        self._lives += 1
        self.driver = Process(f"driver {self._lives}", self.machines[0])
        self.scheduler.spawn(self.driver.name, self.driver, self._drive, after_s)

    def crash(self, process: Process) -> None:
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

    def doubt(self, process: Process) -> None:
        """Have Spark take a process for lost that is not, and start its thread once more beside it."""
        for each in self._started:
            if each.process is process:
                each.is_doubted = True

    def processes_on(self, machine: Machine) -> list[Process]:
        """List the processes of threads on a machine that have not ended."""
        return [each.process for each in self._started if each.process.machine is machine and not each.process.is_dead]

    def is_of_thread(self, process: Process) -> bool:
        """Return whether a process is that of a thread."""
        return any(each.process is process for each in self._started)

    def _drive(self) -> None:
        self.channel.reopen()
        holders = StateHolders()
        while True:
            job = self._prepare()
            sharing = self._sharing = PlacedTasks(job, holders)
            epoch = self._epoch = Epoch(job, self.channel.send, sharing, lambda: self.scheduler.now_s)
            for number in range(job.threads):
                self._launch(job, number, 0)
            error = self._run(epoch)
            self._end(epoch, has_failed=error is not None)
            holders = epoch.holders()
            if error is None and epoch.error is None:
                self.has_ended = True
                return
            self._judge(error or epoch.error)
            self.scheduler.wait(0.05)

    def _prepare(self) -> ContinuousJob:
        """Take the lease, and fence all threads of earlier epochs, as `prepare_epoch` does."""
        while True:
            try:
                number = self.network.request("take the lease", self._take_lease)
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
        )

    def _take_lease(self) -> int:
        self.brokers.lease_epoch += 1
        return self.brokers.lease_epoch

    def _launch(self, job: ContinuousJob, number: int, attempt: int, after_s: float = 0.0) -> None:
        """Start a thread, as Spark does."""
        moved = self.scheduler.dice.random() < 0.2
        machine = self.machines[(number + attempt * moved) % len(self.machines)]
        process = Process(f"{thread_name(number)}.{job.epoch}.{attempt}@{machine.name}", machine)
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
            self._take_messages(epoch)
            epoch.look(_START_S, _SESSION_S)
            if self.layout.retries:
                self._replace_lost(epoch)
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
        for place, each in enumerate(started):
            has_crashed = each.is_over and each.document is None
            if (has_crashed or each.is_doubted) and each.attempt + 1 < _ATTEMPTS:
                self._launch(epoch.job, each.number, each.attempt + 1, 0.2)
                newest[place] = self._started[-1]
        return newest

    def _take_messages(self, epoch: Epoch) -> None:
        for client, message in self.channel.arrived():
            if client.member.epoch != epoch.job.epoch:
                self.channel.send(client.member, {"stop": True})
            else:
                epoch.on_message(client.member, message)
            if "hello" not in message and "gone" not in message:
                client.acknowledge(message)

    def _replace_lost(self, epoch: Epoch) -> None:
        """Fence threads that are gone, see `LostThreads`."""
        for name in epoch.lost():
            self._log.fence_threads(self.app.application_id, [epoch.job.producer_of(name)], epoch.job.lease_epoch)
            epoch.fenced(name)
        epoch.take_crashes()

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
            self._take_messages(epoch)
            self.scheduler.wait(_LOOK_S)
        for each in of_epoch:
            is_paused = each.process.paused_until_s > self.scheduler.now_s
            if not each.is_over and not (is_paused and has_failed):
                self.crash(each.process)
        epoch.end()

    def _judge(self, error: PenstockError | None) -> None:
        """Note an error that no fault explains: production would end the application with it."""
        if error is None:
            return
        message = error.message.replace(str(self.machines[0].root.parent), "")  # which differs from run to run
        self.scheduler.tell(f"the epoch has failed: {type(error).__name__}: {message}")
        passes = isinstance(error, _PASSING) or error.facts.get("lost_process")
        is_full = isinstance(error, StateError) and "No space left" in error.message
        if not (passes or is_full):
            self.violations.append(f"unexpected error: {type(error).__name__}: {message}")

    def _check_commit(self, writer: Writer, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Check a commit that is about to take effect."""
        epoch, sharing = self._epoch, self._sharing
        readers = {tp: task for task in self.app.tasks() for tp in self.app.plan.sources(task)}
        for tp, each in sorted(offsets.items()):
            before = self.brokers.newest_offset(tp)
            if each.offset < before:
                self._violate(f"{writer.thread} moves {tp.topic}-{tp.partition} back from {before} to {each.offset}")
            if epoch is None or sharing is None or writer.epoch != epoch.job.epoch:
                continue
            owner = sharing.owners.get(readers[tp])
            if owner is not None and owner != writer.thread:
                self._violate(f"{writer.thread} commits task {readers[tp]}, which {owner} owns")

    def _violate(self, what: str) -> None:
        self.scheduler.tell(f"VIOLATION: {what}")
        self.violations.append(what)
