"""An application whose log, checkpoint and state are kept in ``data/old-checkpoint.tar.xz``.

``python tests/integration/old_application.py FOLDER`` made them, with a version whose modules lay elsewhere;
``test_old_checkpoints.py`` goes on with them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import Grouped, KafkaStreams, Materialized, StreamsBuilder, TimeWindows
from penstock.log.open import open_log
from penstock.topology.topology import Topology

START = 1_790_000_000_000


def topology() -> Topology:
    """Counts behind a repartition, in windows and not; and a table joined with a table."""
    builder = StreamsBuilder()
    words = builder.stream("words").group_by(lambda _, word: word, Grouped("by-word"))
    words.count(Materialized("counts")).to_stream().to("counts-out")
    words.windowed_by(TimeWindows.of("1 minute")).count(Materialized("windows"))
    names = builder.table("names", materialized=Materialized("names"))
    cities = builder.table("cities", materialized=Materialized("cities"))
    names.join(cities, lambda name, city: f"{name} of {city}", Materialized("homes")).to_stream().to("homes-out")
    return builder.build()


def settings(root: Path) -> dict[str, Any]:
    return {
        "application.id": "old",
        "bootstrap.servers": f"sqlite:///{root / 'log.db'}",
        "state.dir": str(root / "state"),
        "penstock.checkpoint.location": str(root / "checkpoint"),
        "default.key.serde": "string",
        "default.value.serde": "string",
        "penstock.untyped.stores": "auto",  # as stores without a type were written then
    }


def write(root: Path, topic: str, rows: list[tuple[str, str]]) -> None:
    with open_log(settings(root)["bootstrap.servers"]) as log:
        columns = {
            "timestamp": pa.array([START] * len(rows), pa.int64()),
            "key": pa.array([key.encode() for key, _ in rows], pa.large_binary()),
            "value": pa.array([value.encode() for _, value in rows], pa.large_binary()),
        }
        log.append(topic, 0, pa.RecordBatch.from_pydict(columns))


def main(folder: str) -> None:
    root = Path(folder)
    with open_log(settings(root)["bootstrap.servers"]) as log:
        for topic in ("words", "names", "cities", "counts-out", "homes-out"):
            log.create_topic(topic, 1, {"retention.ms": "-1"})
    for _ in range(2):
        write(root, "words", [("k", "a"), ("k", "b"), ("k", "a")])
        write(root, "names", [("1", "Ann"), ("2", "Bob")])
        write(root, "cities", [("1", "Ghent")])
        KafkaStreams(topology(), settings(root)).run(until="latest")


if __name__ == "__main__":
    main(*sys.argv[1:])
