"""A wrong type as any argument of any public function ends in an error of Penstock's that says what was expected.

The calls are made from the signatures: each parameter of each function in turn gets None, a number, a text, bytes, a
list and an object of no use, all others what they should. What the annotation allows is allowed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct

import penstock
from penstock import (
    BufferConfig,
    Consumed,
    GlobalKTable,
    Joined,
    JoinWindows,
    KafkaStreams,
    KStream,
    KTable,
    Materialized,
    Named,
    Processor,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    UnlimitedWindows,
    ValueTransformerWithKey,
)
from penstock.errors import JavaNameError, PenstockError
from penstock.query import (
    KeyQuery,
    PositionBound,
    QueryableStoreTypes,
    StateQueryRequest,
    StoreQueryParameters,
)

Name = str | Named | None
STRINGS = Consumed(key_serde="string", value_serde="string")


class Noted(Processor[Any, Any]):
    def process(self, record: Any) -> None:
        self.context.forward(record)


class Loud(ValueTransformerWithKey[Any, Any, Any]):
    def transform(self, key: Any, value: Any) -> Any:
        return value


def streams(builder: StreamsBuilder) -> Any:
    return builder.stream("in", STRINGS)


def grouped(builder: StreamsBuilder) -> Any:
    return streams(builder).group_by_key()


def cogrouped(builder: StreamsBuilder) -> Any:
    return grouped(builder).cogroup(lambda k, v, a: a)


def topology() -> Topology:
    made = Topology().add_source("source", "in").add_processor("first", Noted, "source")
    return made.add_state_store(Stores.key_value("kept", key_serde="string", value_serde="string"), "first")


def with_a_topic(builder: StreamsBuilder) -> StreamsBuilder:
    streams(builder)
    return builder


def driver() -> TopologyTestDriver:
    builder = StreamsBuilder()
    grouped(builder).count(Materialized("counts")).to_stream().to("out")
    return TopologyTestDriver(builder.build())


def application() -> KafkaStreams:
    return KafkaStreams(driver().topology, {"application.id": "a", "bootstrap.servers": "memory://wrong"})


# Whose methods are called, by the class's name: each call makes a new object from a new builder.
OBJECTS: dict[str, Callable[[StreamsBuilder], Any]] = {
    "StreamsBuilder": with_a_topic,
    "KStream": streams,
    "KTable": lambda b: b.table("table", STRINGS),
    "KGroupedStream": grouped,
    "KGroupedTable": lambda b: b.table("table", STRINGS).group_by(lambda k, v: (k, v)),
    "TimeWindowedKStream": lambda b: grouped(b).windowed_by(TimeWindows.of(10)),
    "SessionWindowedKStream": lambda b: grouped(b).windowed_by(SessionWindows.of(10)),
    "CogroupedKStream": cogrouped,
    "TimeWindowedCogroupedKStream": lambda b: cogrouped(b).windowed_by(TimeWindows.of(10)),
    "SessionWindowedCogroupedKStream": lambda b: cogrouped(b).windowed_by(SessionWindows.of(10)),
    "BranchedKStream": lambda b: streams(b).split(),
    "Topology": lambda b: topology(),
    "Materialized": lambda b: Materialized("s"),
    "TimeWindows": lambda b: TimeWindows.of(10),
    "JoinWindows": lambda b: JoinWindows.of(10),
    "SlidingWindows": lambda b: SlidingWindows.of(10),
    "SessionWindows": lambda b: SessionWindows.of(10),
    "UnlimitedWindows": lambda b: UnlimitedWindows.of(),
    "Suppressed": lambda b: Suppressed.until_time_limit(10),
    "BufferConfig": lambda b: BufferConfig.max_records(10),
    "Stores": lambda b: Stores,
    "Serdes": lambda b: Serdes,
    "TopologyTestDriver": lambda b: driver(),
    "KafkaStreams": lambda b: application(),
    "TestInputTopic": lambda b: driver().input_topic("in"),
    "TestOutputTopic": lambda b: driver().output_topic("out"),
    "StateQueryRequest": lambda b: StateQueryRequest.in_store("counts"),
    "StoreQueryParameters": lambda b: StoreQueryParameters("counts"),
}
# Classes that users make themselves.
CLASSES = [
    "Branched", "Consumed", "Grouped", "Joined", "KafkaStreams", "Materialized", "Named", "Produced", "Repartitioned",
    "Retry", "StreamJoined", "StreamsConfig", "TableJoined", "TopologyTestDriver",
]  # fmt: skip
OF_THE_LIBRARY = {
    "Topology": {"children", "is_global", "physical_name"},
    "TopologyTestDriver": {"pipe_raw", "pipe_record", "read_raw", "peek_raw", "queue_size"},
}
PROTOCOLS = {"sensor"}  # any object that has the methods
NEEDS_SPARK = {"StreamsBuilder": {"stream_dataframe"}}
RUNS = {  # only what is set before the start; the others want a running application
    "KafkaStreams": set(dir(KafkaStreams))
    - {"set_state_listener", "set_uncaught_exception_handler", "add_progress_listener"}
}
OVERLOADED = {"KStream": {"join", "left_join"}}  # see joins()
# Where users put values of their own: anything is right.
VALUES = {"initializer", "key", "value"}
NEEDED = {"aggregator", "merger"}  # though they have defaults


def joins(builder: StreamsBuilder) -> dict[str, Callable[..., Any]]:
    """The joins of streams by what is joined, as functions whose signatures say so."""
    left = streams(builder)

    def with_table(other: KTable, joiner: Callable, joined: Joined | None = None, *, name: Name = None) -> Any:
        return left.join(other, joiner, joined, name=name)

    def with_global(other: GlobalKTable, joiner: Callable, *, key_of: Callable, name: Name = None) -> Any:
        return left.left_join(other, joiner, key=key_of, name=name)

    def with_stream(
        other: KStream, joiner: Callable, windows: JoinWindows, joined: StreamJoined | None = None, *, name: Name = None
    ) -> Any:
        return left.left_join(other, joiner, windows, joined, name=name)

    return {"with_table": with_table, "with_global": with_global, "with_stream": with_stream}


def right(owner: str, function: str, parameter: str, builder: StreamsBuilder) -> Any:
    """What a parameter should get."""
    store = Stores.key_value("kept2", key_serde="string", value_serde="string")
    table = Consumed(key_serde="string", value_serde="string")
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
    several: dict[str, Any] = {
        "KStream.outer_join.other": lambda: builder.stream("right", table),
        "KStream.outer_join.windows": lambda: JoinWindows.of(10),
        "KStream.merge.other": lambda: builder.stream("right", table),
        "joins.with_stream.other": lambda: builder.stream("right", table),
        "joins.with_stream.windows": lambda: JoinWindows.of(10),
        "joins.with_table.other": lambda: builder.table("right", table),
        "joins.with_global.other": lambda: builder.global_table("right", table),
        "CogroupedKStream.cogroup.grouped": lambda: builder.stream("right", table).group_by_key(),
        "KStream.map.mapper": lambda: lambda k, v: (k, v),
        "KStream.flat_map.mapper": lambda: lambda k, v: [(k, v)],
        "KTable.group_by.selector": lambda: lambda k, v: (k, v),
        "KTable.to_stream.selector": lambda: lambda k, v: k,
        "KTable.transform_values.supplier": lambda: Loud,
        "KGroupedTable.aggregate.adder": lambda: lambda k, v, a: a,
        "KGroupedTable.aggregate.subtractor": lambda: lambda k, v, a: a,
        "StateQueryRequest.with_partitions.partitions": lambda: [0],
        "KafkaStreams.KafkaStreams.config": lambda: {"application.id": "a", "bootstrap.servers": "memory://wrong"},
        "TopologyTestDriver.input_topic.name": lambda: "in",
        "TopologyTestDriver.output_topic.name": lambda: "out",
        "TopologyTestDriver.store.name": lambda: "counts",
        "TopologyTestDriver.get_state_store.name": lambda: "counts",
        "TopologyTestDriver.committed_store.name": lambda: "counts",
        "TopologyTestDriver.position_of.store": lambda: "counts",
        "TopologyTestDriver.partitions_of.store": lambda: "counts",
        "TopologyTestDriver.partition_count.topic": lambda: "in",
        "StateQueryRequest.with_isolation_level.level": lambda: "READ_COMMITTED",
        "TestInputTopic.pipe_many.records": lambda: [("k", "v")],
        "StreamsBuilder.sql.text": lambda: (
            "CREATE STREAM a (b INT) WITH (kafka_topic='a', value_format='JSON'); SELECT b FROM a;"
        ),
        "Topology.add_processor.parents": lambda: "source",
        "Topology.add_sink.parents": lambda: "first",
        "Topology.add_state_store.processors": lambda: "first",
        "Topology.connect_processor_and_state_stores.stores": lambda: "kept",
        "StoreQueryParameters.from_name_and_type.store_type": QueryableStoreTypes.key_value_store,
    }
    by_name: dict[str, Any] = {
        "topic": "topic", "name": "name", "topics": "other", "source_name": "s", "processor_name": "p",
        "predicate": lambda v: True, "mapper": lambda v: v, "selector": lambda v: v, "action": print, "key_of": len,
        "message": Struct, "listener": lambda *given: None, "handler": print, "joiner": lambda a, b: a, "reducer": lambda a, b: a, "adder": lambda a, b: a, "subtractor": lambda a, b: a,
        "aggregator": lambda k, v, a: a, "merger": lambda k, a, b: a, "initializer": 0, "supplier": Noted,
        "connector": {"connector.class": "DeltaSink"}, "store": store, "suppressed": Suppressed.until_time_limit(10), "windows": TimeWindows.of(10),
        "emit": "on_window_close", "size": 10, "retention": "1 h", "history": "1 h", "advance": 5,
        "time_difference": 10, "gap": 10, "difference": 10, "limit": 10, "max_entries": 5, "processor": "first",
        "inner": "string", "serde": "string", "duration": 10, "request": request, "query": KeyQuery.with_key("a"),
        "bound": PositionBound.unbounded(), "refusal": lambda record: None, "partition": 0, "materialized": "s", "value": "v", "key": "k",
        "other": builder.table("right", table) if owner == "KTable" else None,
    }  # fmt: skip
    if parameter == "topology":
        return driver().topology
    made = several.get(f"{owner}.{function}.{parameter}")
    return by_name[parameter] if made is None else made()


WRONG: tuple[Any, ...] = (None, 5, "a text!", b"bytes", ["list"], object())


def is_allowed(annotation: str, wrong: Any, default: object) -> bool:
    """Whether the annotation takes it; then the call may succeed."""
    words = set(re.findall(r"\w+", re.sub(r"Callable\[\[.*?\]", "Callable", annotation)))
    if wrong is None:
        return "None" in words or default is None or words & {"Any", "Name"} != set()
    kinds = {int: {"int", "float", "DurationLike", "TimestampLike"}, str: {"str", "Name", "DurationLike", "TimestampLike"},
             bytes: {"bytes"}, list: {"Sequence", "Iterable", "Collection"}, object: set()}  # fmt: skip
    return bool(words & kinds[type(wrong)])


def functions() -> Iterator[tuple[str, str]]:
    """(owner, function) of everything that users call to build, configure and test."""
    for owner, make in OBJECTS.items():
        thing = make(StreamsBuilder())
        left_out = {name for table in (OF_THE_LIBRARY, NEEDS_SPARK, RUNS, OVERLOADED) for name in table.get(owner, ())}
        for name in sorted(dir(thing)):
            if (
                name.startswith("_")
                or name in left_out
                or not hasattr(thing, name)
                or not inspect.isroutine(inspect.getattr_static(thing, name))
            ):
                continue
            if inspect.signature(getattr(thing, name)).parameters:
                yield owner, name
    yield from ((name, name) for name in CLASSES)
    yield from (("joins", name) for name in joins(StreamsBuilder()))


def function_of(owner: str, function: str, builder: StreamsBuilder) -> Callable[..., Any]:
    if owner == function:
        return getattr(penstock, owner)
    return joins(builder)[function] if owner == "joins" else getattr(OBJECTS[owner](builder), function)


def call(owner: str, function: str, parameter: str | None, wrong: Any) -> None:
    """Calls it with what is right for all parameters that have no default, and wrong for this one."""
    builder = StreamsBuilder()
    made = function_of(owner, function, builder)
    by_place: list[Any] = []
    by_name: dict[str, Any] = {}
    for each in inspect.signature(made).parameters.values():
        if each.name != parameter and each.default is not each.empty and each.name not in NEEDED:
            continue
        value = wrong if each.name == parameter else right(owner, function, each.name, builder)
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            by_place.append(value)
        else:
            by_name[each.name] = value
    if by_place:  # what comes before *names goes by place, too
        by_place = [by_name.pop(each.name) for each in inspect.signature(made).parameters.values()
                    if each.kind is each.POSITIONAL_OR_KEYWORD and each.name in by_name] + by_place  # fmt: skip
    made(*by_place, **by_name)


@pytest.mark.parametrize(("owner", "function"), list(functions()))
def test_what_is_wrong_is_said_in_an_error_of_ours(owner: str, function: str) -> None:
    raw = []
    for each in inspect.signature(function_of(owner, function, StreamsBuilder())).parameters.values():
        if each.name in VALUES | PROTOCOLS:
            continue
        for wrong in WRONG:
            shown = f"{owner}.{function}({each.name}={wrong!r})"
            try:
                call(owner, function, each.name, wrong)
            except JavaNameError as error:
                raw.append(f"{shown} looks for a Java name: {error}")
            except PenstockError:
                continue
            except Exception as error:  # noqa: BLE001 - any other is what is looked for
                raw.append(f"{shown} raises {type(error).__name__}: {error}")
            else:
                if not is_allowed(str(each.annotation), wrong, each.default) and each.annotation not in {"Any", "bool"}:
                    raw.append(f"{shown} is accepted")
    assert not raw, "\n".join(raw)


@pytest.mark.parametrize(("owner", "function"), list(functions()))
def test_what_is_right_is_accepted(owner: str, function: str) -> None:
    """Else the test above would look at errors of another parameter."""
    call(owner, function, None, None)


@pytest.mark.parametrize("wrong", [None, 5, object()])
def test_queries_of_an_application_say_what_they_take(wrong: Any) -> None:
    with pytest.raises(PenstockError, match="store\\(\\) must be a name or StoreQueryParameters"):
        application().store(wrong)
    with pytest.raises(PenstockError, match="must be a StateQueryRequest"):
        application().query(wrong)
