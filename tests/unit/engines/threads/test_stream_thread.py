"""A stream thread over an embedded log in memory, step by step."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Consumed, StreamsBuilder
from penstock.engines.threads.loop import stream_thread as thread_module
from penstock.engines.threads.loop import task as task_module
from penstock.engines.threads.loop.stream_thread import ThreadHooks
from penstock.errors import FencedError, InvalidStateError, ProcessingError, ProductionError
from penstock.log.base import TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.runtime.dead_letters import DeadLetter
from penstock.runtime.exception_handlers import Response
from penstock.topology.plan.plan import TaskId
from penstock.topology.topology import Topology
from threads import append, new_thread, records_of, run_to_end, settle, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        yield opened


def word_count(**config: Any) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
    words.count(name="count").map_values(str).to_stream().to("counts")
    return builder.build(SERDES | config)


def a_word_count(log: EmbeddedLog, partitions: int = 1, root: Path | None = None, **config: Any) -> Any:
    log.create_topic("lines", partitions)
    log.create_topic("counts", partitions)
    return thread_app(word_count(), SERDES | config, log, None if root is None else str(root))


def test_records_pass_through_a_repartition_topic_and_a_store(log: EmbeddedLog) -> None:
    app = a_word_count(log)
    append(log, "lines", [("k", "a b a", 1), ("k", "b", 2)])
    run_to_end(app, log)
    assert records_of(log, "counts") == [(b"a", b"1", 1), (b"b", b"1", 1), (b"a", b"2", 1), (b"b", b"2", 2)]
    (repartition,) = app.repartition_topics
    assert log.committed_offsets("app") == {TopicPartition("lines", 0): 2, TopicPartition(repartition, 0): 4}
    assert len(records_of(log, repartition)) == 4
    assert [len(records_of(log, topic)) for topic in app.changelogs.values()] == [2]  # one a key


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_thread_goes_on_where_the_last_one_ended(log: EmbeddedLog, tmp_path: Path, on_disk: bool) -> None:
    app = a_word_count(log, root=tmp_path if on_disk else None)
    for time in range(5):
        append(log, "lines", [("k", "a", time)])
        run_to_end(app, log)
    assert records_of(log, "counts") == [(b"a", str(time + 1).encode(), time) for time in range(5)]


def test_a_thread_without_tasks_does_not_end_as_a_changelog_is_missing(log: EmbeddedLog) -> None:
    app = a_word_count(log)
    thread = new_thread(app, log, [])
    thread.start()
    thread.rehearse()
    (changelog,) = app.changelogs.values()
    log.delete_topic(changelog)
    thread.rehearse()  # who gets the task finds out
    thread.close(commit=False)


def test_nothing_is_seen_before_the_commit(log: EmbeddedLog) -> None:
    app = a_word_count(log, **{"commit.interval.ms": 60_000})
    append(log, "lines", [("k", "a", 1)])
    thread = new_thread(app, log)
    thread.start()
    assert thread.step(0)
    assert [records_of(log, topic) for topic in app.repartition_topics] == [[]]
    assert thread.positions[TopicPartition("lines", 0)] == 1
    assert log.committed_offsets("app") == {}
    thread.close(commit=False)
    assert [records_of(log, topic) for topic in app.repartition_topics] == [[]]
    run_to_end(app, log)
    assert records_of(log, "counts") == [(b"a", b"1", 1)]


def test_at_least_once_outputs_leave_at_once(log: EmbeddedLog) -> None:
    app = a_word_count(log, **{"commit.interval.ms": 60_000, "processing.guarantee": "at_least_once"})
    append(log, "lines", [("k", "a", 1)])
    thread = new_thread(app, log)
    thread.start()
    thread.step(0)
    assert [len(records_of(log, topic)) for topic in app.repartition_topics] == [1]
    thread.step(0)
    assert records_of(log, "counts") == [(b"a", b"1", 1)]
    assert log.committed_offsets("app") == {}
    thread.close(commit=True)
    assert log.committed_offsets("app")[TopicPartition("lines", 0)] == 1


@pytest.mark.parametrize(("longest_s", "seen"), [(60.0, [0, 0]), (-1.0, [0, 1])])
def test_at_least_once_tasks_of_a_turn_share_requests_unless_it_takes_long(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, longest_s: float, seen: list[int]
) -> None:
    monkeypatch.setattr(thread_module, "_UNSENT_S", longest_s)
    app = a_word_count(log, 2, **{"commit.interval.ms": 60_000, "processing.guarantee": "at_least_once"})
    for partition in range(2):
        append(log, "lines", [("k", "a", 1)], partition)
    (repartition,) = app.repartition_topics
    found: list[int] = []

    def reach(point: str) -> None:
        if point == "processed":
            found.append(sum(len(records_of(log, repartition, at)) for at in range(2)))

    thread = new_thread(app, log, hooks=ThreadHooks(reach=reach))
    thread.start()
    thread.step(0)
    assert found == seen
    assert sum(len(records_of(log, repartition, at)) for at in range(2)) == 2
    thread.close(commit=True)


def test_at_least_once_outputs_do_not_wait_for_a_task_that_took_long(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "_UNSENT_S", 30.0)
    now_s = [0.0]
    monkeypatch.setattr(task_module, "time", SimpleNamespace(perf_counter=lambda: now_s[0]))

    def slowly(value: str) -> str:
        now_s[0] += 60.0 if value == "slow" else 0.0
        return value

    for topic in ("lines", "counts"):
        log.create_topic(topic, 2)
    builder = StreamsBuilder()
    builder.stream("lines").map_values(slowly).to("counts")
    config = SERDES | {"commit.interval.ms": 60_000, "processing.guarantee": "at_least_once"}
    found: list[int] = []

    def reach(point: str) -> None:
        if point == "processed":
            found.append(sum(len(records_of(log, "counts", at)) for at in range(2)))

    thread = new_thread(thread_app(builder.build(SERDES), config, log, None), log, hooks=ThreadHooks(reach=reach))
    thread.start()
    for _ in range(2):
        append(log, "lines", [("k", "fast", 1)], 0)
        append(log, "lines", [("k", "slow", 1)], 1)
        thread.step(0)
    assert found == [0, 0, 2, 3]
    thread.close(commit=True)


def test_a_commit_is_due_after_the_interval(log: EmbeddedLog) -> None:
    app = a_word_count(log, **{"commit.interval.ms": 0})
    append(log, "lines", [("k", "a", 1)])
    thread = new_thread(app, log)
    thread.start()
    while thread.step(0):
        pass
    assert thread.figures().commits == 2
    assert records_of(log, "counts") == [(b"a", b"1", 1)]
    thread.close(commit=True)


def test_threads_share_the_tasks(log: EmbeddedLog) -> None:
    app = a_word_count(log, partitions=4)
    tasks = list(app.tasks())
    assert len(tasks) == 8
    threads = [new_thread(app, log, tasks[n::3], name=f"thread-{n}") for n in range(3)]
    for thread in threads:
        thread.start()
    for n in range(40):
        append(log, "lines", [(f"k{n}", f"w{n % 7} x", n)], n % 4)
        if n % 9 == 0:
            settle(*threads)
    settle(*threads)
    found = {key: value for at in range(4) for key, value, _ in records_of(log, "counts", at)}
    assert found[b"x"] == b"40"
    assert sum(int(value) for value in found.values()) == 80
    tasks_of_all = [task for thread in threads for task in thread.figures().tasks]
    assert sum(task.records_in for task in tasks_of_all) == 120  # 40 lines, and 80 words of the repartition topic
    assert sum(task.records_read for task in tasks_of_all) == 40
    assert sum(task.records_out for task in tasks_of_all) - sum(task.records_written for task in tasks_of_all) == 80
    assert sum(task.records_written for task in tasks_of_all) == sum(
        len(records_of(log, "counts", at)) for at in range(4)
    )
    for thread in threads:
        thread.close(commit=True)


def test_a_newer_thread_of_the_name_fences_the_older(log: EmbeddedLog) -> None:
    app = a_word_count(log)
    old = new_thread(app, log)
    old.start()
    append(log, "lines", [("k", "a", 1)])
    old.step(0)
    new = new_thread(app, log)
    new.start()
    with pytest.raises(FencedError):
        old.commit()
    old.close(commit=False)
    settle(new)
    assert records_of(log, "counts") == [(b"a", b"1", 1)]
    new.close(commit=True)


def test_a_function_that_raises_names_its_record(log: EmbeddedLog) -> None:
    log.create_topic("in")
    builder = StreamsBuilder()
    builder.stream("in").map_values(int, name="parse").to("out")
    app = thread_app(builder.build(SERDES), SERDES, log)
    append(log, "in", [("k", "x", 1)])
    thread = new_thread(app, log)
    thread.start()
    with pytest.raises(ProcessingError, match=r"parse.*in-0 offset 0"):
        thread.step(0)
    thread.close(commit=False)
    assert log.committed_offsets("app") == {}


def test_a_closed_thread_says_so(log: EmbeddedLog) -> None:
    thread = new_thread(a_word_count(log), log)
    with pytest.raises(InvalidStateError):
        thread.step(0)


def test_global_tables_are_read_first_and_followed(log: EmbeddedLog) -> None:
    for topic in ("names", "in", "out"):
        log.create_topic(topic)
    builder = StreamsBuilder()
    names = builder.global_table("names")
    builder.stream("in").join(names, lambda value, name: f"{value} {name}", key=lambda key, _: key).to("out")
    app = thread_app(builder.build(SERDES), SERDES, log)
    append(log, "names", [("1", "ann", 0)])
    append(log, "in", [("1", "a", 1), ("2", "b", 2)])
    thread = new_thread(app, log)
    thread.start()
    settle(thread)
    append(log, "names", [("2", "bob", 3)])
    settle(thread)
    append(log, "in", [("2", "c", 4)])
    settle(thread)
    assert records_of(log, "out") == [(b"1", b"a ann", 1), (b"2", b"c bob", 4)]
    thread.close(commit=True)


def test_committed_records_of_repartition_topics_are_deleted(log: EmbeddedLog) -> None:
    app = a_word_count(log, **{"repartition.purge.interval.ms": 0})
    append(log, "lines", [("k", "a b c", 1)])
    run_to_end(app, log)
    (topic,) = app.repartition_topics
    assert (log.beginning_offset(topic, 0), log.end_offset(topic, 0)) == (3, 3)


def test_restores_are_reported(log: EmbeddedLog) -> None:
    app = a_word_count(log)
    append(log, "lines", [("k", "a b c", 1)])
    run_to_end(app, log)
    seen: list[Any] = []
    thread = new_thread(app, log, [TaskId(1, 0)], ThreadHooks(on_restore=seen.append))
    thread.start()
    assert seen[-1].is_done
    assert seen[-1].restored == 3
    thread.close(commit=True)


def test_partitions_are_merged_by_extracted_times(log: EmbeddedLog) -> None:
    for topic in ("a", "b", "out"):
        log.create_topic(topic)
    builder = StreamsBuilder()
    by_value = Consumed(timestamp_extractor=lambda record: int(record.value))
    builder.stream("a", by_value).merge(builder.stream("b", by_value)).to("out")
    app = thread_app(builder.build(SERDES), SERDES, log)
    append(log, "a", [("k", "10", 1), ("k", "30", 2), ("k", "-1", 9), ("k", "50", 3)])
    append(log, "b", [("k", "20", 100), ("k", "40", 0), ("k", "60", 0)])
    run_to_end(app, log)
    assert [int(value) for _, value, _ in records_of(log, "out") if value] == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_refused_records_are_left_out_if_the_handler_says_so(log: EmbeddedLog, guarantee: str) -> None:
    log.create_topic("in")
    log.create_topic("out", 1, {"cleanup.policy": "compact"})  # it refuses records without a key
    log.create_topic("letters")
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    asked: list[Any] = []

    def handler(context: Any, record: Any, error: Exception) -> Response:
        asked.append((context.task, context.raw_key, context.raw_value, record.value, type(error)))
        return Response("continue", (DeadLetter("letters", b"k", record.value, 7, ()),))

    config = SERDES | {"production.exception.handler": handler, "processing.guarantee": guarantee}
    app = thread_app(builder.build(SERDES), config, log)
    append(log, "in", [("a", "1", 1), (None, "2", 2), ("b", "3", 3)])
    run_to_end(app, log)
    assert asked == [("0_0", None, None, b"2", ProductionError)]
    assert records_of(log, "out") == [(b"a", b"1", 1), (b"b", b"3", 3)]
    assert records_of(log, "letters") == [(b"k", b"2", 7)]
    assert log.committed_offsets("app") == {TopicPartition("in", 0): 3}


def test_refused_records_end_the_thread_otherwise(log: EmbeddedLog) -> None:
    log.create_topic("in")
    log.create_topic("out", 1, {"cleanup.policy": "compact"})
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    app = thread_app(builder.build(SERDES), SERDES, log)
    append(log, "in", [(None, "2", 2)])
    with pytest.raises(ProductionError):
        run_to_end(app, log)
    assert log.committed_offsets("app") == {}


def test_idle_partitions_are_waited_for(log: EmbeddedLog) -> None:
    for topic in ("a", "b", "out"):
        log.create_topic(topic)
    builder = StreamsBuilder()
    builder.stream("a").merge(builder.stream("b")).to("out")
    app = thread_app(builder.build(SERDES), SERDES, log)
    app = replace(app, config=with_idle(app.config, 100))
    now = [1_000]
    thread = new_thread(app, log, hooks=ThreadHooks(clock=lambda: now[0]))
    thread.start()
    append(log, "a", [("k", "2", 2)])
    settle(thread)
    assert records_of(log, "out") == []
    append(log, "b", [("k", "1", 1)])
    settle(thread)
    assert [value for _, value, _ in records_of(log, "out")] == [b"1"]
    now[0] += 100
    settle(thread)
    assert [value for _, value, _ in records_of(log, "out")] == [b"1", b"2"]
    thread.close(commit=True)


def with_idle(config: Any, idle_ms: int) -> Any:
    return {**config, "max.task.idle.ms": idle_ms}
