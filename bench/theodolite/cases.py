"""Theodolite's four use cases as topologies.

- uc1: each record as JSON.
- uc2: by sensor, in windows of a minute: count, sum, smallest, largest, mean, variance.
- uc3: the same by sensor and hour of the day, in windows of three days every three hours.
- uc4: the power of each group in windows of five seconds: the last value of each member, added up. A record goes to all groups
  that its sensor is directly in, and what a group comes to goes the same way as a sensor's record, up to the group of all.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows, Topology, agg
from theodolite.sensors import AVRO

MOMENTS = Serdes.json({"count": int, "sum": float, "min": float, "max": float, "squares": float})
STATISTICS = Serdes.json({"count": int, "sum": float, "min": float, "max": float, "mean": float, "variance": float})
POWER = Serdes.json({"identifier": str, "timestamp": int, "valueInW": float})
SQUARED = Serdes.json({"value": float, "square": float})
DOUBLES = Grouped(key_serde="string", value_serde="double")
UC2_WINDOWS = TimeWindows.of("1 minute", grace="1 minute")
UC3_WINDOWS = TimeWindows.of("3 days", advance="3 hours", grace="30 days")
UC4_WINDOWS = TimeWindows.of("5 seconds", grace="1 day")  # what groups come to arrives late, as the backlog is long
START, KEY = pl.col("key").struct.field("start").cast(pl.String), pl.col("key").struct.field("key")


def uc1(builder: StreamsBuilder, topics: Mapping[str, str]) -> None:
    records = builder.stream(topics["power"], Consumed(key_serde="string", value_serde=AVRO))
    records.to(topics["out"], Produced(key_serde="string", value_serde=POWER))


def _statistics(builder: StreamsBuilder, topics: Mapping[str, str], key: pl.Expr | None, windows: TimeWindows) -> None:
    watts = pl.col("valueInW")
    records = builder.stream(topics["power"], Consumed(key_serde="string", value_serde=AVRO))
    if key is not None:
        records = records.select_key(key)
    moments = (
        records.map_values(pl.struct(watts.alias("value"), (watts * watts).alias("square")))
        .group_by_key(Grouped(key_serde="string", value_serde=SQUARED))
        .windowed_by(windows)
        .aggregate(
            agg.struct(
                count=agg.count(), sum=agg.sum("value"), min=agg.min("value"), max=agg.max("value"),
                squares=agg.sum("square"),
            ),
            materialized=Materialized(key_serde="string", value_serde=MOMENTS),
        )
    )  # fmt: skip
    mean = pl.col("sum") / pl.col("count")
    variance = pl.col("squares") / pl.col("count") - mean * mean
    results = moments.to_stream(pl.format("{}@{}", KEY, START)).map_values(
        pl.struct("count", "sum", "min", "max", mean.alias("mean"), variance.alias("variance"))
    )
    results.to(topics["out"], Produced(key_serde="string", value_serde=STATISTICS))


def uc2(builder: StreamsBuilder, topics: Mapping[str, str]) -> None:
    _statistics(builder, topics, None, UC2_WINDOWS)


def uc3(builder: StreamsBuilder, topics: Mapping[str, str]) -> None:
    hour = pl.col("timestamp") // 3_600_000 % 24
    _statistics(builder, topics, pl.format("{}|{}", "key", hour), UC3_WINDOWS)


def uc4(builder: StreamsBuilder, topics: Mapping[str, str]) -> None:
    records = builder.stream(topics["power"], Consumed(key_serde="string", value_serde=AVRO))
    fed_back = builder.stream(topics["feedback"], Consumed(key_serde="string", value_serde="double"))
    groups = builder.table(topics["groups"], Consumed(key_serde="string", value_serde=Serdes.json()))
    members = (
        records.map_values(pl.col("valueInW"))
        .merge(fed_back)
        .join(groups, lambda child, value, parents: [(f"{parent}/{child}", value) for parent in parents])
        .flat_map(lambda _, pairs: pairs)
    )
    last = (
        members.group_by_key(DOUBLES)
        .windowed_by(UC4_WINDOWS)
        .aggregate(agg.last(), materialized=Materialized(key_serde="string", value_serde="double"))
    )
    of_group = pl.format("{}@{}", KEY.str.split("/").list.first(), START)
    sums = last.group_by(pl.struct(of_group.alias("key"), pl.col("value").alias("value")), DOUBLES).reduce(
        lambda total, value: total + value,
        lambda total, value: total - value,
        Materialized(key_serde="string", value_serde="double"),
    )
    results = sums.to_stream()
    results.to(topics["out"], Produced(key_serde="string", value_serde="double"))
    by_group = results.select_key(pl.col("key").str.split("@").list.first())
    by_group.to(topics["feedback"], Produced(key_serde="string", value_serde="double"))


CASES = {"uc1": uc1, "uc2": uc2, "uc3": uc3, "uc4": uc4}
TOPICS = dict.fromkeys(CASES, ("power",)) | {"uc4": ("power", "groups", "feedback")}


def topology(case: str, topics: Mapping[str, str]) -> Topology:
    """The use case over topics of these names; `topics` has the one of the results as "out"."""
    builder = StreamsBuilder()
    CASES[case](builder, topics)
    return builder.build()
