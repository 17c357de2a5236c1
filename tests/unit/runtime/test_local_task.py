"""The local task: a whole topology in this process, fed with records of bytes."""

from __future__ import annotations

import pytest

from penstock import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.runtime.local_task import LocalTask
from penstock.runtime.rows import RawRecord

SETTINGS = {
    "application.id": "local",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "statestore.cache.max.bytes": 0,
}


def record(offset: int, value: bytes, topic: str = "lines") -> RawRecord:
    return RawRecord(topic, offset, 1_000 + offset, b"k", value, ())


@pytest.mark.parametrize("pieces", [[4], [1, 1, 1, 1], [1, 2, 1]])
def test_records_of_internal_topics_are_processed_before_the_call_returns(pieces):
    builder = StreamsBuilder()
    words = builder.stream("lines").group_by(lambda _, value: value)
    words.count("counts").to_stream().map_values(str).to("out")
    written: list[RawRecord] = []
    task = LocalTask(builder.build(), StreamsConfig(SETTINGS), written.append)
    records = iter([record(n, value) for n, value in enumerate([b"a", b"b", b"a", b"a"])])
    for size in pieces:
        task.process([next(records) for _ in range(size)])
    out = [(each.key, each.value, each.timestamp) for each in written if each.topic == "out"]
    assert out == [(b"a", b"1", 1000), (b"b", b"1", 1001), (b"a", b"2", 1002), (b"a", b"3", 1003)]
    (internal,) = {each.topic for each in written} - {"out"}
    assert internal.endswith("-repartition")
    assert task.position_of("counts") == {task.topology.physical_name(internal, SETTINGS["application.id"]): {0: 3}}
    assert task.store("counts").get("a").value == 3
    task.close()


def test_a_global_store_is_filled_behind_the_records_before_and_a_topic_that_nothing_reads_changes_nothing():
    builder = StreamsBuilder()
    table = builder.global_table("names")
    builder.stream("lines").join(table, lambda value, name: f"{value}={name}", key=lambda _, value: value).to("out")
    written: list[RawRecord] = []
    task = LocalTask(builder.build(), StreamsConfig(SETTINGS), written.append)
    name = RawRecord("names", 0, 5, b"a", b"Anna", ())
    task.process([record(0, b"a"), name, record(1, b"a", "elsewhere")])
    assert (task.fills_global_store("names"), task.fills_global_store("lines")) == (True, False)
    assert written == []
    task.process([record(1, b"a")])
    assert [each.value for each in written] == [b"a=Anna"]
    task.close()


def test_the_wall_clock_goes_on_by_pass_time_alone():
    ticks: list[int] = []

    class Ticking:
        def init(self, context):
            context.schedule("1s", "wall_clock_time", ticks.append)

        def process(self, record):
            pass

        def close(self):
            ticks.append(-1)

    builder = StreamsBuilder()
    builder.stream("lines").process(Ticking)
    task = LocalTask(builder.build(), StreamsConfig(SETTINGS), lambda record: None, wall_clock_ms=10_000)
    task.process([record(0, b"x")])
    task.pass_time(999)
    assert ticks == []
    task.pass_time(1)
    assert (ticks, task.wall_clock_ms) == ([11_000], 11_000)
    task.close()
    assert ticks == [11_000, -1]
