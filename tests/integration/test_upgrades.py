"""From one version of a topology to the next, and back."""

from __future__ import annotations

import pytest

from penstock import Grouped, KafkaStreams, Materialized, StreamsBuilder
from penstock.errors import CheckpointMismatchError
from penstock.topology.topology import Topology

from .conftest import Bench, long


def counting(*, more: bool = False) -> Topology:
    """Words by their value; ``more`` counts names, in front in the code."""
    builder = StreamsBuilder()
    if more:
        names = builder.stream("names").group_by(lambda _, value: value, Grouped("by-name"))
        names.count(Materialized("name-counts")).to_stream().to("name-out")
    words = builder.stream("words").group_by(lambda _, value: value, Grouped("by-word"))
    words.count(Materialized("word-counts")).to_stream().to("counts")
    return builder.build()


def test_a_rollback_and_the_upgrade_again_go_on_with_the_state(bench: Bench) -> None:
    for topic in ("words", "names"):
        bench.log.create_topic(topic, 1)
    bench.write("words", [("k", "a", 0)])
    bench.write("names", [("k", "n", 0)])
    bench.run(counting(more=True))

    with pytest.raises(CheckpointMismatchError, match="store 'name-counts' is gone"):
        bench.app(counting()).start()
    bench.log.create_partitions("words", 2)
    bench.write("words", [("k", "a", 0)], 1)
    bench.write("names", [("k", "n", 0)])
    bench.run(counting(), **{"penstock.state.drop": "name-counts"})
    assert bench.read("counts", long) == [("a", 1), ("a", 2)]

    bench.write("words", [("k", "a", 0)])
    app = bench.run(counting(more=True))
    assert bench.read("counts", long) == [("a", 1), ("a", 2), ("a", 3)]
    assert bench.read("name-out", long) == [("n", 1), ("n", 2)]
    assert {store: {task} for task, store in stores_by_task(app)} == {
        store: {f"{sub['id']}_0"}
        for stage in app.explain_json()["stages"]
        for sub in stage["subtopologies"]
        for store in sub["stores"]
    }


def stores_by_task(app: KafkaStreams) -> set[tuple[str, str]]:
    """Task and store of each store's metrics."""
    tags = [dict(name.tags) for name in app.metrics if name.group == "stream-state-metrics"]
    return {(each["task-id"], each[kind]) for each in tags for kind in each if kind.endswith("state-id")}


def tables(*, joined: bool) -> Topology:
    """Counts of two topics: a sub-topology each, or one."""
    builder = StreamsBuilder()
    left = builder.stream("left").group_by_key().count(Materialized("left-counts"))
    right = builder.stream("right").group_by_key().count(Materialized("right-counts"))
    left.to_stream().to("left-out")
    right.to_stream().to("right-out")
    if joined:
        left.join(right, lambda one, other: f"{one} {other}").to_stream().to("both")
    return builder.build()


def test_stores_that_come_together_and_part_go_on_with_their_state(bench: Bench) -> None:
    def count(*, joined: bool) -> None:
        for topic in ("left", "right"):
            for partition, key in enumerate(("a", "b")):
                bench.write(topic, [(key, "v", 0)], partition)
        bench.run(tables(joined=joined))

    for topic in ("left", "right", "left-out", "right-out", "both"):
        bench.log.create_topic(topic, 2)
    count(joined=False)
    count(joined=True)
    assert dict(bench.read("both")) == {"a": "2 2", "b": "2 2"}
    count(joined=False)
    for topic in ("left-out", "right-out"):
        assert sorted(bench.read(topic, long)) == [(key, n) for key in "ab" for n in (1, 2, 3)]
