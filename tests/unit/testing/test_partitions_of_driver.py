"""The test driver over topics of several partitions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import (
    GlobalKTable,
    JoinWindows,
    Materialized,
    Produced,
    Repartitioned,
    StreamsBuilder,
    Topology,
    TopologyTestDriver,
)
from penstock.api.processing.processor import Processor, Record
from penstock.config import StreamsConfig
from penstock.errors import (
    CoPartitionError,
    InvalidStateError,
    ProcessingError,
    ProductionError,
    StateError,
    TopologyError,
)
from penstock.log.partitioner import partition_for
from penstock.query import KeyQuery, StateQueryRequest
from penstock.testing import TestRecord
from penstock.testing.simulation.records import SourceRecords

SERDES = {
    "default.key.serde": "string",
    "default.value.serde": "string",
    "statestore.cache.max.bytes": 0,
    "application.id": "app",
}
NAMES = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"]


def driver_of(builder: StreamsBuilder, **options: Any) -> TopologyTestDriver:
    return TopologyTestDriver(builder.build(), SERDES, **options)


def copies() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder


def by_hash(key: str, count: int) -> int:
    return partition_for(key.encode(), count)


def test_records_go_where_kafka_s_producer_sends_them() -> None:
    with driver_of(copies()) as driver:
        driver.input_topic("in", partitions=3).pipe_many([(name, "v") for name in NAMES])
        out = driver.output_topic("out")
        assert [(each.key, each.partition) for each in out.read_records_to_list()] == [
            (name, by_hash(name, 3)) for name in NAMES
        ]


def test_a_partition_may_be_named_and_records_without_a_key_take_turns() -> None:
    with driver_of(copies()) as driver:
        words = driver.input_topic("in", partitions=2)
        words.pipe("named", key="ann", partition=1 - by_hash("ann", 2))
        for word in ("x", "y", "z"):
            words.pipe(word)
        out = driver.output_topic("out", partitions=None)
        assert out.size == 4


def test_an_output_has_partitions_of_its_own_and_is_read_by_partition() -> None:
    with driver_of(copies()) as driver:
        words, out = driver.input_topic("in", partitions=3), driver.output_topic("out", partitions=5)
        words.pipe_many([(name, str(number)) for number, name in enumerate(NAMES)])
        expected = [[name for name in NAMES if by_hash(name, 5) == number] for number in range(5)]
        assert [[each.key for each in out.read_partition(number)] for number in range(5)] == expected
        assert out.is_empty()
        with pytest.raises(TopologyError, match="topic 'out' has no partition 5"):
            out.read_partition(5)


def counts() -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in").group_by(lambda key, value: value)
    stream.count(Materialized("counts", value_serde="long")).to_stream().to("out", Produced(value_serde="long"))
    return builder


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_repartition_topics_bring_equal_keys_together(batch_size: int) -> None:
    with driver_of(counts(), batch_size=batch_size) as driver:
        words = driver.input_topic("in", partitions=3)
        words.pipe_many([(name, word) for name in NAMES for word in ("x", "y", "z")])
        driver.flush()
        assert driver.output_topic("out").read_key_values_to_map() == dict.fromkeys("xyz", len(NAMES))
        for word in "xyz":
            own = by_hash(word, 3)
            rows = [driver.store("counts", partition).get(word) for partition in range(3)]
            assert [None if row is None else row.value for row in rows] == [
                len(NAMES) if number == own else None for number in range(3)
            ]
            assert driver.store("counts").get(word).value == len(NAMES)
        assert [(key, entry.value) for key, entry in driver.store("counts").all()] == [(word, 8) for word in "xyz"]
        answers = driver.query(StateQueryRequest("counts", KeyQuery("x"))).partition_results
        assert {number: answer.get() for number, answer in answers.items()}[by_hash("x", 3)] == len(NAMES)
        assert sorted(answers) == [0, 1, 2]
        with pytest.raises(StateError, match="store 'counts' has no partition 3"):
            driver.store("counts", 3)


def test_a_repartition_topic_has_the_most_partitions_of_its_sources_unless_it_is_given_a_number() -> None:
    builder = StreamsBuilder()
    one, two = builder.stream("one"), builder.stream("two")
    one.merge(two).repartition(Repartitioned(name="all")).to("inherited")
    builder.stream("three").repartition(Repartitioned(name="some", partitions=5)).to("given")
    with driver_of(builder) as driver:
        driver.input_topic("one", partitions=2)
        driver.input_topic("two", partitions=4)
        assert driver.partition_count("app-all-repartition") == 4
        assert driver.partition_count("app-some-repartition") == 5
        assert driver.partition_count("three") == 1


class Times(Processor):
    """Sends the stream time of its task, and what the clock has made due."""

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(1000, "wall_clock_time", self.tick)

    def process(self, record: Record) -> None:
        time = str(self.context.current_stream_time_ms())
        self.context.forward(record.with_value(f"{self.context.task_id} {time}"))

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record(str(self.context.task_id), "tick", timestamp))


def test_each_task_has_its_own_stream_time_and_its_punctuations() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Times).to("out")
    with TopologyTestDriver(builder.build(), {**SERDES, "metrics.recording.level": "DEBUG"}) as driver:
        words = driver.input_topic("in", partitions=3)
        words.pipe("x", key="a", timestamp=50, partition=0)
        words.pipe("x", key="a", timestamp=20, partition=1)
        words.pipe("x", key="a", timestamp=10, partition=0)
        assert driver.output_topic("out").read_values_to_list() == ["0_0 50", "0_1 20", "0_0 50"]
        driver.advance_wall_clock_time(1000)
        assert driver.output_topic("out").read_key_values_to_list() == [
            ("0_0", "tick"),
            ("0_1", "tick"),
            ("0_2", "tick"),
        ]
        assert driver.metrics.value("process-total", group="stream-task-metrics", task_id="0_0") == 2
        assert driver.metrics.value("process-total", group="stream-task-metrics", task_id="0_1") == 1


class FailsOnce(Times):
    """Fails at its first time in the first task."""

    def tick(self, timestamp: int) -> None:
        if (self.context.task_id, timestamp) == ("0_0", 1000):
            raise ValueError(timestamp)
        self.context.forward(Record(str(self.context.task_id), "tick", timestamp))


def test_a_punctuation_that_fails_leaves_no_clock_behind() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(FailsOnce).to("out")
    with driver_of(builder) as driver:
        driver.input_topic("in", partitions=2)
        with pytest.raises(ProcessingError):
            driver.advance_wall_clock_time(1000)
        driver.advance_wall_clock_time(1000)
        out = driver.output_topic("out").read_records_to_list()
        assert [each.timestamp for each in out if each.key == "0_1"] == [2000]


def test_all_tasks_see_the_global_tables() -> None:
    builder = StreamsBuilder()
    table: GlobalKTable[str, str] = builder.global_table("names")
    builder.stream("in").join(table, lambda value, name: name, key=lambda key, value: value).to("out")
    with driver_of(builder) as driver:
        names, words = driver.input_topic("names", partitions=2), driver.input_topic("in", partitions=3)
        names.pipe_many([("1", "ann"), ("2", "bob")])
        for number in range(3):
            words.pipe("1", partition=number)
            words.pipe("2", partition=number)
        assert driver.output_topic("out").read_values_to_list() == ["ann", "bob"] * 3
        (store,) = driver.topology.global_stores
        assert driver.store(store).get("1").value == "ann"
        assert driver.dropped_records == 0


def test_partitioners_of_outputs_are_asked() -> None:
    builder = StreamsBuilder()
    chosen = {"one": 2, "none": [], "all": [0, 1, 2], "own": None}
    builder.stream("in").to("out", Produced(partitioner=lambda topic, key, value, count: chosen[value]))
    with driver_of(builder) as driver:
        driver.input_topic("in", partitions=3).pipe_many([("ann", value) for value in chosen])
        seen = [(each.value, each.partition) for each in driver.output_topic("out").read_records_to_list()]
        assert seen == [("one", 2), ("all", 0), ("all", 1), ("all", 2), ("own", by_hash("ann", 3))]


def joined() -> StreamsBuilder:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, lambda a, b: a + b, JoinWindows.of(1000)).to("out")
    return builder


def test_topics_that_are_joined_need_the_same_number_of_partitions() -> None:
    with driver_of(joined()) as driver:
        left = driver.input_topic("left", partitions=3)
        with pytest.raises(CoPartitionError, match="'left' has 3 partitions and 'right' has 1, but they are joined"):
            left.pipe("a", key="k")
        right = driver.input_topic("right", partitions=3)
        left.pipe("a", key="k")
        right.pipe("b", key="k")
        right.pipe("b", key="k", partition=(by_hash("k", 3) + 1) % 3)  # meets nothing there
        assert driver.output_topic("out").read_values_to_list() == ["ab"]


def test_foreign_key_joins_go_to_and_fro_between_partitions() -> None:
    builder = StreamsBuilder()
    people, cities = builder.table("people"), builder.table("cities")
    people.join(cities, lambda a, b: f"{a} {b}", foreign_key=lambda city: city).to_stream().to("out")
    with driver_of(builder) as driver:
        of_people, of_cities = driver.input_topic("people", partitions=3), driver.input_topic("cities", partitions=2)
        of_people.pipe_many([(name, "rome" if number % 2 else "oslo") for number, name in enumerate(NAMES)])
        of_cities.pipe_many([("rome", "IT"), ("oslo", "NO")])
        out = driver.output_topic("out").read_records_to_list()
        assert {each.key: each.value for each in out} == {
            name: "rome IT" if number % 2 else "oslo NO" for number, name in enumerate(NAMES)
        }
        assert all(each.partition == by_hash(each.key, 3) for each in out)


def test_changelogs_have_the_partitions_of_their_tasks() -> None:
    with driver_of(counts(), changelogs=True) as driver:
        driver.input_topic("in", partitions=3).pipe_many([(name, name) for name in NAMES])
        changes = driver.output_topic("app-counts-changelog", "string", "bytes")
        assert {each.key: each.partition for each in changes.read_records_to_list()} == {
            name: by_hash(name, 3) for name in NAMES
        }
        assert driver.partition_count("app-counts-changelog") == 3


def test_patterns_read_the_topics_that_were_named() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("log-.*")).to("out")
    with driver_of(builder) as driver:
        one, two = driver.input_topic("log-a", partitions=2), driver.input_topic("log-b")
        one.pipe("a", key="k", partition=1)
        two.pipe("b", key="k")
        assert driver.output_topic("out").read_values_to_list() == ["a", "b"]
        with pytest.raises(InvalidStateError, match="topic 'log-c' was not there when the driver was used first"):
            driver.input_topic("log-c")


def test_a_topic_of_a_pattern_may_be_named_after_partitions_were_asked_for() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("log-.*")).to("out")
    with driver_of(builder) as driver:
        driver.input_topic("log-a", partitions=2)
        assert driver.partition_count("log-a") == 2
        driver.input_topic("log-b").pipe("b", key="k")
        assert driver.output_topic("out").read_values_to_list() == ["b"]


def test_what_was_sent_before_a_failure_is_that_of_the_task_that_failed() -> None:
    builder = StreamsBuilder()
    builder.stream("in").flat_map_values(lambda value: [f"{value}1", f"{value}2"]).to("out")
    with driver_of(builder) as driver:
        driver.refuse(lambda record: ProductionError("no") if record.value in {b"a2", b"b2"} else None)
        words = driver.input_topic("in", partitions=2)
        for number, value in enumerate("ab"):
            with pytest.raises(ProductionError):
                words.pipe(value, key="k", partition=number)
            assert [record.value for record in driver.sent_before_failure()] == [f"{value}1".encode()]
        words.pipe("c", key="k", partition=1)
        assert driver.sent_before_failure() == []


def test_partitions_come_before_the_first_record() -> None:
    with driver_of(copies()) as driver:
        driver.input_topic("in").pipe("x", key="ann")
        with pytest.raises(InvalidStateError, match="topic 'in' has 1 partition since the driver was used first"):
            driver.input_topic("in", partitions=3)
        driver.input_topic("in", partitions=1).pipe("y", key="ann")
        assert [each.partition for each in driver.output_topic("out").read_records_to_list()] == [None, None]


class Where(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        metadata = self.context.record_metadata()
        assert metadata is not None
        self.context.forward(Record(record.key, str(metadata.partition), record.timestamp))


def places(*topics: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic).process(Where).to("out")
    return builder


def test_records_without_a_key_take_turns_for_each_topic_in_the_driver_and_in_simulations() -> None:
    topics = ["left", "right", "left", "left", "right"]
    with driver_of(places("left", "right")) as driver:
        inputs = {name: driver.input_topic(name, partitions=3) for name in ("left", "right")}
        for name in topics:
            inputs[name].pipe("x")
        assert driver.output_topic("out").read_values_to_list() == ["0", "0", "1", "2", "1"]
        records = SourceRecords(driver.topology, StreamsConfig(SERDES), 3)
    for name in topics:
        records.add(name, None, "x")
    assert [each.partition for each in records.inputs()] == [0, 0, 1, 2, 1]


def test_records_go_to_the_partition_that_they_name_and_those_of_a_topic_of_one_partition_name_none() -> None:
    keys = ["ann", "bob", "cid", "dan"]
    with driver_of(copies()) as one, driver_of(copies()) as several, driver_of(places("in")) as driver:
        one.input_topic("in").pipe_many([(key, "x") for key in keys])
        several.input_topic("in", partitions=2).pipe_many([(key, "x") for key in keys])
        topic, out = driver.input_topic("in", partitions=3), driver.output_topic("out")
        topic.pipe_many(one.output_topic("out").read_records_to_list())
        assert out.read_values_to_list() == [str(by_hash(key, 3)) for key in keys]
        topic.pipe_many(several.output_topic("out").read_records_to_list())
        assert out.read_values_to_list() == [str(by_hash(key, 2)) for key in keys]
        topic.pipe_many([TestRecord("ann", "x", 0, partition=number) for number in range(3)])
        assert out.read_values_to_list() == ["0", "1", "2"]


def test_partitions_that_do_not_exist() -> None:
    with driver_of(copies()) as driver, pytest.raises(TopologyError, match="topic 'in' has no partition 1"):
        driver.input_topic("in").pipe("x", partition=1)
    with driver_of(copies()) as driver:
        words = driver.input_topic("in", partitions=2)
        with pytest.raises(TopologyError, match="topic 'in' has no partition 2"):
            words.pipe("x", partition=2)
        with pytest.raises(TopologyError, match="partitions is 0"):
            driver.input_topic("in", partitions=0)


def test_internal_topics_are_not_given_partitions() -> None:
    with driver_of(counts()) as driver, pytest.raises(TopologyError, match="is an internal topic"):
        driver.output_topic("app-counts-repartition", partitions=3)


def test_without_partitions_nothing_changes() -> None:
    topology: Topology = counts().build()
    seen = []
    for partitions in (None, 1):
        with TopologyTestDriver(topology, SERDES) as driver:
            driver.input_topic("in", partitions=partitions).pipe_many([(name, "x") for name in NAMES])
            seen.append(driver.output_topic("out").read_records_to_list())
            assert type(driver.store("counts").get("x")).__name__ == "ValueAndTimestamp"
    assert seen[0] == seen[1]


def test_an_error_leaves_the_rest_to_the_next_record_and_what_was_written_can_be_seen() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned(name="again")).peek(lambda key, value: 1 // int(value)).to("out")
    with driver_of(builder, batch_size=3) as driver:
        words = driver.input_topic("in", partitions=2)
        words.pipe("1", key="ann")
        words.pipe("2", key="bob")
        with pytest.raises(Exception, match="division"):
            words.pipe("0", key="cid")
        words.pipe("3", key="dan")
        driver.flush()
        assert "3" in driver.output_topic("out").read_values_to_list()


def test_stores_have_their_partitions_before_the_first_record() -> None:
    with TopologyTestDriver(counts().build(), {**SERDES, "metrics.recording.level": "DEBUG"}) as driver:
        driver.input_topic("in", partitions=3)
        assert driver.partitions_of("counts") == 3
        assert driver.output_topic("out", partitions=1).read_partition(0) == []
        assert driver.partition_count("out") == 1
        assert list(driver.store("counts").all()) == []
        assert driver.metrics.value("process-total", group="stream-task-metrics", task_id="1_2") == 0
