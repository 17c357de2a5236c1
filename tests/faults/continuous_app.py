"""The application of the fault tests of continuous mode: words are counted through a repartition, and shouted.

python continuous_app.py NAME BOOTSTRAP ROOT MASTER [UNTIL] [SETTINGS AS JSON]
"""

from __future__ import annotations

import json
import sys

from penstock import KafkaStreams, Materialized, StreamsBuilder


def topology(name):
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to(f"{name}-counts")
    words.map_values(lambda value: value.upper()).to(f"{name}-upper")
    return builder.build()


def settings(name, servers, root, master="local[2]"):
    return {
        "application.id": name,
        "bootstrap.servers": servers,
        "state.dir": f"{root}/state",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "processing.mode": "continuous",
        "commit.interval.ms": 20,
        "statestore.cache.max.bytes": 0,
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
    }


if __name__ == "__main__":
    more = json.loads(sys.argv[6]) if len(sys.argv) > 6 else {}
    until = sys.argv[5] if len(sys.argv) > 5 else "stopped"
    KafkaStreams(topology(sys.argv[1]), {**settings(*sys.argv[1:5]), **more}).run(until=until)
