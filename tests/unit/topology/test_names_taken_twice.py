"""Names of stores, topics and nodes that are given twice are refused wherever they come from, as in Kafka Streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Consumed,
    FixedKeyProcessor,
    Grouped,
    JoinWindows,
    KStream,
    Materialized,
    Processor,
    Repartitioned,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
)
from penstock.errors import TopologyError
from penstock.topology.plan.partitions import source_topics
from penstock.topology.stores import StoreSpec

Verbs = Callable[[StreamsBuilder], Any]


class Keep(Processor[str, str]):
    def process(self, record: Any) -> None:
        self.context.forward(record)


class KeepValue(FixedKeyProcessor[str, str]):
    def process(self, record: Any) -> None:
        self.context.forward(record)


class WithStore(Keep):
    @classmethod
    def stores(cls) -> list[StoreSpec]:
        return [Stores.key_value("s")]


def built(verbs: Verbs) -> None:
    builder = StreamsBuilder()
    verbs(builder)
    builder.build()


def grouped(builder: StreamsBuilder, topic: str) -> Any:
    return builder.stream(topic).group_by_key()


def joined(builder: StreamsBuilder, left: str, right: str, options: StreamJoined) -> KStream[Any, Any]:
    windows = JoinWindows.of("1 minute")
    return builder.stream(left).outer_join(builder.stream(right), lambda a, b: a, windows, options)


def by_foreign_key(builder: StreamsBuilder, left: str, right: str, options: TableJoined) -> Any:
    return builder.table(left).join(builder.table(right), lambda a, b: a, foreign_key=len, joined=options)


STORES: dict[str, Verbs] = {
    "two counts": lambda b: (grouped(b, "a").count("s"), grouped(b, "b").count("s")),
    "one stream counted twice": lambda b: [(g := grouped(b, "a")).count("s"), g.count("s")],
    "count and reduce": lambda b: (grouped(b, "a").count("s"), grouped(b, "b").reduce(max, "s")),
    "windows": lambda b: (
        grouped(b, "a").windowed_by(TimeWindows.of("1 minute")).count("s"),
        grouped(b, "b").windowed_by(TimeWindows.of("1 minute")).count("s"),
    ),
    "tables": lambda b: (b.table("a", materialized="s"), b.table("b", materialized="s")),
    "table and count": lambda b: (b.table("a", materialized="s"), grouped(b, "b").count("s")),
    "to_table": lambda b: (b.stream("a").to_table("s"), b.stream("b").to_table("s")),
    "filtered tables": lambda b: (
        b.table("a").filter(bool, materialized="s"),
        b.table("b").filter(bool, materialized="s"),
    ),
    "cogroups": lambda b: [
        grouped(b, t).cogroup(lambda k, v, a: a).aggregate(lambda: 0, materialized="s") for t in "ab"
    ],
    "stream joins": lambda b: (
        joined(b, "a", "b", StreamJoined(store_name="s")),
        joined(b, "c", "d", StreamJoined(store_name="s")),
    ),
    "processors with equal stores": lambda b: [b.stream(t).process(Keep, [Stores.key_value("s")]) for t in "ab"],
    "suppliers with equal stores": lambda b: [b.stream(t).process(WithStore) for t in "ab"],
    "process_values": lambda b: [b.stream(t).process_values(KeepValue, [Stores.key_value("s")]) for t in "ab"],
    "added stores": lambda b: [
        b.add_state_store(Stores.key_value("s")),
        b.add_state_store(Stores.key_value("s")),
    ],
    "an added store and a count": lambda b: [b.add_state_store(Stores.key_value("s")), grouped(b, "a").count("s")],
    "a global table and a count": lambda b: [b.global_table("a", materialized="s"), grouped(b, "b").count("s")],
    "global tables": lambda b: [b.global_table(t, materialized="s") for t in "ab"],
    "global stores": lambda b: [b.add_global_store(Stores.key_value("s"), t, Keep) for t in "ab"],
    "a suppressed table and a count": lambda b: [
        grouped(b, "a").count().suppress(Suppressed.until_time_limit("1 minute").with_name("s")),
        grouped(b, "b").count("s-store"),
    ],
}


@pytest.mark.parametrize("verbs", STORES.values(), ids=STORES)
def test_two_stores_of_one_name(verbs: Verbs) -> None:
    with pytest.raises(TopologyError, match=r"a different (Global)?StateStore has already been added"):
        built(verbs)


def test_the_message_names_the_store_and_both_processors() -> None:
    builder = StreamsBuilder()
    grouped(builder, "orders").count(Materialized("s"), name="first")
    grouped(builder, "clicks").count(Materialized("s"), name="second")
    with pytest.raises(TopologyError, match="the name 's' for first; second needs its own"):
        builder.build()


def test_a_store_that_is_made_once_is_shared() -> None:
    store = Stores.key_value("s")
    builder = StreamsBuilder().add_state_store(store).add_state_store(store)
    builder.stream("a").process(Keep, [store])
    builder.stream("b").process(Keep, ["s"])
    assert len(builder.build().subtopologies()) == 1
    assert list(builder.build().stores) == ["s"]  # a second build finds what the first one found


TOPICS: dict[str, Verbs] = {
    "groupings": lambda b: [b.stream(t).group_by(len, Grouped("r")).count() for t in "ab"],
    "grouped tables": lambda b: [b.table(t).group_by(lambda k, v: (v, k), Grouped("r")).count() for t in "ab"],
    "repartitions": lambda b: [b.stream(t).repartition(Repartitioned("r")) for t in "ab"],
    "grouping and repartition": lambda b: [
        b.stream("a").repartition(Repartitioned("r")),
        b.stream("b").group_by(len, Grouped("r")).count(),
    ],
    "through and repartition": lambda b: [b.stream("a").through("r"), b.stream("b").repartition(Repartitioned("r"))],
    "a user's topic": lambda b: [b.stream("r-repartition"), b.stream("a").repartition(Repartitioned("r"))],
    "foreign keys": lambda b: [
        by_foreign_key(b, left, right, TableJoined("r")) for left, right in (("a", "b"), ("c", "d"))
    ],
    "stream and table": lambda b: [b.stream("a"), b.table("a")],
    "table and global table": lambda b: [b.table("a"), b.global_table("a")],
    "topic and pattern": lambda b: [b.stream("abc"), b.stream(re.compile("a.*"))],
    "patterns": lambda b: [b.stream(re.compile("a.*")), b.stream(re.compile("ba.*"))],
    "sinks": lambda b: [b.stream(t).to("out", name="r") for t in "ab"],
    "sources": lambda b: [b.stream(t, name="r") for t in "ab"],
}


@pytest.mark.parametrize("verbs", TOPICS.values(), ids=TOPICS)
def test_two_topics_or_nodes_of_one_name(verbs: Verbs) -> None:
    with pytest.raises(TopologyError, match=r"two nodes are named|is read by two sources"):
        built(verbs)


def test_one_source_has_one_way_to_read() -> None:
    def reads(one: Consumed, two: Consumed) -> StreamsBuilder:
        builder = StreamsBuilder()
        builder.stream("a", one).to("x")
        builder.stream("a", two).to("y")
        return builder

    assert len(reads(Consumed(value_serde="string"), Consumed(value_serde="string")).build().sources) == 1
    with pytest.raises(TopologyError, match="with different value serdes: string and long"):
        reads(Consumed(value_serde="string"), Consumed(value_serde="long")).build()
    with pytest.raises(TopologyError, match="with different timestamp extractors"):
        reads(Consumed(timestamp_extractor=lambda r: 1), Consumed(timestamp_extractor=lambda r: 2)).build()


def test_a_topic_that_two_patterns_match() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a.*")).to("x")
    builder.stream(re.compile(".*b")).to("y")
    topology = builder.build()
    assert len(source_topics(topology, ["aa", "bb"])) == 2
    with pytest.raises(TopologyError, match="topic 'ab' matches the patterns of two sources"):
        source_topics(topology, ["aa", "ab", "bb"])
