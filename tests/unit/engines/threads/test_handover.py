"""Tasks that move from one running thread to another, over an embedded log in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.engines.threads.app import ThreadApp
from penstock.log.base import TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId, plan_of
from threads import append, new_thread, records_of, settle, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        yield opened


def counting(log: EmbeddedLog, partitions: int, root: Path | None = None, **config: Any) -> ThreadApp:
    builder = StreamsBuilder()
    builder.stream("lines").group_by_key().count(name="count").map_values(str).to_stream().to("counts")
    log.create_topic("lines", partitions)
    log.create_topic("counts")
    return thread_app(builder.build(SERDES | config), SERDES | config, log, None if root is None else str(root))


def counts_of(log: EmbeddedLog, key: bytes) -> list[int]:
    return [int(value) for found, value, _ in records_of(log, "counts") if found == key]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_task_moves_with_its_state_while_others_go_on(log: EmbeddedLog, tmp_path: Path, on_disk: bool) -> None:
    app = counting(log, 2, tmp_path if on_disk else None, **{"commit.interval.ms": 60_000})
    stays, moves = app.tasks()
    old, new = new_thread(app, log), new_thread(app, log, [], name="thread-1")
    old.start()
    new.start()
    append(log, "lines", [("a", "x", 1)] * 3, 0)
    append(log, "lines", [("b", "x", 1)] * 3, 1)
    old.step(0)
    assert counts_of(log, b"b") == []
    for replica in old.remove([moves]).values():
        replica.close()
    assert counts_of(log, b"b") == [1, 2, 3]  # committed before it was given up
    append(log, "lines", [("b", "x", 2)], 1)
    append(log, "lines", [("a", "x", 2)], 0)
    settle(old)
    assert counts_of(log, b"b") == [1, 2, 3]
    new.add(app, {moves: None})
    settle(old, new)
    assert (counts_of(log, b"a"), counts_of(log, b"b")) == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert [each.task for thread in (old, new) for each in thread.figures().tasks] == [str(stays), str(moves)]
    assert set(old.positions) == {TopicPartition("lines", 0)}
    for thread in (old, new):
        thread.close(commit=True)


def test_records_that_a_thread_reads_before_it_has_tasks_count_for_none(log: EmbeddedLog) -> None:
    app = counting(log, 2)
    append(log, "lines", [("a", "x", n) for n in range(70)], 0)
    thread = new_thread(app, log, [])
    thread.start()
    thread.rehearse()
    assert (thread.positions, thread.figures().commits, counts_of(log, b"a")) == ({}, 0, [])
    assert not thread.step(0)
    thread.add(app, dict.fromkeys(app.tasks()))
    settle(thread)
    assert counts_of(log, b"a") == [*range(1, 71)]
    thread.close(commit=True)


def test_fetched_records_of_a_task_that_goes_are_left_to_its_next_owner(log: EmbeddedLog) -> None:
    app = counting(log, 2, **{"max.poll.records": 2})
    old, new = new_thread(app, log), new_thread(app, log, [], name="thread-1")
    old.start()
    new.start()
    append(log, "lines", [("b", "x", n) for n in range(7)], 1)
    append(log, "lines", [("a", "x", n) for n in range(7)], 0)
    old.step(0)  # fetches all, and processes two of each partition
    old.remove([TaskId(0, 1)])
    new.add(app, {TaskId(0, 1): None})
    settle(old, new)
    assert (counts_of(log, b"a"), counts_of(log, b"b")) == ([*range(1, 8)], [*range(1, 8)])
    for thread in (old, new):
        thread.close(commit=True)


def test_a_thread_takes_the_tasks_of_partitions_that_have_come(log: EmbeddedLog) -> None:
    app = counting(log, 1)
    thread = new_thread(app, log)
    thread.start()
    append(log, "lines", [("a", "x", 1)], 0)
    settle(thread)
    for topic in ("lines", *app.changelogs.values(), app.numbers_topic or ""):
        log.create_partitions(topic, 3)
    larger = replace(app, plan=plan_of(app.topology, "app", {each.name: each.partitions for each in log.topics()}))
    thread.add(larger, {TaskId(0, 1): None, TaskId(0, 2): None})
    append(log, "lines", [("c", "x", 2)], 2)
    append(log, "lines", [("a", "x", 2)], 0)
    settle(thread)
    assert sorted(records_of(log, "counts")) == [(b"a", b"1", 1), (b"a", b"2", 2), (b"c", b"1", 2)]
    thread.close(commit=True)


class LateMarks:
    """A log whose last commit shows in the changelogs only once somebody has waited for it, as Kafka's markers may."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._is_settled = False

    def settled_ends(self, places: Any) -> Any:
        self._is_settled = True
        return self._log.settled_ends(places)

    def end_offsets(self, topics: Any) -> dict[TopicPartition, int]:
        ends = self._log.end_offsets(topics)
        return {tp: end if self._is_settled or "changelog" not in tp.topic else 0 for tp, end in ends.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def test_a_thread_that_begins_with_tasks_waits_for_the_commits_of_their_last_owner(log: EmbeddedLog) -> None:
    app = counting(log, 1)
    append(log, "lines", [("a", "x", 1)] * 3)
    old = new_thread(app, log)  # which goes on to live, without this task
    old.start()
    settle(old)
    late: Any = LateMarks(log)
    new = new_thread(app, late, name="thread-1")
    new.start()
    append(log, "lines", [("a", "x", 2)])
    settle(new)
    assert counts_of(log, b"a") == [1, 2, 3, 4]
    new.close(commit=True)
    old.close(commit=False)


def test_a_thread_knows_the_offsets_that_its_tasks_read_from_those_of_restores(log: EmbeddedLog) -> None:
    app, place = counting(log, 1), TopicPartition("lines", 0)
    append(log, "lines", [("a", "x", 1)] * 3)
    thread = new_thread(app, log)
    thread.start()
    settle(thread)
    assert thread.reads_from(place, 3)
    assert not thread.reads_from(place, 2)  # which only a restore asks for
    assert not thread.reads_from(TopicPartition("counts", 0), 3)
    thread.remove(app.tasks())
    assert not thread.reads_from(place, 3)
    thread.close(commit=True)
