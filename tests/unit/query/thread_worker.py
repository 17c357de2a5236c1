"""A process that runs a stream thread: a word count over an embedded log, until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from penstock import Materialized, StreamsBuilder
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.stream_thread import ThreadLog
from penstock.log.open import open_log
from penstock.topology.topology import Topology

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
STORE = "count"


def direct(**config: Any) -> Topology:
    """Counts of the records by their keys, without a repartition topic; records without a value change nothing."""
    builder = StreamsBuilder()
    builder.stream("lines").filter(lambda _, line: line != "-").group_by_key().count(Materialized(STORE))
    return builder.build(SERDES | config)


def repartitioned(**config: Any) -> Topology:
    """Counts of words, behind a repartition topic."""
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
    words.count(Materialized(STORE))
    return builder.build(SERDES | config)


def app_in(root: Path, log: ThreadLog, kind: str, partitions: int = 2) -> ThreadApp:
    from threads import thread_app

    if "lines" not in {topic.name for topic in log.topics()}:
        log.create_topic("lines", partitions)
    config = SERDES | {"commit.interval.ms": 5}
    return thread_app(repartitioned() if kind == "repartitioned" else direct(), config, log, str(root / "replicas"))


def main(root: Path, kind: str) -> None:
    from threads import new_thread

    with open_log(f"sqlite:///{root / 'log.db'}") as opened:
        log = cast("ThreadLog", opened)
        thread = new_thread(app_in(root, log, kind), log)
        thread.start()
        print("started", flush=True)
        while True:
            thread.step(0.01)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    main(Path(sys.argv[1]), sys.argv[2])
