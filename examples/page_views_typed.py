"""Page views by region, from JSON with a schema: Kafka's PageViewTypedDemo.

Where Java has a class for each kind of record, here a schema makes a record's fields columns. So every step is an
expression, and whole batches go through without a call of Python for each record. The windows are those of
page_views_untyped.py.
"""

from __future__ import annotations

import polars as pl

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows

config = {"application.id": "streams-pageview-typed", "statestore.cache.max.bytes": 0}
PageView = Serdes.json({"user": str, "page": str, "timestamp": int})
UserProfile = Serdes.json({"region": str, "timestamp": int})
PageViewByRegion = Serdes.json({"user": str, "page": str, "region": str})
WINDOW = TimeWindows.of("7 days", grace="24 hours", advance="1 day")


def its_time(record: object, partition_time_ms: int) -> int:  # noqa: ARG001 - the signature of extractors
    return int(record.value["timestamp"])  # type: ignore[attr-defined]


region = pl.col("right").struct.field("region").fill_null("UNKNOWN").alias("region")
view_by_region = pl.struct(pl.col("left").struct.field("user"), pl.col("left").struct.field("page"), region)

builder = StreamsBuilder()
views = builder.stream(
    "streams-pageview-input", Consumed(key_serde="string", value_serde=PageView, timestamp_extractor=its_time)
)
users = builder.table(
    "streams-userprofile-input", Consumed(key_serde="string", value_serde=UserProfile, timestamp_extractor=its_time)
)
counts = (
    views.left_join(users, view_by_region)
    .select_key(pl.col("region"))
    .group_by_key(Grouped(key_serde="string", value_serde=PageViewByRegion))
    .windowed_by(WINDOW)
    .count(Materialized("RollingSevenDaysOfPageViewsByRegion"))
    .to_stream()
    .map(lambda k, count: ({"windowStart": k.window.start, "region": k.key}, {"count": count, "region": k.key}))
)
counts.to("streams-pageviewstats-typed-output", Produced(key_serde="json", value_serde="json"))
topology = builder.build()

HOUR = 3_600_000
RECORDS = [
    ("streams-userprofile-input", "alice", {"region": "europe", "timestamp": 0}),
    ("streams-pageview-input", "alice", {"user": "alice", "page": "index", "timestamp": HOUR}),
    ("streams-pageview-input", "bob", {"user": "bob", "page": "index", "timestamp": HOUR}),
    ("streams-pageview-input", "alice", {"user": "alice", "page": "news", "timestamp": 30 * HOUR}),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
