"""An application whose driver is killed while it is queried: words are counted through a repartition, 40 at a time."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock import KafkaStreams, Materialized, StreamsBuilder


def topology():
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to("out")
    return builder.build()


def settings(root: str | Path) -> dict[str, object]:
    return {
        "application.id": "queried",
        "bootstrap.servers": f"sqlite:///{root}/log.db",
        "state.dir": f"{root}/state",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "processing.mode": "micro_batch",
        "commit.interval.ms": 0,
        "penstock.max.records.per.batch": 40,
        "application.server": "localhost:7070",
        "spark.master": "local[2]",
    }


if __name__ == "__main__":
    KafkaStreams(topology(), settings(sys.argv[1])).run()
