"""Applications over the oldest version of the broker that Penstock is tested with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers import running_broker
from penstock import Materialized, Produced, StreamsBuilder
from penstock.base.jars import KAFKA_VERSIONS
from penstock.log.streams_groups.description import GroupTask
from penstock.log.streams_groups.group_refusals import refusal
from penstock.log.streams_groups.member import MemberState
from penstock.tools.broker.process import Broker
from streams_stage import Stage, broker_stage, counting

from .conftest import Place, long


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("older"), version=KAFKA_VERSIONS[-1]) as running:
        yield running


@pytest.fixture
def stage(older: Broker) -> Iterator[Stage]:
    yield from broker_stage(older)


def test_members_share_the_tasks(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 2))
    first = stage.member(topology)
    stage.until(stage.all_tasks(4))
    copies = {GroupTask("1", 0): 1}
    first.report_offsets(copies, copies, stage.now_ms())  # which this broker would refuse to hear
    second = stage.member(topology)
    stage.until(lambda: second.owned.active and stage.all_tasks(4)())
    assert (len(first.owned.active), len(second.owned.active)) == (2, 2)
    assert all(not each.task_offsets for each in stage.described().members)


def test_static_members_are_refused_with_the_version_that_knows_them(stage: Stage) -> None:
    member = stage.member(counting(stage.app, stage.topic("in", 1)), instance="one")
    stage.until(lambda: member.state is MemberState.FAILED)
    assert member.failure is not None
    assert "from Kafka 4.4 on" in refusal(member.failure, member.facts, stage.coordinator).hint


@pytest.fixture
def place(tmp_path: Path, spark: Any, older: Broker) -> Iterator[Place]:
    made = Place(tmp_path, spark, older.settings.bootstrap_servers)
    yield made
    made.log.close()


def test_an_application_counts_exactly_once(place: Place) -> None:
    words, counts = place.topic("words"), place.topic("counts")
    place.write(words, [("1", "a b", 1), ("2", "b", 2)])
    builder = StreamsBuilder()
    split = builder.stream(words).flat_map_values(str.split)
    counted = split.group_by(lambda _, word: word).count(Materialized(name="counted"))
    counted.to_stream().to(counts, Produced(value_serde="long"))
    topology = builder.build()
    place.run(topology)
    place.write(words, [("3", "b c", 3)])
    place.run(topology)
    assert dict(place.read(counts, long)) == {"a": 1, "b": 3, "c": 1}
