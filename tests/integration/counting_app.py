"""A word count that runs until all is counted.

``counting_app.py LOG CHECKPOINT STATE_DIR [spark.master [processing.mode]]``
"""

from __future__ import annotations

import sys

from penstock import KafkaStreams, Materialized, StreamsBuilder


def main(log: str, checkpoint: str, state: str, *more: str) -> None:
    builder = StreamsBuilder()
    builder.stream("words").group_by(lambda _, word: word).count(Materialized("counts")).to_stream().to("out")
    settings = {
        "application.id": "counting",
        "bootstrap.servers": log,
        "state.dir": state,
        "penstock.checkpoint.location": checkpoint,
        "default.key.serde": "string",
        "default.value.serde": "string",
    }
    settings |= dict(zip(("spark.master", "processing.mode"), more, strict=False))
    app = KafkaStreams(builder.build(), settings)
    app.run(until="latest")


if __name__ == "__main__":
    main(*sys.argv[1:])
