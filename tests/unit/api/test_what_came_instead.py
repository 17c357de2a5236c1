"""A wrong call ends in one sentence that says what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock import (
    Branched,
    Consumed,
    Grouped,
    KafkaStreams,
    KStream,
    Materialized,
    Processor,
    Produced,
    Repartitioned,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TableJoined,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)
from penstock.errors import ConfigError, JavaNameError, PenstockError, TopologyError
from penstock.log.url import kafka_servers

Call = Callable[[StreamsBuilder], Any]


def keyed(builder: StreamsBuilder) -> Any:
    return builder.stream("in").group_by_key()


WRONG: dict[str, Call] = {
    r"KafkaStreams\(\) takes a Topology, not StreamsBuilder .*builder\.build\(\)": lambda b: KafkaStreams(b, {}),
    r"TopologyTestDriver\(\) takes a Topology, not StreamsBuilder": TopologyTestDriver,
    r"TopologyTestDriver\(\) takes a Topology, not NoneType": lambda b: TopologyTestDriver(None),
    r"takes JoinWindows after the joiner, not str '1 minute'": lambda b: b.stream("a").join(
        b.stream("b"), max, "1 minute"
    ),
    r"stream\(\) takes a topic, a list of topics or a compiled pattern, not NoneType None": lambda b: b.stream(None),
    r"not int 5": lambda b: b.stream(5),
    r"not 'string', 'json'.*key_serde='string', value_serde='json'": lambda b: Consumed("string", "json"),
    r"Consumed\('json'\) would name the node 'json', which is a serde": lambda b: Consumed("json"),
    r"Produced\(.*would name the node": lambda b: Produced(Serdes.string()),
    r"Grouped\(.*would name the node": lambda b: Grouped(str),
    r"is not a serde": lambda b: Consumed(value_serde=object),
    r"the initializer of aggregate\(\) is called without arguments": lambda b: keyed(b).aggregate(
        lambda k: 0, lambda k, v, a: a
    ),
    r"aggregate\(\) calls its function with 3 argument": lambda b: keyed(b).aggregate(0, lambda a: a),
    r"reduce\(\) calls its function with 2 argument": lambda b: keyed(b).reduce(lambda a: a),
    r"map_values\(\) calls its function with 1 or 2": lambda b: b.stream("in").map_values(lambda a, b, c: a),
}


@pytest.mark.parametrize(("message", "call"), WRONG.items())
def test_the_message_says_what_came(message: str, call: Call) -> None:
    with pytest.raises(PenstockError, match=re.compile(message, re.DOTALL)):
        call(StreamsBuilder())


def test_functions_that_do_not_say_what_they_take_are_accepted() -> None:
    builder = StreamsBuilder()
    keyed(builder).aggregate(dict, lambda k, v, a: a)
    keyed(builder).aggregate(int, max)
    builder.stream("in").map_values(str).map_values(int).to("out")
    assert [sink.topic for sink in builder.build().sinks] == ["out"]


@pytest.mark.parametrize(
    ("servers", "message"), [("localhost:70000", "has the port 70000"), ("localhost", "without a port")]
)
def test_servers(servers: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kafka_servers(servers)
    assert kafka_servers("./localhost") is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [(str, "string"), (int, "long"), (float, "double"), (bytes, "bytes"), (bool, "boolean"), (dict, "json"),
     (list, "json"), (UUID, "uuid"), (type(Serdes.string()), "string")],
)  # fmt: skip
def test_a_python_type_is_a_serde(kind: Any, name: str) -> None:
    assert Consumed(value_serde=kind).value_serde.name == name
    assert Materialized("s", value_serde=kind).value_serde.name == name
    assert Stores.key_value("s", value_serde=kind).value_serde.name == name


JAVA: dict[str, Callable[[], Any]] = {
    'Materialized("store-name")': lambda: Materialized.as_,
    "Consumed(key_serde=..., value_serde=...)": lambda: Consumed.with_,
    "TimeWindows.of(size)": lambda: TimeWindows.of_size_with_no_grace,
    "TimeWindows.of(size, grace=...)": lambda: TimeWindows.ofSizeAndGrace,
    "peek(print)": lambda: StreamsBuilder().stream("a").print,
    "map_values": lambda: StreamsBuilder().stream("a").mapValues,
    "global_table": lambda: StreamsBuilder().globalTable,
    "Stores.lru(name, max_entries)": lambda: Stores.lruMap,
    "Serdes.string()": lambda: Serdes.String,
}


@pytest.mark.parametrize(("ours", "read"), JAVA.items())
def test_java_names_say_ours(ours: str, read: Callable[[], Any]) -> None:
    with pytest.raises(JavaNameError, match=re.escape(f"it is {ours} here")):
        read()
    assert issubclass(JavaNameError, TopologyError)
    assert not hasattr(KStream, "mapValues")  # an AttributeError, too


class OldProcessor(Processor[Any, Any]):
    def process(self, key: Any, value: Any) -> None:  # type: ignore[override]
        """As before Kafka 2.7."""


class NoTransformer:
    """Not one of the kind."""


def table(builder: StreamsBuilder) -> Any:
    return builder.table("table")


def windowed(builder: StreamsBuilder) -> Any:
    return keyed(builder).windowed_by(SessionWindows.of("1 minute"))


def none() -> None: ...


def one(a: Any) -> Any:
    return a


def three(a: Any, b: Any, c: Any) -> Any:
    return a


def by_name(a: Any, *, more: Any) -> Any:
    return a


ARITY: dict[str, Call] = {
    "to() calls its function with 2 or 3 arguments, (key, value) or (key, value, record context); one takes 1": (
        lambda b: b.stream("in").to(one)
    ),
    "Produced: partitioner calls its function with 4 or 5 arguments, (topic, key, value, partitions) or "
    "(topic, key, value, headers, partitions); three takes 3": (lambda b: Produced(partitioner=three)),
    "Repartitioned: partitioner calls its function with 4": lambda b: Repartitioned(partitioner=three),
    "TableJoined: other_partitioner calls its function with 4": lambda b: TableJoined(other_partitioner=three),
    "Branched: to calls its function with 1 argument, (stream); three takes 3": lambda b: Branched("x", three),
    "Branched: to calls its function with 1 argument, (stream); none": lambda b: (
        b.stream("in").split().branch(one, to=none)
    ),
    "Consumed: timestamp_extractor calls its function with 1 or 2 arguments, (record) or (record, partition time)": (
        lambda b: Consumed(timestamp_extractor=three)
    ),
    "add_source: timestamp_extractor calls": lambda b: Topology().add_source("s", "t", timestamp_extractor=three),
    "add_sink() calls its function with 2 or 3": lambda b: Topology().add_sink("s", one, "p"),
    "add_sink: partitioner calls its function with 4": lambda b: Topology().add_sink("s", "t", "p", partitioner=one),
    "join: foreign_key calls its function with 1 or 2 arguments, (value) or (key, value); three takes 3": (
        lambda b: table(b).join(b.table("other"), max, foreign_key=three)
    ),
    "join() calls its function with 2 or 3 arguments, (left, right) or (key, left, right); one takes 1": (
        lambda b: table(b).join(b.table("other"), one)
    ),
    "join: key calls its function with 1 or 2": lambda b: b.stream("in").join(b.global_table("g"), max, key=three),
    "left_join() calls its function with 2 or 3": lambda b: b.stream("in").left_join(b.table("t"), one),
    "the initializer of aggregate() is called without arguments": lambda b: windowed(b).aggregate(one, three, three),
    "aggregate: merger calls its function with 3 arguments, (key, left, right); one takes 1": (
        lambda b: windowed(b).aggregate(0, three, one)
    ),
    "aggregate: subtractor calls its function with 3": (
        lambda b: table(b).group_by(lambda k, v: (k, v)).aggregate(0, three, one)
    ),
    "reduce: subtractor calls its function with 2": lambda b: table(b).group_by(lambda k, v: (k, v)).reduce(max, one),
    "group_by() calls its function with 2 arguments, (key, value); one takes 1": lambda b: table(b).group_by(one),
    "cogroup() calls its function with 3": lambda b: keyed(b).cogroup(one),
    "map_values() calls its function with 1 or 2 arguments, (value) or (key, value); by_name wants more by name": (
        lambda b: b.stream("in").map_values(by_name)
    ),
    "process() calls its supplier without arguments": lambda b: b.stream("in").process(one),
    "process() calls OldProcessor.process(record)": lambda b: b.stream("in").process(OldProcessor),
    "add_processor() calls OldProcessor.process(record)": lambda b: (
        Topology().add_source("s", "t").add_processor("p", OldProcessor, "s")
    ),
    "process_values() calls NoTransformer.process(record)": lambda b: b.stream("in").process_values(NoTransformer),
    "transform_values() calls NoTransformer.transform(key, value)": lambda b: table(b).transform_values(NoTransformer),
    "join() with another stream takes joiner, windows, joined": lambda b: b.stream("in").join(
        b.stream("i2"), max, key=one
    ),
    "left_join() with a table takes joiner, joined, key=": lambda b: b.stream("in").left_join(
        table(b), max, None, None
    ),
    "join() takes a KStream, a KTable or a GlobalKTable, not str 'topic'": lambda b: b.stream("in").join("topic", max),
}


@pytest.mark.parametrize(("message", "call"), ARITY.items())
def test_the_message_says_with_what_a_function_is_called(message: str, call: Call) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)):
        call(StreamsBuilder())


def test_the_callback_of_a_schedule_is_looked_at_when_it_is_made() -> None:
    class Ticking(Processor[Any, Any]):
        def init(self, context: Any) -> None:
            context.schedule("1 s", "stream_time", none)

    source = Topology().add_source("s", "t", key_serde="string", value_serde="string")
    topology = source.add_processor("ticks", Ticking, "s")
    with pytest.raises(
        TopologyError, match=re.escape("ticks: schedule calls its function with 1 argument, (timestamp")
    ):
        TopologyTestDriver(topology)
