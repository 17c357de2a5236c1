"""Bad input and outages in continuous mode, over the embedded log and over Kafka."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from brokers import running_broker
from eventually import eventually
from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.kafka_streams import State
from penstock.engines.reset import ApplicationReset
from penstock.errors import AppFailedError, CheckpointMismatchError, OffsetOutOfRangeError, ProductionError
from penstock.log import Consumer, TopicPartition
from penstock.log.groups.reset_targets import Target

from .conftest import Place, long
from .test_continuous import counted, counting, newest, words

PATIENCE_S = 300


def copying(source: str, sink: str) -> Any:
    builder = StreamsBuilder()
    builder.stream(source).to(sink)
    return builder.build()


def await_running(app: KafkaStreams) -> None:
    eventually(lambda: app.state is State.RUNNING, PATIENCE_S, facts=lambda: app.error)


def values(place: Place, topic: str) -> list[str]:
    return sorted(value for _, value in place.read(topic))


def deadly(value: str) -> str:
    if value == "deadly":
        os._exit(1)
    return value


def test_a_record_that_ends_its_process_again_and_again_ends_the_application(embedded: Place) -> None:
    """The other partition's commits go on all the time, and do not hide it."""
    source, sink = embedded.topic("in"), embedded.topic("out")
    builder = StreamsBuilder()
    builder.stream(source).map_values(deadly).to(sink)
    embedded.write(source, [("k", "good", 0)], 1)
    app = embedded.app(builder.build(), **{"commit.interval.ms": 10})
    with app:
        eventually(lambda: values(embedded, sink) == ["good"], PATIENCE_S, facts=lambda: app.error)
        embedded.write(source, [("k", "deadly", 1)], 1)
        for number in range(1_000):
            if app.state in (State.PENDING_ERROR, State.ERROR):
                break
            embedded.write(source, [("k", f"other{number}", 2)], 0)
            time.sleep(0.1)
        with pytest.raises(
            AppFailedError, match=f"task 0_1 has made no progress.* {source}-1 from offset 1 on"
        ) as seen:
            app.wait(PATIENCE_S * 1000)
    assert seen.value.facts["positions"] == {f"{source}-1": 1}
    assert "good" in values(embedded, sink)


def test_records_that_are_gone_before_they_were_read(place: Place) -> None:
    source, sink = place.topic("in", 1), place.topic("out")
    place.write(source, [("1", "a", 0), ("2", "b", 0)])
    place.run(copying(source, sink))
    place.write(source, [("3", "c", 0), ("4", "d", 0), ("5", "e", 0)])
    place.log.delete_records(source, 0, 4)
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets 2 to 3 of {source}-0"):
        place.run(copying(source, sink))
    place.run(copying(source, sink), **{"penstock.data.loss": "continue"})
    assert values(place, sink) == ["a", "b", "e"]


@pytest.mark.parametrize("gap_s", [0, 1, 3])
@pytest.mark.parametrize("loss", ["fail", "continue"])
def test_a_topic_that_is_made_again_while_threads_read_it(place: Place, loss: str, gap_s: float) -> None:
    source, sink = place.topic("in", 1), place.topic("out")
    place.write(source, [("1", "a", 0), ("2", "b", 0)])
    with place.app(copying(source, sink), **{"penstock.data.loss": loss}) as app:
        eventually(lambda: len(place.read(sink)) == 2, PATIENCE_S, facts=lambda: app.error)
        place.log.delete_topic(source)
        time.sleep(gap_s)  # threads and driver look for it meanwhile
        place.log.create_topic(source, 1)
        place.write(source, [(str(n), f"n{n}", 0) for n in range(10)])
        if loss == "fail":
            with pytest.raises(OffsetOutOfRangeError, match=f"{source}: deleted and made again"):
                app.wait(PATIENCE_S * 1000)
        else:
            wanted = {"a", "b", *(f"n{n}" for n in range(10))}
            facts = lambda: (app.error, values(place, sink))  # noqa: E731
            eventually(lambda: app.error is not None or set(values(place, sink)) == wanted, PATIENCE_S, facts=facts)
            assert app.error is None


def test_a_broker_that_is_away_for_a_while_costs_no_epoch(
    tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with running_broker(tmp_path / "broker") as broker:
        place = Place(tmp_path, spark, broker.settings.bootstrap_servers)
        source, sink = place.topic("words"), place.topic("counts")
        with place.app(counting(source, sink), **{"statestore.cache.max.bytes": 0}) as app:
            await_running(app)
            place.write(source, words(40))
            eventually(lambda: newest(place, sink) == counted(words(40)), PATIENCE_S, facts=lambda: app.error)
            epoch = app.metadata()["epoch"]
            with caplog.at_level(logging.WARNING, "penstock"):
                broker.stop(kill=True)
                time.sleep(10)
                broker.start()
                place.write(source, words(40))
                eventually(
                    lambda: newest(place, sink) == counted(words(40), words(40)), PATIENCE_S, facts=lambda: app.error
                )
            assert app.metadata()["epoch"] == epoch
        assert sorted(place.read(sink, long)) == sorted((f"w{i}", n) for i in range(5) for n in range(1, 17))
        place.log.close()


def test_lost_control_connections_are_made_again(embedded: Place) -> None:
    source, sink = embedded.topic("words"), embedded.topic("counts")
    with embedded.app(counting(source, sink)) as app:
        await_running(app)
        run: Any = app._run
        server = run.engine._jobs._server
        for number in range(3):
            for connection in list(server._connections):
                connection.shutdown(socket.SHUT_RDWR)
            embedded.write(source, words(10))
            wanted = counted(*[words(10)] * (number + 1))
            eventually(lambda: newest(embedded, sink) == wanted, PATIENCE_S, facts=lambda: app.error)  # noqa: B023
        eventually(lambda: sum(each.member is not None for each in server._connections.values()) == 2, PATIENCE_S)
        assert app.metadata()["epoch"] == 1
    assert app.error is None


def test_another_topology_over_old_state_is_refused(embedded: Place) -> None:
    source, sink = embedded.topic("words"), embedded.topic("counts")
    embedded.write(source, words(10))
    embedded.run(counting(source, sink))
    builder = StreamsBuilder()
    grouped = builder.stream(source).group_by(lambda _, value: value)
    grouped.aggregate(lambda: "", lambda _, value, all_: all_ + value, Materialized("word-counts")).to_stream().to(sink)
    with pytest.raises(CheckpointMismatchError, match="word-counts"):
        embedded.run(builder.build())


@pytest.mark.parametrize("handler", ["fail", "continue"])
def test_records_that_the_log_refuses(place: Place, handler: str) -> None:
    """Without a key, for a compacted topic."""
    source, sink = place.topic("in", 1), place.prefix + "compacted"
    place.log.create_topic(sink, 1, {"cleanup.policy": "compact"})
    place.write(source, [("1", "a", 0), (None, "b", 0), ("3", "c", 0)])
    settings = {"production.exception.handler": handler}
    if handler == "fail":
        with pytest.raises(ProductionError, match=sink):
            place.run(copying(source, sink), **settings)
        assert place.read(sink) == []
    else:
        place.run(copying(source, sink), **settings)
        assert values(place, sink) == ["a", "c"]


@pytest.mark.parametrize("loss", ["fail", "continue"])
def test_commits_that_the_brokers_have_lost_do_not_count_records_twice(place: Place, loss: str) -> None:
    """Through a repartition topic: the task that reads the source has no state that could tell."""
    source, sink, group = place.topic("words"), place.topic("counts", 1), f"{place.prefix}app"
    place.write(source, [("k", "w", n) for n in range(5)], 0)
    place.run(counting(source, sink))
    at = TopicPartition(source, 0)
    before = place.log.group_offsets(group)[at]
    place.write(source, [("k", "w", n) for n in range(15)], 0)
    place.run(counting(source, sink))
    place.log.commit_offsets(group, {at: before.offset}, before.metadata)
    place.write(source, [("k", "w", 30)], 0)
    if loss == "fail":
        with pytest.raises(CheckpointMismatchError, match=f"{source}-0 is at 5, but the application is at 20"):
            place.run(counting(source, sink))
    place.run(counting(source, sink), **{"penstock.data.loss": "continue"})
    assert dict(place.read(sink, long)) == {"w": 21}
    place.run(counting(source, sink))
    assert dict(place.read(sink, long)) == {"w": 21}


def test_offsets_that_another_client_moves_back_are_where_a_start_continues(place: Place) -> None:
    source, sink = place.topic("words"), place.topic("counts", 1)
    place.write(source, [("k", "w", n) for n in range(20)], 0)
    place.run(counting(source, sink))
    with Consumer(place.url, group=f"{place.prefix}app") as mover:  # as any client of Kafka commits
        mover.assign({TopicPartition(source, 0): 5})
        mover.commit()
    place.write(source, [("k", "w", 30)], 0)
    place.run(counting(source, sink))
    assert dict(place.read(sink, long)) == {"w": 36}  # 15 records once more, on the state as it was
    place.run(counting(source, sink))
    assert dict(place.read(sink, long)) == {"w": 36}
    tool = ApplicationReset(place.log, StreamsConfig(place.config()))
    tool.run(tool.plan(Target.earliest()))
    place.run(counting(source, sink))  # from nothing, and nothing is refused
    assert place.read(sink, long)[-1] == ("w", 21)
