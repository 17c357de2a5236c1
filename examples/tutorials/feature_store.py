"""Keep features of each user up to date, and read them while the application runs.

Two streams go into one table by `cogroup`: how often and how much a user has bought, and the last page. A model reads
the row of a user when it needs it: `app.store("features").get("ann")` in the application's process, `penstock query`
or HTTP from outside. Reads see committed state only.
"""

from __future__ import annotations

from typing import Any

from penstock import Materialized, StreamsBuilder, TopologyTestDriver

config = {
    "application.id": "feature-store",
    "default.key.serde": "string",
    "default.value.serde": "json",
    "processing.exception.handler": "continue",
}
Features = dict[str, Any]


def bought(_: str, order: dict[str, Any], features: Features) -> Features:
    total = features["spent"] + order["amount"]
    return {**features, "orders": features["orders"] + 1, "spent": total}  # a new dict: never change the old one


def seen(_: str, click: dict[str, Any], features: Features) -> Features:
    if click["at"] < features["seen_at"]:
        return features  # late
    return {**features, "last_page": click["page"], "seen_at": click["at"]}


def nothing_known() -> Features:
    return {"orders": 0, "spent": 0.0, "last_page": None, "seen_at": -1}


builder = StreamsBuilder()
orders, clicks = builder.stream("orders").group_by_key(), builder.stream("clicks").group_by_key()
(
    orders.cogroup(bought)
    .cogroup(clicks, seen)
    .aggregate(nothing_known, Materialized("features", value_serde="json"))
    .to_stream()
    .to("features")  # for whoever copies them elsewhere
)
topology = builder.build()

RECORDS: list[tuple[str, str, Any]] = [
    ("clicks", "ann", {"page": "/", "at": 1}),
    ("clicks", "bob", {"page": "/", "at": 2}),
    ("orders", "ann", {"amount": 20.0}),
    ("clicks", "ann", {"page": "/lamps", "at": 7}),
    ("clicks", "ann", {"page": "/books", "at": 5}),  # late
    ("orders", "ann", {"amount": 5.0}),
    ("orders", "bob", {"sum": 3.0}),  # wrong: the field has another name
    ("orders", "cid", {"amount": 8.0}),
    ("clicks", "bob", {"page": "/help", "at": 9}),
    ("orders", "ann", {"amount": 1.5}),
]


def test_features_are_those_of_all_records() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for time, (topic, key, value) in enumerate(RECORDS):
            driver.input_topic(topic).pipe(value, key, time)
        features = driver.store("features")
        assert features.get("ann").value == {"orders": 3, "spent": 26.5, "last_page": "/lamps", "seen_at": 7}
        assert features.get("bob").value == {"orders": 0, "spent": 0.0, "last_page": "/help", "seen_at": 9}
        assert features.get("nobody") is None
        assert [user for user, _ in features.all()] == ["ann", "bob", "cid"]
        assert driver.dropped_records == 1


if __name__ == "__main__":
    test_features_are_those_of_all_records()
