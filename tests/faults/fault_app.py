"""The application that the fault tests harm: words are counted through a repartition, in small batches."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock import KafkaStreams, Materialized, StreamsBuilder

APPLICATION = "faulty"
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of executors, where there are any: they live for seconds


def topology():
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to("counts")
    words.map_values(lambda value: value.upper()).to("upper")
    return builder.build()


def settings(root: str | Path, master: str = "local[2]") -> dict[str, object]:
    return {
        "application.id": APPLICATION,
        "bootstrap.servers": f"sqlite:///{root}/log.db",
        "state.dir": f"{root}/state",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "processing.mode": "micro_batch",
        "commit.interval.ms": 0,
        "statestore.cache.max.bytes": 0,
        "penstock.max.records.per.batch": 40,
        "spark.master": master,
        "spark.executor.extraJavaOptions": SHORT_RUN,
    }


if __name__ == "__main__":
    KafkaStreams(topology(), settings(*sys.argv[1:3])).run(until=(*sys.argv[3:], "latest")[0])
