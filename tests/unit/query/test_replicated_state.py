"""Queries of an application in continuous mode, whose threads commit meanwhile, are killed, or are gone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.engines.committed_state.continuous_state import LogCommits, ReplicatedState, ReplicatedStores
from penstock.engines.threads.loop.stream_thread import ThreadLog
from penstock.engines.threads.replicas import restoring
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.errors import InvalidStateError, StateError
from penstock.log.base import TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.query import KeyQuery, Position, PositionBound, RangeQuery, StateQueryRequest
from penstock.query.execute import run_query
from penstock.query.http.service import QueryService
from penstock.query.queries import FailureReason
from penstock.serde import Serdes
from penstock.state.restores.restore_progress import RestoreProgress
from penstock.topology.plan.plan import TaskId
from threads import append, new_thread, run_to_end, settle, thread_app

from .thread_worker import STORE, app_in

WORKER = Path(__file__).parent / "thread_worker.py"
TOTAL_S = 60


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        yield cast("EmbeddedLog", opened)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a thread in a process of its own; it is killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def started(kind: str = "direct") -> subprocess.Popen[str]:
        command = [sys.executable, str(WORKER), str(tmp_path), kind]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        return process

    yield started
    for process in running:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def state_in(root: Path, kind: str = "direct", refresh_s: float | None = 0.0, own: str = "queries") -> ReplicatedState:
    log = cast("ThreadLog", open_log(f"sqlite:///{root / 'log.db'}"))
    app = app_in(root, log, kind)
    return state_of(app, log, root, refresh_s, own)


def state_of(app: Any, log: Any, root: Path, refresh_s: float | None = 0.0, own: str = "queries") -> ReplicatedState:
    stores = ReplicatedStores("app", str(root / "checkpoint"), root / own, app.topology.stores)
    return ReplicatedState(stores, lambda: app, log, refresh_s)


def counts(state: ReplicatedState) -> dict[str, int]:
    with state.reading(STORE) as reading:
        return {key: found.value for view in reading.views.values() for key, found in view.all()}


def sources(state: ReplicatedState) -> set[str]:
    with state.reading(STORE) as reading:
        return set(reading.sources.values())


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TOTAL_S
    while not condition():
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.01)


def put_pairs(log: EmbeddedLog, count: int, partition: int = 0) -> None:
    """Append records of two keys, both of a pair at once."""
    for at in range(count):
        append(log, "lines", [("a", "x", at), ("b", "x", at)], partition)


@pytest.mark.parametrize("kind", ["direct", "repartitioned"])
def test_answers_are_those_of_one_commit_while_a_thread_goes_on(
    tmp_path: Path, log: EmbeddedLog, start: Callable[..., Any], kind: str
) -> None:
    state = state_in(tmp_path, kind)
    start(kind)
    stop, seen = threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            words = [("k", "a b", 1)] if kind == "repartitioned" else [("a", "x", 1), ("b", "x", 1)]
            append(log, "lines", words, 0)
            time.sleep(0.003)

    writer = threading.Thread(target=write)
    writer.start()
    wait_for(lambda: log.committed_offsets("app").get(TopicPartition("lines", 0), 0) > 0)
    try:
        began, before = time.monotonic(), 0
        while (now := time.monotonic()) < began + 3 or (len(set(seen)) <= 20 and now < began + TOTAL_S):
            with state.reading(STORE, [0] if kind == "direct" else None) as reading:
                rows = {key: found.value for view in reading.views.values() for key, found in view.all()}
                position = reading.position.offset("lines", 0)
            if kind == "direct":
                assert rows.get("a") == rows.get("b"), "half of a transaction"
                assert reading.sources == {0: "worker"}
                assert sum(rows.values()) == (0 if position is None else position + 1)
            else:
                assert position is None or all(rows[word] >= position + 1 for word in "ab")
            assert sum(rows.values()) >= before, "an older state than before"
            before = sum(rows.values())
            seen.append(before)
    finally:
        stop.set()
        writer.join()
    assert len(set(seen)) > 20, "commits were seen as they came"
    end_offset = log.end_offset("lines", 0)
    wait_for(lambda: sum(counts(state).values()) == end_offset * (2 if kind == "repartitioned" else 1))
    wait_for(lambda: state.newest().position.offset("lines", 0) == end_offset - 1)
    state.close()


def test_what_is_committed_is_seen_at_once(tmp_path: Path, log: EmbeddedLog, start: Callable[..., Any]) -> None:
    state = state_in(tmp_path)
    start()
    for at in range(50):
        append(log, "lines", [("a", "x", at)], 0)
        wait_for(lambda at=at: log.committed_offsets("app").get(TopicPartition("lines", 0), 0) == at + 1)
        assert counts(state) == {"a": at + 1}
        with state.reading(STORE) as reading:
            assert reading.position.offset("lines", 0) == at
    state.close()


def test_queries_go_on_from_the_log_when_the_thread_is_killed(
    tmp_path: Path, log: EmbeddedLog, start: Callable[..., Any]
) -> None:
    state = state_in(tmp_path)
    process = start()
    put_pairs(log, 20)
    wait_for(lambda: counts(state) == {"a": 20, "b": 20})
    assert "worker" in sources(state)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert counts(state) == {"a": 20, "b": 20}
    shutil.rmtree(tmp_path / "replicas")
    put_pairs(log, 5)  # nobody has processed them
    assert counts(state) == {"a": 20, "b": 20}
    assert sources(state) == {"own"}
    # Another machine goes on, and this one has no replica of it.
    app = app_in(tmp_path / "elsewhere", cast("ThreadLog", log), "direct")
    run_to_end(app, cast("ThreadLog", log))
    assert counts(state) == {"a": 25, "b": 25}
    start()
    put_pairs(log, 1)
    wait_for(lambda: counts(state) == {"a": 26, "b": 26} and sources(state) == {"worker"})
    state.close()


def test_a_replica_that_the_log_has_left_behind_is_not_read(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    put_pairs(log, 3)
    run_to_end(app, cast("ThreadLog", log))
    elsewhere = app_in(tmp_path / "elsewhere", cast("ThreadLog", log), "direct")
    put_pairs(log, 4)
    run_to_end(elsewhere, cast("ThreadLog", log))
    state = state_in(tmp_path)
    with state.reading(STORE, [0]) as reading:  # within the first second it may be: the thread may only be slow
        rows = {key: found.value for key, found in reading.views[0].all()}
        assert (rows["a"], rows["b"]) == (3, 3)
        assert reading.position.offset("lines", 0) == 5
        assert reading.sources[0] == "worker"
    wait_for(lambda: counts(state) == {"a": 7, "b": 7})
    with state.reading(STORE, [0]) as reading:
        assert (reading.sources[0], reading.position.offset("lines", 0)) == ("own", 13)
    state.close()


def test_a_replica_that_is_being_restored_is_not_read(
    tmp_path: Path, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    for _ in range(5):
        put_pairs(log, 1)
        run_to_end(app, cast("ThreadLog", log))
    shutil.rmtree(tmp_path / "replicas")
    monkeypatch.setattr(restoring, "_PIECE_BYTES", 1)
    progress: list[RestoreProgress] = []

    def stopped(now: RestoreProgress) -> None:
        progress.append(now)
        if len(progress) == 3:
            raise InterruptedError

    replica = TaskReplica.open(app, TaskId(0, 0))
    with pytest.raises(InterruptedError):
        replica.restore(log, log.committed_offsets("app"), stopped)
    replica.close()
    assert 0 < progress[-1].restored < 10
    state = state_in(tmp_path)
    assert counts(state) == {"a": 5, "b": 5}
    assert sources(state) == {"own"}
    state.close()


def test_uncommitted_writes_are_not_seen(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    thread = new_thread(app, cast("ThreadLog", log))
    thread.start()
    state = state_in(tmp_path)
    put_pairs(log, 2)
    settle(thread)
    before = counts(state)
    put_pairs(log, 1)
    thread._interval_s = 60  # the commit does not come by itself
    thread.step(0)
    assert thread.positions[TopicPartition("lines", 0)] == 6
    assert counts(state) == before == {"a": 2, "b": 2}
    thread.close(commit=True)
    assert counts(state) == {"a": 3, "b": 3}
    state.close()


def test_records_that_change_nothing_move_the_position(
    tmp_path: Path, log: EmbeddedLog, start: Callable[..., Any]
) -> None:
    state = state_in(tmp_path)
    start()
    append(log, "lines", [("a", "x", 1)], 0)
    append(log, "lines", [("a", "-", 2)], 0)
    wait_for(lambda: log.committed_offsets("app").get(TopicPartition("lines", 0), 0) == 2)
    with state.reading(STORE, [0]) as reading:
        assert reading.position.offset("lines", 0) == 1
    state.close()


def test_requests_with_bounds(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    append(log, "lines", [("a", "x", 1)], 0)
    append(log, "lines", [("b", "x", 1)], 1)
    run_to_end(app, cast("ThreadLog", log))
    state = state_in(tmp_path)

    def asked(offset: int) -> Any:
        bound = PositionBound.at(Position({"lines": {0: offset}}))
        request = StateQueryRequest.in_store(STORE).with_query(RangeQuery.with_no_bounds()).with_position_bound(bound)
        return run_query(state, request.with_partitions([0]), is_active=True).partition_results[0]

    assert asked(0).get() == [("a", 1)]
    assert asked(1).failure_reason is FailureReason.NOT_UP_TO_BOUND
    append(log, "lines", [("a", "x", 1)], 0)
    run_to_end(app, cast("ThreadLog", log))
    found = asked(1)
    assert (found.get(), found.position.to_json(), found.batch) == ([("a", 2)], {"lines": {"0": 1}}, -1)
    everywhere = StateQueryRequest.in_store(STORE).with_query(KeyQuery.with_key("b")).enable_execution_info()
    answers = run_query(state, everywhere, is_active=True).partition_results
    assert [answers[n].get() for n in (0, 1)] == [None, 1]
    state.close()


def test_a_store_behind_a_repartition_topic_has_the_position_of_the_input(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "repartitioned")
    append(log, "lines", [("k", "a b", 1)], 0)
    source, count = ([task for task in app.tasks() if task.subtopology == number] for number in (0, 1))
    upper, lower = (
        new_thread(app, cast("ThreadLog", log), tasks, name=f"thread-{n}") for n, tasks in enumerate((source, count))
    )
    upper.start()
    lower.start()
    state = state_in(tmp_path, "repartitioned")
    settle(upper)
    with state.reading(STORE) as reading:
        assert reading.position.offset("lines", 0) is None, "the record is on its way"
    settle(lower)
    with state.reading(STORE) as reading:
        assert reading.position.offset("lines", 0) == 0
    assert counts(state) == {"a": 1, "b": 1}
    for n in range(1, 6):  # never settled: the one is always a step ahead
        append(log, "lines", [("k", "a b", 1)], 0)
        settle(upper)
        with state.reading(STORE) as reading:
            position = reading.position.offset("lines", 0)
        append(log, "lines", [("k", "a b", 1)], 0)
        settle(lower)
        settle(upper)
        assert position is not None
        with state.reading(STORE) as reading:
            later = reading.position.offset("lines", 0)
        assert later is not None
        assert position < later < 2 * n
        assert counts(state)["a"] > later
    upper.close(commit=True)
    lower.close(commit=True)
    state.close()


def test_damaged_and_deleted_query_replicas_are_made_anew(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    put_pairs(log, 10)
    run_to_end(app, cast("ThreadLog", log))
    shutil.rmtree(tmp_path / "replicas")
    state = state_in(tmp_path)
    assert counts(state) == {"a": 10, "b": 10}
    with state.reading(STORE) as open_one:
        shutil.rmtree(tmp_path / "queries")
        assert counts(state) == {"a": 10, "b": 10}
        assert {key: found.value for key, found in open_one.views[0].all()} == {"a": 10, "b": 10}
    state.close()
    (file,) = (tmp_path / "queries").glob("continuous-0_0-*/slot-0/data.mdb")
    file.write_bytes(b"\xff" * 100_000)
    state = state_in(tmp_path)
    assert counts(state) == {"a": 10, "b": 10}
    state.close()


def test_two_processes_keep_replicas_of_their_own(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    put_pairs(log, 10)
    run_to_end(app, cast("ThreadLog", log))
    shutil.rmtree(tmp_path / "replicas")
    one, other = state_in(tmp_path), state_in(tmp_path)
    assert counts(one) == counts(other) == {"a": 10, "b": 10}
    put_pairs(log, 1)
    run_to_end(app_in(tmp_path / "elsewhere", cast("ThreadLog", log), "direct"), cast("ThreadLog", log))
    assert counts(one) == counts(other) == {"a": 11, "b": 11}
    one.close()
    other.close()
    with pytest.raises(InvalidStateError):
        counts(one)


def test_an_application_made_anew_is_not_answered_from_old_replicas(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    put_pairs(log, 4)
    run_to_end(app, cast("ThreadLog", log))
    state = state_in(tmp_path)
    assert counts(state) == {"a": 4, "b": 4}
    for topic in (*app.changelogs.values(), app.numbers_topic):
        log.delete_topic(topic)
    log.commit_offsets("app", {TopicPartition("lines", n): 0 for n in range(2)})
    app_in(tmp_path, cast("ThreadLog", log), "direct")
    assert counts(state) == {}
    state.close()


def test_more_partitions_are_read_when_it_is_planned_anew(tmp_path: Path, log: EmbeddedLog) -> None:
    from penstock.engines.committed_state import continuous_state as replicated

    apps = [app_in(tmp_path, cast("ThreadLog", log), "direct", partitions=1)]
    append(log, "lines", [("a", "x", 1)], 0)
    run_to_end(apps[0], cast("ThreadLog", log))
    stores = ReplicatedStores("app", str(tmp_path / "checkpoint"), tmp_path / "queries", apps[0].topology.stores)
    state = ReplicatedState(stores, lambda: apps[-1], open_log(f"sqlite:///{tmp_path / 'log.db'}"), 0.0)
    with state.reading(STORE) as before:
        log.create_partitions("lines", 2)
        for topic in (*apps[0].changelogs.values(), apps[0].numbers_topic):
            log.create_partitions(topic, 2)
        apps.append(app_in(tmp_path, cast("ThreadLog", log), "direct"))
        append(log, "lines", [("b", "x", 1)], 1)
        run_to_end(apps[-1], cast("ThreadLog", log))
        assert state.store(STORE).partitions == 1
        state._looked -= replicated._PLAN_REFRESH_S
        assert state.store(STORE).partitions == 2
        assert counts(state) == {"a": 1, "b": 1}
        assert {key: found.value for key, found in before.views[0].all()} == {"a": 1}
    state.close()


def test_before_the_first_start_there_are_no_stores(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    stores = ReplicatedStores("app", str(tmp_path / "checkpoint"), tmp_path / "queries", app.topology.stores)
    state = ReplicatedState(stores, lambda: None, open_log(log.url))
    assert state.stores() == {}
    assert state.newest() is None
    with pytest.raises(StateError, match="does not exist yet"):
        state.store(STORE)
    with pytest.raises(StateError, match="there is no store 'counts'"):
        state.store("counts")
    state.close()


def test_a_store_without_a_changelog_is_read_on_the_machine_of_its_thread(
    tmp_path: Path, log: EmbeddedLog, start: Callable[..., Any]
) -> None:
    from penstock import StreamsBuilder

    log.create_topic("lines", 1)
    builder = StreamsBuilder()
    typed = Materialized(STORE, key_serde=Serdes.string(), logging=False)
    builder.stream("lines").group_by_key().count(typed)
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    app = thread_app(builder.build(serdes), serdes, cast("ThreadLog", log), str(tmp_path / "replicas"))
    append(log, "lines", [("a", "x", 1)], 0)
    run_to_end(app, cast("ThreadLog", log))
    state = state_of(app, open_log(log.url), tmp_path)
    assert counts(state) == {"a": 1}
    shutil.rmtree(tmp_path / "replicas")
    with pytest.raises(StateError, match="has no changelog"):
        counts(state)
    state.close()


def test_the_service_of_the_query_server(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    put_pairs(log, 3)
    run_to_end(app, cast("ThreadLog", log))
    service = QueryService(state_in(tmp_path))
    found = service.get(STORE, "a")
    assert (found["value"], found["partition"], found["batch"], found["position"]) == (3, 0, -1, {"lines": {"0": 5}})
    assert found["staleness_ms"] < 1000 * TOTAL_S
    assert service.about()["position"] == {"lines": {"0": 5}}
    assert service.store(STORE)["approximate_entries"] == 2
    assert service.metadata(STORE, "a")["active_host"] is None
    service.close()


def test_looks_into_the_log_are_shared_for_a_while(tmp_path: Path, log: EmbeddedLog) -> None:
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    commits = LogCommits(app, log, 60)
    first = commits.newest()
    log.commit_offsets("app", {TopicPartition("lines", 0): 1})
    assert commits.newest() is first
    assert LogCommits(app, log, 0).newest().included == {TopicPartition("lines", 0): 1}


class _Held:
    """A log that reads no records until it is let."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def iterate(self, *args: Any) -> Any:
        for piece in self._log.iterate(*args):
            self.has_begun.set()
            assert self.may_go_on.wait(TOTAL_S)
            yield piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@pytest.fixture
def held(tmp_path: Path, log: EmbeddedLog) -> Iterator[tuple[ReplicatedState, _Held, threading.Thread, list[Any]]]:
    """A state whose first query restores the task's stores, which takes its time."""
    app = app_in(tmp_path, cast("ThreadLog", log), "direct")
    put_pairs(log, 5)
    run_to_end(app, cast("ThreadLog", log))
    shutil.rmtree(tmp_path / "replicas")
    slow = _Held(open_log(f"sqlite:///{tmp_path / 'log.db'}"))
    state = state_of(app, slow, tmp_path, 1_000.0)
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(counts(state))
        except InvalidStateError as error:
            answers.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert slow.has_begun.wait(TOTAL_S)
    yield state, slow, asking, answers
    slow.may_go_on.set()
    asking.join(TOTAL_S)
    state.close()


def test_a_restore_for_one_query_holds_up_no_look_at_the_lags(held: Any) -> None:
    state, slow, asking, answers = held
    assert state.lags() == {}  # there is no copy yet, and it says so at once
    assert answers == []
    slow.may_go_on.set()
    asking.join(TOTAL_S)
    assert answers == [{"a": 5, "b": 5}]
    assert state.lags()[STORE][0].offset_lag == 0


def test_a_thread_that_comes_while_a_query_restores_answers_other_queries(
    held: Any, start: Callable[..., subprocess.Popen[str]]
) -> None:
    state, _, asking, _ = held
    start()
    wait_for(lambda: has_worker(state) and sources(cast("ReplicatedState", state.stale())) == {"worker"})
    assert counts(state) == {"a": 5, "b": 5}
    assert asking.is_alive()


def has_worker(state: ReplicatedState) -> bool:
    """Whether a thread's replica has been found; a query without one would wait for the restore."""
    return bool(state.lags().get(STORE))


def test_queries_that_are_closed_end_a_restore_between_two_pieces(held: Any) -> None:
    state, slow, asking, answers = held
    closing = threading.Thread(target=state.close, daemon=True)
    closing.start()
    wait_for(lambda: state._closed)
    slow.may_go_on.set()
    closing.join(TOTAL_S)
    asking.join(TOTAL_S)
    assert not closing.is_alive()
    assert isinstance(answers[0], InvalidStateError)


def test_an_application_that_opens_its_queries_holds_up_no_other(tmp_path: Path, log: EmbeddedLog) -> None:
    log.create_topic("lines")
    builder = StreamsBuilder()
    builder.stream("lines").group_by_key().count(Materialized(STORE))
    settings = {"bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}", "state.dir": str(tmp_path / "state")}
    settings |= {"default.key.serde": "string", "default.value.serde": "string"}
    one, other = (KafkaStreams(builder.build(), {"application.id": name, **settings}) for name in ("one", "other"))
    found: list[Any] = []
    with one._queries._opening:  # as while its log does not answer
        asking = threading.Thread(target=lambda: found.append(other.all_local_store_partition_lags()), daemon=True)
        asking.start()
        asking.join(TOTAL_S)
    other._queries.close()
    assert found == [{}]
