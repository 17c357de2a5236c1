from __future__ import annotations

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application_reset import ApplicationReset
from penstock.log import Consumer, TopicPartition
from penstock.log.groups.resets import Target

from .conftest import BATCHES, Bench, long


def counting():
    builder = StreamsBuilder()
    builder.stream("moved").group_by(lambda _, word: word).count(Materialized("words")).to_stream().to("moved-counts")
    return builder.build()


@pytest.mark.parametrize("name", ["bench", "kafka_bench"])
def test_an_application_continues_where_its_group_was_moved_or_starts_over(name, request) -> None:
    bench: Bench = request.getfixturevalue(name)
    settings = {"application.id": "moving", **BATCHES}
    bench.log.create_topic("moved", 2, {"retention.ms": "-1"})
    bench.log.create_topic("moved-counts", 1, {"retention.ms": "-1"})
    bench.write("moved", [("k", "a", 0), ("k", "a", 1), ("k", "b", 2)], 0)
    bench.write("moved", [("k", "a", 0)], 1)
    bench.run(counting(), **settings)
    assert dict(bench.read("moved-counts", long)) == {"a": 3, "b": 1}
    with Consumer(bench.log, group="moving") as mover:  # as any client of Kafka commits
        mover.assign({TopicPartition("moved", 0): 1})
        mover.commit()
    bench.run(counting(), **settings)  # once more "a" and "b", on the state as it was
    assert dict(bench.read("moved-counts", long)) == {"a": 4, "b": 2}
    bench.run(counting(), **settings)
    assert bench.log.committed_offsets("moving") == bench.log.end_offsets(["moved"])
    assert len(bench.read("moved-counts")) == 4
    tool = ApplicationReset(bench.log, StreamsConfig(bench.config(**settings)))
    plan = tool.plan(Target.earliest())
    assert [move.after for move in plan.moves] == [0, 0]
    tool.run(plan)
    assert not [topic.name for topic in bench.log.topics() if topic.name in plan.topics]
    bench.run(counting(), **settings)
    assert dict(bench.read("moved-counts", long)) == {"a": 3, "b": 1}
