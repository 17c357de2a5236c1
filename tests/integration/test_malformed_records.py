"""Malformed records of every serde between good ones, on Spark: none of the good ones is lost."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import Consumed, Produced, Serdes, StreamsBuilder

from .conftest import Bench

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
from serde_fuzz import records, serdes, topic_of


def test_no_good_record_is_lost_among_malformed_ones(bench: Bench) -> None:
    builder = StreamsBuilder()
    good: set[bytes] = set()
    number = 0
    for name, (serde, values) in serdes(None).items():
        bench.log.create_topic(topic_of(name), 1)
        stream: Any = builder.stream(topic_of(name), Consumed(key_serde="bytes", value_serde=serde))
        stream.map_values(repr).to("out", Produced(key_serde="bytes", value_serde=Serdes.auto()))
        rows = list(records(name, serde, values, 30, seed=5))
        keys = [struct.pack(">q", number + row) for row in range(len(rows))]
        number += len(rows)
        good |= {key for key, (is_good, _) in zip(keys, rows, strict=True) if is_good}
        columns = {
            "key": keys,
            "value": pa.array([data for _, data in rows], pa.large_binary()),
            "timestamp": [0] * len(rows),
        }
        bench.log.append(topic_of(name), 0, pa.RecordBatch.from_pydict(columns))
    bench.run(
        builder.build(),
        **{"deserialization.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dead"},
    )
    out, dead = (keys_in(bench, topic) for topic in ("out", "dead"))
    assert good <= set(out)
    assert sorted(out + dead) == [struct.pack(">q", each) for each in range(number)]


def keys_in(bench: Bench, topic: str) -> list[bytes]:
    """Of all partitions."""
    found = [bench.log.read(topic, each, 0, 1_000_000).records for each in range(bench.log.partitions(topic))]
    return [key for batch in found for key in batch.column("key").to_pylist()]
