from __future__ import annotations

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.reset import ApplicationReset
from penstock.log import Consumer, TopicPartition
from penstock.log.groups.reset_targets import Target

from .conftest import BATCHES, Bench, long


def counting(source, sink):
    builder = StreamsBuilder()
    builder.stream(source).group_by(lambda _, word: word).count(Materialized("words")).to_stream().to(sink)
    return builder.build()


@pytest.mark.parametrize("mode", ["threads", "batches"])
@pytest.mark.parametrize("name", ["bench", "kafka_bench"])
def test_an_application_continues_where_its_group_was_moved_or_starts_over(name, mode, request) -> None:
    bench: Bench = request.getfixturevalue(name)
    group, source = f"moving-{mode}", f"moved-{mode}"
    sink = f"{source}-counts"
    topology, settings = counting(source, sink), {"application.id": group, **({} if mode == "threads" else BATCHES)}
    bench.log.create_topic(source, 2, {"retention.ms": "-1"})
    bench.log.create_topic(sink, 1, {"retention.ms": "-1"})
    bench.write(source, [("k", "a", 0), ("k", "a", 1), ("k", "b", 2)], 0)
    bench.write(source, [("k", "a", 0)], 1)
    bench.run(topology, **settings)
    assert dict(bench.read(sink, long)) == {"a": 3, "b": 1}
    with Consumer(bench.log, group=group) as mover:  # as any client of Kafka commits
        mover.assign({TopicPartition(source, 0): 1})
        mover.commit()
    bench.run(topology, **settings)  # once more "a" and "b", on the state as it was
    assert dict(bench.read(sink, long)) == {"a": 4, "b": 2}
    written = bench.read(sink)
    bench.run(topology, **settings)
    committed = bench.log.committed_offsets(group)
    assert {place: at for place, at in committed.items() if place.topic == source} == bench.log.end_offsets([source])
    assert bench.read(sink) == written
    tool = ApplicationReset(bench.log, StreamsConfig(bench.config(**settings)))
    plan = tool.plan(Target.earliest())
    assert [move.after for move in plan.moves] == [0, 0]
    tool.run(plan)
    assert not [topic.name for topic in bench.log.topics() if topic.name in plan.topics]
    bench.run(topology, **settings)
    assert dict(bench.read(sink, long)) == {"a": 3, "b": 1}
