"""The topologies of the benchmark. W1 parse and filter, W2 windowed counts, W3 sums, W4 join and repartitioned count."""

from __future__ import annotations

import polars as pl

from penstock import Consumed, Grouped, Joined, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows, Topology

LINE = r'^(?<ip>\S+) \S+ \S+ \[[^\]]+\] "\S+ (?<path>\S+) [^"]*" (?<status>\d{3}) (?:\d+|-) "[^"]*" "(?<agent>[^"]*)"$'
OS_NAMES = ["Windows", "iPhone", "iPad", "Android", "CrOS", "Ubuntu", "Macintosh", "Linux"]

HIT = pl.col("value").str.extract_groups(LINE)
OS = pl.coalesce(
    *(pl.when(pl.col("agent").str.contains(name, literal=True)).then(pl.lit(name)) for name in OS_NAMES),
    pl.lit("other"),
)
AT_START = pl.format("{}@{}", pl.col("key").struct.field("key"), pl.col("key").struct.field("start"))


def w1() -> Topology:
    """Parse access-log lines, keep errors, write JSON."""
    builder = StreamsBuilder()
    (
        builder.stream("logs", Consumed(key_serde="string", value_serde="string"))
        .map_values(HIT)
        .filter(pl.col("status").cast(pl.Int32) >= 400)
        .map_values(pl.struct("ip", "path", pl.col("status").cast(pl.Int32)).struct.json_encode())
        .to("out", Produced(key_serde="string", value_serde="string"))
    )
    return builder.build()


def w2(by: pl.Expr) -> Topology:
    """Count hits in one-minute windows, written as key@start."""
    builder = StreamsBuilder()
    (
        builder.stream("logs", Consumed(key_serde="string", value_serde="string"))
        .map_values(HIT)
        .filter(pl.col("ip").is_not_null())
        .map(pl.struct(by.alias("key"), pl.lit("1").alias("value")))
        .group_by_key(Grouped(key_serde="string", value_serde="string"))
        .windowed_by(TimeWindows.of("1 minute", grace="15 minutes"))
        .count(Materialized(key_serde="string", value_serde="long"))
        .to_stream(AT_START)
        .to("out", Produced(key_serde="string", value_serde=Serdes.text_long()))
    )
    return builder.build()


def w2a() -> Topology:
    """By operating system: 8 keys."""
    return w2(OS)


def w2b() -> Topology:
    """By address: 100,000 keys."""
    return w2(pl.col("ip"))


def w3() -> Topology:
    """The running sum per key."""
    builder = StreamsBuilder()
    (
        builder.stream("sums", Consumed(key_serde="string", value_serde=Serdes.text_long()))
        .group_by_key()
        .reduce(lambda total, amount: total + amount, Materialized(key_serde="string", value_serde="long"))
        .to_stream()
        .to("out", Produced(key_serde="string", value_serde=Serdes.text_long()))
    )
    return builder.build()


def w4() -> Topology:
    """Orders joined with users, counted by city through a repartition."""
    builder = StreamsBuilder()
    users = builder.table("users", Consumed(key_serde="string", value_serde="string"))
    (
        builder.stream("orders", Consumed(key_serde="string", value_serde="string"))
        .join(
            users,
            pl.format(
                "{}|{}", pl.col("right").str.json_path_match("$.city"), pl.col("left").str.json_path_match("$.item")
            ),
            Joined(key_serde="string", value_serde="string"),
        )
        .group_by(pl.col("value").str.split("|").list.first(), Grouped(key_serde="string", value_serde="string"))
        .count(Materialized(key_serde="string", value_serde="long"))
        .to_stream()
        .to("out", Produced(key_serde="string", value_serde=Serdes.text_long()))
    )
    return builder.build()


WORKLOADS = {"w1": w1, "w2a": w2a, "w2b": w2b, "w3": w3, "w4": w4}
