"""A table grouped anew by an expression is what it is by a function, whichever way its batches are cut."""

from __future__ import annotations

import polars as pl
import pytest

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, TopologyTestDriver

ROW = Serdes.json({"group": str, "n": int})
BY_FUNCTION = lambda _, row: (row["group"], row["n"])  # noqa: E731
BY_EXPRESSION = pl.struct(pl.col("group").alias("key"), pl.col("n").alias("value"))
LONGS = Materialized(key_serde="string", value_serde="long")
CHANGES = [
    ("a", {"group": "x", "n": 1}),
    ("b", {"group": "x", "n": 2}),
    ("a", {"group": "y", "n": 3}),  # to another group
    ("b", {"group": "x", "n": 5}),  # within its group
    ("c", {"group": None, "n": 7}),  # in none
    ("a", None),
    ("c", {"group": "y", "n": 8}),
    ("b", {"group": "z", "n": None}),  # leaves its group and enters none
    ("b", {"group": "x", "n": 6}),
    ("c", {"group": "y", "n": 9}),
]


def sums(grouping, batch_size, cache_bytes):
    builder = StreamsBuilder()
    table = builder.table("in", Consumed(key_serde="string", value_serde=ROW))
    grouped = table.group_by(grouping, Grouped(key_serde="string", value_serde="long"))
    total = grouped.aggregate(lambda: 0, lambda _, n, so_far: so_far + n, lambda _, n, so_far: so_far - n, LONGS)
    total.to_stream().to("out", Produced(key_serde="string"))
    config = {"statestore.cache.max.bytes": cache_bytes}
    with TopologyTestDriver(builder.build(), config, batch_size=batch_size) as driver:
        topic = driver.input_topic("in", key_serde="string", value_serde=ROW)
        for key, value in CHANGES:
            topic.pipe(value, key=key)
        driver.flush()
        return driver.output_topic("out", key_serde="string", value_serde="long").read_key_values_to_list()


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_a_table_grouped_by_an_expression_is_as_by_a_function(batch_size, cache_bytes):
    by_function = sums(BY_FUNCTION, batch_size, cache_bytes)
    assert by_function
    assert sums(BY_EXPRESSION, batch_size, cache_bytes) == by_function
