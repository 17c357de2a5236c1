"""Enrich a stream from a table: clicks with what is known of their user at that moment.

Only the stream sends results; a change of the table sends nothing. Both sides need the same key: `select_key` makes
it, and a repartition topic brings equal keys together. `left_join` keeps clicks of users that are not known (yet).
"""

from __future__ import annotations

from typing import Any

from penstock import Joined, StreamsBuilder, TopologyTestDriver

config = {"application.id": "join-stream-table", "default.key.serde": "string", "default.value.serde": "json"}


def with_user(click: dict[str, Any], user: dict[str, Any] | None) -> dict[str, Any]:
    return {"page": click["page"], "country": user["country"] if user else "unknown"}


builder = StreamsBuilder()
users = builder.table("users")
(
    builder.stream("clicks")  # by the number of the session
    .filter(lambda click: "user" in click)
    .select_key(lambda click: click["user"])
    .left_join(users, with_user, Joined("clicks-with-users"))
    .to("clicks-with-country")
)
topology = builder.build()

RECORDS: list[tuple[str, str, Any]] = [
    ("users", "ann", {"country": "IT"}),
    ("users", "bob", {"country": "NO"}),
    ("clicks", "s1", {"user": "ann", "page": "/"}),
    ("clicks", "s2", {"user": "cid", "page": "/"}),  # not known yet
    ("users", "ann", {"country": "FR"}),  # ann has moved
    ("clicks", "s1", {"user": "ann", "page": "/help"}),
    ("clicks", "s3", {"page": "/"}),  # wrong: without a user
    ("users", "bob", None),  # bob has left
    ("clicks", "s4", {"user": "bob", "page": "/"}),
    ("users", "cid", {"country": "DE"}),
    ("clicks", "s2", {"user": "cid", "page": "/buy"}),
]


def test_clicks_get_the_country_of_that_moment() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for time, (topic, key, value) in enumerate(RECORDS):
            driver.input_topic(topic).pipe(value, key, time)
        clicks = driver.output_topic("clicks-with-country").read_key_values_to_list()
        assert [(user, click["page"], click["country"]) for user, click in clicks] == [
            ("ann", "/", "IT"),
            ("cid", "/", "unknown"),
            ("ann", "/help", "FR"),
            ("bob", "/", "unknown"),
            ("cid", "/buy", "DE"),
        ]


if __name__ == "__main__":
    test_clicks_get_the_country_of_that_moment()
