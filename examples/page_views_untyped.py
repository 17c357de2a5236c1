"""Page views by region, from JSON of any shape: Kafka's PageViewUntypedDemo.

    topic streams-pageview-input       user -> {"user", "page", "timestamp"}
      left join with the table of      user -> {"region", "timestamp"}  (topic streams-userprofile-input)
      -> region as key, count          in windows of seven days
    topic streams-pageviewstats-untyped-output    {"windowstart", "region"} -> {"count", "region"}

The original's windows start every second, so one view changes 604,800 counts; here they start every day.
"""

from __future__ import annotations

from typing import Any

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows, Windowed

config = {"application.id": "streams-pageview-untyped", "statestore.cache.max.bytes": 0}
JSON = Consumed(
    key_serde="string", value_serde="json", timestamp_extractor=lambda record, _: int(record.value["timestamp"])
)
WINDOW = TimeWindows.of("7 days", grace="24 hours", advance="1 day")


def with_region(view: dict[str, Any], profile: dict[str, Any] | None) -> dict[str, Any]:
    return {"user": view["user"], "page": view["page"], "region": profile["region"] if profile else "UNKNOWN"}


def as_json(region: Windowed[str], count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"windowstart": region.window.start, "region": region.key}, {"count": count, "region": region.key}


builder = StreamsBuilder()
views = builder.stream("streams-pageview-input", JSON)
regions = builder.table("streams-userprofile-input", JSON)
counts = (
    views.left_join(regions, with_region)
    .map(lambda _, view: (view["region"], view))
    .group_by_key(Grouped(key_serde="string", value_serde="json"))
    .windowed_by(WINDOW)
    .count(Materialized("RollingSevenDaysOfPageViewsByRegion"))
    .to_stream()
    .map(as_json)
)
counts.to("streams-pageviewstats-untyped-output", Produced(key_serde=Serdes.json(), value_serde=Serdes.json()))
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
