"""What users play in one sitting: Confluent's SessionWindowsExample.

Play events of a user less than half an hour apart are one session. An event between two sessions makes them one: the
old sessions are withdrawn (null), then the new one comes.
"""

from __future__ import annotations

from penstock import Materialized, Produced, SessionWindows, StreamsBuilder

config = {
    "application.id": "session-windows-example",
    "default.key.serde": "string",
    "default.value.serde": "json",
    "statestore.cache.max.bytes": 0,
}

builder = StreamsBuilder()
(
    builder.stream("play-events")
    .group_by_key()
    .windowed_by(SessionWindows.of("30 minutes", grace="30 minutes"))
    .count(Materialized("play-events-per-session"))
    .to_stream(lambda user, _: f"{user.key}@{user.window.start}->{user.window.end}")
    .to("play-events-per-session", Produced(key_serde="string", value_serde="long"))
)
topology = builder.build()

MINUTE = 60_000
RECORDS = [
    ("play-events", "jo", {"song_id": 1}, 0),
    ("play-events", "jo", {"song_id": 2}, 40 * MINUTE),
    ("play-events", "bill", {"song_id": 1}, 41 * MINUTE),
    ("play-events", "jo", {"song_id": 3}, 20 * MINUTE),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
