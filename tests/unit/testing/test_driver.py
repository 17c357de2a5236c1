from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from penstock import Consumed, Produced, StreamsBuilder
from penstock.api.processing.processor import Processor, Record
from penstock.errors import InvalidStateError, StateError, TopologyError
from penstock.serde.primitives import StringSerde
from penstock.testing import TestRecord, TopologyTestDriver
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import MapValues, Process
from penstock.topology.operations.functions import Function
from penstock.topology.topology import InternalTopic, Topology

STRING = StringSerde()


def shouting():
    shout = Function.wrap(str.upper, verb="test", allowed=(1,))
    nodes = [
        SourceNode("s", ("in",), STRING, STRING),
        ProcessorNode("m", MapValues(shout), ("s",)),
        SinkNode("o", "out", STRING, STRING, ("m",)),
    ]
    return Topology({n.name: n for n in nodes}, {})


def looped():
    """in -> an internal topic -> out."""
    nodes = [
        SourceNode("s", ("in",), STRING, STRING),
        SinkNode("r", "again-repartition", STRING, STRING, ("s",), internal=True),
        SourceNode("s2", ("again-repartition",), STRING, STRING, internal=True),
        SinkNode("o", "out", STRING, STRING, ("s2",)),
    ]
    return Topology({n.name: n for n in nodes}, {}, {"again-repartition": InternalTopic("again-repartition")})


def test_piping_and_reading(topology_driver):
    driver = topology_driver(shouting())
    topic, out = driver.input_topic("in"), driver.output_topic("out")
    assert out.is_empty()
    topic.pipe("hello", key="k", timestamp="1970-01-01T00:00:01Z", headers={"h": "1"})
    topic.pipe("world", timestamp=datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    assert out.size == 2
    assert out.read_record() == TestRecord("k", "HELLO", 1000, (("h", b"1"),))
    assert out.read_key_value() == (None, "WORLD")
    topic.pipe_many([("a", "1"), ("b", "2", 7), ("a", "3")])
    assert out.read_key_values_to_map() == {"a": "3", "b": "2"}
    assert driver.produced_topic_names() == {"out"}
    assert driver.metrics.value("records-produced-total", topic="out") == 5


def test_reading_too_much_says_what_there_is(topology_driver):
    driver = topology_driver(shouting())
    with pytest.raises(InvalidStateError, match="output topic 'out' has no record to read"):
        driver.output_topic("out").read_value()


def test_unknown_names(topology_driver):
    driver = topology_driver(shouting())
    with pytest.raises(TopologyError, match="no source reads topic 'inn'"):
        driver.input_topic("inn")
    with pytest.raises(StateError, match="no store 'x'"):
        driver.get_state_store("x")


def test_auto_advance_and_the_topics_own_clock():
    with TopologyTestDriver(shouting(), initial_wall_clock_ms=100) as driver:
        topic = driver.input_topic("in", auto_advance="1s")
        topic.pipe("a")
        topic.pipe("b")
        topic.advance_time(5)
        topic.pipe("c")
        assert [r.timestamp for r in driver.output_topic("out").read_records_to_list()] == [100, 1100, 2105]
    with pytest.raises(InvalidStateError, match="closed"):
        topic.pipe("d")


def test_batches_wait_for_their_size_or_a_flush():
    with TopologyTestDriver(shouting(), batch_size=3) as driver:
        topic, out = driver.input_topic("in"), driver.output_topic("out")
        topic.pipe("a")
        topic.pipe("b")
        assert out.is_empty()
        topic.pipe("c")
        assert out.read_values_to_list() == ["A", "B", "C"]
        topic.pipe("d")
        driver.flush()
        assert out.read_value() == "D"


@pytest.mark.parametrize("batch_size", [1, 4])
def test_internal_topics_go_back_in(batch_size):
    with TopologyTestDriver(looped(), {"application.id": "app"}, batch_size=batch_size) as driver:
        for number in range(6):
            driver.input_topic("in").pipe(str(number), timestamp=number)
        driver.flush()
        assert driver.output_topic("out").read_values_to_list() == [str(n) for n in range(6)]
        assert driver.produced_topic_names() == {"app-again-repartition", "out"}
        assert driver.output_topic("app-again-repartition").size == 6


def test_what_a_failing_record_had_written_shows_with_the_next_one(topology_driver):
    def fail(value):
        if value == "B":
            raise ValueError(value)
        return value

    nodes = [
        SourceNode("s", ("in",), STRING, STRING),
        SinkNode("first", "before", STRING, STRING, ("s",)),
        ProcessorNode("m", MapValues(Function.wrap(fail, verb="test", allowed=(1,))), ("s",)),
        SinkNode("second", "out", STRING, STRING, ("m",)),
    ]
    driver = topology_driver(Topology({n.name: n for n in nodes}, {}))
    topic = driver.input_topic("in")
    topic.pipe("A")
    with pytest.raises(Exception, match="ValueError: B"):
        topic.pipe("B")
    assert driver.output_topic("before").read_values_to_list() == ["A"]
    topic.pipe("C")
    assert driver.output_topic("before").read_values_to_list() == ["B", "C"]
    assert driver.output_topic("out").read_values_to_list() == ["A", "C"]


class Clock(Processor):
    def init(self, context):
        super().init(context)
        context.schedule("1s", "wall_clock_time", lambda now: context.forward(Record("wall", str(now), now)))
        context.schedule(10, "stream_time", lambda now: context.forward(Record("stream", str(now), now)))

    def process(self, record):
        assert self.context.record_metadata().topic == "in"
        self.context.forward(record.with_value(str(self.context.current_stream_time_ms())))


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_punctuation(batch_size):
    nodes = [
        SourceNode("s", ("in",), STRING, STRING),
        ProcessorNode("p", Process(Clock), ("s",)),
        SinkNode("o", "out", STRING, STRING, ("p",)),
    ]
    with TopologyTestDriver(Topology({n.name: n for n in nodes}, {}), batch_size=batch_size) as driver:
        for time in (3, 12, 11, 40):
            driver.input_topic("in").pipe("", key="r", timestamp=time)
        driver.advance_wall_clock_time(999)
        driver.advance_wall_clock_time("1ms")
        driver.advance_wall_clock_time("3500ms")
        assert driver.output_topic("out").read_key_values_to_list() == [
            ("r", "3"),
            ("stream", "3"),
            ("r", "12"),
            ("stream", "12"),
            ("r", "12"),
            ("r", "40"),
            ("stream", "40"),
            ("wall", "1000"),
            ("wall", "4500"),
        ]


def test_no_spark_is_imported():
    code = "import sys; from penstock.testing import *; assert TopologyTestDriver; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_plugin_costs_pytest_no_import_of_the_driver():
    code = "import sys, penstock.testing.plugin; sys.exit(bool({'polars', 'pyarrow', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_records_of_a_global_table_do_not_move_the_stream_time():
    builder = StreamsBuilder()
    builder.global_table("everywhere")
    builder.stream("in").to("out")
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    with TopologyTestDriver(builder.build(), {**serdes, "metrics.recording.level": "DEBUG"}) as driver:
        driver.input_topic("everywhere").pipe("x", key="k", timestamp=1000)
        driver.input_topic("in").pipe("x", key="k", timestamp=10)
        assert driver.metrics.value("record-lateness-max") == 0


@pytest.mark.parametrize("batch_size", [1, 2])
def test_headers_that_a_processor_gives_are_as_a_log_keeps_them(batch_size):
    class Marks(Processor):
        def process(self, record):
            given = [("text", "é"), ["list", b"1"], ("array", bytearray(b"2")), ("none", None)]
            self.context.forward(record.with_headers(given))

    builder = StreamsBuilder()
    builder.stream("in").process(Marks).repartition(name="again").to("out")
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    with TopologyTestDriver(builder.build(), serdes, batch_size=batch_size) as driver:
        driver.input_topic("in").pipe_many([("a", "1"), ("b", "2")])
        records = driver.output_topic("out").read_records_to_list()
    kept = (("text", "é".encode()), ("list", b"1"), ("array", b"2"), ("none", None))
    assert [record.headers for record in records] == [kept, kept]
    assert {type(value) for record in records for _, value in record.headers} == {bytes, type(None)}


def test_a_batch_of_two_topics_in_turns_is_decoded_by_topic():
    """Each topic is one column of the batch, however its records take turns with those of others."""
    calls = []

    class Counted(StringSerde):
        def decode(self, data):
            calls.append(len(data))
            return super().decode(data)

    builder = StreamsBuilder()
    options = Consumed(key_serde="string", value_serde=Counted())
    both = builder.stream("a", options).merge(builder.stream("b", options))
    both.to("out", Produced(key_serde="string", value_serde="string"))
    with TopologyTestDriver(builder.build(), batch_size=300) as driver:
        for number in range(300):
            driver.input_topic("ab"[number % 3 == 0], "string", "string").pipe(str(number), "k")
        assert driver.output_topic("out", "string", "string").read_values_to_list() == [str(n) for n in range(300)]
    assert sorted(calls) == [100, 200]
