"""What each rule of ``topology.optimization`` does to a topology, beside golden files of the description.

A golden file has the description before and after, and what ``explain`` says. Kafka Streams 4.3.1 gives the same
descriptions. ``PENSTOCK_GOLDEN=write`` writes the files anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumed, Grouped, Joined, JoinWindows, Serdes, StreamsBuilder
from penstock.errors import TopologyError

GOLDEN = Path(__file__).parent / "golden"
STRINGS = Consumed(key_serde=Serdes.string(), value_serde=Serdes.string())


def first(value: str) -> str:
    return value[:1]


def reuse_ktable_source_topics(builder: StreamsBuilder) -> None:
    builder.table("names", STRINGS, "names").to_stream().to("copy")
    builder.table("unused", STRINGS).filter(lambda value: value != "").to_stream().to("kept")


def merge_repartition_topics(builder: StreamsBuilder) -> None:
    keyed = builder.stream("words", STRINGS).select_key(first)
    keyed.group_by_key(Grouped(value_serde="string")).count("counts").to_stream().to("counted")
    keyed.group_by_key(Grouped(value_serde="string")).reduce(max, "longest").to_stream().to("reduced")


def merge_named_repartition_topics(builder: StreamsBuilder) -> None:
    keyed = builder.stream("words", STRINGS).select_key(first, name="first-letter")
    keyed.filter(lambda value: len(value) > 3).group_by_key(Grouped("long", value_serde="string")).count("counts")
    keyed.group_by_key(Grouped("all", value_serde="string")).reduce(max, "longest")


def merge_not_across_map_values(builder: StreamsBuilder) -> None:
    keyed = builder.stream("words", STRINGS).select_key(first)
    keyed.map_values(str.upper).group_by_key(Grouped(value_serde="string")).count("counts")
    keyed.group_by_key(Grouped(value_serde="string")).reduce(max, "longest")


def merge_below_a_merge(builder: StreamsBuilder) -> None:
    words = builder.stream("words", STRINGS)
    keyed = words.select_key(first).merge(words.map(lambda key, value: (value[-1:], value)))
    keyed.group_by_key(Grouped(key_serde="string", value_serde="string")).count("counts")
    keyed.group_by_key(Grouped(key_serde="string", value_serde="string")).reduce(max, "longest")


def merge_of_a_join_and_a_grouping(builder: StreamsBuilder) -> None:
    names = builder.table("names", STRINGS)
    keyed = builder.stream("words", STRINGS).select_key(first)
    options = Joined(key_serde="string", value_serde="string", other_value_serde="string")
    keyed.join(names, lambda left, right: left + right, options).to("joined")
    keyed.group_by_key(Grouped(value_serde="string")).count("counts")


def single_store_self_join(builder: StreamsBuilder) -> None:
    words = builder.stream("words", STRINGS)
    words.join(words, lambda left, right: left + right, JoinWindows.of("5 seconds")).to("pairs")


RULES = {
    reuse_ktable_source_topics: "reuse.ktable.source.topics",
    merge_repartition_topics: "merge.repartition.topics",
    merge_named_repartition_topics: "merge.repartition.topics",
    merge_not_across_map_values: "merge.repartition.topics",
    merge_below_a_merge: "merge.repartition.topics",
    merge_of_a_join_and_a_grouping: "all",
    single_store_self_join: "single.store.self.join",
}


def built(define: Any, optimization: str) -> Any:
    builder = StreamsBuilder()
    define(builder)
    return builder.build({"topology.optimization": optimization})


@pytest.mark.parametrize("define", RULES, ids=lambda define: define.__name__)
def test_rules(define: Any) -> None:
    before, after = built(define, "none"), built(define, RULES[define])
    said = [f"{one.what} ({one.rule})" for one in after.rewrites]
    text = (
        f"# topology.optimization={RULES[define]}\n\n# before\n{before.describe()}# after\n{after.describe()}"
        f"# explain\n{chr(10).join(said)}\n"
    )
    file = GOLDEN / f"{define.__name__}.txt"
    if os.environ.get("PENSTOCK_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()
    assert before.rewrites == ()


def test_all_is_every_rule() -> None:
    for define, rule in RULES.items():
        assert str(built(define, "all").describe()) == str(built(define, rule).describe())


def test_a_rule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"no rule 'merge\.everything'"):
        built(merge_repartition_topics, "merge.everything")


def test_repartition_topics_of_one_name_may_become_one() -> None:
    def define(builder: StreamsBuilder) -> None:
        keyed = builder.stream("words", STRINGS).select_key(first)
        keyed.filter(len).group_by_key(Grouped("mine", value_serde="string")).count("counts")
        keyed.group_by_key(Grouped("mine", value_serde="string")).reduce(max, "longest")

    assert list(built(define, "all").internal_topics) == ["mine-repartition"]
    with pytest.raises(TopologyError, match="two nodes are named 'mine-repartition"):
        built(define, "none")
