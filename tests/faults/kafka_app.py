"""The application of the fault tests over Kafka: words are counted through a repartition, in small batches."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock import KafkaStreams, Materialized, StreamsBuilder


def topology(name):
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to(f"{name}-counts")
    words.map_values(lambda value: value.upper()).to(f"{name}-upper")
    return builder.build()


def settings(name: str, servers: str, root: str | Path, master: str = "local[2]") -> dict[str, object]:
    return {
        "application.id": name,
        "bootstrap.servers": servers,
        "state.dir": f"{root}/state",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "commit.interval.ms": 0,
        "statestore.cache.max.bytes": 0,
        "penstock.max.records.per.batch": 40,
        "spark.master": master,
    }


if __name__ == "__main__":
    KafkaStreams(topology(sys.argv[1]), settings(*sys.argv[1:])).run(until="latest")
