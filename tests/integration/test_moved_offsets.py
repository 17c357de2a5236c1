from __future__ import annotations

from penstock import Materialized, StreamsBuilder
from penstock.log.base import TopicPartition

from .conftest import Bench, long


def test_an_application_continues_where_its_group_was_moved(bench: Bench) -> None:
    bench.log.create_topic("words", 2)
    bench.log.create_topic("counts")
    builder = StreamsBuilder()
    builder.stream("words").group_by(lambda _, word: word).count(Materialized("counts-store")).to_stream().to("counts")
    topology = builder.build()
    bench.write("words", [("k", "a", 0), ("k", "a", 1), ("k", "b", 2)], 0)
    bench.write("words", [("k", "a", 0)], 1)
    bench.run(topology)
    assert dict(bench.read("counts", long)) == {"a": 3, "b": 1}
    moved = TopicPartition("words", 0)
    bench.log.commit_offsets("app", {moved: 1})
    bench.run(topology)  # once more "a" and "b", on the state as it was
    assert dict(bench.read("counts", long)) == {"a": 4, "b": 2}
    bench.run(topology)
    assert bench.log.committed_offsets("app") == bench.log.end_offsets(["words"])
    assert len(bench.read("counts")) == 4
    bench.write("words", [("k", "c", 3), ("k", "d", 4)], 0)
    bench.log.commit_offsets("app", {moved: 4})  # forwards: "c" is skipped
    bench.run(topology)
    assert dict(bench.read("counts", long)) == {"a": 4, "b": 2, "d": 1}
