"""Leases and journals in simulations: starts that race for the lease of a service, and write its journal meanwhile.

Leases, their keepers, journals and Kafka's records that only one writer may change are the production code. Simulated
are the brokers with their transactions, the clock, the order of all threads, and the faults: processes crash and pause,
requests and answers are lost, and requests arrive when their sender has given them up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa

from penstock.errors import FencedError, InvalidStateError, LogError, LogUnavailableError, UnknownTopicError
from penstock.log import leases
from penstock.log.base import RECORD_SCHEMA, Fetched, Lease, TopicInfo, TopicPartition
from penstock.log.fenced_record import RecordName
from penstock.log.kafka.transactions import fenced_record
from penstock.log.kafka.transactions.fenced_record import KafkaRecords
from penstock.log.leases import LeaseKeeper, Leases, lease_name
from penstock.log.thread_clients import Part, Writer
from penstock.sql.session.journal import JournalEntry, StatementJournal
from penstock.testing.simulation.scheduler import Actor, Scheduler, SimulatedProcess, dice_of
from penstock.testing.simulation.stand_ins import SimulatedThreads, SimulatedTime

__all__ = ["RecordsRun", "run_records"]

SERVICE, STATEMENTS, TTL_MS = "service", "statements", 8_000
LEASES = lease_name(SERVICE).topic
HOSTS, STARTS, ENTRIES = 3, 9, 4
LIMIT_S, OPEN_S = 400.0, 5.0  # of a transaction that nobody ends
FAULTS = ("crash", "crash", "pause", "lost", "unanswered", "late", "cut", "cut")
MOST_FAULTS, LAST_POINT = 8, 1200
T = TypeVar("T")


@dataclass
class Transaction:
    """The present transaction of a transactional id; each has a number of its own."""

    epoch: int = -1
    number: int = 0
    since_s: float = 0.0
    parts: list[Part] = field(default_factory=list)


@dataclass(eq=False)
class Host:
    """A machine, as far as `SimulatedTime` asks for it."""

    name: str
    clock_offset_ms: int = 0
    booted_s: float = 0.0


class RecordsRun:
    """One run.

    Args:
        seed: Decides the order and the faults.

    Attributes:
        violations: What must not be.
        scheduler: The scheduler, with the story.
    """

    def __init__(self, seed: int) -> None:
        self.violations: list[str] = []
        self.scheduler = Scheduler(seed, self._at_point)
        self._dice = dice_of("records", seed)
        points = sorted(self._dice.randint(5, LAST_POINT) for _ in range(self._dice.randint(0, MOST_FAULTS)))
        self._faults = [(point, self._dice.choice(FAULTS)) for point in points]
        self._failing: dict[Actor, str] = {}
        self._away: dict[SimulatedProcess, float] = {}  # until when a process reaches no broker
        differ = self._dice.random() < 0.3
        self._hosts = [Host(f"host-{n}", self._dice.randint(-20_000, 20_000) * differ) for n in range(HOSTS)]
        self._clocks_agree = not differ
        self._processes: dict[int, SimulatedProcess] = {}
        self._topics: dict[str, list[dict[str, Any]]] = {LEASES: []}
        self._transactions: dict[str, Transaction] = {}
        self._late: list[tuple[float, Callable[[], object]]] = []
        self._done: list[str] = []  # the statements whose writer knows that they are stored

    def run(self) -> RecordsRun:
        """Let all happen."""
        scheduler, clock = self.scheduler, SimulatedTime(self.scheduler)
        threads: Any = SimulatedThreads(scheduler)
        threads.Lock = threads.RLock = threads.Condition
        threads.current_thread = lambda: None
        with ExitStack() as stack:
            for where in (leases, fenced_record):
                stack.enter_context(patch.object(where, "threading", threads))
            for name in ("penstock.base.clock.time", "penstock.log.fenced_record.time", "penstock.log.leases.time",
                         "penstock.log.kafka.transactions.fenced_record.time"):  # fmt: skip
                stack.enter_context(patch(name, clock))
            token = SimpleNamespace(token_hex=lambda size: f"{scheduler.dice.getrandbits(8 * size):x}")
            stack.enter_context(patch.object(fenced_record, "secrets", token))
            stack.enter_context(patch.object(fenced_record, "KafkaCommitProducer", SimulatedProducer))
            stack.enter_context(patch.object(leases, "own_process", self._own_process))
            stack.enter_context(patch.object(leases, "may_run", self._may_run))
            stack.enter_context(patch.object(leases, "socket", SimpleNamespace(gethostname=self._host)))
            for logged in (leases, fenced_record):
                stack.enter_context(patch.object(logged._log, "disabled", new=True))
            actors = [self._start(number) for number in range(STARTS)]
            if not scheduler.run(lambda: all(each.is_done for each in actors), LIMIT_S):
                self.violations.append("it does not end")
            scheduler.close()
            self.violations += [f"{each.name}: {each.error!r}" for each in actors if each.error is not None]
            self._check_end()
        return self

    def story(self) -> str:
        """Return the story, and what must not be."""
        return "\n".join([*map(str, self.scheduler.events), *(f"WRONG: {each}" for each in self.violations)])

    # Starts

    def _start(self, number: int) -> Actor:
        process = self._processes[number] = SimulatedProcess(f"start-{number}", self._hosts[number % HOSTS])
        return self.scheduler.spawn(process.name, process, lambda: self._serve(number), number // 2 * 4.0)

    def _serve(self, number: int) -> None:
        """Run the service: take the lease, read the journal, add statements, and give the lease back."""
        log = SimulatedLog(self)
        for _ in range(20):
            try:
                lease = log.leases.acquire(SERVICE, f"start-{number}", TTL_MS, force=False)
                break
            except (FencedError, LogUnavailableError):
                self.scheduler.wait(1.0 + number / 10)
        else:
            return
        self.scheduler.tell(f"has the lease, epoch {lease.epoch}")
        keeper = LeaseKeeper(log, lease)  # type: ignore[arg-type]
        with suppress(FencedError, LogUnavailableError):  # another start has taken over; or no broker answers
            self._write(log, lease, keeper)
        keeper.end()
        with suppress(FencedError, LogUnavailableError):
            log.leases.release(lease)

    def _write(self, log: SimulatedLog, lease: Lease, keeper: LeaseKeeper) -> None:
        journal = StatementJournal(log, STATEMENTS)  # type: ignore[arg-type]
        journal.hold(lease)
        known = list(self._done)
        self._check_has(known, [entry.text for entry in journal.read()])
        for number in range(ENTRIES):
            entry = JournalEntry(f"{lease.epoch}-{number}", {}, 0)
            for tries in range(4):
                try:
                    journal.append(entry)
                    break
                except LogUnavailableError:
                    if tries == 3:
                        raise
                    self.scheduler.wait(1.0)
                    if self.scheduler.dice.random() < 0.5:  # its user goes on with another statement
                        entry = JournalEntry(f"{lease.epoch}-{number}-instead", {}, 0)
                except FencedError:
                    if self._lease().epoch == lease.epoch:
                        self.violations.append(f"epoch {lease.epoch} is the newest, and cannot write")
                    raise
                except InvalidStateError as error:  # the one before was stored, so the service has to be opened again
                    if not entry.text.endswith("instead"):
                        self.violations.append(f"{entry.text}: {error.message}")
                    self._check_ended(journal, entry)
                    return
            self._done.append(entry.text)
            self.scheduler.tell(f"has stored {entry.text}")
            keeper.check()
            self.scheduler.wait(self.scheduler.dice.random() * 3)

    # What must not be

    def _check_ended(self, journal: StatementJournal, entry: JournalEntry) -> None:
        """Check that a session whose catalog lacks a statement writes no other one behind it."""
        with suppress(InvalidStateError, FencedError):
            journal.append(JournalEntry(f"{entry.text}-after", {}, 0))
            self.violations.append(f"{entry.text}-after follows a statement that its session does not have")

    def _check_end(self) -> None:
        try:
            texts = [entry.text for entry in StatementJournal(SimulatedLog(self), STATEMENTS).read()]  # type: ignore[arg-type]
        except LogError as error:
            self.violations.append(error.message)
            return
        self._check_has(self._done, texts)

    def _check_has(self, known: list[str], texts: list[str]) -> None:
        if not set(known) <= set(texts):
            self.violations.append(f"{known} are stored, but the journal has {texts}")
        if (epochs := [int(each.partition("-")[0]) for each in texts]) != sorted(epochs):
            self.violations.append(f"a start has written after the next one: {texts}")
        if len(set(texts)) < len(texts):
            self.violations.append(f"the journal has a statement twice: {texts}")

    def _check_lease(self, value: bytes) -> None:
        """Check that a lease may follow the one that is stored."""
        held, new = self._lease(), Lease(**json.loads(value))
        if new.epoch == held.epoch:
            if new.pid != held.pid:
                self.violations.append(f"start-{held.pid} and start-{new.pid} both hold epoch {new.epoch}")
            if held.released:
                self.violations.append(f"epoch {new.epoch} was released, and is renewed")
        elif new.epoch != held.epoch + 1:
            self.violations.append(f"epoch {new.epoch} follows epoch {held.epoch}")
        elif (
            self._clocks_agree
            and not held.released
            and new.since_ms - held.heartbeat_ms <= held.ttl_ms
            and not self._processes[held.pid].is_dead
        ):
            self.violations.append(f"start-{new.pid} takes the lease of start-{held.pid}, which runs")

    def _lease(self) -> Lease:
        newest = self._topics[LEASES][-1]["value"] if self._topics[LEASES] else None
        none = Lease(SERVICE, "", 0, "", -1, 0, 0, 0, released=True)
        return none if newest is None else Lease(**json.loads(newest))

    # Processes

    def _own_process(self) -> tuple[str, int, str]:
        process = self._current().process
        number = next(number for number, each in self._processes.items() if each is process)
        return process.machine.name, number, process.name

    def _host(self) -> str:
        return str(self._current().process.machine.name)

    def _may_run(self, host: str, pid: int, start: str) -> bool:
        return host != self._host() or not self._processes[pid].is_dead

    def _current(self) -> Actor:
        assert self.scheduler.current is not None
        return self.scheduler.current

    def _at_point(self, actor: Actor, what: str) -> None:
        if not self._faults or self.scheduler.points < self._faults[0][0]:
            return
        kind = self._faults[0][1]
        if kind in {"lost", "unanswered", "late", "cut"} and what.startswith("after "):
            return
        self._faults.pop(0)
        self.scheduler.tell(f"FAULT: {kind} at: {what}")
        if kind == "crash":
            self.scheduler.kill(actor.process)
        elif kind == "pause":
            actor.process.paused_until_s = self.scheduler.now_s + self._dice.uniform(0.5, 20.0)
        else:
            self._failing[actor] = kind

    # Brokers

    def request(self, what: str, effect: Callable[[], T]) -> T:
        """Send a request, and wait for its answer; one that is late has an effect when its sender has given it up."""
        scheduler = self.scheduler
        scheduler.point(what)
        self._arrive()
        actor = scheduler.current
        kind = "" if actor is None else self._failing.pop(actor, "")
        if actor is not None and self._away.get(actor.process, 0.0) > scheduler.now_s:
            kind = "lost"
        if kind == "late":
            self._late.append((scheduler.now_s + self._dice.uniform(0.5, 8.0), effect))
        if kind in {"lost", "late"}:
            raise _no_answer(what)
        answer = effect()
        scheduler.point(f"after {what}")
        if kind == "cut" and actor is not None:
            self._away[actor.process] = scheduler.now_s + self._dice.uniform(0.5, 10.0)
        if kind in {"unanswered", "cut"}:
            raise _no_answer(what)
        return answer

    def _arrive(self) -> None:
        """Let late requests have their effect, and end transactions that are open for too long."""
        now = self.scheduler.now_s
        due = [effect for at_s, effect in self._late if at_s <= now]
        self._late = [each for each in self._late if each[0] > now]
        for effect in due:
            with suppress(FencedError):
                effect()
        for each in self._transactions.values():
            if each.parts and now - each.since_s > OPEN_S:
                each.epoch, each.parts = each.epoch + 1, []

    def init(self, id_: str) -> int:
        """Return the epoch of a new producer, which ends what the one before has left open."""
        transaction = self._transactions.setdefault(id_, Transaction())
        transaction.epoch, transaction.parts = transaction.epoch + 1, []
        transaction.number += 1
        return transaction.epoch

    def add(self, id_: str, epoch: int, parts: list[Part]) -> int:
        """Write records that nobody sees yet; return the number of the transaction."""
        transaction = self._of(id_, epoch)
        transaction.parts, transaction.since_s = list(parts), self.scheduler.now_s
        return transaction.number

    def end(self, id_: str, epoch: int, number: int, *, commit: bool) -> dict[TopicPartition, int]:
        """End a transaction, unless it has ended; return the offsets that follow its records."""
        transaction = self._of(id_, epoch)
        if transaction.number != number:
            return {}
        parts, transaction.parts = transaction.parts, []
        transaction.number += 1
        following = {}
        for topic, partition, records in parts if commit else ():
            rows = self._topics[topic]
            for row in records.to_pylist():
                if topic == LEASES:
                    self._check_lease(row["value"])
                rows.append({**row, "offset": len(rows)})
                self.scheduler.tell(f"wrote {_shown(topic, row['value'])}")
            following[TopicPartition(topic, partition)] = len(rows)
        return following

    def _of(self, id_: str, epoch: int) -> Transaction:
        transaction = self._transactions[id_]
        if transaction.epoch != epoch:
            raise FencedError(f"{id_}: epoch {epoch} is fenced by {transaction.epoch}", hint="The newer one goes on.")
        return transaction

    def settled_end(self, topic: str) -> int | None:
        """Wait until no transaction is open that has written to a topic; return its end."""
        while any(part[0] == topic for each in self._transactions.values() for part in each.parts):
            self.scheduler.wait(0.2)
            self._arrive()
            if self.scheduler.current is None:
                self._transactions.clear()
        return len(self._topics[topic]) if topic in self._topics else None

    def rows(self, topic: str, start: int, end: int) -> pa.RecordBatch:
        """Return the records with start <= offset < end."""
        return pa.RecordBatch.from_pylist(self._topics[topic][start:end], RECORD_SCHEMA)

    def topics(self) -> list[str]:
        """Return the names of the topics."""
        return list(self._topics)

    def create(self, topic: str) -> None:
        """Create a topic, if it is not there."""
        self._topics.setdefault(topic, [])


class SimulatedLog:
    """The log, as far as leases and journals use it, from one process."""

    def __init__(self, run: RecordsRun) -> None:
        self.run = run
        self._records = KafkaRecords(self)  # type: ignore[arg-type]
        self.leases = Leases(lambda application: self._records.get(lease_name(application)))

    def renew_lease(self, lease: Lease) -> None:
        self.leases.renew(lease)

    def fenced_record(self, name: RecordName, lease: tuple[str, int] | None = None) -> Any:
        return self._records.get(name, lease)

    def settled_end(self, topic: str, application: str) -> int | None:
        return self.run.request("settled end", lambda: self.run.settled_end(topic))

    def settled_ends(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.settled_end(tp.topic, "") or 0 for tp in places}

    def beginning_offset(self, topic: str, partition: int) -> int:
        return 0

    def end_offset(self, topic: str, partition: int) -> int:
        return self.settled_end(topic, "") or 0

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield self.run.request(f"read {topic}", lambda: self.run.rows(topic, start, end))

    def read(self, topic: str, partition: int, start: int) -> Fetched:
        rows = self.run.request(f"read {topic}", lambda: self.run.rows(topic, start, start + 3))
        return Fetched(rows, start + rows.num_rows)

    def topics(self) -> list[TopicInfo]:
        return [TopicInfo(name, 1, {}) for name in self.run.request("topics", self.run.topics)]

    def partitions(self, topic: str) -> int:
        if topic not in self.run.request("topics", self.run.topics):
            raise UnknownTopicError(topic, hint="It is not there.")
        return 1

    def create_topic(self, topic: str, *_: object) -> None:
        self.run.request("create", lambda: self.run.create(topic))


class SimulatedProducer:
    """The producer of one transactional id, see `KafkaCommitProducer`."""

    def __init__(self, log: SimulatedLog, writer: Writer, check_lease: Callable[[], None]) -> None:
        check_lease()
        self._run, self._id = log.run, writer.transactional_id
        self._parts: list[Part] = []
        self._number = -1
        self._epoch = self._run.request("init", lambda: self._run.init(self._id))

    def send(self, parts: list[Part]) -> None:
        self._parts = list(parts)

    def commit(self, offsets: object) -> dict[TopicPartition, int]:
        run, id_, epoch, parts = self._run, self._id, self._epoch, self._parts
        self._number = number = run.request("produce", lambda: run.add(id_, epoch, parts))
        return run.request("commit", lambda: run.end(id_, epoch, number, commit=True))

    def abort(self) -> None:
        run, id_, epoch = self._run, self._id, self._epoch
        run.request("abort", lambda: run.end(id_, epoch, run._of(id_, epoch).number, commit=False))

    def close(self) -> None:
        pass


def _no_answer(what: str) -> LogUnavailableError:
    return LogUnavailableError(f"no broker answers ({what})", hint="The simulated network was cut.")


def _shown(topic: str, value: bytes) -> str:
    facts = json.loads(value)
    if topic != LEASES:
        return f"the statement {facts['statement']}"
    return f"the lease: epoch {facts['epoch']} of {facts['owner']}" + (", released" if facts["released"] else "")


def run_records(seed: int) -> RecordsRun:
    """Run a seed."""
    return RecordsRun(seed).run()
