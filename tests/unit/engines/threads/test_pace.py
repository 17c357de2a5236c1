"""Backlogs of several partitions, counted in windows behind a repartition: no record comes too late for its window."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventually import eventually
from penstock import Consumed, JoinWindows, SessionWindows, StreamsBuilder, TimeWindows
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.pace import Fronts, PaceBoard, merged_by_time, pace_groups
from penstock.engines.threads.loop.stream_thread import StreamThread
from penstock.engines.threads.loop.thread_environment import ThreadHooks
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId
from penstock.topology.topology import Topology
from threads import Drops, append, new_thread, records_of, run_to_end, settle, thread_app

TEXT = Consumed(key_serde="string", value_serde="string")
SETTINGS = {"default.key.serde": "string", "default.value.serde": "string", "max.poll.records": 60}
PARTITIONS, RECORDS = 4, 300  # of each partition: five pieces
STEP_MS = 200  # between two records of a partition, so the backlog is a minute long
LAST = 1_000_000 + STEP_MS * (RECORDS + 20)
GRACE_S = 5
LATER = 10**10  # by the clock


def counting(grace_s: int, *, extracts: bool = False) -> Topology:
    """Counts values, which become keys, in windows of a second."""
    builder = StreamsBuilder()
    source = Consumed(timestamp_extractor=lambda record: int(record.value.split()[1])) if extracts else Consumed()
    lines = builder.stream("in", source).map_values(lambda value: value.split()[0])
    windows = TimeWindows.of("1 second", grace=f"{grace_s} seconds")
    lines.group_by(lambda key, value: value).windowed_by(windows).count().to_stream(lambda key, _: key.key).to("out")
    return builder.build()


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        opened.create_topic("in", PARTITIONS)
        opened.create_topic("out", 1)
        for partition in range(PARTITIONS):
            times = [1_000_000 + STEP_MS * number + 7 * partition for number in range(RECORDS)]
            append(opened, "in", [("k", f"word {time}", time) for time in times], partition)
        yield opened


class Exchange:
    """The exchange of fronts of one process: a board, and a channel for each thread."""

    def __init__(self) -> None:
        self.board = PaceBoard()
        self.news: dict[str, Fronts | None] = {}
        self.threads: list[str] = []

    def channel(self, name: str) -> Channel:
        self.threads.append(name)
        return Channel(self, name)


class Channel:
    def __init__(self, exchange: Exchange, name: str) -> None:
        self.exchange, self.name = exchange, name

    def others(self) -> Fronts | None:
        return self.exchange.news.get(self.name)

    def tell(self, fronts: Fronts) -> None:
        self.exchange.board.take(self.name, fronts)
        self.exchange.news |= self.exchange.board.news(self.exchange.threads)


def threads_of(
    app: ThreadApp, log: EmbeddedLog, drops: Drops, exchange: Exchange, clock: Any = lambda: LATER
) -> list[StreamThread]:
    """A thread with the first partition, one with the others, and one with the counts."""
    lists = [[TaskId(0, 0)], [TaskId(0, n) for n in range(1, PARTITIONS)], [TaskId(1, n) for n in range(PARTITIONS)]]
    threads = []
    for number, tasks in enumerate(lists):
        name = f"thread-{number}"
        hooks = ThreadHooks(clock=clock, sensor=drops, pace=exchange.channel(name))
        threads.append(new_thread(app, log, tasks, hooks, name=name))
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.parametrize("extracts", [False, True])
def test_tasks_of_a_thread_reach_the_same_time_in_each_turn(log: EmbeddedLog, guarantee: str, extracts: bool) -> None:
    settings = SETTINGS | {"processing.guarantee": guarantee}
    app, drops = thread_app(counting(0, extracts=extracts), settings, log), Drops()
    run_to_end(app, log, hooks=ThreadHooks(sensor=drops))
    assert drops.records == 0
    assert len(records_of(log, "out")) > RECORDS * STEP_MS // 1000 - 2
    rows = [records_of(log, "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition", n) for n in range(4)]
    assert sum(map(len, rows)) == PARTITIONS * RECORDS


@pytest.mark.parametrize("late_s", [0, 3])
@pytest.mark.parametrize("steps", [(1, 1), (7, 1), (1, 7)])
def test_no_thread_runs_ahead_of_another_one(log: EmbeddedLog, steps: tuple[int, int], late_s: int) -> None:
    for partition in range(PARTITIONS):  # a part of the records comes late by itself
        times = [LAST + STEP_MS * number - 1000 * late_s * (number % 3 == 0) for number in range(RECORDS)]
        append(log, "in", [("k", f"word {time}", time) for time in times], partition)
    app, drops = thread_app(counting(GRACE_S), SETTINGS, log), Drops()
    threads = threads_of(app, log, drops, Exchange())
    for _ in range(600):
        if sum(read_by(app, log).values()) == 2 * PARTITIONS * RECORDS:
            break
        for thread, count in zip(threads, (*steps, 1), strict=True):
            for _ in range(count):
                thread.step(0)
    settle(*threads)
    for thread in threads:
        thread.close(commit=True)
    assert drops.records == 0
    assert sum(read_by(app, log).values()) == 2 * PARTITIONS * RECORDS


@pytest.mark.parametrize("extracts", [False, True])
def test_threads_go_on_after_a_time_without_records(log: EmbeddedLog, extracts: bool) -> None:
    for pause in range(1, 4):
        for partition in range(PARTITIONS):
            times = [LAST * (pause + 1) + number - 2000 * (number % 3 == 0) for number in range(50)]
            append(log, "in", [("k", f"word {time}", time) for time in times], partition)
    app, drops = thread_app(counting(GRACE_S, extracts=extracts), SETTINGS, log), Drops()
    threads = threads_of(app, log, drops, Exchange())
    for _ in range(300):
        for thread in threads:
            thread.step(0)
    for thread in threads:
        thread.close(commit=True)
    assert sum(read_by(app, log).values()) == PARTITIONS * (RECORDS + 150)
    assert drops.records == 0


def read_by(app: ThreadApp, log: EmbeddedLog) -> dict[Any, int]:
    offsets = log.committed_offsets(app.application_id)
    return {place: at for place, at in offsets.items() if place.topic == "in"}


def test_a_thread_that_does_not_go_on_is_waited_for_some_seconds(log: EmbeddedLog) -> None:
    now = [LATER]
    app = thread_app(counting(GRACE_S), SETTINGS, log)
    first, second, third = threads = threads_of(app, log, Drops(), Exchange(), lambda: now[0])
    for thread in threads:
        thread.step(0)  # it reports where it stands, and the second one does no more
    for _ in range(50):
        first.step(0)
    place = next(place for place in first.committed if place.topic == "in")
    assert 0 < first.positions[place] < RECORDS
    now[0] += 9_000
    held = first.positions[place]
    first.step(0)
    assert first.positions[place] == held
    now[0] += 2_000
    for _ in range(50):
        first.step(0)
    assert first.positions[place] == RECORDS
    for thread in (first, second, third):
        thread.close(commit=True)


def test_nobody_waits_for_records_that_are_too_late_already(log: EmbeddedLog) -> None:
    app, exchange = thread_app(counting(GRACE_S), SETTINGS, log), Exchange()
    first, second, third = threads_of(app, log, Drops(), exchange)
    exchange.threads.clear()
    second_channel = exchange.channel("thread-1")
    second_channel.tell({})  # nothing waits there
    for _ in range(50):
        first.step(0)
    place = next(iter(first.committed))
    assert first.positions[place] == RECORDS
    second_channel.tell({0: 1_000_000})  # a task has come to it that is a minute behind
    append(log, "in", [("k", "word", 1_000_000 + RECORDS * STEP_MS)])
    for _ in range(5):
        first.step(0)
    assert first.positions[place] == RECORDS + 1
    for thread in (first, second, third):
        thread.close(commit=False)


def at(thread: StreamThread) -> int:
    """The position of a thread with one task of the input."""
    (position,) = (at for place, at in thread.positions.items() if place.topic == "in")
    return position


def go_on(thread: StreamThread) -> None:
    """Step as long as anything is processed: how much that is at once depends on how long it takes."""
    while thread.step(0):
        pass


@pytest.mark.parametrize("grace_s", [0, 1])
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_threads_of_a_live_application_wait_for_nobody(log: EmbeddedLog, grace_s: int, guarantee: str) -> None:
    now = [LATER]
    settings = SETTINGS | {"processing.guarantee": guarantee, "commit.interval.ms": 600_000}
    app = thread_app(counting(grace_s), settings, log)
    threads = threads_of(app, log, Drops(), Exchange(), lambda: now[0])
    for _ in range(300):
        for thread in threads:
            thread.step(0)
            thread.commit()
    assert sum(read_by(app, log).values()) == PARTITIONS * RECORDS
    for number in range(200):
        now[0] += 50
        for partition in range(PARTITIONS):
            append(log, "in", [("k", "word", now[0] - 7 * partition)] * 3, partition)
        if number == 3:  # all but the first do not know the ends, as if records came while they commit
            for thread in threads[1:]:
                thread.commit()
                thread._pace.report(thread._tasks.values(), {})
        for thread in threads:
            go_on(thread)
        assert at(threads[0]) == RECORDS + 3 * (number + 1)
        assert not threads[0]._pace.is_awaited or number < 3
    for thread in threads:
        thread.close(commit=True)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_thread_commits_soon_while_others_may_wait_for_it(log: EmbeddedLog, guarantee: str) -> None:
    settings = SETTINGS | {"processing.guarantee": guarantee, "commit.interval.ms": 600_000}
    app, drops = thread_app(counting(GRACE_S), settings, log), Drops()
    threads = threads_of(app, log, drops, Exchange())

    def all_are_processed() -> bool:
        for thread in threads:
            thread.step(0.01)
        return sum(n for thread in threads[:2] for place, n in thread.positions.items() if place.topic == "in") == (
            PARTITIONS * RECORDS
        )

    eventually(all_are_processed)
    settle(*threads)
    for thread in threads:
        thread.close(commit=True)
    assert drops.records == 0


class Told:
    """A channel on which another thread has told a front."""

    def __init__(self) -> None:
        self.front: int | None = None

    def others(self) -> Fronts | None:
        return {} if self.front is None else {0: self.front}

    def tell(self, fronts: Fronts) -> None:
        pass


@pytest.mark.parametrize(("speed", "are_gaps", "waits"), [(1, False, False), (1, True, False), (3, True, True)])
def test_a_thread_is_waited_for_as_long_as_it_catches_up(
    log: EmbeddedLog, speed: int, are_gaps: bool, waits: bool
) -> None:
    now, channel = [LATER], Told()
    app = thread_app(counting(GRACE_S), SETTINGS, log)
    hooks = ThreadHooks(clock=lambda: now[0], pace=channel)
    thread = new_thread(app, log, [TaskId(0, 0)], hooks)
    thread.start()
    held = []
    for second in range(60):
        now[0] += 1000
        channel.front = 500_000 + speed * second * 1000
        append(log, "in", [("k", "word", channel.front + 60_000)])
        thread.step(0)
        held.append(at(thread) == 0)
        if are_gaps:
            channel.front = None
            thread._pace.limits([], {})
            thread._pace.limits(thread._tasks.values(), thread._polling.ends())
    assert all(held[:9])
    assert any(held[40:]) == waits
    assert all(held[:40]) == waits
    thread.close(commit=False)


@pytest.mark.parametrize("front", [-1, LATER - 3_600_000])
def test_a_thread_at_the_live_end_waits_for_no_backlog(log: EmbeddedLog, front: int) -> None:
    app, channel = thread_app(counting(GRACE_S), SETTINGS, log), Told()
    thread = new_thread(app, log, [TaskId(0, 0)], ThreadHooks(clock=lambda: LATER, pace=channel))
    thread.start()
    settle(thread)
    for number in range(5):
        channel.front = front + number * 60_000  # a backlog of an hour
        append(log, "in", [("k", "word", LATER - 900 + number)] * 100)  # more than a piece
        go_on(thread)
        assert at(thread) == RECORDS + 100 * (number + 1)
    thread.close(commit=True)


def test_a_record_of_the_far_future_waits_for_nobody(log: EmbeddedLog) -> None:
    future = 4_102_444_800_000
    app, channel = thread_app(counting(GRACE_S), SETTINGS, log), Told()
    thread = new_thread(app, log, [TaskId(0, 0)], ThreadHooks(clock=lambda: LATER, pace=channel))
    thread.start()
    settle(thread)
    channel.front = LATER - 60_000
    append(log, "in", [("k", "word", future)])
    go_on(thread)
    assert at(thread) == RECORDS + 1
    thread.close(commit=True)


def test_tasks_go_on_behind_records_that_are_far_out_of_order(log: EmbeddedLog) -> None:
    app, channel = thread_app(counting(GRACE_S), SETTINGS, log), Told()
    thread = new_thread(app, log, hooks=ThreadHooks(clock=lambda: LATER, pace=channel))
    thread.start()
    settle(thread)
    channel.front = 1_000_000 + STEP_MS * RECORDS  # so that three fetches wait together
    for first in (5_000_000, 2_000_000, 3_000_000):
        for partition in range(PARTITIONS):
            append(log, "in", [("k", "word", first + number) for number in range(50)], partition)
        thread.step(0)
    assert sum(read_by(app, log).values()) == PARTITIONS * RECORDS
    channel.front = None
    go_on(thread)
    thread.close(commit=True)
    assert sum(read_by(app, log).values()) == PARTITIONS * (RECORDS + 150)


times_of_tasks = st.lists(st.lists(st.integers(-1, 20), min_size=1, max_size=12), min_size=1, max_size=4)


@given(times_of_tasks)
def test_merging_keeps_the_order_of_each_task(times: list[list[int]]) -> None:
    written = []
    for task, of_task in enumerate(times):
        rows = pa.record_batch({"timestamp": pa.array(of_task, pa.int64()), "row": range(len(of_task))})
        rows = rows.append_column("task", pa.array([task] * len(of_task)))
        written.append((TaskId(0, task), [("between", 3, rows), ("out", 0, rows)]))
    merged = list(merged_by_time(written, {"between"}))
    assert [names for names, parts in merged] == [*(f"0_{task}" for task in range(len(times))), merged[-1][0]]
    ((topic, partition, rows),) = merged[-1][1]
    assert (topic, partition, rows.num_rows) == ("between", 3, sum(map(len, times)))
    found = [(row["task"], row["row"]) for row in rows.to_pylist()]
    for task, of_task in enumerate(times):
        assert [row for each, row in found if each == task] == list(range(len(of_task)))
    reached = [max(times[task][: row + 1]) for task, row in found]
    assert reached == sorted(reached)


def slacks(builder: StreamsBuilder, **partitions: int) -> dict[int, tuple[int, int]]:
    """Sub-topology -> its group, and the group's slack."""
    from penstock.topology.plan.plan import plan_of

    topology = builder.build()
    found = pace_groups(topology, plan_of(topology, "app", partitions))
    return {number: (group.id, group.slack_ms) for number, group in found.items()}


def test_the_slack_is_the_smallest_grace_behind_a_repartition() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", TEXT).group_by(lambda key, value: value)
    words.windowed_by(TimeWindows.of("1 minute", grace="30 seconds")).count()
    words.windowed_by(SessionWindows.of("10 seconds", grace="5 seconds")).count()
    assert slacks(builder, **{"in": 4}) == {0: (0, 15_000)}
    assert slacks(builder, **{"in": 1}) == {}


def test_no_group_without_windows_behind_a_repartition() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.group_by(lambda key, value: value).count()
    stream.group_by_key().windowed_by(TimeWindows.of("1 minute")).count()
    assert slacks(builder, **{"in": 4}) == {}


def test_streams_that_meet_in_a_join_are_one_group() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(name, TEXT).select_key(lambda k, v: v) for name in "ab")
    left.join(right, lambda a, b: a + b, JoinWindows.of("1 minute", grace="20 seconds"))
    assert slacks(builder, a=2, b=2) == {0: (0, 20_000), 1: (0, 20_000)}
