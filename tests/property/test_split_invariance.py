"""How the input is cut into batches changes nothing, whatever the topology: with caching off, record for record."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.api.processing.processor import Processor, Record
from penstock.serde.primitives import NumberSerde, StringSerde
from penstock.serde.windowed import TimeWindowedSerde
from penstock.testing import TopologyTestDriver
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import (
    Aggregation,
    Branch,
    DropNullKeys,
    Filter,
    FlatMap,
    FlatMapValues,
    MapPairs,
    MapValues,
    PassThrough,
    Process,
    SelectKey,
    StreamAggregate,
    StreamTableJoin,
    StreamToTable,
    TableToStream,
    WindowedAggregate,
    WindowSpec,
)
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

STRING, LONG = StringSerde(), NumberSerde("long")


def wrap(fn, *allowed):
    return Function.wrap(fn, verb="test", allowed=allowed or (1, 2))


class Totals(Processor):
    """Counts per key, and at every 50 ms of stream time says so."""

    def __init__(self, store):
        self.store_name = store

    def init(self, context):
        super().init(context)
        self.store = context.get_state_store(self.store_name)
        self.runs = context.schedule(50, "stream_time", self.punctuate)

    def process(self, record):
        if record.key is not None:
            count = (self.store.get(record.key) or 0) + 1
            self.store.put(record.key, count)
            self.context.forward(record.with_value(f"{count}@{self.context.current_stream_time_ms()}"))

    def punctuate(self, now):
        for key, count in list(self.store.all()):
            self.context.forward(Record(key, f"total {count}", now))


@dataclass(frozen=True)
class TotalsSupplier:
    store: str

    def __call__(self):
        return Totals(self.store)


STATELESS = [
    lambda: Filter(wrap(lambda v: v is not None)),
    lambda: Filter(wrap(pl.col("value").str.len_chars() > 1)),
    lambda: Filter(wrap(lambda k, v: k == "a", 2), negate=True),
    DropNullKeys,
    lambda: MapValues(wrap(lambda v: None if v == "x" else f"{v}!")),
    lambda: MapValues(wrap(pl.col("value") + pl.col("key"))),
    lambda: SelectKey(wrap(lambda v: v[:1] if v else None)),
    lambda: SelectKey(wrap(pl.col("value").str.slice(0, 1))),
    lambda: MapPairs(wrap(lambda k, v: (v, k), 2)),
    lambda: FlatMapValues(wrap(lambda v: (v or "").split())),
    lambda: FlatMapValues(wrap(pl.col("value").str.split(" "))),
    lambda: FlatMap(wrap(lambda k, v: [(k, v), ("b", v)], 2)),
    PassThrough,
]
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["x", "x y", "hello big world", "b a", "", None]),
        st.integers(0, 400),
        st.booleans(),
    ),
    max_size=30,
)
SPLITS = st.integers(2, 9)


class Built:
    """A topology that grows node by node."""

    def __init__(self):
        self.nodes = [SourceNode("source", ("in", "other"), STRING, STRING)]
        self.stores = {}
        self.last = "source"

    def add(self, operation, *stores, parent=None):
        name = f"n{len(self.nodes)}"
        self.nodes.append(ProcessorNode(name, operation, (parent or self.last,), tuple(s.name for s in stores)))
        self.stores.update({s.name: s for s in stores})
        self.last = name
        return name

    def sink(self, topic, key=STRING, value=STRING, *parents):
        self.nodes.append(SinkNode(f"sink-{topic}", topic, key, value, parents or (self.last,)))

    def build(self):
        return Topology({n.name: n for n in self.nodes}, self.stores)


def outputs(topology, records, batch_size, *, by_column=False):
    config = {"statestore.cache.max.bytes": 0}
    with TopologyTestDriver(topology, config, batch_size=batch_size, by_column=by_column) as driver:
        for key, value, timestamp, other in records:
            driver.input_topic("other" if other else "in").pipe(value, key=key, timestamp=timestamp)
        driver.flush()
        written = {n.topic: driver.output_topic(n.topic).read_records_to_list() for n in topology.sinks}
        return written, driver.dropped_records


def check(topology, records, split):
    one_by_one = outputs(topology, records, 1)
    assert outputs(topology, records, 1, by_column=True) == one_by_one
    assert outputs(topology, records, split) == one_by_one
    assert outputs(topology, records, 1000) == one_by_one


@given(st.lists(st.sampled_from(range(len(STATELESS))), max_size=5), RECORDS, SPLITS)
@settings(max_examples=examples(60), deadline=None)
def test_stateless_chains(verbs, records, split):
    built = Built()
    for verb in verbs:
        built.add(STATELESS[verb]())
    built.sink("out")
    check(built.build(), records, split)


@given(st.lists(st.sampled_from(range(len(STATELESS))), max_size=3), RECORDS, SPLITS)
@settings(max_examples=examples(40), deadline=None)
def test_forks_that_merge_again(verbs, records, split):
    built = Built()
    for verb in verbs:
        built.add(STATELESS[verb]())
    before = built.last
    branch = built.add(Branch((wrap(lambda v: v is not None and " " in v),), ("n-words",), "n-rest"), parent=before)
    built.nodes.append(ProcessorNode("n-words", FlatMapValues(wrap(str.split, 1)), (branch,)))
    built.nodes.append(ProcessorNode("n-rest", PassThrough(), (branch,)))
    built.nodes.append(ProcessorNode("merged", PassThrough(), ("n-rest", "n-words", before)))
    built.sink("out", STRING, STRING, "merged", "n-words")
    check(built.build(), records, split)


@given(st.sampled_from(range(len(STATELESS))), RECORDS, SPLITS)
@settings(max_examples=examples(40), deadline=None)
def test_counts_and_reduces(verb, records, split):
    built = Built()
    start = built.add(STATELESS[verb]())
    counts = StoreSpec("counts", "timestamped", STRING, LONG, timestamped=True)
    built.add(StreamAggregate(Aggregation("count"), "counts"), counts)
    built.add(TableToStream())
    built.sink("counted", STRING, LONG)
    joined = StoreSpec("joined", "timestamped", STRING, STRING, timestamped=True)
    reducer = wrap(lambda a, b: None if b == "b a" else f"{a}+{b}"[-20:], 2)
    built.add(StreamAggregate(Aggregation("reduce", reducer), "joined"), joined, parent=start)
    built.add(TableToStream())
    built.sink("reduced")
    check(built.build(), records, split)


@given(st.sampled_from([100, 40]), st.sampled_from([0, 30, 200]), RECORDS, SPLITS)
@settings(max_examples=examples(40), deadline=None)
def test_windows(advance, grace, records, split):
    built = Built()
    store = StoreSpec(
        "windows",
        "window",
        STRING,
        LONG,
        timestamped=True,
        window_size_ms=100,
        retention_ms=100 + grace,
        persistent=False,
    )
    built.add(DropNullKeys())
    built.add(WindowedAggregate(Aggregation("count"), WindowSpec("time", 100, advance, grace), "windows"), store)
    built.add(TableToStream())
    built.sink("out", TimeWindowedSerde(STRING, 100), LONG)
    check(built.build(), records, split)


@given(st.booleans(), st.booleans(), RECORDS, SPLITS)
@settings(max_examples=examples(40), deadline=None)
def test_a_stream_joins_a_table_of_itself(left, join_first, records, split):
    built = Built()
    spec = StoreSpec("table", "timestamped", STRING, STRING, timestamped=True)
    joiner = wrap(lambda a, b: f"({a},{b})", 2)

    def join(table):
        built.add(StreamTableJoin(table, joiner, left), spec, parent="source")
        built.sink("out")

    words = built.add(FlatMapValues(wrap(lambda v: (v or "").split() or [None])))
    table = f"n{len(built.nodes)}" if not join_first else f"n{len(built.nodes) + 2}"
    if join_first:
        join(table)
    assert built.add(StreamToTable("table"), spec, parent=words) == table
    if not join_first:
        join(table)
    check(built.build(), records, split)


@given(st.booleans(), RECORDS, SPLITS)
@settings(max_examples=examples(40), deadline=None)
def test_processors_with_stores_and_punctuation(shared, records, split):
    built = Built()
    one = StoreSpec("one", "key_value", STRING, LONG)
    two = one if shared else StoreSpec("two", "key_value", STRING, LONG)
    built.add(FlatMapValues(wrap(lambda v: (v or "").split())))
    built.add(Process(TotalsSupplier("one"), ("one",)), one)
    built.sink("first")
    built.add(Process(TotalsSupplier(two.name), (two.name,)), two)
    built.sink("second")
    check(built.build(), records, split)


def test_reduce_by_operator():
    built = Built()
    counts = StoreSpec("sums", "timestamped", STRING, STRING, timestamped=True)
    built.add(
        StreamAggregate(Aggregation("reduce", Function.wrap(operator.add, verb="t", allowed=(2,))), "sums"), counts
    )
    built.add(TableToStream())
    built.sink("out")
    records = [("a", "1", 0, False), ("a", "2", 5, False), ("b", "3", 1, True), ("a", "4", 2, False)]
    check(built.build(), records, 3)
    assert [r.value for r in outputs(built.build(), records, 100)[0]["out"]] == ["1", "12", "3", "124"]
