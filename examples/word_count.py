"""Count words: Kafka's WordCountDemo.

topic streams-plaintext-input     lines
  -> words, each a key            through a repartition topic, so that equal words come together
  -> count                        a table, kept in the store counts-store
topic streams-wordcount-output    word -> how often, at each change
"""

from __future__ import annotations

from penstock import Materialized, Produced, StreamsBuilder

config = {"application.id": "streams-wordcount", "default.key.serde": "string", "default.value.serde": "string"}

builder = StreamsBuilder()
source = builder.stream("streams-plaintext-input")
counts = (
    source.flat_map_values(lambda line: line.lower().split(" "))
    .group_by(lambda _, word: word)
    .count(Materialized("counts-store"))
)
counts.to_stream().to("streams-wordcount-output", Produced(key_serde="string", value_serde="long"))
topology = builder.build()

RECORDS = [
    ("streams-plaintext-input", None, "all streams lead to kafka"),
    ("streams-plaintext-input", None, "hello kafka streams"),
    ("streams-plaintext-input", None, "join kafka summit"),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
