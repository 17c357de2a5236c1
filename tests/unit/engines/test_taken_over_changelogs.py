"""Changelogs that the application itself has not written: those of a Kafka Streams program, and those of nobody known."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application.planned_app import PlannedApp
from penstock.engines.application.planning import plan_for
from penstock.engines.threads.hosting.internal_topics import create_internal_topics
from penstock.errors import CheckpointMismatchError
from penstock.log.base import OffsetAndMetadata, TopicLog, TopicPartition
from penstock.log.open import open_log
from penstock.log.streams_groups.offset_metadata import OffsetMetadata

CHANGELOG = "app-counts-changelog"
READ = TopicPartition("in", 0)


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


def app(log: TopicLog) -> PlannedApp:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts"))
    topology = builder.build()
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": log.url})
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
