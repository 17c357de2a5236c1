"""Counts words in Penstock, as WordCount.java does in Kafka Streams: counting.py BOOTSTRAP_SERVERS STATE_DIR."""

from __future__ import annotations

import sys

from penstock import Grouped, KafkaStreams, Materialized, Produced, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("lines")
    .flat_map_values(lambda line: line.split(" "))
    .group_by(lambda _, word: word, Grouped(key_serde="string", value_serde="string"))
    .count(Materialized("counts"))
    .to_stream()
    .to("counts", Produced(key_serde="string", value_serde="long"))
)
topology = builder.build()

if __name__ == "__main__":
    settings = {
        "application.id": "word-count",
        "bootstrap.servers": sys.argv[1],
        "state.dir": sys.argv[2],
        "group.protocol": "streams",
        "processing.guarantee": "exactly_once_v2",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "spark.master": "local[2]",
    }
    KafkaStreams(topology, settings).run()
