"""The metadata that threads of a streams group commit with their offsets, and go on from, over an embedded log."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import StreamsBuilder, TimeWindows
from penstock.engines.threads.app import ThreadApp
from penstock.errors import FencedError
from penstock.log.base import OffsetAndMetadata, StreamsMembership, TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.streams_groups.description import (
    LEAVE_EPOCH,
    Assignment,
    GroupSubtopology,
    GroupTopology,
    StreamsHeartbeat,
)
from penstock.log.streams_groups.offset_metadata import OffsetMetadata
from penstock.topology.plan.plan import TaskId
from threads import append, new_thread, records_of, settle, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
P0, P1 = TopicPartition("lines", 0), TopicPartition("lines", 1)


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        opened.create_topic("lines", 2)
        opened.create_topic("out")
        yield opened


def joined(log: EmbeddedLog, name: str = "m") -> StreamsMembership:
    """The membership of a member of the group that has all tasks."""
    topology = GroupTopology((GroupSubtopology("0", ("lines",)),))
    join = StreamsHeartbeat(
        "app", name, 0, rebalance_timeout_ms=300_000, topology=topology, owned=Assignment(), process=name, tags=()
    )
    return StreamsMembership(name, log.streams_coordinator().heartbeat(join).epoch)


def leave(log: EmbeddedLog, name: str = "m") -> None:
    log.streams_coordinator().heartbeat(StreamsHeartbeat("app", name, LEAVE_EPOCH))


def copied(log: EmbeddedLog, **config: Any) -> ThreadApp:
    """An application that keeps no state."""
    builder = StreamsBuilder()
    builder.stream("lines").to("out")
    return thread_app(builder.build(SERDES | config), SERDES | config, log)


def closing(log: EmbeddedLog) -> ThreadApp:
    """An application that sends the counts of windows of 10 ms when they close."""
    builder = StreamsBuilder()
    windows = TimeWindows.of(10)
    counts = (
        builder.stream("lines").group_by_key().windowed_by(windows).emit_strategy("on_window_close").count("counts")
    )
    counts.to_stream().map(lambda key, value: (f"{key.key}@{key.window.start}", str(value))).to("out")
    config = SERDES | {"__emit.interval.ms.kstreams.windowed.aggregation__": 0}
    return thread_app(builder.build(config), config, log)


def metadata_of(log: EmbeddedLog) -> dict[TopicPartition, OffsetMetadata]:
    return {tp: OffsetMetadata.decode(each.metadata) for tp, each in log.group_offsets("app").items()}


def test_each_offset_carries_the_time_of_its_partition(log: EmbeddedLog) -> None:
    thread = new_thread(copied(log), log, membership=joined(log))
    thread.start()
    append(log, "lines", [("a", "x", 700), ("a", "y", 300)], 0)
    append(log, "lines", [("b", "x", 5)], 1)
    settle(thread)
    assert metadata_of(log) == {P0: OffsetMetadata(700), P1: OffsetMetadata(5)}
    append(log, "lines", [("b", "x", 4)], 1)  # late: neither time changes
    settle(thread)
    thread.close(commit=True)
    assert {tp: each.offset for tp, each in log.group_offsets("app").items()} == {P0: 2, P1: 2}
    assert metadata_of(log) == {P0: OffsetMetadata(700), P1: OffsetMetadata(5)}


def test_a_task_without_state_goes_on_with_the_times_that_java_has_committed(log: EmbeddedLog) -> None:
    config = {"default.timestamp.extractor": "UsePartitionTimeOnInvalidTimestamp"}
    for tp in (P0, P1):
        append(log, "lines", [("a", "x", 700 + tp.partition)], tp.partition)
        text = OffsetMetadata(700 + tp.partition, {"a processor that is gone": 1}).encode()
        with log.transaction("") as transaction:
            transaction.commit_with_metadata("app", {tp: OffsetAndMetadata(1, text)})
    thread = new_thread(copied(log, **config), log, membership=joined(log))
    thread.start()
    assert {each.task: each.stream_time_ms for each in thread.figures().tasks} == {"0_0": 700, "0_1": 701}
    for partition in (0, 1):
        append(log, "lines", [("a", "of no time", -1)], partition)
    settle(thread)
    thread.close(commit=True)
    assert [at for _, value, at in records_of(log, "out") if value == b"of no time"] == [700, 701]
    assert metadata_of(log) == {P0: OffsetMetadata(700), P1: OffsetMetadata(701)}


def test_closed_windows_are_not_sent_again_by_a_member_that_knows_the_offsets_alone(log: EmbeddedLog) -> None:
    app = closing(log)
    first = new_thread(app, log, [TaskId(0, 0)], membership=joined(log, "first"))
    first.start()
    append(log, "lines", [("a", "x", 1), ("a", "x", 12), ("a", "x", 25)])
    settle(first)
    first.close(commit=True)
    leave(log, "first")
    assert [key for key, _, _ in records_of(log, "out")] == [b"a@0", b"a@10"]
    assert metadata_of(log) == {P0: OffsetMetadata(25, {"counts": 25})}
    assert app.numbers_topic is not None
    config = log.topic(app.numbers_topic).config
    log.delete_topic(app.numbers_topic)  # a member in Java has written none of these numbers
    log.create_topic(app.numbers_topic, 2, config)
    second = new_thread(app, log, [TaskId(0, 0)], membership=joined(log, "second"))
    second.start()
    append(log, "lines", [("a", "x", 26), ("a", "x", 31)])
    settle(second)
    second.close(commit=True)
    assert [(key, value) for key, value, _ in records_of(log, "out")] == [
        (b"a@0", b"1"),
        (b"a@10", b"1"),
        (b"a@20", b"2"),
    ]
    assert metadata_of(log) == {P0: OffsetMetadata(31, {"counts": 31})}


@pytest.mark.parametrize("is_member", [True, False])
def test_what_time_alone_has_changed_is_fenced_by_the_offsets_of_its_task(log: EmbeddedLog, is_member: bool) -> None:
    """A commit of a member is fenced by its offsets; so it has some also when no record was processed."""
    app = copied(log, **{"penstock.tick.interval.ms": 1})
    membership = joined(log) if is_member else None
    thread = new_thread(app, log, [TaskId(0, 0)], membership=membership)
    thread.start()
    [task] = thread._tasks.values()
    task.is_changed = True  # as a punctuation leaves it
    thread._touched[task.id] = task
    thread.commit()
    assert log.committed_offsets("app") == ({P0: 0} if is_member else {})
    if not is_member:
        thread.close(commit=True)
        return
    leave(log)
    task.is_changed = True
    thread._touched[task.id] = task
    with pytest.raises(FencedError) as raised:
        thread.commit()
    assert raised.value.facts["membership"] == "unknown"
    thread.close(commit=False)


def test_with_a_lease_offsets_carry_its_epoch(log: EmbeddedLog) -> None:
    thread = new_thread(copied(log), log)
    thread.start()
    append(log, "lines", [("a", "x", 700)], 0)
    settle(thread)
    thread.close(commit=True)
    assert log.group_offsets("app") == {P0: OffsetAndMetadata(1, "stream-thread thread-0 epoch 1")}
