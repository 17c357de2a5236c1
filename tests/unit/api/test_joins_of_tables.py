from __future__ import annotations

import polars as pl
import pytest

from penstock import (
    Materialized,
    Stores,
    StreamsBuilder,
    TableJoined,
    TopologyTestDriver,
    ValueTransformerWithKey,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.serde import Serdes
from penstock.topology.nodes import ProcessorNode
from penstock.topology.plan.explain import how_it_runs
from penstock.topology.plan.plan import plan_of

CONFIG = {"statestore.cache.max.bytes": 0, "default.key.serde": "string", "default.value.serde": "string"}


def outcome(builder: StreamsBuilder, changes, *, batch_size=1, **config):
    with TopologyTestDriver(builder.build(), {**CONFIG, **config}, batch_size=batch_size) as driver:
        for topic, key, value, time in changes:
            driver.input_topic(topic).pipe(key=key, value=value, timestamp=time)
        driver.flush()
        found = driver.output_topic("out").read_records_to_list()
        return [(r.key, r.value, r.timestamp) for r in found], driver.dropped_records


def tables():
    builder = StreamsBuilder()
    return builder, builder.table("left"), builder.table("right")


@pytest.mark.parametrize("batch_size", [1, 10])
def test_expressions_join_tables_and_give_foreign_keys(batch_size: int) -> None:
    builder, left, right = tables()
    both = left.left_join(right, pl.concat_str("left", pl.col("right").fill_null("-")))
    named = both.join(
        builder.table("names"),
        pl.concat_str("left", pl.lit(" "), "right"),
        foreign_key=pl.col("value").str.slice(0, 1),
    )
    named.to_stream().to("out")
    changes = [("names", "a", "A", 0), ("left", "k", "a1", 5), ("right", "k", "r", 3), ("names", "a", "AA", 1)]
    found, _ = outcome(builder, changes, batch_size=batch_size)
    assert found[-1][:2] == ("k", "a1r AA")


def test_a_joiner_that_fails_loses_only_its_row() -> None:
    builder, left, right = tables()
    left.outer_join(right, lambda a, b: f"{int(a or 0) + int(b or 0)}").to_stream().to("out")
    changes = [("left", "a", "1", 0), ("right", "a", "x", 1), ("right", "a", "2", 2), ("left", "b", "5", 3)]
    config = {"processing.exception.handler": "continue"}
    expected = [("a", "1", 0), ("a", "3", 2), ("b", "5", 3)]
    assert outcome(builder, changes, **config) == (expected, 1)
    builder, left, right = tables()
    left.outer_join(right, lambda a, b: f"{int(a or 0) + int(b or 0)}").to_stream().to("out")
    assert outcome(builder, changes, batch_size=10, **config) == (expected, 1)


@pytest.mark.parametrize("batch_size", [1, 10])
def test_an_extractor_that_fails_loses_only_its_row(batch_size: int) -> None:
    builder, left, right = tables()
    left.join(right, lambda a, b: a + b, foreign_key=lambda v: v.split("-")[1]).to_stream().to("out")
    changes = [("right", "r", "R", 0), ("left", "a", "bad", 1), ("left", "b", "x-r", 2)]
    found, dropped = outcome(builder, changes, batch_size=batch_size, **{"processing.exception.handler": "continue"})
    assert (found, dropped) == ([("b", "x-rR", 2)], 1)
    builder, left, right = tables()
    left.join(right, lambda a, b: a + b, foreign_key=lambda v: v.split("-")[1]).to_stream().to("out")
    with pytest.raises(ProcessingError, match="IndexError"):
        outcome(builder, changes, batch_size=batch_size)


def test_an_extractor_may_see_the_key() -> None:
    builder, left, right = tables()
    left.join(right, lambda key, a, b: f"{key}:{a}{b}", foreign_key=lambda key, value: key[:1]).to_stream().to("out")
    assert outcome(builder, [("right", "r", "R", 4), ("left", "r1", "x", 2)])[0] == [("r1", "r1:xR", 4)]


def test_values_of_a_table_that_nobody_has_typed() -> None:
    builder, left, right = tables()
    lengths = left.map_values(lambda v: {"text": v, "size": len(v)})
    joined = lengths.join(
        right, lambda a, b: f"{a['size']}{b}", foreign_key=lambda v: v["text"][:1], materialized=Materialized("all")
    )
    joined.to_stream().map_values(str).to("out")
    inputs = [("left", "a", "rest", 0), ("right", "r", "R", 1)]
    assert outcome(builder, inputs, **{"penstock.untyped.stores": "auto"})[0] == [("a", "4R", 1)]
    with pytest.raises(ProcessingError, match="the string serde writes str, not dict"):  # what their hashes are of
        outcome(builder, inputs)


def test_names_of_a_foreign_key_join() -> None:
    builder, left, right = tables()
    table = left.left_join(right, lambda a, b: a, "kept", foreign_key=lambda v: v, joined=TableJoined("orders"))
    assert table.queryable_store_name == "kept"
    topology = builder.build()
    assert set(topology.internal_topics) == {
        "orders-subscription-registration-topic",
        "orders-subscription-response-topic",
    }
    assert "orders-subscription-store" in topology.stores
    assert "orders-result" in topology.nodes


def test_internal_topics_fit_the_tables_that_they_serve() -> None:
    builder, left, right = tables()
    left.join(right, lambda a, b: a, foreign_key=lambda v: v, name="j").to_stream().to("out")
    plan = plan_of(builder.build(), "app", {"left": 2, "right": 5, "out": 1})
    assert plan.partitions["j-subscription-registration-topic"] == 5
    assert plan.partitions["j-subscription-response-topic"] == 2
    assert [s.levels for s in plan.subtopologies] == [(0, 2), (1,)]


def test_partitioners_of_the_users_place_subscriptions_and_answers() -> None:
    calls = []

    def place(topic, key, value, partitions):
        calls.append((topic, key, value, partitions))
        return 0

    builder, left, right = tables()
    joined = TableJoined("j", partitioner=place, other_partitioner=place)
    left.join(right, lambda a, b: a + b, foreign_key=lambda v: v, joined=joined).to_stream().to("out")
    assert outcome(builder, [("right", "r", "R", 0), ("left", "a", "r", 0)])[0] == [("a", "rR", 0)]
    assert calls == [
        ("j-subscription-registration-topic", "r", None, 1),
        ("j-subscription-response-topic", "a", None, 1),
    ]


def test_what_joins_refuse() -> None:
    builder, left, right = tables()
    with pytest.raises(TopologyError, match="takes a KTable"):
        left.join(builder.stream("s"), lambda a, b: a)
    with pytest.raises(TopologyError, match="takes a KTable"):
        left.join(builder.stream("s2"), lambda a, b: a, foreign_key=lambda v: v)
    with pytest.raises(TopologyError, match="different builders"):
        left.outer_join(StreamsBuilder().table("right"), lambda a, b: a)
    with pytest.raises(TopologyError, match="foreign_key="):
        left.join(right, lambda a, b: a, joined=TableJoined("n"))
    with pytest.raises(TopologyError, match="2 or 3 argument"):
        left.join(right, lambda a: a)


class Counting(ValueTransformerWithKey):
    closed = 0

    def init(self, context):
        super().init(context)
        self.store = context.get_state_store("seen")

    def transform(self, key, value):
        self.store.put(key, (self.store.get(key) or 0) + 1)
        where = self.context.record_metadata()
        return None if value is None else f"{value}{self.store.get(key)}@{where.topic}-{where.offset}"

    def close(self):
        Counting.closed += 1


def transformed(materialized=None):
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("seen", key_serde=Serdes.string(), value_serde=Serdes.long()))
    return builder, builder.table("in").transform_values(Counting, ["seen"], materialized)


@pytest.mark.parametrize("batch_size", [1, 10])
def test_transformers_use_stores_and_see_the_record(batch_size: int) -> None:
    Counting.closed = 0
    builder, table = transformed("kept")
    table.to_stream().to("out")
    changes = [("in", "a", "x", 0), ("in", "a", None, 1), ("in", "a", "y", 2)]
    found, _ = outcome(builder, changes, batch_size=batch_size)
    assert [value for _, value, _ in found] == ["x1@in-0", None, "y3@in-2"]
    assert Counting.closed == 1


def test_a_transformer_with_state_that_is_read_goes_record_by_record() -> None:
    builder, table = transformed()
    builder.stream("s").join(table, lambda a, b: a + b).to("out")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        assert "its transformer has state" in driver.explain()


def test_transformers_neither_forward_nor_schedule() -> None:
    class Forwards(ValueTransformerWithKey):
        def transform(self, key, value):
            self.context.forward(value)

    class Schedules(ValueTransformerWithKey):
        def init(self, context):
            context.schedule("1 second", "stream_time", print)

    builder = StreamsBuilder()
    builder.table("in").transform_values(Forwards).to_stream().to("out")
    with pytest.raises(ProcessingError, match="can only return values"):
        outcome(builder, [("in", "a", "x", 0)])
    builder = StreamsBuilder()
    builder.table("in").transform_values(Schedules)
    with pytest.raises(TopologyError, match="schedules a punctuation"):
        outcome(builder, [])


def test_what_transform_values_refuses() -> None:
    table = StreamsBuilder().table("in")
    with pytest.raises(TopologyError, match="makes a transformer"):
        table.transform_values(Counting())
    with pytest.raises(TopologyError, match="takes a list of stores or their names"):
        table.transform_values(Counting, "seen")
    with pytest.raises(TypeError, match="no method transform"):
        ValueTransformerWithKey().transform("k", "v")


def test_explain_says_that_a_transformer_is_called() -> None:
    topology = transformed("kept")[0].build()
    assert "a ValueTransformerWithKey, called for each change" in [
        how_it_runs(n, topology) for n in topology.nodes.values() if isinstance(n, ProcessorNode)
    ]
