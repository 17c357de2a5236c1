"""The application of the fault tests over Kafka: words are counted through a repartition, in small batches."""

from __future__ import annotations

import sys
from pathlib import Path

import fault_app
from penstock import KafkaStreams, Materialized, StreamsBuilder


def topology(name):
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to(f"{name}-counts")
    words.map_values(lambda value: value.upper()).to(f"{name}-upper")
    return builder.build()


def settings(name: str, servers: str, root: str | Path, master: str = "local[2]") -> dict[str, object]:
    return {**fault_app.settings(root, master), "application.id": name, "bootstrap.servers": servers}


if __name__ == "__main__":
    KafkaStreams(topology(sys.argv[1]), settings(*sys.argv[1:])).run(until="latest")
