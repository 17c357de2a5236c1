"""An application in real-time mode whose driver is killed: records are counted by key."""

from __future__ import annotations

import sys

from penstock import KafkaStreams, Materialized, StreamsBuilder


def topology(topic: str):
    builder = StreamsBuilder()
    builder.stream(topic).group_by_key().count(Materialized("counts-store")).to_stream().to(f"{topic}-counts")
    return builder.build()


if __name__ == "__main__":
    servers, state_dir, name = sys.argv[1:]
    config = {
        "application.id": name,
        "bootstrap.servers": servers,
        "state.dir": state_dir,
        "default.key.serde": "string",
        "default.value.serde": "string",
        "processing.mode": "realtime",
        "penstock.realtime.batch.ms": 5_000,
        "statestore.cache.max.bytes": 0,
        "spark.master": "local[1]",
    }
    KafkaStreams(topology(name), config).run()
