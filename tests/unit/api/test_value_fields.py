"""Misspelled fields: refused where a schema is known, else counted and logged."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from penstock import Consumed, GlobalKTable, KStream, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, agg
from penstock.errors import TopologyError
from penstock.serde import Serdes
from penstock.testing import TopologyTestDriver
from penstock.topology.nodes import ProcessorNode
from penstock.topology.plan.explain import how_it_runs

Verb = Callable[[KStream[Any, Any]], Any]
ORDERS = Serdes.json({"user": str, "amount": float})
HIT = {"type": "record", "name": "Hit", "fields": [{"name": "status", "type": "int"}]}

VERBS: dict[str, Verb] = {
    "filter": lambda s: s.filter(pl.col("amuont") > 1),
    "filter_not": lambda s: s.filter_not(pl.col("amuont") > 1),
    "map": lambda s: s.map(pl.struct(pl.col("user").alias("key"), pl.col("amuont").alias("value"))),
    "map_values": lambda s: s.map_values(pl.struct("user", "amuont")),
    "select_key": lambda s: s.select_key(pl.col("amuont")),
    "flat_map_values": lambda s: s.flat_map_values(pl.concat_list("amuont")),
    "group_by": lambda s: s.group_by(pl.col("amuont")).count(),
    "branch": lambda s: s.split().branch(pl.col("amuont") > 1).no_default_branch(),
    "sum": lambda s: s.group_by_key().aggregate(agg.sum("amuont")),
    "struct": lambda s: s.group_by_key().aggregate(agg.struct(n=agg.count(), mean=agg.mean("amuont"))),
    "n_unique": lambda s: s.group_by_key().aggregate(agg.n_unique("amuont")),
    "windows": lambda s: s.group_by_key().windowed_by(TimeWindows.of("1 minute")).aggregate(agg.sum("amuont")),
    "sessions": lambda s: s.group_by_key().windowed_by(SessionWindows.of("1 minute")).aggregate(agg.max("amuont")),
    "sliding": lambda s: s.group_by_key().windowed_by(SlidingWindows.of("1 minute")).aggregate(agg.last("amuont")),
    "behind a repartition": lambda s: s.group_by(pl.col("user")).aggregate(agg.sum("amuont")),
    "cogroup": lambda s: s.group_by_key().cogroup(agg.sum("amuont")).aggregate(),
    "table filter": lambda s: s.to_table().filter(pl.col("amuont") > 1),
    "table map_values": lambda s: s.to_table().map_values(pl.col("amuont")),
    "behind a filter": lambda s: s.filter(pl.col("amount") > 1).peek(print).filter(pl.col("amuont") > 1),
    "merge": lambda s: s.merge(s.filter(pl.col("amount") > 1)).filter(pl.col("amuont") > 1),
}


def built(verb: Verb, consumed: Consumed | None) -> StreamsBuilder:
    builder = StreamsBuilder()
    verb(builder.stream("orders", consumed))
    return builder


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_schema_refuses_fields_that_it_lacks(verb: Verb) -> None:
    with pytest.raises(TopologyError, match="reads the field 'amuont'") as refused:
        built(verb, Consumed(key_serde="string", value_serde=ORDERS)).build()
    assert "Did you mean amount? The fields are amount, user." in str(refused.value)
    line = inspect.getsourcelines(verb)[1]
    assert f"{__file__}:{line}" in str(refused.value)


def test_the_schema_may_be_the_default() -> None:
    topology = built(VERBS["sum"], None).build()
    with pytest.raises(TopologyError, match="reads the field 'amuont'"):
        TopologyTestDriver(topology, {"default.key.serde": "string", "default.value.serde": ORDERS})


def test_avro_says_its_fields() -> None:
    serde = Serdes.avro(HIT, framing="none")
    with pytest.raises(TopologyError, match="reads the field 'stauts'"):
        built(lambda s: s.filter(pl.col("stauts") > 1), Consumed(value_serde=serde)).build()
    built(lambda s: s.filter(pl.col("status") > 1), Consumed(value_serde=serde)).build()


def test_values_that_a_function_made_have_no_known_schema() -> None:
    consumed = Consumed(value_serde=ORDERS)
    built(lambda s: s.map_values(lambda v: {"amuont": 1}).filter(pl.col("amuont") > 1), consumed).build()
    built(lambda s: s.filter(pl.col("key") == "a", name="n").filter(pl.col("timestamp") > 1), consumed).build()
    built(lambda s: s.filter(pl.col("value").struct.field("amount") > 1), consumed).build()


def join_by_field(stream: KStream[Any, Any], items: GlobalKTable[Any, Any]) -> KStream[Any, Any]:
    return stream.join(items, lambda order, item: item, key=pl.col("itme"))


def test_the_key_of_a_global_table() -> None:
    builder = StreamsBuilder()
    items = builder.global_table("items")
    join_by_field(builder.stream("orders", Consumed(value_serde=Serdes.json({"item": str}))), items)
    with pytest.raises(TopologyError, match="Did you mean item"):
        builder.build()


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_without_a_schema_it_is_counted_and_logged(verb: Verb, caplog: pytest.LogCaptureFixture) -> None:
    topology = built(verb, Consumed(key_serde="string", value_serde="json")).build()
    settings = {"default.key.serde": "string", "default.value.serde": "json"}
    with caplog.at_level(logging.WARNING, "penstock.runtime"), TopologyTestDriver(topology, settings) as driver:
        orders = driver.input_topic("orders")
        for n in range(12):
            orders.pipe({"user": "ann", "amount": 2.0}, key="ann", timestamp=n)
    warnings = [r.getMessage() for r in caplog.records if "'amuont'" in r.getMessage()]
    assert "none of 10 values has it" in warnings[0]
    assert "Did you mean amount?" in warnings[0]
    assert len(warnings) == 2  # once it is certain, and when the driver ends


def test_a_field_that_some_values_have_is_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    topology = built(VERBS["sum"], Consumed(key_serde="string", value_serde="json")).build()
    with TopologyTestDriver(topology, {"default.key.serde": "string", "default.value.serde": "json"}) as driver:
        for n in range(30):
            driver.input_topic("orders").pipe({"amuont": 1.0} if n == 5 else {}, key="ann", timestamp=n)
    assert not [r for r in caplog.records if "'amuont'" in r.getMessage()]


def test_explain_says_which_fields_nobody_has_checked() -> None:
    def runs(consumed: Consumed) -> str:
        topology = built(lambda s: s.filter(pl.col("amount") > 1, name="large"), consumed).build()
        node = topology.nodes["large"]
        assert isinstance(node, ProcessorNode)
        return how_it_runs(node, topology)

    assert runs(Consumed(value_serde=ORDERS)) == "columns"
    assert runs(Consumed(value_serde="json")) == (
        "columns; no schema says whether the values have amount: what is missing counts as null"
    )


VALUES: list[dict[str, Any]] = [
    {"user": "ann"},
    {"user": "ann", "amount": 2},
    {"user": "ann", "amount": 2.5, "tags": ["a", 1]},
    {"user": "ann", "item": {"id": 1}},
    {"user": "ann", "item": {"id": 2, "colour": "red"}},
]


@pytest.mark.parametrize("batch_size", [1, 5])
def test_values_of_different_fields_stay_what_they_are(batch_size: int) -> None:
    """An expression over some of the fields neither drops the others nor adds any."""
    builder = StreamsBuilder()
    kept = (
        builder.stream("orders")
        .filter(pl.col("user") == "ann")
        .filter(pl.col("amount").is_null() | (pl.col("amount") > 1))
    )
    kept.to("out")
    kept.map_values(pl.col("amount")).to("amounts")
    kept.filter(pl.col("item").is_not_null()).filter(pl.col("value").struct.field("item").is_not_null()).to("items")
    settings = {"default.key.serde": "string", "default.value.serde": "json"}
    with TopologyTestDriver(builder.build(), settings, batch_size=batch_size) as driver:
        for value in VALUES:
            driver.input_topic("orders").pipe(value, key="k", timestamp=0)
        driver.flush()
        assert driver.output_topic("out").read_values_to_list() == VALUES
        assert driver.output_topic("amounts").read_values_to_list() == [None, 2, 2.5, None, None]
        assert driver.output_topic("items").read_values_to_list() == VALUES[3:]
