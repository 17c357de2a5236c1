"""The application that the fault tests kill: words are counted through a repartition, in small batches."""

from __future__ import annotations

import sys

from penstock import KafkaStreams, Materialized, StreamsBuilder


def topology():
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to("counts")
    words.map_values(lambda value: value.upper()).to("upper")
    return builder.build()


if __name__ == "__main__":
    root, master = sys.argv[1:3]
    KafkaStreams(
        topology(),
        {
            "application.id": "faulty",
            "bootstrap.servers": f"sqlite:///{root}/log.db",
            "state.dir": f"{root}/state",
            "default.key.serde": "string",
            "default.value.serde": "string",
            "commit.interval.ms": 0,
            "statestore.cache.max.bytes": 0,
            "penstock.max.records.per.batch": 40,
            "spark.master": master,
        },
    ).run(until="latest")
