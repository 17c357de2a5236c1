"""A method that is guessed, or that another fluent class has, ends in the sentence that says what to write."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

import penstock
from penstock import KafkaStreams, Serdes, StreamsBuilder, TimeWindows, TopologyTestDriver, agg
from penstock.base.java_names.guesses import GUESSES
from penstock.errors import NoSuchMethodError, TopologyError
from penstock.testing import TestInputTopic, TestOutputTopic

FLUENT = {
    "BranchedKStream": "branched", "CogroupedKStream": "groups.cogrouped", "GlobalKTable": "table",
    "KGroupedStream": "groups.grouped", "KGroupedTable": "groups.grouped_table", "KStream": "stream", "KTable": "table",
    "SessionWindowedCogroupedKStream": "groups.cogrouped", "SessionWindowedKStream": "groups.windowed",
    "TimeWindowedCogroupedKStream": "groups.cogrouped", "TimeWindowedKStream": "groups.windowed",
}  # fmt: skip


def fluent(name: str) -> Any:
    return getattr(importlib.import_module(f"penstock.api.{FLUENT[name]}"), name)


def own(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and hasattr(kind, name)}


def message(kind: Any, name: str) -> str:
    with pytest.raises(NoSuchMethodError) as caught:
        getattr(kind, name)
    return caught.value.message


@pytest.mark.parametrize("here", FLUENT)
@pytest.mark.parametrize("there", FLUENT)
def test_a_verb_of_another_class_says_the_way_to_it(here: str, there: str) -> None:
    for name in own(fluent(there)) - own(fluent(here)):
        assert message(fluent(here), name).startswith(f"{here} has no {name}")


def test_what_is_guessed_most() -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("a"), builder.table("t")
    grouped = stream.group_by_key()
    windowed = grouped.windowed_by(TimeWindows.of("1 minute"))
    everywhere = builder.global_table("g")
    said = [
        (stream, "count", "KStream has no count; group first: .group_by_key().count()"),
        (stream, "sum", 'KStream has no sum; group first: .group_by_key().aggregate(agg.sum("field"))'),
        (stream, "windowed_by", "KStream has no windowed_by; group first: .group_by_key().windowed_by(...)"),
        (stream, "groupby", "KStream has no groupby: it is group_by(...) here"),
        (stream, "where", "KStream has no where: it is filter(...) here"),
        (stream, "withColumn", 'KStream has no withColumn: it is map_values(pl.struct("a", total=pl.col("b") * 2)) here'),
        (stream, "union", "KStream has no union: it is merge(...) here"),
        (stream, "limit", ("KStream has no limit, and nothing stands in its place: a stream has no end; a window, or the "
        "rows of a table, can be sorted")),
        (grouped, "sum", 'KGroupedStream has no sum: it is aggregate(agg.sum("field")) here'),
        (grouped, "avg", 'KGroupedStream has no avg: it is aggregate(agg.mean("field")) here'),
        (grouped, "tumbling", 'KGroupedStream has no tumbling: it is windowed_by(TimeWindows.of("1 minute")) here'),
        (grouped, "to_stream", "KGroupedStream has no to_stream; tables have it, so aggregate first: .count().to_stream()"),
        (windowed, "suppress", "TimeWindowedKStream has no suppress; tables have it, so aggregate first: .count().suppress(...)"),
        (table, "to", "KTable has no to; streams have it: .to_stream().to(...)"),
        (table, "count", "KTable has no count; group first: .group_by(lambda key, value: (new_key, value)).count()"),
        (table, "get", ("KTable has no get; a running application reads it, if its store has a name: "
        'app.store("name").get(...)')),
        (everywhere, "filter", ("GlobalKTable has no filter; a global table is only joined with: stream.join(table, joiner, "
        "key=...). builder.table() reads one with verbs")),
        (builder, "topic", "StreamsBuilder has no topic: it is stream(topic) here"),
        (builder, "run", "StreamsBuilder has no run; an application has it: KafkaStreams(builder.build(), config).run()"),
        (builder.build(), "stream", "Topology has no stream; a StreamsBuilder has it: StreamsBuilder().stream(...)"),
        (KafkaStreams, "stop", "KafkaStreams has no stop: it is close() here"),
        (TopologyTestDriver, "send", 'TopologyTestDriver has no send: it is input_topic("in").pipe(value, key) here'),
        (TestInputTopic, "put", "TestInputTopic has no put: it is pipe(value, key) here"),
        (TestOutputTopic, "read", "TestOutputTopic has no read: it is read_value() here"),
        (Serdes, "int", "Serdes has no int: it is Serdes.integer(), of 4 bytes, or Serdes.long(), of 8 here"),
    ]  # fmt: skip
    for thing, name, sentence in said:
        assert message(thing, name) == sentence


def test_the_error_is_an_attribute_error_and_one_of_the_topology() -> None:
    stream = StreamsBuilder().stream("a")
    assert not hasattr(stream, "count")
    assert "count" not in dir(stream)
    with pytest.raises(TopologyError, match="group first"):
        stream.count()


VERBS = {name for kind in FLUENT for name in own(fluent(kind))}
VERBS |= {
    name
    for kind in ("KafkaStreams", "StreamsBuilder", "Topology", "Serdes", "Stores")
    for name in own(getattr(penstock, kind))
}
VERBS |= {name for kind in (TopologyTestDriver, TestInputTopic, TestOutputTopic) for name in own(kind)}
VERBS |= own(agg) | {"of", "struct", "col", "cast", "is_not_null", "fill_null", "store", "get", "all", "range", "fetch"}
VERBS |= {"approximate_num_entries", "try_out"}


@pytest.mark.parametrize("kind", GUESSES)
def test_each_sentence_names_methods_that_are_there(kind: str) -> None:
    for name, sentence in GUESSES[kind].items():
        named = set(re.findall(r"\b([a-z][a-z_]*)\(", sentence)) - {"of", "e"}
        assert named <= VERBS, f"{kind}.{name}: {sentence}"


def test_what_the_sentences_propose_runs() -> None:
    import polars as pl

    from penstock.testing import try_out

    rows = [("k", {"a": 1, "b": 2}), ("k", {"a": 3, "b": 4})]
    assert try_out(lambda s: s.map_values(pl.struct("a", total=pl.col("b") * 2)), rows)[1] == (
        "k",
        {"a": 3, "total": 8},
    )
    assert try_out(lambda s: s.map_values(pl.struct(new=pl.col("b"))), rows)[0] == ("k", {"new": 2})
    assert try_out(lambda s: s.map_values(pl.struct(a=pl.col("a").fill_null(0))), [("k", {"a": None})]) == [
        ("k", {"a": 0})
    ]
    kept = try_out(lambda s: s.group_by_key().reduce(lambda first, later: first), rows)
    assert kept[-1] == ("k", {"a": 1, "b": 2})
    lists = try_out(lambda s: s.group_by_key().aggregate(list, lambda key, value, items: [*items, value["a"]]), rows)
    assert lists[-1] == ("k", [1, 3])
    regrouped = try_out(lambda s: s.to_table().group_by(lambda key, value: ("new", value)).count(), rows)
    assert regrouped[-1] == ("new", 1)
