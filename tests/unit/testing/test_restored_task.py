"""The task behind the test driver, which goes on where another one has stopped; and copies of its topology."""

from __future__ import annotations

import pytest

from penstock import Consumed, Processor, Record, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.spark.topology_bytes import AppCopies
from penstock.runtime.local_task import LocalTask
from penstock.runtime.rows import RawRecord

TEXT = Consumed(key_serde="string", value_serde="string")
seen: list[str] = []


class Noting(Processor):
    noted: list[str] = []  # noqa: RUF012 - that it is shared is what is tested

    def process(self, record: Record) -> None:
        self.noted.append(record.value)
        seen.append(record.value)
        self.context.forward(Record(record.key, f"{len(self.noted)}/{len(seen)}", record.timestamp))


def record(offset: int, topic: str = "in") -> RawRecord:
    return RawRecord(topic, offset, offset, b"k", b"v", ())


@pytest.mark.parametrize("logs_changes", [False, True])
def test_a_task_goes_on_with_the_rows_of_another(logs_changes: bool) -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names", TEXT)
    counts = builder.stream("in", TEXT).join(names, lambda value, _: value, key=lambda key, _: key).group_by_key()
    counts.count().to_stream().to("out")
    config = StreamsConfig({"application.id": "a", "statestore.cache.max.bytes": 0, "default.key.serde": "string"})
    written: list[RawRecord] = []
    first = LocalTask(builder.build(), config, written.append, logs_changes=logs_changes)
    first.process([record(0, "names")])
    for offset in range(3):
        first.process([record(offset)])
    rows = first.rows()
    first.close()
    written.clear()
    second = LocalTask(builder.build(), config, written.append, logs_changes=logs_changes, restored=rows)
    second.process([record(3)])
    second.close()
    assert [int.from_bytes(each.value or b"") for each in written if each.topic == "out"] == [4]
    assert (rows.numbers, second.rows().numbers) == ({"stream_time": 2}, {"stream_time": 3})


def test_copies_of_a_topology_remember_nothing_of_each_other() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(Noting).to("out")
    settings = {"application.id": "a", "default.key.serde": "string", "default.value.serde": "string"}
    copies = AppCopies(builder.build(), StreamsConfig(settings))
    written: list[RawRecord] = []
    for _ in range(2):
        topology, config = copies.copy()
        task = LocalTask(topology, config, written.append)
        for offset in range(2):
            task.process([record(offset)])
        task.close()
    assert [each.value for each in written] == [b"1/1", b"2/2"] * 2
    assert (seen, Noting.noted) == ([], [])


class Beating(Processor):
    def init(self, context):
        super().init(context)
        context.schedule("1 s", "wall_clock_time", lambda at_ms: context.forward(Record("k", "beat", at_ms)))

    def process(self, record: Record) -> None:
        pass


def test_a_punctuation_noted_by_a_clock_that_was_ahead_does_not_wait_for_it() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(Beating).to("out")
    written: list[RawRecord] = []
    config = StreamsConfig({"application.id": "a", "default.key.serde": "string", "default.value.serde": "string"})
    ahead = LocalTask(builder.build(), config, written.append, wall_clock_ms=200_000_000)
    ahead.pass_time(1_000)
    assert len(written) == 1
    rows = ahead.rows()
    assert list(rows.numbers.values()) == [200_002_000]
    behind = LocalTask(builder.build(), config, written.append, wall_clock_ms=5_000, restored=rows)
    behind.pass_time(1_000)
    assert [each.timestamp for each in written[1:]] == [6_000]
    behind.close()
    ahead.close()
