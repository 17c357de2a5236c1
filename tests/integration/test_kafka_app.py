"""Applications over a real broker, from end to end."""

from __future__ import annotations

import itertools

import pytest

from penstock import Materialized, Produced, StreamsBuilder
from penstock.errors import FencedError, UnknownTopicError
from penstock.log.base import TopicPartition

from .conftest import START, long

NAMES = itertools.count()


@pytest.fixture
def name():
    return f"app-{next(NAMES)}"


def test_counts_join_and_offsets_of_the_group(kafka_bench, name):
    log = kafka_bench.log
    for topic in ("words", "names"):
        log.create_topic(f"{name}-{topic}", 2, {"retention.ms": "-1"})
    kafka_bench.write(f"{name}-names", [("1", "one", 1)], 0)
    kafka_bench.write(f"{name}-words", [("1", "a b", 2), ("1", "b", 3)], 0)
    kafka_bench.write(f"{name}-words", [("2", "b", 4)], 1)
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-words")
    words.join(builder.table(f"{name}-names"), lambda word, known: f"{known}:{word}").to(f"{name}-joined")
    counts = words.flat_map_values(str.split).group_by(lambda _, word: word).count(Materialized(name="counts"))
    counts.to_stream().to(f"{name}-counts", Produced(value_serde="long"))
    app = kafka_bench.run(builder.build(), **{"application.id": name})
    assert sorted(kafka_bench.read(f"{name}-joined")) == [("1", "one:a b"), ("1", "one:b")]
    assert dict(kafka_bench.read(f"{name}-counts", long)) == {"a": 1, "b": 3}
    committed = log.committed_offsets(name)
    ends = log.end_offsets([f"{name}-words", f"{name}-names", f"{name}-counts-repartition"])
    assert {place: at for place, at in committed.items() if at} == {place: end for place, end in ends.items() if end}
    assert log.lease(name).released
    metrics = app.metrics
    for group in ("consumer-metrics", "producer-metrics", "admin-client-metrics"):
        assert metrics.value("request-total", group=group) >= metrics.value("response-total", group=group) > 0
        assert metrics.value("outgoing-byte-total", group=group) > 50
    assert metrics.value("fetch-total") > 0
    fetched = metrics.find("records-consumed-total", group="consumer-fetch-manager-metrics", topic=f"{name}-words")
    assert [metric.metric_value() for metric in fetched] == [3]
    sent = metrics.find("record-send-total", group="producer-topic-metrics", topic=f"{name}-joined")
    assert [metric.metric_value() for metric in sent] == [2]
    assert metrics.value("txn-commit-time-ns-total") > 0
    assert metrics.value("heartbeat-total") >= 0


def test_a_record_that_is_refused_is_a_dead_letter(kafka_bench, name):
    log = kafka_bench.log
    log.create_topic(f"{name}-in", 1, {"retention.ms": "-1"})
    log.create_topic(f"{name}-out", 1, {"retention.ms": "-1", "max.message.bytes": "2000"})
    kafka_bench.write(f"{name}-in", [("a", "1", 1), ("b", "2" * 4000, 2), ("c", "3", 3)])
    builder = StreamsBuilder()
    builder.stream(f"{name}-in").to(f"{name}-out")
    more = {"production.exception.handler": "continue", "errors.dead.letter.queue.topic.name": f"{name}-letters"}
    kafka_bench.run(builder.build(), **{"application.id": name, **more})
    assert kafka_bench.read(f"{name}-out") == [("a", "1"), ("c", "3")]
    log.settled_ends([TopicPartition(f"{name}-letters", 0)])
    (letter,) = log.read(f"{name}-letters", 0, 0).records.to_pylist()
    assert (letter["key"], letter["value"], letter["timestamp"]) == (None, None, START + 2)  # as in Kafka Streams
    headers = {header["key"]: header["value"] for header in letter["headers"]}
    assert b"ProductionError" in headers["__streams.errors.exception"]


def test_at_least_once_and_what_is_missing(kafka_bench, name):
    builder = StreamsBuilder()
    builder.stream(f"{name}-in").to(f"{name}-out")
    more = {"application.id": name, "processing.guarantee": "at_least_once"}
    with pytest.raises(UnknownTopicError, match=f"{name}-in"):
        kafka_bench.run(builder.build(), **more)
    log = kafka_bench.log
    log.create_topic(f"{name}-in", 1, {"retention.ms": "-1"})
    kafka_bench.write(f"{name}-in", [("a", "1", 1)])
    held = log.acquire_lease(name, "another")
    with pytest.raises(FencedError, match="runs already: another"):
        kafka_bench.run(builder.build(), **more)
    log.release_lease(held)
    kafka_bench.run(builder.build(), **more)
    assert kafka_bench.read(f"{name}-out") == [("a", "1")]
    assert log.ledger(name) == {}
