"""Lines become words: the LineSplit step of Kafka's tutorial."""

from __future__ import annotations

import re

from penstock import StreamsBuilder

config = {"application.id": "streams-linesplit", "default.key.serde": "string", "default.value.serde": "string"}

builder = StreamsBuilder()
builder.stream("streams-plaintext-input").flat_map_values(lambda line: re.split(r"\W+", line)).to(
    "streams-linesplit-output"
)
topology = builder.build()

RECORDS = [("streams-plaintext-input", None, "all streams lead to kafka")]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
