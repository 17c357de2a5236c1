"""Notes for replays stay small enough for the log, however many turns a commit has."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Consumed, Produced, StreamsBuilder
from penstock.engines.threads.loop.commit import ReplayNote, ReplayNotes
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from threads import thread_app

TEXT = Consumed(key_serde="string", value_serde="string")
NEW, OLD = TopicPartition("in", 0), TopicPartition("other", 0)
POSITIONS = {NEW: 0, OLD: 0}


@pytest.fixture
def notes() -> Iterator[ReplayNotes]:
    builder = StreamsBuilder()
    table = builder.table("other", TEXT)
    joined = builder.stream("in", TEXT).join(table, lambda one, two: one + two)
    joined.to("out", Produced(key_serde="string", value_serde="string"))
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        for topic in ("in", "other", "out"):
            log.create_topic(topic, 1)
        app = thread_app(builder.build(), {}, log)
        (task,) = app.tasks()
        replica = TaskReplica.open(app, task)
        replica.restore(log, POSITIONS, lambda *_: None, {})
        yield ReplayNotes(app, task, replica, POSITIONS, 1_000)
        replica.close()


def note_of(parts: list[Any]) -> ReplayNote | None:
    return ReplayNote.parse(parts[0][2].column("value")[0].as_py()) if parts else None


@pytest.mark.parametrize("turns", [1, 1_000, 16_666, 16_667, 100_000])
def test_a_note_is_small_enough_or_left_out_and_the_next_one_begins_behind_it(notes: ReplayNotes, turns: int) -> None:
    counts = {NEW: 1_000, OLD: 1_000}
    for number in range(turns):
        notes.took(1_764_000_000_000 + number, counts)
    after = dict.fromkeys(POSITIONS, turns * 1000)
    parts = notes.part(1_764_000_030_000, after)
    note = note_of(parts)
    if turns <= 16_666:
        assert note is not None
        assert len(note.turns or ()) == turns
        assert len(parts[0][2].column("value")[0].as_py()) < 500_000
    else:
        assert note is None
        assert not notes.has_turns
    notes.committed(after)
    notes.took(1_764_000_050_000, {NEW: 1})
    following = note_of(notes.part(1_764_000_050_000, {**after, NEW: after[NEW] + 1}))
    assert following is not None
    assert (following.before, following.began_ms) == (after, 1_764_000_030_000)
    assert len(following.turns or ()) == 1
