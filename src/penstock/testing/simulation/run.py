"""One run of an application in a simulation, and the checks after it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.config import StreamsConfig
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.global_state import FollowedCopy, MemoryGlobals
from penstock.engines.threads.replicas.replica_folders import tasks_on_disk
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.log.base import HEADERS_TYPE, TopicPartition
from penstock.runtime.local_task import LocalTask
from penstock.runtime.rows import Headers, RawRecord
from penstock.runtime.sensor import Sensor
from penstock.state.free_memory import keep_on_heap
from penstock.testing.simulation.application import Layout, SimulatedApplication
from penstock.testing.simulation.brokers import Brokers
from penstock.testing.simulation.connection import Network
from penstock.testing.simulation.control import SimulatedControlClient
from penstock.testing.simulation.embedded_log import EmbeddedBrokers
from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.machines import Machine
from penstock.testing.simulation.scheduler import Actor, ScheduledEvent, Scheduler, SimulatedProcess, dice_of
from penstock.testing.simulation.stand_ins import installed
from penstock.topology.configured import with_settings
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import TaskId, plan_of
from penstock.topology.topology import Topology, internal_topic

__all__ = ["Comparison", "Fields", "Input", "Outcome", "Rows", "SimulationPlan", "Written", "run"]

Comparison = Literal["by key", "in order", "sums"]
Entries = list[tuple[bytes, bytes]]
Rows = dict[tuple[str, str], Entries]
Fields = tuple[Any, Any, Any]
Written = Mapping[str, Sequence[Sequence[Fields]]]
Judge = Callable[[Sequence["Input"], Written, Rows], list[str]]
_APPLICATION = "simulated"
_LIMIT_S = 150.0
_WRITES_BACK = 0.4  # the share of writes after which the operating system writes a file to the disk
_CLOCK_MS = 3_600_000
_SETTLED_S = 0.6
_KEPT_BYTES, _AT_ONCE_BYTES = 64 << 20, 1 << 20
_CLEANS = 0.5  # the share of runs in which the brokers compact topics
_CLEANS_EVERY_S = 0.7
_DELETIONS = {"delete.retention.ms": "3000"}  # a replica that was away for longer may have missed some
_SETTINGS = {
    "application.id": _APPLICATION,
    "bootstrap.servers": "memory://simulated",
    "commit.interval.ms": 100,
    "max.poll.records": 4,
    "statestore.cache.max.bytes": 0,
    "repartition.purge.interval.ms": 300,
}


@dataclass(frozen=True, slots=True)
class Input:
    """A record of a source topic.

    Attributes:
        headers: (name, value) pairs.
        arrives: Its place among all records, which come in this order; by default its timestamp.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    arrives: int | None = None

    @property
    def order(self) -> tuple[int, str]:
        """What records are sorted by."""
        return (self.timestamp if self.arrives is None else self.arrives, self.topic)


@dataclass(eq=False)
class SimulationPlan:
    """A topology that is ready to be simulated.

    Args:
        topology: The topology.
        partitions: The source and sink topics, with the numbers of their partitions.
        settings: Settings of the application, over those of the simulation.
        comparison: How outputs are compared with those of an undisturbed run: the records of each key in order; all
            records of a partition in order; or, where the clock decides what is written when, the sum of each key's
            numbers.
        has_one_state: Whether the rows of all tasks together are those of one task that has all records.
        needs: Whether a record is never left out to make a failure small, as without it windows stay open.
        judge: Returns what is wrong with a run, in place of the comparison with an undisturbed one: called with the
            records, with what was written (topic -> partitions -> key, value and time), and with all stores' rows.
    """

    topology: Topology
    partitions: Mapping[str, int]
    settings: Mapping[str, Any] = field(default_factory=dict)
    comparison: Comparison = "by key"
    has_one_state: bool = True
    judge: Judge | None = None
    needs: Callable[[Input], bool] = lambda _: False

    @cached_property
    def config(self) -> StreamsConfig:
        return StreamsConfig({**_SETTINGS, **self.settings})

    @cached_property
    def app(self) -> ThreadApp:
        """The application, without a folder for replicas."""
        topology = with_settings(self.topology, self.config)
        plan = plan_of(topology, _APPLICATION, dict(self.partitions))
        changelogs = changelogs_of(topology, plan, self.config)
        by_store = {each.store: each.topic for each in changelogs if each.store}
        numbers = next((each.topic for each in changelogs if not each.store), None)
        return ThreadApp(topology, self.config, plan, by_store, numbers, None, "simulated", 1)

    @cached_property
    def topics(self) -> dict[str, tuple[int, Mapping[str, str]]]:
        """All topics with their partitions and settings."""
        app = self.app
        changelogs = changelogs_of(app.topology, app.plan, self.config)
        repartitions = {
            internal_topic(_APPLICATION, name): (app.plan.partitions[name], {"retention.ms": "-1"})
            for name in app.plan.internal_topics
        }
        return {
            **{name: (count, {}) for name, count in self.partitions.items()},
            **repartitions,
            **{each.topic: (each.partitions, {**each.config, **_DELETIONS}) for each in changelogs},
        }

    def app_of_process(self) -> ThreadApp:
        """Return the application as a new process loads it."""
        return self.app

    def settled_s(self, faults: Sequence[Fault]) -> float:
        """Return for how long nothing may come before a run has ended: the clock may be set back by some seconds."""
        is_late = self.comparison == "sums" and any(each.kind == "clock" and each.seconds < 0 for each in faults)
        return 5.0 if is_late else _SETTLED_S

    @cached_property
    def sinks(self) -> list[str]:
        """The topics that are compared."""
        internal = set(self.app.plan.internal_topics)
        return sorted({each.topic for each in self.app.topology.sinks if each.topic is not None} - internal)

    def undisturbed(self, inputs: Sequence[Input]) -> tuple[dict[str, list[RawRecord]], dict[str, Entries]]:
        """Return what the test driver's task writes for these records, by topic, and the rows of its stores."""
        written: dict[str, list[RawRecord]] = {name: [] for name in self.sinks}

        def write(record: RawRecord) -> None:
            if record.topic in written:
                written[record.topic].append(record)

        task = LocalTask(self.topology, self.config, write)
        for each in sorted(inputs, key=lambda each: each.order):
            offset = task.next_offset(each.topic)
            task.process([RawRecord(each.topic, offset, each.timestamp, each.key, each.value, each.headers)])
        if self.comparison == "sums":  # by the clock
            task.pass_time(_CLOCK_MS)
        stores = {name: sorted(rows) for name, rows in task.rows().stores.items() if name in self.app.changelogs}
        task.close()
        return written, stores


@dataclass(eq=False)
class Outcome:
    """The result of a run.

    Attributes:
        violations: What must not happen, and has; empty: the run is right.
        events: The story.
        points: The number of points that were reached.
        seconds: How long it took by the simulated clock.
        faults: How many faults of each kind have happened.
        digest: A checksum of all records in the log, with their offsets, and of the story.
    """

    violations: list[str]
    events: list[ScheduledEvent]
    points: int
    seconds: float
    faults: Mapping[str, int]
    digest: str

    def story(self) -> str:
        """Return the story, a line for each event."""
        return "\n".join(map(str, self.events))


def run(
    plan: SimulationPlan, inputs: Sequence[Input], seed: int, faults: Sequence[Fault] = (), layout: Layout | None = None
) -> Outcome:
    """Run an application with these inputs and faults, and check it.

    Args:
        plan: The application.
        inputs: The records of its source topics, with different timestamps.
        seed: Decides the order of all that happens.
        faults: What happens to it.
        layout: Its threads and machines.
    """
    keep_on_heap(_KEPT_BYTES, _AT_ONCE_BYTES)  # as workers do: LMDB's files are opened and closed all the time
    with _folder() as root:
        return _Run(plan, inputs, seed, faults, layout or Layout(), root).outcome()


@contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own in it
    root = Path(tempfile.mkdtemp(prefix="penstock-simulation-", dir=memory if memory.is_dir() else None))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


class _Run:
    def __init__(
        self,
        plan: SimulationPlan,
        inputs: Sequence[Input],
        seed: int,
        faults: Sequence[Fault],
        layout: Layout,
        root: Path,
    ) -> None:
        self._plan = plan
        self._inputs = sorted(inputs, key=lambda each: each.order)
        self._armed = sorted(faults)
        self._scheduler = scheduler = Scheduler(seed, self._on_point)
        self._disk_dice = dice_of("disks", seed)
        self._brokers = EmbeddedBrokers(_APPLICATION, root.name) if layout.is_embedded else Brokers(scheduler)
        for name, (partitions, config) in plan.topics.items():
            self._brokers.create_topic(name, partitions, config)
        self._network = Network(scheduler)
        count = layout.machines * layout.instances
        self._machines = [Machine(f"machine-{number}", root) for number in range(count)]
        self._pause_s = 0.4 if layout.instances == 1 else 1.2  # between inputs: members that are gone are found late
        self._is_full = False
        self._set_back_s = 0.0  # by which clocks were set back
        self._noted: dict[Path, dict[TopicPartition, int]] = {}  # the inputs that replicas stand for
        self._may_forget = (
            plan.config["penstock.data.loss"] == "continue"
            and len(self._machines) == 1
            and not layout.is_embedded
            and not any(each.kind == "power" for each in faults)  # replicas that are lost were all that knows offsets
        )
        self._copied: dict[Path, dict[TopicPartition, int]] = {}  # by folders of copies of global stores
        # With the owners of their tasks.
        self._forgotten: dict[TopicPartition, tuple[int, SimulatedProcess | None]] = {}
        self._kinds: dict[str, int] = {}
        self._fed = 0
        self._applications = [
            SimulatedApplication(
                scheduler,
                self._brokers,
                self._network,
                self._machines[number :: layout.instances],
                plan.app,
                plan.app_of_process,
                layout,
                self._is_done,
                plan.settled_s(faults),
                f"instance-{number}" if layout.instances > 1 else "",
            )
            for number in range(layout.instances)
        ]
        self._readers = {tp: task for task in plan.app.tasks() for tp in plan.app.plan.sources(task)}
        self._places = list(self._readers)

    def outcome(self) -> Outcome:
        applications, scheduler = self._applications, self._scheduler
        with installed(scheduler, self._connection, SimulatedControlClient, self._on_disk) as self._copies:
            try:
                scheduler.spawn("input", SimulatedProcess("input"), self._feed)
                if scheduler.dice.random() < _CLEANS:
                    scheduler.spawn("cleaner", SimulatedProcess("cleaner"), self._clean)
                for number, each in enumerate(applications):
                    each.start(0.001 + number * scheduler.dice.random())
                is_over = scheduler.run(lambda: all(each.has_ended for each in applications), _LIMIT_S)
                self._end_faults()
                violations = [violation for each in applications for violation in each.violations]
                if not is_over:
                    violations.append(f"it does not end: {self._stands_at()}")
                else:
                    violations += self._check()
                digest = self._digest()
            finally:
                scheduler.close()
                self._brokers.close()
        return Outcome(violations, scheduler.events, scheduler.points, scheduler.now_s, self._kinds, digest)

    def _application_of(self, process: SimulatedProcess) -> SimulatedApplication | None:
        """Return the instance that a process is of; None: of none, as that of the input."""
        return next((each for each in self._applications if each.has(process)), None)

    def _connection(self) -> Any:
        """Return a connection of the present process to the log."""
        actor = self._scheduler.current
        application = None if actor is None else self._application_of(actor.process)
        return (application or self._applications[0]).connection()

    # The input

    def _feed(self) -> None:
        dice, filled_first = self._scheduler.dice, self._plan.app.plan.global_topics
        while self._fed < len(self._inputs):
            if self._fed:
                self._scheduler.wait(dice.random() * self._pause_s)
            count = dice.randint(1, max(1, len(self._inputs) // 4))
            while self._fed + count < len(self._inputs) and self._inputs[self._fed + count - 1].topic in filled_first:
                count += 1
            chunk = self._inputs[self._fed : self._fed + count]
            for tp in dict.fromkeys(TopicPartition(each.topic, each.partition) for each in chunk):
                here = [each for each in chunk if TopicPartition(each.topic, each.partition) == tp]
                self._brokers.append(tp, _batch(here))
            self._fed += len(chunk)

    def _clean(self) -> None:
        """Compact topics, as brokers do: deletions last longer if a clock was set back, by which replicas measure."""
        while True:
            self._scheduler.wait(_CLEANS_EVERY_S)
            self._brokers.compact(self._set_back_s)

    def _is_done(self) -> bool:
        brokers = self._brokers
        if self._fed < len(self._inputs) or not brokers.is_settled(self._places):
            return False
        return all(self._done_to(tp) >= brokers.end_of(tp) for tp in self._places) and self._are_copies_filled()

    def _are_copies_filled(self) -> bool:
        """Return whether the copies of global stores that threads use are at the ends of their topics."""
        topics = self._plan.app.plan.global_topics
        if not topics:
            return True
        ends = {tp: self._brokers.end_of(tp) for topic in topics for tp in self._brokers.places(topic)}
        at = [self._copied.get(folder, {}) for folder in self._copies.followed()]
        return all(each.get(tp, 0) >= end for each in at for tp, end in ends.items())

    def _done_to(self, tp: TopicPartition) -> int:
        """Return the offset up to which all was committed.

        What the coordinator has forgotten counts as long as the process that has committed it has the task: it goes on,
        and commits again with its next record. Whoever takes the task over must find out, and commit it anew.
        """
        newest = max(self._brokers.newest_offset(tp), 0)
        offset, owner = self._forgotten.get(tp, (0, None))
        return max(newest, offset) if owner is not None and owner is self._owner_of(tp) else newest

    def _owner_of(self, tp: TopicPartition) -> SimulatedProcess | None:
        return self._applications[0].owner_of(self._readers[tp])

    def _stands_at(self) -> str:
        brokers = self._brokers
        behind = [
            f"{tp.topic}-{tp.partition} at {brokers.newest_offset(tp)} of {brokers.end_of(tp)}"
            for tp in self._places
            if self._done_to(tp) < brokers.end_of(tp)
        ]
        return "; ".join(behind) or "all is committed"

    # Faults

    def _on_point(self, actor: Actor, what: str) -> None:
        while self._armed and self._armed[0].at <= self._scheduler.points:
            if not self._happens(self._armed[0], actor, what):
                return
            self._armed.pop(0)

    def _happens(self, fault: Fault, actor: Actor, what: str) -> bool:
        """Have a fault happen; return False if it does not fit here."""
        process = actor.process
        application = self._application_of(process)
        if application is None:
            return False
        is_driver = process is application.driver
        if fault.kind == "driver":
            self._tell(fault, f"{application.driver.name} crashes")
            application.crash(application.driver)
            return True
        is_request = fault.kind in ("lost", "unanswered", "late")
        if is_driver and not is_request and not (application.instance and fault.kind == "pause"):
            return False
        if is_request:
            if what.startswith(("after", "look", "fetch", "write ", "written")):
                return False
            self._network.failing[actor] = (fault.kind, fault.seconds)
            self._tell(fault, f"{what}: {fault.kind}")
        elif fault.kind == "forget":
            if not self._may_forget:
                return True
            first = [
                inputs for replica, inputs in self._noted.items() if replica.name == "slot-0"
            ]  # others are emptied
            noted_offsets = {tp: offset for inputs in first for tp, offset in inputs.items()}
            if not (lost := self._brokers.forget(noted_offsets)):
                return False
            self._forgotten |= {tp: (noted_offsets[tp], self._owner_of(tp)) for tp in lost}
            places = ", ".join(f"{tp.topic}-{tp.partition}" for tp in lost)
            self._tell(fault, f"the newest offsets are lost of {places}; crashes at: {what}")
            application.crash(process)
        elif fault.kind == "crash":
            self._tell(fault, f"crashes at: {what}")
            application.crash(process)
        elif fault.kind == "power":
            machine = process.machine
            self._tell(fault, f"{machine.name} loses power at: {what}")
            for each in application.processes_on(machine):
                application.crash(each)
            self._scheduler.after_deaths(lambda: machine.cut_power(self._scheduler.now_s, self._disk_dice))
        elif fault.kind == "pause":
            self._tell(fault, f"pauses for {fault.seconds} s at: {what}")
            process.paused_until_s = self._scheduler.now_s + fault.seconds
        elif fault.kind == "cut":
            self._tell(fault, f"does not reach the driver for {fault.seconds} s")
            application.channel.cut(process, fault.seconds)
        elif fault.kind == "double":
            self._tell(fault, "Spark takes it for lost")
            application.doubt(process)
            application.channel.cut(process, fault.seconds)
        elif fault.kind == "clock":
            self._tell(fault, f"the clock of {process.machine.name} is set by {fault.seconds} s")
            process.machine.clock_offset_ms += int(fault.seconds * 1000)
            self._set_back_s += max(0.0, -fault.seconds)
        else:
            self._tell(fault, "the disk is full for the next write")
            self._is_full = True
        return True

    def _end_faults(self) -> None:
        """Let no more faults happen, and end the processes that were left behind, before all is checked."""
        self._armed, self._is_full = [], False
        self._network.failing.clear()
        for machine in self._machines:
            for application in self._applications:
                for process in application.processes_on(machine):
                    self._scheduler.kill(process)

    def _tell(self, fault: Fault, what: str) -> None:
        self._kinds[fault.kind] = self._kinds.get(fault.kind, 0) + 1
        self._scheduler.tell(f"FAULT ({fault}): {what}")

    def _on_disk(self, replica: Any, what: str) -> None:
        if (copied := replica.position.notes.get("positions")) is not None:
            self._copied[replica.directory.parent] = {TopicPartition(topic, at): end for topic, at, end in copied}
        self._scheduler.point(what)
        actor = self._scheduler.current
        if actor is None or actor.process.machine is None:
            return
        if what.startswith("written"):
            self._noted[replica.directory] = _inputs_of(replica)
            if self._disk_dice.random() < _WRITES_BACK:
                actor.process.machine.write_back(replica.directory)
        elif self._is_full:
            self._is_full = False
            raise replica.unusable(OSError(28, "No space left on device"))

    # Checks

    def _check(self) -> list[str]:
        replayed = self._rows_of(self._machines[0], from_disk=False)
        if self._plan.judge is not None:
            violations = self._plan.judge(
                self._inputs, {name: self._outputs(name) for name in self._plan.sinks}, replayed
            )
            stores: Mapping[str, Entries] = {}
        else:
            written, stores = self._plan.undisturbed(self._inputs)
            violations = self._check_outputs(written)
        if self._plan.has_one_state:
            for store, rows in stores.items():
                got = sorted(row for (name, _), kept in replayed.items() if name == store for row in kept)
                if got != rows:
                    violations.append(f"store {store}: {_difference(rows, got)}")
        for machine in self._machines:
            for (store, task), rows in self._rows_of(machine, from_disk=True).items():
                if not self._is_same(store, rows, replayed[store, task]):
                    text = _difference(replayed[store, task], rows)
                    violations.append(f"replica of task {task} on {machine.name}, store {store}: {text}")
            if self._plan.app.plan.global_topics and self._plan.judge is None:
                violations += self._check_copy(machine)
        return violations

    def _check_copy(self, machine: Machine) -> list[str]:
        """Compare a machine's copy of the global stores, if it is at the ends of their topics, with these."""
        app, violations = replace(self._plan.app, replica_root=str(machine.replicas)), []

        def look() -> None:
            log: Any = self._connection()
            copy, filled = FollowedCopy(app, Sensor(), unix_ms), MemoryGlobals(app, Sensor(), unix_ms)
            try:
                if filled.restore(log) == copy.look():
                    for name in sorted(app.topology.global_stores):
                        spec = app.topology.stores[name]
                        rows, expected = ([*each.views.view(spec).all()] for each in (copy, filled))
                        if rows != expected:
                            text = _difference(expected, rows)
                            violations.append(f"copy of global store {name} on {machine.name}: {text}")
            finally:
                filled.close()
                copy.close()

        self._as_checker(machine, look)
        return violations

    def _is_same(self, store: str, rows: Entries, replayed: Entries) -> bool:
        """Return whether a replica has the rows of a replay; where rows expire, those that have may still be there."""
        if self._plan.app.topology.stores[store].retention_ms:
            return set(replayed) <= set(rows)
        return rows == replayed

    def _rows_of(self, machine: Machine, *, from_disk: bool) -> Rows:
        """Return the rows of all stores: by a replay of the changelogs, or of the replicas on a machine's disk."""
        app = self._plan.app
        if from_disk:
            app = replace(app, replica_root=str(machine.replicas))
            tasks = tasks_on_disk(app.replica_root, app.application_id, app.identity)
        else:
            tasks = [task for task in app.tasks() if app.subtopology(task).keeps_state]
        rows: Rows = {}

        def look() -> None:
            log: Any = self._connection()
            committed = log.committed_offsets(app.application_id)
            for task in tasks:
                rows.update(_rows_of_task(app, task, log, committed))

        self._as_checker(machine, look)
        return rows

    def _as_checker(self, machine: Machine, look: Callable[[], None]) -> None:
        """Run a check in a process of its own on a machine."""
        actor = self._scheduler.spawn("checker", SimulatedProcess("checker", machine), look)
        self._scheduler.run(lambda: actor.is_done, self._scheduler.now_s + _LIMIT_S)
        if actor.error is not None:
            raise actor.error

    def _check_outputs(self, written: Mapping[str, Sequence[RawRecord]]) -> list[str]:
        violations = []
        for topic, expected in written.items():
            got = self._outputs(topic)
            expected_rows = [(each.key, each.value, each.timestamp) for each in expected]
            if self._plan.comparison == "in order":
                assert len(got) == 1, "the order of several partitions is not that of one task"  # noqa: S101
                if got[0] != expected_rows:
                    violations.append(f"{topic}: {_difference(expected_rows, got[0])}")
            elif self._plan.comparison == "sums":
                sums, wanted_sums = _sums([row for each in got for row in each]), _sums(expected_rows)
                if sums != wanted_sums:
                    violations.append(f"{topic}: {_difference(sorted(wanted_sums.items()), sorted(sums.items()))}")
            else:
                violations += _by_key(topic, expected_rows, got)
        return violations

    def _outputs(self, topic: str) -> list[list[Fields]]:
        """Return what a topic holds, partition by partition."""
        return [
            [_fields(row) for records in self._brokers.read(tp, 0, 1 << 62) for row in records.to_pylist()]
            for tp in self._brokers.places(topic)
        ]

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for tp, records in self._brokers.content():
            digest.update(f"{tp.topic} {tp.partition} {records.to_pylist()}".encode())
        for event in self._scheduler.events:
            digest.update(f"{event}\n".encode())
        return digest.hexdigest()


def _inputs_of(replica: Any) -> dict[TopicPartition, int]:
    """Return the committed offsets that the rows of a replica stand for; nothing for a global table's."""
    inputs = replica.position.notes.get("inputs") or ()
    return {TopicPartition(topic, partition): offset for topic, partition, offset in inputs}


def _rows_of_task(app: ThreadApp, task: TaskId, log: Any, committed: Mapping[TopicPartition, int]) -> Rows:
    replica = TaskReplica.open(app, task)
    try:
        replica.restore(log, committed)
        logged = [store for store in app.subtopology(task).stores if store in app.changelogs]
        return {(store, str(task)): sorted(replica.state.map(store).scan()) for store in logged}
    finally:
        replica.close()


def _batch(records: Sequence[Input]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([each.timestamp for each in records], pa.int64()),
            "key": pa.array([each.key for each in records], pa.large_binary()),
            "value": pa.array([each.value for each in records], pa.large_binary()),
            "headers": _headers([each.headers for each in records]),
        }
    )


def _headers(of_records: Sequence[Headers]) -> pa.Array:
    if not any(of_records):
        return pa.nulls(len(of_records), HEADERS_TYPE)
    pairs = [[{"key": name, "value": value} for name, value in headers] or None for headers in of_records]
    return pa.array(pairs, HEADERS_TYPE)


def _fields(row: Mapping[str, Any]) -> Fields:
    return row["key"], row["value"], row["timestamp"]


def _by_key(topic: str, expected_rows: Sequence[Fields], got: Sequence[Sequence[Fields]]) -> list[str]:
    expected: dict[Any, list[Fields]] = {}
    for row in expected_rows:
        expected.setdefault(row[0], []).append(row)
    actual: dict[Any, list[Fields]] = {}
    for rows in got:
        for row in rows:
            actual.setdefault(row[0], []).append(row)
    wrong = [key for key in sorted({*expected, *actual}, key=repr) if expected.get(key, []) != actual.get(key, [])]
    return [f"{topic}, key {key!r}: {_difference(expected.get(key, []), actual.get(key, []))}" for key in wrong[:3]]


def _sums(rows: Sequence[Fields]) -> dict[Any, int]:
    sums: dict[Any, int] = {}
    for key, value, _ in rows:
        sums[key] = sums.get(key, 0) + int.from_bytes(value, "big", signed=True)
    return sums


def _difference(expected_rows: Sequence[Any], got: Sequence[Any]) -> str:
    """Say in short where two lists differ."""
    row = next((at for at, pair in enumerate(zip(expected_rows, got, strict=False)) if pair[0] != pair[1]), None)
    if row is None:
        row = min(len(expected_rows), len(got))
    expected = expected_rows[row] if row < len(expected_rows) else "no more"
    actual = got[row] if row < len(got) else "no more"
    return f"{len(got)} in place of {len(expected_rows)}; number {row} is {actual!r}, not {expected!r}"
