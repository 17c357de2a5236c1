"""An application whose results a sink carries into a table of Delta Lake: ``paid_app.py LOG FOLDER [SETTING=VALUE ...]``."""

from __future__ import annotations

import json
import sys

from penstock import KafkaStreams, Produced, StreamsBuilder
from penstock.serde import Serdes


def main(log: str, folder: str, *more: str) -> None:
    builder = StreamsBuilder()
    paid = builder.stream("orders").map_values(json.loads).filter(lambda order: order["total"] > 0)
    connector = {
        "connector.class": "DeltaSink",
        "table.uri": f"{folder}/lake",
        "flush.size": 20,
        "flush.interval.ms": 50,
    }
    paid.sink_to(connector, topic="paid", produced=Produced(key_serde="string", value_serde=Serdes.json()))
    config = {
        "application.id": "paying",
        "bootstrap.servers": log,
        "state.dir": f"{folder}/state",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "num.stream.threads": 1,
        **dict(setting.split("=", 1) for setting in more),
    }
    KafkaStreams(builder.build(), config).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
