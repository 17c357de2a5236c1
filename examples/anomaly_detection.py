"""Users who click too much: Confluent's AnomalyDetectionLambdaExample.

Whoever clicks three times within one minute of the clock stands out, window by window.
"""

from __future__ import annotations

from penstock import Materialized, Produced, StreamsBuilder, TimeWindows

config = {
    "application.id": "anomaly-detection-example",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "statestore.cache.max.bytes": 0,
}

builder = StreamsBuilder()
anomalous_users = (
    builder.stream("UserClicks")
    .map(lambda _, user: (user, user))
    .group_by_key()
    .windowed_by(TimeWindows.of("1 minute"))
    .count(Materialized("UserCountStore"))
    .filter(lambda count: count >= 3)
)
(
    anomalous_users.to_stream()
    .filter(lambda count: count is not None)
    .map(lambda user, count: (f"[{user.key}@{user.window.start}/{user.window.end}]", count))
    .to("AnomalousUsers", Produced(key_serde="string", value_serde="long"))
)
topology = builder.build()

RECORDS = [("UserClicks", None, user, at) for at, user in enumerate(["alice", "bob", "alice", "alice", "bob", "alice"])]
RECORDS += [("UserClicks", None, "bob", 60_000)]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
