"""The topologies of the benchmark.

W1 parse and filter, W2 windowed counts, W3 sums, W4 join and repartitioned count: these take the names of their topics,
as compare.py runs them over topics of a broker. Then one for each kind of join and of window.
"""

from __future__ import annotations

import polars as pl

from penstock import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

LINE = r'^(?<ip>\S+) \S+ \S+ \[[^\]]+\] "\S+ (?<path>\S+) [^"]*" (?<status>\d{3}) (?:\d+|-) "[^"]*" "(?<agent>[^"]*)"$'
OS_NAMES = ["Windows", "iPhone", "iPad", "Android", "CrOS", "Ubuntu", "Macintosh", "Linux"]

HIT = pl.col("value").str.extract_groups(LINE)
OS = pl.coalesce(
    *(pl.when(pl.col("agent").str.contains(name, literal=True)).then(pl.lit(name)) for name in OS_NAMES),
    pl.lit("other"),
)
AT_START = pl.format("{}@{}", pl.col("key").struct.field("key"), pl.col("key").struct.field("start"))


def w1(logs: str = "logs", out: str = "out") -> Topology:
    """Parse access-log lines, keep errors, write JSON."""
    builder = StreamsBuilder()
    (
        builder.stream(logs, Consumed(key_serde="string", value_serde="string"))
        .map_values(HIT)
        .filter(pl.col("status").cast(pl.Int32) >= 400)
        .map_values(pl.struct("ip", "path", pl.col("status").cast(pl.Int32)).struct.json_encode())
        .to(out, Produced(key_serde="string", value_serde="string"))
    )
    return builder.build()


def w2(by: pl.Expr, logs: str, out: str) -> Topology:
    """Count hits in one-minute windows, written as key@start."""
    builder = StreamsBuilder()
    (
        builder.stream(logs, Consumed(key_serde="string", value_serde="string"))
        .map_values(HIT)
        .filter(pl.col("ip").is_not_null())
        .map(pl.struct(by.alias("key"), pl.lit("1").alias("value")))
        .group_by_key(Grouped(key_serde="string", value_serde="string"))
        .windowed_by(TimeWindows.of("1 minute", grace="15 minutes"))
        .count(Materialized(key_serde="string", value_serde="long"))
        .to_stream(AT_START)
        .to(out, Produced(key_serde="string", value_serde=Serdes.text_long()))
    )
    return builder.build()


def w2a(logs: str = "logs", out: str = "out") -> Topology:
    """By operating system: 8 keys."""
    return w2(OS, logs, out)


def w2b(logs: str = "logs", out: str = "out") -> Topology:
    """By address: 100,000 keys."""
    return w2(pl.col("ip"), logs, out)


def w3(sums: str = "sums", out: str = "out") -> Topology:
    """The running sum per key."""
    builder = StreamsBuilder()
    (
        builder.stream(sums, Consumed(key_serde="string", value_serde=Serdes.text_long()))
        .group_by_key()
        .reduce(lambda total, amount: total + amount, Materialized(key_serde="string", value_serde="long"))
        .to_stream()
        .to(out, Produced(key_serde="string", value_serde=Serdes.text_long()))
    )
    return builder.build()


def w4(orders: str = "orders", users: str = "users", out: str = "out") -> Topology:
    """Orders joined with users, counted by city through a repartition."""
    builder = StreamsBuilder()
    profiles = builder.table(users, Consumed(key_serde="string", value_serde="string"))
    (
        builder.stream(orders, Consumed(key_serde="string", value_serde="string"))
        .join(
            profiles,
            pl.format(
                "{}|{}", pl.col("right").str.json_path_match("$.city"), pl.col("left").str.json_path_match("$.item")
            ),
            Joined(key_serde="string", value_serde="string"),
        )
        .group_by(pl.col("value").str.split("|").list.first(), Grouped(key_serde="string", value_serde="string"))
        .count(Materialized(key_serde="string", value_serde="long"))
        .to_stream()
        .to(out, Produced(key_serde="string", value_serde=Serdes.text_long()))
    )
    return builder.build()


TEXT = Consumed(key_serde="string", value_serde="string")
BOTH = pl.format("{}|{}", pl.col("left"), pl.col("right"))
FROM_TO = pl.format(
    "{}@{}-{}",
    pl.col("key").struct.field("key"),
    pl.col("key").struct.field("start"),
    pl.col("key").struct.field("end"),
)


def ss_join() -> Topology:
    """Two streams joined within 30 seconds; about one match a record."""
    builder = StreamsBuilder()
    left, right = builder.stream("shown", TEXT), builder.stream("clicked", TEXT)
    window = JoinWindows.of("30 seconds", grace="1 minute")
    left.join(
        right, BOTH, window, StreamJoined(key_serde="string", value_serde="string", other_value_serde="string")
    ).to("out", Produced(key_serde="string", value_serde="string"))
    return builder.build()


def counted(windows: object, key: pl.Expr) -> Topology:
    """Records counted by key and window."""
    builder = StreamsBuilder()
    (
        builder.stream("sums", TEXT)
        .group_by_key(Grouped(key_serde="string", value_serde="string"))
        .windowed_by(windows)
        .count(Materialized(key_serde="string", value_serde="long"))
        .to_stream(key)
        .to("out", Produced(key_serde="string", value_serde=Serdes.text_long()))
    )
    return builder.build()


def sessions() -> Topology:
    """Sessions that end after 30 seconds of silence."""
    return counted(SessionWindows.of("30 seconds", grace="1 minute"), FROM_TO)


def sliding() -> Topology:
    """Sliding windows of 30 seconds."""
    return counted(SlidingWindows.of("30 seconds", grace="1 minute"), AT_START)


def hopping() -> Topology:
    """Windows of one minute, five of them over each moment."""
    return counted(TimeWindows.of("1 minute", advance="12 seconds", grace="1 minute"), AT_START)


def tt_join() -> Topology:
    """Two tables of 100,000 keys."""
    builder = StreamsBuilder()
    left, right = builder.table("prices", TEXT), builder.table("stock", TEXT)
    left.join(right, BOTH).to_stream().to("out", Produced(key_serde="string", value_serde="string"))
    return builder.build()


def fk_join() -> Topology:
    """200,000 purchases of 50,000 buyers."""
    builder = StreamsBuilder()
    left, right = builder.table("purchases", TEXT), builder.table("buyers", TEXT)
    buyer = pl.col("value").str.split("|").list.first()
    joined = left.join(right, BOTH, foreign_key=buyer)
    joined.to_stream().to("out", Produced(key_serde="string", value_serde="string"))
    return builder.build()


WORKLOADS = {
    "w1": w1, "w2a": w2a, "w2b": w2b, "w3": w3, "w4": w4, "ss-join": ss_join, "sessions": sessions, "sliding": sliding,
    "hopping": hopping, "tt-join": tt_join, "fk-join": fk_join,
}  # fmt: skip
TOPICS = {
    "w1": ["logs"], "w2a": ["logs"], "w2b": ["logs"], "w3": ["sums"], "w4": ["orders", "users"],
    "ss-join": ["shown", "clicked"], "sessions": ["sums"], "sliding": ["sums"], "hopping": ["sums"],
    "tt-join": ["prices", "stock"], "fk-join": ["purchases", "buyers"],
}  # fmt: skip
