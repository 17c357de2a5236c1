"""Aggregations by expression and by built-in aggregator give what Python functions give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from penstock import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows, TopologyTestDriver, agg
from penstock.api.groups.grouped import KGroupedStream
from penstock.errors import TopologyError

LONGS = Materialized(key_serde="string", value_serde="long")
Aggregate = Callable[[KGroupedStream[str, int]], Any]


def results(aggregate: Aggregate, batch_size: int) -> list[tuple[Any, Any]]:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(key_serde="string", value_serde="long")).group_by_key()
    aggregate(grouped).to_stream(lambda key, _: str(key)).to("out", Produced(key_serde="string", value_serde="long"))
    config = {"statestore.cache.max.bytes": 0}
    with TopologyTestDriver(builder.build(), config, batch_size=batch_size) as driver:
        for i, (key, value) in enumerate([("a", 1), ("b", 5), ("a", 2), ("a", -4), ("b", 1)]):
            driver.input_topic("in", "string", "long").pipe(key=key, value=value, timestamp=i * 30_000)
        driver.flush()
        return [(r.key, r.value) for r in driver.output_topic("out", "string", "long").read_records_to_list()]


PAIRS: dict[str, tuple[Aggregate, Aggregate]] = {
    "reduce": (
        lambda g: g.reduce(lambda a, b: a * 2 + b, LONGS),
        lambda g: g.reduce(pl.col("aggregate") * 2 + pl.col("value"), LONGS),
    ),
    "aggregate": (
        lambda g: g.aggregate(0, lambda k, v, a: a + v * 3, LONGS),
        lambda g: g.aggregate(0, pl.col("aggregate") + pl.col("value") * 3, LONGS),
    ),
    "built-in": (
        lambda g: g.aggregate(lambda: None, lambda k, v, a: v if a is None else max(a, v), LONGS),
        lambda g: g.aggregate(agg.max(), materialized=LONGS),
    ),
    "windowed": (
        lambda g: g.windowed_by(TimeWindows.of("1 minute")).reduce(lambda a, b: a - b, LONGS),
        lambda g: g.windowed_by(TimeWindows.of("1 minute")).reduce(pl.col("aggregate") - pl.col("value"), LONGS),
    ),
}


@pytest.mark.parametrize("batch_size", [1, 2, 5])
@pytest.mark.parametrize("name", PAIRS)
def test_expression_equals_function(name: str, batch_size: int) -> None:
    function, expression = PAIRS[name]
    expected = results(function, 1)
    assert len(expected) == 5
    assert results(expression, batch_size) == expected


def test_a_missing_aggregator_is_refused() -> None:
    grouped = StreamsBuilder().stream("in").group_by_key()
    with pytest.raises(TopologyError, match="the aggregator is missing"):
        grouped.aggregate(0)
