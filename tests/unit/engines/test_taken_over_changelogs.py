"""Changelogs that the application itself has not written: those of a Kafka Streams program, and those of nobody known."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock import Grouped, Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application.internal_topic_creation import create_internal_topics
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.errors import CheckpointMismatchError, TopologyError
from penstock.log.base import OffsetAndMetadata, TopicLog, TopicPartition
from penstock.log.open import open_log
from penstock.log.streams_groups.offset_metadata import OffsetMetadata

CHANGELOG = "app-counts-changelog"
READ = TopicPartition("in", 0)
TEXTS = Grouped(key_serde="string", value_serde="string")


@pytest.fixture
def log() -> Iterator[TopicLog]:
    """A log with a record in the changelog."""
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        opened.create_topic("in", 1)
        opened.create_topic(CHANGELOG, 1, {"cleanup.policy": "compact"})
        columns = {
            "timestamp": pa.array([0], pa.int64()),
            "key": pa.array([b"a"], pa.large_binary()),
            "value": pa.array([bytes(8)], pa.large_binary()),
        }
        opened.append(CHANGELOG, 0, pa.RecordBatch.from_pydict(columns))
        yield opened


def app(log: TopicLog, grouped: Grouped | None = None) -> PlannedApp:
    """A count of words; a value's type is not known after the split."""
    builder = StreamsBuilder()
    words = builder.stream("in").flat_map_values(lambda line: line.split())
    words.group_by(lambda _, word: word, grouped or TEXTS).count(Materialized("counts"))
    topology = builder.build()
    config = StreamsConfig({
        "application.id": "app", "bootstrap.servers": log.url, "default.key.serde": "string",
        "default.value.serde": "string",
    })  # fmt: skip
    return PlannedApp(topology, config, plan_for(topology, config, log), log)


def test_changelogs_of_a_kafka_streams_program_are_taken_over(log: TopicLog) -> None:
    noted = OffsetAndMetadata(1, OffsetMetadata(1_000).encode())
    log.commit_with_metadata("app", {READ: noted})
    create_internal_topics(app(log), has_run=False)


@pytest.mark.parametrize("text", [None, "", "set by a tool"])
def test_without_its_offsets_nobody_knows_what_changelogs_have(text: str | None, log: TopicLog) -> None:
    """Those of a reset have no such text: with the old state everything would be counted again."""
    if text is not None:
        log.commit_with_metadata("app", {READ: OffsetAndMetadata(0, text)})
    with pytest.raises(CheckpointMismatchError, match=CHANGELOG):
        create_internal_topics(app(log), has_run=False)


def test_topics_that_a_program_in_java_cannot_read_are_not_shared_with_it(log: TopicLog) -> None:
    """Each side would fail at the first record of the other."""
    untyped = Grouped("words")
    create_internal_topics(app(log, untyped), has_run=True)
    log.commit_with_metadata("app", {READ: OffsetAndMetadata(1, OffsetMetadata(1_000).encode())})
    with pytest.raises(TopologyError, match=r"repartition topic words-repartition would be written by Serdes\.auto"):
        create_internal_topics(app(log, untyped), has_run=False)
    create_internal_topics(app(log), has_run=False)
