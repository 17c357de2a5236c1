"""An application that runs until it is stopped, as often as it is started.

``shared_app.py LOG APPLICATION STATE_DIR [SETTINGS AS JSON]``

It passes each record of ``<application>-words`` on to ``<application>-passed``, and counts the words in
``<application>-out``. Nothing tells its instances of each other.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.topology.topology import Topology


def build(application: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{application}-words")
    words.to(f"{application}-passed")
    counts = words.group_by(lambda _, value: value.partition(":")[0]).count(Materialized("counts"))
    counts.to_stream().to(f"{application}-out")
    return builder.build()


def main(log: str, application: str, state: str, more: str = "{}") -> None:
    settings: dict[str, Any] = {
        "application.id": application,
        "bootstrap.servers": log,
        "state.dir": state,
        "num.stream.threads": 2,
        "commit.interval.ms": 100,
        "default.key.serde": "string",
        "default.value.serde": "string",
        "spark.master": "local[2]",
        **json.loads(more),
    }
    KafkaStreams(build(application), settings).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
