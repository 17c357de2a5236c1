from __future__ import annotations

import pytest
from task_support import STRING, batch, task, topology

from penstock.log.partitioner import partition_for
from penstock.serde.serdes import Serdes
from penstock.serde.windowed import Window, Windowed
from penstock.topology.nodes import SinkNode, SourceNode

PARTITIONS = 7
KEYS = ["a", "b", "ü", *(f"k{number}" for number in range(20))]


@pytest.mark.parametrize("count", [3, len(KEYS)])
@pytest.mark.parametrize("serde", [Serdes.time_windowed("string", 60_000), Serdes.session_windowed("string")])
def test_a_windowed_key_goes_where_its_plain_key_goes(serde, count):
    """Java's WindowedStreamPartitioner."""
    built = topology(SourceNode("source", ("in",), serde, STRING), SinkNode("sink", "out", serde, STRING, ("source",)))
    keys = KEYS[:count]
    rows = [(serde.serialize(Windowed(key, Window(60_000, 120_000))), b"v", 70_000) for key in keys]
    found = task(built, {"out": PARTITIONS}).process([batch(rows)], wall_clock_ms=0).records["out"]
    assert found.column("partition").to_pylist() == [partition_for(key.encode(), PARTITIONS) for key in keys]
    assert found.column("key").to_pylist() == [row[0] for row in rows]
