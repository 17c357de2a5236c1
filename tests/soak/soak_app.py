"""The application of the soak: joins, windows and a repartition, every update written; all its outputs are unique.

python soak_app.py BOOTSTRAP STATE_DIR MASTER
"""

from __future__ import annotations

import sys

from penstock import (
    Grouped,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from penstock.errors import AppFailedError

APPLICATION = "soak"
JOIN_MS = 2_000
WINDOW_MS = 60_000
NEVER_LATE = "365 days"
INPUTS = ("users", "orders", "payments")
OUTPUTS = ("paid", "per-user", "per-city")


def topology() -> Topology:
    """Nothing in it depends on which partition is read first: users are there before all orders, nothing is late."""
    builder = StreamsBuilder()
    users = builder.table("users")
    orders = builder.stream("orders")
    payments = builder.stream("payments")
    text = StreamJoined(key_serde="string", value_serde="string", other_value_serde="string")
    window = JoinWindows.of(JOIN_MS, grace=NEVER_LATE)
    orders.join(payments, lambda order, payment: f"{order}|{payment}", window, text).to("paid")
    orders.group_by_key().count(Materialized("per-user")).to_stream().map_values(str).to("per-user")
    cities = orders.join(users, lambda order, city: f"{city}|{order}", Joined(key_serde="string", value_serde="string"))
    (
        cities.group_by(lambda _, value: value.split("|")[0], Grouped("by-city"))
        .windowed_by(TimeWindows.of(WINDOW_MS, grace=NEVER_LATE))
        .count(Materialized("per-city"))
        .to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window.start}")
        .map_values(str)
        .to("per-city")
    )
    return builder.build()


def settings(bootstrap: str, state: str, master: str) -> dict[str, object]:
    return {
        "application.id": APPLICATION,
        "bootstrap.servers": bootstrap,
        "state.dir": state,
        "default.key.serde": "string",
        "default.value.serde": "string",
        "auto.offset.reset": "earliest",
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
        "penstock.snapshot.interval.batches": 20,
        "spark.master": master,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "2",
        "spark.speculation.minTaskRuntime": "1s",
    }


if __name__ == "__main__":
    try:
        KafkaStreams(topology(), settings(*sys.argv[1:4])).run()
    except AppFailedError as failed:
        print(failed.facts.get("details"), file=sys.stderr)
        raise
