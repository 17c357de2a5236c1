"""Topologies built node by node."""

from __future__ import annotations

import functools
import pickle
import re
from typing import Any

import pytest

from penstock import FixedKeyProcessor, Processor, Record, Serdes, Stores, StreamsBuilder, Topology, TopologyTestDriver
from penstock.errors import ProcessingError, TopologyError

STRINGS: dict[str, Any] = {"key_serde": "string", "value_serde": "string"}


class Count(Processor[str, str]):
    """Counts records by key, and reports every ten seconds of stream time."""

    @classmethod
    def stores(cls) -> list[Any]:
        return [Stores.key_value("counts", key_serde="string", value_serde="long")]

    def init(self, context: Any) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")
        context.schedule("10 s", "stream_time", self.report)

    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def report(self, now_ms: int) -> None:
        for key, count in list(self.counts.all()):
            self.context.forward(Record(key, f"{key}={count}", now_ms))


class Pass(Processor[Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class Put(Processor[str, str]):
    def __init__(self, store: str) -> None:
        self.store = store

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store(self.store).put(record.key, record.value)


class Look(Processor[str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(self.context.get_state_store("names").get(record.key)))


def test_a_processor_brings_its_stores_and_punctuates() -> None:
    topology = (
        Topology().add_source("in", "words", **STRINGS).add_processor("count", Count, "in").add_sink("out", "counts", "count", **STRINGS)
    )  # fmt: skip
    assert "Processor: count (stores: [counts])" in str(topology.describe())
    with TopologyTestDriver(topology) as driver:
        words = driver.input_topic("words")
        for at in (0, 1_000, 12_000):
            words.pipe("x", key="a", timestamp=at)
        records = driver.output_topic("counts").read_records_to_list()
    assert [(r.value, r.timestamp) for r in records] == [("a=1", 0), ("a=3", 12_000)]


def test_named_children_get_only_what_is_sent_to_them() -> None:
    class Route(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record, "long" if len(record.value) > 3 else "short")

    topology = Topology().add_source("in", "words", **STRINGS).add_processor("route", Route, "in")
    for name in ("short", "long"):
        topology.add_sink(name, f"{name}-words", "route", **STRINGS)
    with TopologyTestDriver(topology) as driver:
        for word in ("a", "lengthy"):
            driver.input_topic("words").pipe(word, key="k", timestamp=0)
        assert driver.output_topic("short-words").read_values_to_list() == ["a"]
        assert driver.output_topic("long-words").read_values_to_list() == ["lengthy"]


@pytest.mark.parametrize("verb", ["add_global_store", "add_read_only_state_store"])
def test_a_topic_feeds_a_store_that_others_read(verb: str) -> None:
    topology = Topology().add_source("in", "ids", **STRINGS)
    store = Stores.key_value("names", key_serde="string", value_serde="string")
    getattr(topology, verb)(store, "names-source", "names", "put", functools.partial(Put, "names"))
    topology.add_processor("look", Look, "in").add_sink("out", "found", "look", **STRINGS)
    if verb == "add_read_only_state_store":
        topology.connect_processor_and_state_stores("look", "names")
    assert topology.changelog_topics() == {"names": "names"}
    assert topology.global_stores == ({"names"} if verb == "add_global_store" else set())
    with TopologyTestDriver(topology) as driver:
        driver.input_topic("names").pipe("ann", key="1", timestamp=0)
        driver.input_topic("ids").pipe("?", key="1", timestamp=1)
        assert driver.output_topic("found").read_values_to_list() == ["ann"]


def test_a_built_topology_can_be_extended_and_a_builder_built_again() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.map_values(str.upper, name="upper").to("loud")
    first = builder.build()
    assert isinstance(first, Topology)
    assert str(builder.build().describe()) == str(first.describe())
    first.add_processor("again", Pass, "upper")
    assert first.children("upper") == ("KSTREAM-SINK-0000000002", "again")
    words.to("copy")
    assert {sink.topic for sink in builder.build().sinks} == {"loud", "copy"}
    assert {sink.topic for sink in first.sinks} == {"loud"}


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_building_twice_gives_the_same(optimization: str) -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("words").select_key(len)
    keyed.group_by_key().count()
    keyed.group_by_key().reduce(max)
    builder.table("names").to_stream().to("out")
    config = {"topology.optimization": optimization}
    texts = {str(builder.build(config).describe()) for _ in range(3)}
    assert len(texts) == 1


def test_nodes_are_called_in_the_order_in_which_they_were_added() -> None:
    topology = Topology().add_source("in", "words").add_processor("b", Pass, "in").add_processor("a", Pass, "in")
    topology.add_processor("both", Pass, "a", "b").add_sink("out", lambda key, value: f"to-{key}", "both")
    assert topology.children("in") == ("b", "a")
    assert topology.children("b") == ("both",)
    assert "extractor class:" in str(topology.describe())


def test_stores_join_their_processors_into_one_sub_topology() -> None:
    topology = Topology()
    for side in ("left", "right"):
        topology.add_source(side, f"{side}-in").add_processor(f"{side}-p", Pass, side)
    assert len(topology.subtopologies()) == 2
    topology.add_state_store(Stores.key_value("shared"), "left-p", "right-p")
    assert [s.stores for s in topology.subtopologies()] == [("shared",)]


def base() -> Topology:
    return Topology().add_source("in", "words").add_processor("p", Pass, "in").add_sink("out", "copy", "p")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda t: t.add_source("in", "other"), "two nodes are named 'in'"),
        (lambda t: t.add_processor("p", Pass, "in"), "two nodes are named 'p'"),
        (lambda t: t.add_source("in2", "words"), "'words' is read by two sources, 'in' and 'in2'"),
        (lambda t: t.add_source("in2", re.compile("wor.*")), "'words' is read by two sources"),
        (lambda t: t.add_source("in2", []), "reads no topic"),
        (lambda t: t.add_source("in2", "x", offset_reset="first"), "offset_reset is 'first'"),
        (lambda t: t.add_source("", "x"), "the name of a node or store is ''"),
        (lambda t: t.add_processor("q", Pass), "'q' has no parent"),
        (lambda t: t.add_processor("q", Pass, "q"), "'q' is its own parent"),
        (lambda t: t.add_processor("q", Pass, "nowhere"), r"'nowhere', which is not there\n.*Nodes so far: in, p, out"),
        (lambda t: t.add_processor("q", Pass, "out"), "the sink 'out' cannot be a parent of 'q'"),
        (lambda t: t.add_processor("q", Pass(), "in"), "a class or function that makes a processor"),
        (lambda t: t.add_sink("o", "no/topic", "p"), "'no/topic' is not allowed"),
        (lambda t: t.add_state_store("counts"), "takes a StoreSpec"),
        (lambda t: t.add_state_store(Stores.key_value("s"), "nobody"), "'nobody', which is not there"),
        (lambda t: t.add_state_store(Stores.key_value("s"), "out"), "'out', which is not a processor"),
        (lambda t: t.connect_processor_and_state_stores("p", "s"), "uses store 's', which is not there"),
        (lambda t: t.connect_processor_and_state_stores("p"), "connected to no store"),
    ],
)
def test_what_is_wrong_is_refused_and_leaves_the_topology_as_it_was(wrong: Any, message: str) -> None:
    topology = base()
    before = str(topology.describe())
    with pytest.raises(TopologyError, match=message):
        wrong(topology)
    assert str(topology.describe()) == before
    assert topology.stores == {}


def test_two_stores_of_one_name_are_refused() -> None:
    store = Stores.key_value("s")
    topology = base().add_state_store(store, "p").add_state_store(store)
    with pytest.raises(TopologyError, match="a different StateStore has already been added with the name 's' for p"):
        topology.add_state_store(Stores.lru("s", 10))
    with pytest.raises(TopologyError, match="a different StateStore has already been added"):
        topology.add_global_store(Stores.key_value("s"), "g-source", "g", "g", lambda: Put("s"))
    topology.add_global_store(Stores.key_value("g"), "g-source", "g", "g", lambda: Put("g"))
    with pytest.raises(TopologyError, match="needs no connection"):
        topology.connect_processor_and_state_stores("p", "g")


def test_stores_of_a_supplier_must_be_stores() -> None:
    class Instance(Pass):
        def stores(self) -> list[Any]:  # type: ignore[override]
            return []

    class Names(Pass):
        @classmethod
        def stores(cls) -> list[Any]:
            return ["counts"]

    with pytest.raises(TopologyError, match="Make it a classmethod"):
        base().add_processor("q", Instance, "in")
    with pytest.raises(TopologyError, match="returns 'counts', not a store"):
        base().add_processor("q", functools.partial(Names), "in")


def test_a_topology_is_not_changed_under_an_application() -> None:
    topology = Topology().add_source("in", "words", **STRINGS).add_sink("out", "copy", "in", **STRINGS)
    driver = TopologyTestDriver(topology)
    topology.add_sink("more", "second", "in", **STRINGS)
    with driver:
        driver.input_topic("words").pipe("v", key="k", timestamp=0)
        assert driver.produced_topic_names() == {"copy"}
    assert pickle.loads(pickle.dumps(topology)).children("in") == ("out", "more")


@pytest.mark.parametrize("plain", [True, False])
def test_a_fixed_key_processor_keeps_the_key(plain: bool) -> None:
    class Rekey(FixedKeyProcessor[str, str]):
        def process(self, record: Any) -> None:
            self.context.forward(record.with_key("other") if record.value == "key" else Record("other", "x", 0))

    if plain:
        topology = Topology().add_source("in", "words", **STRINGS).add_processor("p", Rekey, "in")
    else:
        builder = StreamsBuilder()
        builder.stream("words").process_values(Rekey).to("out")
        topology = builder.build()
    serde = Serdes.string()
    with TopologyTestDriver(topology, {"default.key.serde": serde, "default.value.serde": serde}) as driver:
        words = driver.input_topic("words")
        with pytest.raises(ProcessingError, match="keeps the key"):
            words.pipe("key", key="k", timestamp=0)
        with pytest.raises(ProcessingError, match="which is not a FixedKeyRecord"):
            words.pipe("new", key="k", timestamp=0)
