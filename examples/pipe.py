"""Copy a topic: Kafka's PipeDemo, the smallest topology there is.

python examples/pipe.py                                    run it on Spark with the records below
penstock describe examples/pipe.py:topology                look at it
"""

from __future__ import annotations

from penstock import StreamsBuilder

config = {"application.id": "streams-pipe", "default.key.serde": "string", "default.value.serde": "string"}

builder = StreamsBuilder()
builder.stream("streams-plaintext-input").to("streams-pipe-output")
topology = builder.build()

RECORDS = [("streams-plaintext-input", None, "all streams lead to kafka"), ("streams-plaintext-input", "k", "hello")]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
