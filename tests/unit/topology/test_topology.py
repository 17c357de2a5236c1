from __future__ import annotations

import json
from typing import Any

import cloudpickle
import pytest

from penstock import Consumed, Grouped, Materialized, Processor, Repartitioned, Stores, StreamsBuilder, TimeWindows
from penstock.errors import TopologyError
from penstock.topology.configured import with_default_serdes
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations import definitions as ops
from penstock.topology.topology import Topology


def operation(topology: Topology, name: str) -> Any:
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    return node.operation


def windowed_counts() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("access_log")
        .group_by(lambda line: line[:1])
        .windowed_by(TimeWindows.of("1 minute", grace="10 seconds"))
        .count(Materialized("os-counts"))
        .to_stream()
        .to("os-check")
    )
    return builder.build()


def test_repartition_splits_subtopologies() -> None:
    topology = windowed_counts()
    first, second = topology.subtopologies()
    assert (first.id, first.source_topics, first.sink_topics) == (0, ("access_log",), ("os-counts-repartition",))
    assert (second.source_topics, second.sink_topics, second.stores) == (
        ("os-counts-repartition",), ("os-check",), ("os-counts",),
    )  # fmt: skip
    assert topology.internal_topics["os-counts-repartition"].partitions is None
    spec = topology.stores["os-counts"]
    assert (spec.kind, spec.window_size_ms, spec.retention_ms) == ("window", 60_000, 70_000)
    assert topology.changelog_topics() == {"os-counts": "os-counts-changelog"}


def test_survives_pickling() -> None:
    topology = windowed_counts()
    again = cloudpickle.loads(cloudpickle.dumps(topology))
    assert str(again.describe()) == str(topology.describe())
    assert again.children("KSTREAM-SOURCE-0000000000") == topology.children("KSTREAM-SOURCE-0000000000")


def test_description_as_json_and_mermaid() -> None:
    description = windowed_counts().describe()
    subs = json.loads(description.to_json())["sub_topologies"]
    assert [sub["id"] for sub in subs] == [0, 1]
    assert "flowchart TD" in description.to_mermaid()
    assert '(["os-check"])' in description.to_mermaid()


def test_regrouping_materialises_the_source_table_and_asks_for_old_values() -> None:
    builder = StreamsBuilder()
    table = builder.table("in")
    table.map_values(lambda v: v).group_by(lambda k, v: (v, k)).count().to_stream().to("out")
    topology = builder.build()
    assert operation(topology, "KTABLE-SOURCE-0000000002") == ops.TableSource(
        "in-STATE-STORE-0000000000", send_old=True
    )
    assert operation(topology, "KTABLE-MAPVALUES-0000000003").send_old


def test_join_materialises_the_table_that_it_reads_through_a_filter() -> None:
    builder = StreamsBuilder()
    builder.stream("in").join(builder.table("t").filter(lambda v: v), lambda a, b: a + b).to("out")
    topology = builder.build()
    assert list(topology.stores) == ["t-STATE-STORE-0000000001"]
    assert topology.copartition_groups == (frozenset({"KSTREAM-SOURCE-0000000000", "KSTREAM-SOURCE-0000000002"}),)


def test_table_without_need_has_no_store() -> None:
    builder = StreamsBuilder()
    builder.table("t").to_stream().to("out")
    assert not builder.build().stores


def test_left_join_keeps_null_keys_before_its_repartition() -> None:
    def filters(left: bool) -> type:
        builder = StreamsBuilder()
        stream, table = builder.stream("in").select_key(lambda v: v), builder.table("t")
        (stream.left_join if left else stream.join)(table, lambda a, b: a).to("out")
        node = next(n for n in builder.build().nodes.values() if n.name.startswith("KSTREAM-FILTER"))
        assert isinstance(node, ProcessorNode)
        return type(node.operation)

    assert filters(left=True) is ops.PassThrough
    assert filters(left=False) is ops.DropNullKeys


def test_optimisation_merges_repartitions_and_reuses_source_topics() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in").select_key(lambda v: v)
    keyed.group_by_key().count().to_stream().to("a")
    keyed.group_by_key().reduce(lambda a, b: b).to_stream().to("b")
    builder.table("t", materialized="t-store")
    topology = builder.build({"topology.optimization": "all"})
    assert len(topology.internal_topics) == 1
    assert topology.stores["t-store"].changelog_topic == "t"


def test_global_table_is_no_task() -> None:
    builder = StreamsBuilder()
    builder.global_table("g", materialized="g-store")
    builder.stream("in").to("out")
    topology = builder.build()
    assert [sub.id for sub in topology.subtopologies()] == [1]
    assert topology.global_stores == {"g-store"}
    assert "for global store (will not generate tasks)" in str(topology.describe())


def test_user_named_repartition_topic_is_shared_by_aggregations() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").select_key(lambda v: v).group_by_key(Grouped("mine"))
    grouped.count().to_stream().to("a")
    grouped.reduce(lambda a, b: b).to_stream().to("b")
    assert list(builder.build().internal_topics) == ["mine-repartition"]


def test_default_serdes_fill_in_windowed_keys() -> None:
    topology = with_default_serdes(windowed_counts(), "string", "string")
    sink = topology.sinks[-1]
    assert "string" in sink.key_serde.name
    assert sink.value_serde.name == "long"
    with pytest.raises(TopologyError, match="no key serde"):
        with_default_serdes(windowed_counts(), None, "string")


class Quiet(Processor[str, str]):
    """Does nothing."""


def test_processors_that_share_a_store_are_one_subtopology() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("shared"))
    builder.stream("a").process(Quiet, ["shared"])
    builder.stream("b").process(Quiet, ["shared"])
    assert len(builder.build().subtopologies()) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.filter("x > 1"), "takes a Python function or a Polars expression"),
        (lambda s: s.map_values(lambda a, b, c: a), "1 or 2 argument"),
        (lambda s: s.filter(len, name="a b"), "'a b' is not allowed"),
        (lambda s: s.to("no/topic"), "'no/topic' is not allowed"),
        (lambda s: s.process(Quiet()), "a class or function that makes a processor"),
        (lambda s: s.process(Quiet, "store"), "Pass a list"),
        (lambda s: s.merge("other"), "takes a KStream"),
        (lambda s: s.merge(StreamsBuilder().stream("b")), "different builders"),
        (lambda s: s.join("other", lambda a, b: a), "takes a KStream, a KTable or a GlobalKTable"),
        (lambda s: s.join(s, lambda a, b: a), "takes JoinWindows after the joiner"),
        (lambda s: s.outer_join("other", lambda a, b: a, None), "takes a KStream"),
        (lambda s: s.group_by_key().windowed_by("1 minute"), "takes windows"),
        (lambda s: s.group_by_key().aggregate([], lambda k, v, a: a), "which all keys would share"),
        (lambda s: s.repartition(Repartitioned(partitions=0)), "partitions is 0"),
        (lambda s: (s.peek(print, name="p"), s.peek(print, name="p")), "two nodes are named 'p'"),
        (lambda s: TimeWindows.of(0), "holds nothing"),
        (lambda s: TimeWindows.of("1 minute", advance="2 minutes"), "cannot advance"),
        (lambda s: Consumed(key_serde=object()), "is not a serde"),
    ],
)
def test_wrong_calls_fail_where_they_are_written(wrong: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        wrong(StreamsBuilder().stream("in"))


def test_wrong_topologies_fail_when_built() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Quiet, ["missing"])
    with pytest.raises(TopologyError, match="'missing', which is not there"):
        builder.build()
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    builder.table("in")
    with pytest.raises(TopologyError, match="read by two sources"):
        builder.build()
    with pytest.raises(TopologyError, match="reads no topic"):
        StreamsBuilder().build()
