"""Records that two may write: holders that race, that pause between compare and write, and whose answers are lost."""

from __future__ import annotations

import itertools
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kafka_proxy import END_TXN, INIT_PRODUCER, LIST_TRANSACTIONS, PRODUCE, KafkaProxy, kafka_proxy
from penstock.base.clock import unix_ms
from penstock.engines.application.application_note import read_application, take_application, write_application
from penstock.engines.application.internal_topic_creation import changelog_writer
from penstock.errors import FencedError, InvalidStateError, LogUnavailableError
from penstock.log import leases
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.fenced_record import RecordName, StoredRecord, change_record
from penstock.log.kafka.transactions import fenced_record
from penstock.log.open import open_log
from penstock.log.processes import own_process
from penstock.sql.session.journal import JournalEntry, StatementJournal
from penstock.tools.broker.process import Broker
from penstock.topology.plan.internal_topics import numbers_topic

LOGS = ("embedded", "kafka")
PATIENCE_S = 60
_names = itertools.count()


@pytest.fixture
def proxy(kafka: Broker) -> Iterator[KafkaProxy]:
    with kafka_proxy(kafka) as running:
        yield running


@pytest.fixture
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], TopicLog]]:
    """Opens the same log again and again, as processes do."""
    with ExitStack() as stack:

        def open_again() -> TopicLog:
            if request.param == "embedded":  # another path to the same file: another connection
                (folder := tmp_path / f"at-{next(_names)}").symlink_to(tmp_path, target_is_directory=True)
                return stack.enter_context(open_log(f"sqlite:///{folder / 'log.db'}"))
            url = request.getfixturevalue("kafka").settings.bootstrap_servers
            return stack.enter_context(open_log(url))

        yield open_again


@pytest.fixture
def name() -> str:
    return f"fenced-{next(_names)}"


def both(*actions: Callable[[], Any]) -> list[Any]:
    """Run actions at the same moment; the results, or errors of fencing."""
    gate = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        gate.wait(PATIENCE_S)
        try:
            return action()
        except FencedError as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def counter(log: TopicLog, name: str) -> RecordName:
    topic = f"{name}-counter"
    if topic not in {each.name for each in log.topics()}:
        log.create_topic(topic, 1, {"cleanup.policy": "compact"})
    return RecordName(name, "note", topic, b"counter")


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_of_writers_that_race_for_a_version_one_succeeds(opened: Callable[[], TopicLog], name: str) -> None:
    logs = [opened() for _ in range(3)]
    record = counter(logs[0], name)
    rounds = 12
    for number in range(rounds):
        version = logs[0].fenced_record(record).read().version
        text = [f"{number} {writer}".encode() for writer in range(3)]
        results = both(*(
            partial(log.fenced_record(record).replace, value, version)
            for log, value in zip(logs, text, strict=True)
        ))  # fmt: skip
        winners = [each for each in results if not isinstance(each, FencedError)]
        assert len(winners) == 1, results
        assert {log.fenced_record(record).read() for log in logs} == set(winners)
    values = [
        v
        for rows in logs[0].iterate(record.topic, 0, 0, logs[0].end_offset(record.topic, 0))
        for v in rows["value"].to_pylist()
    ]
    assert len(values) == rounds


def adding(name: str) -> Callable[[StoredRecord], bytes | None]:
    """Adds a name to a list of names, unless it is there."""

    def change(stored: StoredRecord) -> bytes | None:
        names = json.loads(stored.value or b"[]")
        return None if name in names else json.dumps([*names, name]).encode()

    return change


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_no_change_of_several_writers_without_a_lease_is_lost(opened: Callable[[], TopicLog], name: str) -> None:
    logs = [opened() for _ in range(3)]
    record = counter(logs[0], name)
    rounds = 4
    for number in range(rounds):
        both(*(
            partial(change_record, log.fenced_record(record), adding(f"{number} {writer}"))
            for writer, log in enumerate(logs)
        ))  # fmt: skip
    stored = logs[0].fenced_record(record).read()
    assert sorted(json.loads(stored.value or b"")) == [f"{n} {writer}" for n in range(rounds) for writer in range(3)]
    assert change_record(logs[1].fenced_record(record), adding("0 0")) == stored  # is there: nothing is written
    assert logs[2].fenced_record(record).read() == stored


def test_a_writer_without_a_lease_that_pauses_between_compare_and_write_writes_over_nothing(
    kafka: Broker, proxy: KafkaProxy, name: str
) -> None:
    with (
        open_log(proxy.servers) as one,
        open_log(kafka.settings.bootstrap_servers) as two,
        ThreadPoolExecutor() as pool,
    ):
        record = counter(one, name)
        change_record(one.fenced_record(record), adding("first"))
        with proxy.held(PRODUCE) as come:
            paused = pool.submit(change_record, one.fenced_record(record), adding("paused"))
            assert come.wait(PATIENCE_S)
            change_record(two.fenced_record(record), adding("second"))
        assert json.loads(paused.result(PATIENCE_S).value or b"") == ["first", "second", "paused"]
        assert json.loads(two.fenced_record(record).read().value or b"") == ["first", "second", "paused"]


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_a_record_that_was_taken_is_no_longer_written_by_its_holder(opened: Callable[[], TopicLog], name: str) -> None:
    one, two = opened(), opened()
    record, application = counter(one, name), f"{name}-a"
    first = one.acquire_lease(application, "one")
    holder = one.fenced_record(record, (application, first.epoch))
    before = holder.replace(b"1", holder.held().version)
    second = two.acquire_lease(application, "two", force=True)
    newer = two.fenced_record(record, (application, second.epoch))
    assert newer.take().value == b"1"
    with pytest.raises(FencedError):
        holder.replace(b"stale", before.version)
    with pytest.raises(FencedError):
        holder.take()
    newer.replace(b"2", newer.held().version)  # nothing of that has done it any harm
    assert one.fenced_record(record).read().value == b"2"


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_of_several_starts_at_once_one_holds_the_lease(opened: Callable[[], TopicLog], name: str) -> None:
    logs = [opened() for _ in range(3)]
    for number in range(8):
        application = f"{name}-{number}"
        results = both(*(partial(log.acquire_lease, application, "me") for log in logs))
        held = [(log, each) for log, each in zip(logs, results, strict=True) if not isinstance(each, FencedError)]
        assert len(held) == 1, results
        log, lease = held[0]
        assert lease.epoch == 1
        for _ in range(3):  # the starts that were refused have done it no harm
            log.renew_lease(lease)
        assert {each.lease(application).epoch for each in logs} == {1}
        log.release_lease(lease)


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_a_lease_goes_on_from_holder_to_holder(opened: Callable[[], TopicLog], name: str) -> None:
    logs, application = [opened() for _ in range(2)], name
    for epoch in range(1, 13):
        results = both(*(partial(log.acquire_lease, application, "me", force=epoch % 3 == 0) for log in logs))
        held = [(log, each) for log, each in zip(logs, results, strict=True) if not isinstance(each, FencedError)]
        newest = max(each.epoch for _, each in held)
        for log, each in held:
            if each.epoch == newest:
                log.renew_lease(each)
            else:
                with pytest.raises(FencedError, match=f"epoch {newest}"):
                    log.renew_lease(each)
                log.release_lease(each)
        assert not logs[0].lease(application).released
        next(log.release_lease(each) for log, each in held if each.epoch == newest)
    assert len({each.lease(application) for each in logs}) == 1


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_a_start_leaves_a_late_heartbeat_its_lease(opened: Callable[[], TopicLog], name: str) -> None:
    """A holder that was silent for too long renews its lease while another one takes it: one of both has it then."""
    one, two = opened(), opened()
    for number in range(8):
        lease = one.acquire_lease(f"{name}-{number}", "one", ttl_ms=-1)  # late at once
        alive = replace(lease, ttl_ms=60_000)
        late, taken = both(partial(one.renew_lease, alive), partial(two.acquire_lease, alive.application, "two"))
        if isinstance(taken, FencedError):
            assert not isinstance(late, FencedError)
            one.renew_lease(alive)
        else:
            with pytest.raises(FencedError, match="two"):
                one.renew_lease(alive)
            two.renew_lease(taken)


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_a_holder_whose_clock_is_behind_keeps_its_lease_while_it_sends_heartbeats(
    opened: Callable[[], TopicLog], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, ended, clock = opened(), opened(), threading.Event(), threading.local()

    @contextmanager
    def behind() -> Iterator[None]:
        """What this thread does inside happens on a machine whose clock is behind."""
        clock.behind_ms = 600_000
        yield
        clock.behind_ms = 0

    monkeypatch.setattr(leases, "unix_ms", lambda: unix_ms() - getattr(clock, "behind_ms", 0))
    monkeypatch.setattr(leases, "own_process", lambda: ("elsewhere", *own_process()[1:]))
    with behind():
        held = one.acquire_lease(name, "one", ttl_ms=40_000)

    def renew() -> None:
        with behind():
            while not ended.wait(0.01):
                one.renew_lease(held)

    with ThreadPoolExecutor() as pool:
        renewing = pool.submit(renew)
        try:
            with pytest.raises(FencedError, match="runs already: one"):
                two.acquire_lease(name, "two")
        finally:
            ended.set()
        renewing.result(PATIENCE_S)
    with behind():
        one.renew_lease(replace(held, ttl_ms=400))  # its last one
    assert two.acquire_lease(name, "two").epoch == 2


@pytest.mark.parametrize("doing", ["renew", "release"])
def test_a_holder_that_pauses_between_compare_and_write_writes_nothing(
    kafka: Broker, proxy: KafkaProxy, name: str, doing: str
) -> None:
    with open_log(proxy.servers) as one, open_log(kafka.settings.bootstrap_servers) as two:
        first = one.acquire_lease(name, "one")
        act = {"renew": one.renew_lease, "release": one.release_lease}[doing]
        with ThreadPoolExecutor() as pool:
            with proxy.held(PRODUCE) as come:
                paused = pool.submit(act, first)
                assert come.wait(PATIENCE_S)
                second = two.acquire_lease(name, "two", force=True)
            if doing == "renew":
                with pytest.raises(FencedError, match="two"):
                    paused.result(PATIENCE_S)
            else:
                paused.result(PATIENCE_S)
        held = two.lease(name)
        assert (held.owner, held.epoch, held.released) == ("two", 2, False)
        two.renew_lease(second)


def test_a_start_that_pauses_before_its_claim_finds_the_other_one(kafka: Broker, proxy: KafkaProxy, name: str) -> None:
    """It fences the holder by that claim, without knowing; the holder goes on, as its lease is unchanged."""
    with (
        open_log(proxy.servers) as one,
        open_log(kafka.settings.bootstrap_servers) as two,
        ThreadPoolExecutor() as pool,
    ):
        with proxy.held(INIT_PRODUCER) as come:
            paused = pool.submit(one.acquire_lease, name, "one")
            assert come.wait(PATIENCE_S)
            lease = two.acquire_lease(name, "two")
        with pytest.raises(FencedError, match="runs already: two"):
            paused.result(PATIENCE_S)
        two.renew_lease(lease)
        assert two.acquire_lease(name, "two", replacing=lease).epoch == 2


def test_a_start_that_was_overtaken_leaves_the_transactions_of_the_newer_one_open(
    kafka: Broker, proxy: KafkaProxy, name: str
) -> None:
    servers = kafka.settings.bootstrap_servers
    with open_log(proxy.servers) as one, open_log(servers) as two, ThreadPoolExecutor() as pool:
        two.create_topic(name, 1)
        with proxy.held(LIST_TRANSACTIONS) as come:
            paused = pool.submit(one.acquire_lease, name, "one")
            assert come.wait(PATIENCE_S)  # it has the lease, and looks for transactions that are open
            two.acquire_lease(name, "two", force=True)
            writers = [Producer({"bootstrap.servers": servers, "transactional.id": f"{name}-0_{n}"}) for n in range(3)]
            for writer in writers:
                writer.init_transactions(PATIENCE_S)
                writer.begin_transaction()
                writer.produce(name, b"of the newer one")
                assert writer.flush(PATIENCE_S) == 0
        with pytest.raises(FencedError, match="two"):
            paused.result(PATIENCE_S)
        for writer in writers:
            writer.commit_transaction(PATIENCE_S)


@pytest.mark.parametrize("request_kind", [INIT_PRODUCER, PRODUCE, END_TXN])
def test_leases_survive_lost_answers(proxy: KafkaProxy, name: str, request_kind: int) -> None:
    with open_log(proxy.servers) as log:
        proxy.lose_answers(request_kind)
        lease = log.acquire_lease(name, "me")
        assert proxy.lost == 1
        assert (lease.epoch, log.lease(name)) == (1, lease)
        proxy.lose_answers(request_kind, 3)
        log.renew_lease(lease)
        log.renew_lease(lease)
        assert log.acquire_lease(name, "me", replacing=lease).epoch == 2


def noted(log: TopicLog, name: str) -> Any:
    log.settled_ends([TopicPartition(numbers_topic(name), 0)])
    return read_application(log, name)


def held_journal(log: TopicLog, name: str) -> StatementJournal:
    """The journal of statements of a session that has just taken the lease."""
    journal = StatementJournal(log, f"{name}-statements")
    journal.hold(log.acquire_lease(name, "session"))
    return journal


def entry(number: int) -> JournalEntry:
    return JournalEntry(f"CREATE TYPE t{number} AS INT;", {"a": "b"}, number)


@pytest.mark.parametrize("request_kind", [PRODUCE, END_TXN])
def test_a_statement_whose_answer_is_lost_is_stored_once(proxy: KafkaProxy, name: str, request_kind: int) -> None:
    with open_log(proxy.servers) as log:
        journal = held_journal(log, name)
        journal.read()
        for number in range(4):
            if number in (1, 2):
                proxy.lose_answers(request_kind, number)
            journal.append(entry(number))
        assert proxy.lost == 3
        assert StatementJournal(log, f"{name}-statements").read() == [entry(number) for number in range(4)]


def test_a_statement_that_may_be_stored_is_looked_for_before_the_next_one(
    kafka: Broker, proxy: KafkaProxy, name: str
) -> None:
    with open_log(proxy.servers, {"task.timeout.ms": 1_000}) as log:
        journal = held_journal(log, name)
        journal.append(entry(0))
        proxy.lose_answers(END_TXN, 10_000)
        with pytest.raises(Exception, match=r"."):
            journal.append(entry(1))
        proxy.lose_answers(END_TXN, 0)
        journal.append(entry(1))  # the same statement once more, as a user does
        journal.append(entry(2))
        assert StatementJournal(log, f"{name}-statements").read() == [entry(0), entry(1), entry(2)]


def test_a_session_whose_catalog_lacks_a_stored_statement_adds_no_other_one(
    kafka: Broker, proxy: KafkaProxy, name: str
) -> None:
    with open_log(proxy.servers, {"task.timeout.ms": 1_000}) as log:
        journal = held_journal(log, name)
        journal.append(entry(0))
        proxy.lose_answers(END_TXN, 10_000)
        with pytest.raises(LogUnavailableError):
            journal.append(entry(1))
        proxy.lose_answers(END_TXN, 0)
        for number in (2, 3, 1):
            with pytest.raises(InvalidStateError, match="CREATE TYPE t1 AS INT; was stored"):
                journal.append(entry(number))
        assert StatementJournal(log, f"{name}-statements").read() == [entry(0), entry(1)]


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_a_statement_that_a_lost_answer_has_doubled_counts_once(opened: Callable[[], TopicLog], name: str) -> None:
    log, topic = opened(), f"{name}-statements"
    journal = held_journal(log, name)
    for number in range(3):
        journal.append(entry(number))
        if number != 1:
            continue
        end = log.settled_ends([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        doubled = list(log.iterate(topic, 0, 0, end))[-1].slice(0).to_pylist()[-1:]  # as an earlier version wrote it
        log.append(topic, 0, pa.RecordBatch.from_pylist([{k: each[k] for k in ("key", "value")} for each in doubled]))
    assert StatementJournal(log, topic).read() == [entry(number) for number in range(3)]


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_sessions_that_race_write_one_chain(opened: Callable[[], TopicLog], name: str) -> None:
    one, two = opened(), opened()
    topic = f"{name}-statements"
    for number in range(6):
        leases = [log.acquire_lease(name, "session", force=True) for log in (one, two)]
        journals = [StatementJournal(log, topic) for log in (one, two)]
        for journal, lease in zip(reversed(journals), reversed(leases), strict=True):
            if lease is leases[1]:
                journal.hold(lease)
                journal.read()
            else:  # its lease is gone
                with pytest.raises(FencedError):
                    journal.hold(lease)
        journals[1].append(entry(number))
        assert StatementJournal(one, topic).read() == [entry(each) for each in range(number + 1)]


SESSION = """
import sys
from penstock.log.open import open_log
from penstock.sql.session.journal import JournalEntry, StatementJournal

log = open_log(sys.argv[1])
journal = StatementJournal(log, sys.argv[2] + "-statements")
journal.hold(log.acquire_lease(sys.argv[2], "session", force=True))
number = len(journal.read())
while True:
    print(number, flush=True)  # all before it are stored
    journal.append(JournalEntry(f"CREATE TYPE t{number} AS INT;", {"a": "b"}, number))
    number += 1
"""


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_sessions_that_are_killed_between_a_write_and_its_answer_leave_one_chain(
    opened: Callable[[], TopicLog], name: str
) -> None:
    log, stored = opened(), 0
    for round_ in range(5):
        command = [sys.executable, "-c", SESSION, log.url, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
            assert session.stdout is not None
            for line in session.stdout:
                stored = int(line)
                if stored >= 7 * round_ + 3:
                    break
            time.sleep(0.002 * round_)
            session.kill()
            stored = max([stored, *map(int, session.stdout)])
        journal = StatementJournal(log, f"{name}-statements")
        journal.hold(log.acquire_lease(name, "reader", force=True))
        found = journal.read()
        assert found == [entry(number) for number in range(len(found))]
        assert stored <= len(found) <= stored + 1


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_an_application_is_noted_by_the_holder_of_its_lease_alone(opened: Callable[[], TopicLog], name: str) -> None:
    one, two = opened(), opened()
    one.create_topic(numbers_topic(name), 1, {"cleanup.policy": "compact"})
    first = one.acquire_lease(name, "one")
    write_application(one, first, {"mode": "continuous", "by": 1})
    second = two.acquire_lease(name, "two", force=True)
    with pytest.raises(FencedError):
        take_application(one, first)
    assert take_application(two, second) == {"mode": "continuous", "by": 1}
    for number in range(3):
        with pytest.raises(FencedError):
            write_application(one, first, {"mode": "micro_batch", "by": "a holder that was"})
        write_application(two, second, {"mode": "continuous", "by": number})
        assert noted(one, name) == {"mode": "continuous", "by": number}


def test_a_note_is_not_written_over_by_a_paused_holder(kafka: Broker, proxy: KafkaProxy, name: str) -> None:
    with (
        open_log(proxy.servers) as one,
        open_log(kafka.settings.bootstrap_servers) as two,
        ThreadPoolExecutor() as pool,
    ):
        one.create_topic(numbers_topic(name), 1, {"cleanup.policy": "compact"})
        first = one.acquire_lease(name, "one")
        write_application(one, first, {"by": "one"})
        with proxy.held(PRODUCE) as come:
            paused = pool.submit(write_application, one, first, {"by": "one, late"})
            assert come.wait(PATIENCE_S)
            second = two.acquire_lease(name, "two", force=True)
            assert take_application(two, second) == {"by": "one"}
            write_application(two, second, {"by": "two"})
        with pytest.raises(FencedError):
            paused.result(PATIENCE_S)
        assert noted(two, name) == {"by": "two"}


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_planned_batches_are_noted_by_the_holder_of_the_lease_alone(opened: Callable[[], TopicLog], name: str) -> None:
    one, two = opened(), opened()
    first = one.acquire_lease(name, "one")
    for batch in range(3):
        one.note_planned(name, first.epoch, f"batch {batch}")
    second = two.acquire_lease(name, "two", force=True)
    two.note_planned(name, second.epoch, "batch 3")
    with pytest.raises(FencedError):
        one.note_planned(name, first.epoch, "batch 3, late")
    assert two.planned(name) == "batch 3"


def test_a_note_of_a_planned_batch_that_was_on_its_way_when_the_lease_was_taken_does_not_count(
    kafka: Broker, proxy: KafkaProxy, name: str
) -> None:
    """A start that has taken over reads it before it notes one of its own."""
    with (
        open_log(proxy.servers) as one,
        open_log(kafka.settings.bootstrap_servers) as two,
        ThreadPoolExecutor() as pool,
    ):
        first = one.acquire_lease(name, "one")
        for batch in range(3):
            one.note_planned(name, first.epoch, f"batch {batch}")
        with proxy.held(PRODUCE) as come:
            paused = pool.submit(one.note_planned, name, first.epoch, "batch 3, late")
            assert come.wait(PATIENCE_S)
            two.acquire_lease(name, "two", force=True)
            assert two.planned(name) == "batch 2"
        with pytest.raises(FencedError):
            paused.result(PATIENCE_S)
        assert two.planned(name) == "batch 2"


def test_a_record_may_be_read_while_a_writer_waits_for_its_turn(
    kafka: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(kafka.settings.bootstrap_servers) as one, open_log(kafka.settings.bootstrap_servers) as two:
        record, version = counter(one, name), -1
        mine, read = one.fenced_record(record), []
        for number in range(3):
            version = mine.replace(str(number).encode(), version).version

        def wait(_: float) -> None:
            with ThreadPoolExecutor() as pool:
                read.append(pool.submit(mine.read).result(PATIENCE_S).value)

        monkeypatch.setattr(fenced_record, "time", SimpleNamespace(sleep=wait, monotonic=time.monotonic))
        two.fenced_record(record).take()  # it may write, and does not
        assert mine.replace(b"3", version).value == b"3"
        assert read == [b"2"]


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_a_session_that_was_overtaken_says_so_again(opened: Callable[[], TopicLog], name: str) -> None:
    one, two = opened(), opened()
    topic = f"{name}-statements"
    older, newer = StatementJournal(one, topic), StatementJournal(two, topic)
    older.hold(one.acquire_lease(name, "session"))
    for number in range(2):
        older.append(entry(number))
    newer.hold(two.acquire_lease(name, "session", force=True))
    newer.read()
    newer.append(entry(2))
    for number in range(3, 6):
        with pytest.raises(FencedError):
            older.append(entry(number))
    newer.append(entry(6))
    assert StatementJournal(two, topic).read() == [entry(number) for number in (0, 1, 2, 6)]


def piece(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({
        "key": pa.array([b"key"], pa.large_binary()),
        "value": pa.array([str(number).encode()], pa.large_binary()),
    })  # fmt: skip


def pieces_in(log: TopicLog, topic: str) -> list[bytes]:
    end = log.settled_ends([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    return [value for rows in log.iterate(topic, 0, 0, end) for value in rows["value"].to_pylist()]


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_changelogs_are_written_by_the_holder_of_the_lease_alone(opened: Callable[[], TopicLog], name: str) -> None:
    one, two = opened(), opened()
    one.create_topic(name, 1, {"cleanup.policy": "compact"})
    first = one.acquire_lease(name, "one")
    with changelog_writer(one, first) as write:
        for number in range(2):
            write(name, 0, piece(number))
        second = two.acquire_lease(name, "two", force=True)
        for number in range(2, 4):
            with pytest.raises(FencedError, match="two"):
                write(name, 0, piece(number))
    assert pieces_in(two, name) == [b"0", b"1"]
    with changelog_writer(two, second) as write:
        for number in range(10, 13):
            write(name, 0, piece(number))
    with pytest.raises(FencedError), changelog_writer(one, first):
        pass
    assert pieces_in(two, name) == [b"0", b"1", b"10", b"11", b"12"]


@pytest.mark.parametrize("request_kind", [PRODUCE, END_TXN])
def test_a_piece_of_a_changelog_that_was_on_its_way_when_the_lease_was_taken_does_not_count(
    kafka: Broker, proxy: KafkaProxy, name: str, request_kind: int
) -> None:
    with (
        open_log(proxy.servers) as one,
        open_log(kafka.settings.bootstrap_servers) as two,
        ThreadPoolExecutor() as pool,
    ):
        one.create_topic(name, 1, {"cleanup.policy": "compact"})
        first = one.acquire_lease(name, "one")
        with changelog_writer(one, first) as write:
            write(name, 0, piece(0))
            with proxy.held(request_kind) as come:
                paused = pool.submit(write, name, 0, piece(1))
                assert come.wait(PATIENCE_S)
                two.acquire_lease(name, "two", force=True)
            with pytest.raises(FencedError):
                paused.result(PATIENCE_S)
        assert pieces_in(two, name) == [b"0"]


def test_leases_of_earlier_versions_stay(tmp_path: Path) -> None:
    """The table of before is a view of the records now: an earlier version sees leases, takes and renews them."""
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        lease = log.acquire_lease("app", "now")
        with sqlite3.connect(tmp_path / "log.db", isolation_level=None) as old:
            columns = "application, owner, epoch, host, pid, released"
            assert old.execute(f"SELECT {columns} FROM leases").fetchone() == (
                "app",
                "now",
                1,
                lease.host,
                lease.pid,
                0,
            )
            taken = ("app", "before", "there", 7, "123", 2, 1, lease.heartbeat_ms, 30_000)
            old.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)", taken)
            with pytest.raises(FencedError, match="before"):
                log.renew_lease(lease)
            with pytest.raises(FencedError, match="runs already: before"):
                log.acquire_lease("app", "now")
            old.execute("UPDATE leases SET released = 1 WHERE application = ? AND epoch = ?", ("app", 2))
            assert log.acquire_lease("app", "now").epoch == 3
        old.close()
        assert json.loads(log.fenced_record(RecordName("app", "driver", "", b"lease", is_in_topic=False)).read().value)
