"""Topics that appear, grow or lose records while an application runs."""

from __future__ import annotations

import re

import pytest

from eventually import eventually
from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.engines.kafka_streams import State
from penstock.errors import CheckpointMismatchError, OffsetOutOfRangeError

from .conftest import BATCHES, Bench

PATIENCE_S = 240


@pytest.fixture(params=["bench", "kafka_bench"])
def either(request: pytest.FixtureRequest) -> Bench:
    """Over the embedded log, and over Kafka."""
    found: Bench = request.getfixturevalue(request.param)
    return found


def test_topics_of_a_pattern_and_partitions_that_appear_later(either: Bench) -> None:
    bench = either
    bench.log.create_topic("orders-a")
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*")).to("out")
    bench.write("orders-a", [("1", "a", 0)])
    states: list[State] = []
    app = bench.app(builder.build(), **{"application.id": "patterns", "metadata.max.age.ms": 200})
    app.set_state_listener(lambda new, _: states.append(new))
    with app:
        eventually(lambda: len(bench.read("out")) == 1 and app.state is State.RUNNING, PATIENCE_S)
        bench.log.create_topic("orders-b")
        bench.write("orders-b", [("2", "b", 0)])
        eventually(lambda: len(bench.read("out")) == 2 and app.state is State.RUNNING, PATIENCE_S)
        bench.log.create_partitions("orders-a", 2)
        bench.write("orders-a", [("3", "c", 0)], 1)
        eventually(lambda: len(bench.read("out")) == 3, PATIENCE_S)
    assert bench.read("out") == [("1", "a"), ("2", "b"), ("3", "c")]
    assert states[:5] == [State.REBALANCING, State.RUNNING, State.REBALANCING, State.RUNNING, State.REBALANCING]
    assert app.state is State.NOT_RUNNING


def test_partitions_that_are_added_to_a_stateful_topic_end_the_application(bench: Bench) -> None:
    bench.log.create_topic("words")
    bench.log.create_topic("counts")
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized("counts-store")).to_stream().to("counts")
    bench.write("words", [("1", "a", 0)])
    app: KafkaStreams = bench.app(builder.build(), **{"metadata.max.age.ms": 200})
    with app:
        eventually(lambda: len(bench.read("counts", len)) == 1, PATIENCE_S)
        bench.log.create_partitions("words", 2)
        with pytest.raises(CheckpointMismatchError, match="input topic 'words' had 1 partitions and now has 2"):
            app.wait(PATIENCE_S * 1000)
    assert app.state is State.ERROR


def test_retention_that_overtakes_is_an_error_or_a_figure(either: Bench) -> None:
    bench = either
    name = {"application.id": "overtaken"}
    bench.log.create_topic("in")
    builder = StreamsBuilder()
    builder.stream("in").to("overtaken")
    bench.write("in", [("1", "a", 0), ("2", "b", 0)])
    bench.run(builder.build(), **name)
    bench.write("in", [("3", "c", 0), ("4", "d", 0), ("5", "e", 0)])
    bench.log.delete_records("in", 0, 4)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 2 to 3 of in-0"):
        bench.run(builder.build(), **name)
    seen = []
    app = bench.app(builder.build(), **name, **{"penstock.data.loss": "continue"})
    app.add_progress_listener(seen.append)
    app.run(until="latest")
    assert bench.read("overtaken") == [("1", "a"), ("2", "b"), ("5", "e")]
    assert [dict(p.lost) for p in seen if p.lost] == [{"in-0": 2}]


def test_a_topic_that_was_made_again_is_found(either: Bench) -> None:
    bench = either
    name = {"application.id": "remade", **BATCHES}  # threads: test_continuous_faults
    bench.log.create_topic("remade-in")
    builder = StreamsBuilder()
    builder.stream("remade-in").to("remade-out")
    bench.write("remade-in", [("1", "a", 0), ("2", "b", 0)])
    bench.run(builder.build(), **name)
    bench.log.delete_topic("remade-in")
    bench.log.create_topic("remade-in")
    bench.write("remade-in", [("3", "c", 0), ("4", "d", 0), ("5", "e", 0)])
    with pytest.raises(OffsetOutOfRangeError, match="remade-in: deleted and made again"):
        bench.run(builder.build(), **name)
    with bench.app(builder.build(), **name, **{"penstock.data.loss": "continue"}):
        eventually(lambda: len(bench.read("remade-out")) == 5, PATIENCE_S)
        if bench.url.startswith("sqlite"):
            return  # where nobody waits for a topic that is missing for a moment
        bench.log.delete_topic("remade-in")
        bench.log.create_topic("remade-in")
        bench.write("remade-in", [(str(i), "f", 0) for i in range(6, 12)])
        eventually(lambda: len(bench.read("remade-out")) == 11, PATIENCE_S)
    assert [key for key, _ in bench.read("remade-out")] == [str(i) for i in range(1, 12)]
